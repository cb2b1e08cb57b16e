# Boxes: the bounds of the box around a sample, and a stack of nodes to visit together with the bounds that hold there.
#
# All boxes are closed. The right side of a test `x <= k` starts at the next float64 after k.
#
# A feature that is missing in every sample of a box has NaN bounds. So has one that is missing in some of them; the
# interval of its values stands in a table beside the bounds, two numbers for each feature, which are NaN if no value is
# possible. Where no feature is of that kind, the table is NULL.

from libc.math cimport INFINITY, NAN, nextafter
from libc.stdint cimport int32_t

from common.node cimport Node, is_missing, missing_goes_left

cdef struct RowBox:
    # The box of one row, by feature: from max(low_center - radius_down, minimum) to min(high_center + radius_up,
    # maximum).
    const double* low_center
    const double* high_center
    const double* radius_down
    const double* radius_up
    const double* minimum
    const double* maximum

cdef struct BoxVisit:
    # A node to visit in a walk that narrows the bounds of a box on its way down.
    int32_t node        # -1: only restore the bounds
    int32_t feature     # whose bounds are set first, -1 for none, as_droppable(feature) if it may be missing
    double low
    double high
    double value        # whatever the walk keeps for the node


cdef inline int32_t as_droppable(int32_t feature) noexcept nogil:
    """The number of a feature that may be missing in a BoxVisit; its own inverse."""
    return -2 - feature


cdef inline double lower_bound(double center, double radius, double minimum, bint has_missing=True) noexcept nogil:
    """NaN for a missing value; without missing values the same with an instruction less."""
    cdef double bound = center - radius
    if has_missing:
        return minimum if minimum > bound else bound
    return bound if bound > minimum else minimum


cdef inline double upper_bound(double center, double radius, double maximum, bint has_missing=True) noexcept nogil:
    cdef double bound = center + radius
    if has_missing:
        return maximum if maximum < bound else bound
    return bound if bound < maximum else maximum


cdef inline double just_above(double threshold) noexcept nogil:
    """The smallest float64 that goes to the right of a threshold."""
    return nextafter(threshold, INFINITY)


cdef inline void set_bounds(const BoxVisit* visit, double* low, double* high, double* values=NULL) noexcept nogil:
    """Give the box the bounds that a visit asks for; `values` is the table of features that may be missing."""
    cdef int32_t feature = visit.feature
    if feature >= 0:
        low[feature] = visit.low
        high[feature] = visit.high
    elif feature < -1:
        feature = as_droppable(feature)
        low[feature] = high[feature] = NAN
        if values != NULL:
            values[2 * feature], values[2 * feature + 1] = visit.low, visit.high


cdef inline void push_node(BoxVisit* stack, Py_ssize_t top, int32_t node, double value=0.0) noexcept nogil:
    """Push a node to visit with the bounds as they are then."""
    stack[top].node = node
    stack[top].feature = -1
    stack[top].value = value


cdef inline void push_sides(BoxVisit* stack, Py_ssize_t top, int32_t feature, double threshold, double right_start,
                            int32_t left, int32_t right, const double* low, const double* high,
                            double value=0.0) noexcept nogil:
    """Push both sides of a test, the left one on top, above a visit that restores the bounds: three visits at `top`.

    Parameters
    ----------
    right_start : lower bound of the right side
    """
    stack[top] = BoxVisit(-1, feature, low[feature], high[feature], value)
    stack[top + 1] = BoxVisit(right, feature, right_start, high[feature], value)
    stack[top + 2] = BoxVisit(left, feature, low[feature], threshold, value)


# Features that are or may be missing.

cdef enum Reach:
    # Sides of a test; bits.
    REACHES_LEFT = 1
    REACHES_RIGHT = 2
    REACHES_BOTH = 3


cdef inline int reach_of_missing(const Node* node, const double* values) noexcept nogil:
    """The sides of a test that a feature with NaN bounds reaches."""
    cdef int reach = REACHES_LEFT if missing_goes_left(node) else REACHES_RIGHT
    if values != NULL:
        # False for NaN.
        if values[2 * node.feature] <= node.threshold:
            reach |= REACHES_LEFT
        if values[2 * node.feature + 1] > node.threshold:
            reach |= REACHES_RIGHT
    return reach


cdef inline BoxVisit side_of_missing(const Node* node, bint is_left, double right_start,
                                     const double* values) noexcept nogil:
    """Bounds on one side of a test, as a visit without a node, for a feature with NaN bounds that reaches both sides."""
    cdef double low = NAN, high = NAN
    cdef bint is_default = missing_goes_left(node) == is_left
    if values != NULL:
        low, high = values[2 * node.feature], values[2 * node.feature + 1]
        if is_left:
            if high > node.threshold:
                high = node.threshold
        elif low < right_start:
            low = right_start
        if not low <= high:
            low = high = NAN
    return BoxVisit(-1, as_droppable(node.feature) if is_default else node.feature, low, high, 0.0)


cdef inline Py_ssize_t push_sides_of_missing(BoxVisit* stack, Py_ssize_t top, const Node* node, double right_start,
                                             const double* values, double value=0.0) noexcept nogil:
    """Push the sides of a test on a feature with NaN bounds, like `push_sides`; returns how many visits that are."""
    cdef int reach = reach_of_missing(node, values)
    if reach != REACHES_BOTH:
        push_node(stack, top, node.left if reach == REACHES_LEFT else node.right, value)
        return 1
    stack[top] = BoxVisit(-1, as_droppable(node.feature), values[2 * node.feature], values[2 * node.feature + 1], value)
    stack[top + 1] = side_of_missing(node, False, right_start, values)
    stack[top + 2] = side_of_missing(node, True, right_start, values)
    stack[top + 1].node, stack[top + 2].node = node.right, node.left
    stack[top + 1].value = stack[top + 2].value = value
    return 3


cdef inline BoxVisit bounds_of(int32_t feature, const double* low, const double* high,
                               const double* values) noexcept nogil:
    """The bounds of a feature as a visit that restores them."""
    if not is_missing(low[feature]):
        return BoxVisit(-1, feature, low[feature], high[feature], 0.0)
    if values == NULL:
        return BoxVisit(-1, as_droppable(feature), NAN, NAN, 0.0)
    return BoxVisit(-1, as_droppable(feature), values[2 * feature], values[2 * feature + 1], 0.0)


cdef inline BoxVisit side_of(const Node* node, bint is_left, double right_start, const double* low, const double* high,
                             const double* values) noexcept nogil:
    """The bounds on one side of a test as a visit that sets them; `is_empty_side` tells whether they hold a sample."""
    cdef int32_t f = node.feature
    if is_missing(low[f]):
        return side_of_missing(node, is_left, right_start, values)
    if is_left:
        return BoxVisit(-1, f, low[f], min(high[f], node.threshold), 0.0)
    return BoxVisit(-1, f, max(low[f], right_start), high[f], 0.0)


cdef inline bint is_empty_side(const BoxVisit* side) noexcept nogil:
    return side.feature >= 0 and not side.low <= side.high
