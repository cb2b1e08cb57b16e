# Boxes: the bounds of the box around a sample, and a stack of nodes to visit together with the bounds that hold there.
#
# All boxes are closed. The right side of a test `x <= k` starts at the next float64 after k.

from libc.math cimport INFINITY, nextafter
from libc.stdint cimport int32_t

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
    int32_t feature     # whose bounds are set first, -1 for none
    double low
    double high
    double value        # whatever the walk keeps for the node


cdef inline double lower_bound(double center, double radius, double minimum) noexcept nogil:
    cdef double bound = center - radius
    return bound if bound > minimum else minimum


cdef inline double upper_bound(double center, double radius, double maximum) noexcept nogil:
    cdef double bound = center + radius
    return bound if bound < maximum else maximum


cdef inline double just_above(double threshold) noexcept nogil:
    """The smallest float64 that goes to the right of a threshold."""
    return nextafter(threshold, INFINITY)


cdef inline void set_bounds(const BoxVisit* visit, double* low, double* high) noexcept nogil:
    """Give the box the bounds that a visit asks for."""
    if visit.feature >= 0:
        low[visit.feature] = visit.low
        high[visit.feature] = visit.high


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
