"""The smallest radius at which a box reaches a leaf of one tree with another prediction, and critical radii in general.

Every function expects a tree without contradictory branches (`metasilvae.model.Model.feasible`). The box of row i with
radius r is, for each feature f,

    [ max(X[i, f] - r * weight_down[f], minimum[f]),  min(X[i, f] + r * weight_up[f], maximum[f]) ]

computed in float64 exactly like this. Products are rounded down where the feature takes whole numbers; they are 0 for
r = 0 whatever the weight, which may be infinite. Samples lie between the limits, and take options of
table groups where there are groups. A missing value stays missing at every radius; one that is `droppable` may become missing at every radius but
0. Forests and the check of samples are left to metasilvae.verification.radius.
"""

from libc.float cimport DBL_MAX
from libc.math cimport INFINITY, NAN, fabs, floor, nextafter
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from common.box cimport (
    BoxVisit, just_above, lower_bound, push_node, push_sides, push_sides_of_missing, set_bounds, upper_bound,
)
from common.node cimport Node, default_child, goes_left, is_missing, reaches_left, reaches_right
from common.table cimport Tables, allowed_of, fill_options, has_option, make_tables


# Critical radii: the smallest radius at which a box passes a test. Bounds of boxes are rounded sums (box.pxd); they are
# monotone in the radius, so a binary search over all float64 numbers finds the exact radius.

cdef inline int64_t order_of(double radius) noexcept nogil:
    """Position of a number that is not negative among all of them."""
    cdef int64_t position
    memcpy(&position, &radius, sizeof(double))
    return position


cdef inline double number_at(int64_t position) noexcept nogil:
    cdef double radius
    memcpy(&radius, &position, sizeof(double))
    return radius


cdef inline double stretched(double radius, double weight, bint is_whole) noexcept nogil:
    """How far a box with this radius extends; 0 times anything is 0, and whole numbers are moved by whole numbers."""
    cdef double distance = radius * weight if radius > 0.0 else 0.0
    return floor(distance) if is_whole else distance


cdef inline bint passes(double radius, double center, double weight, double limit, bint is_whole, double threshold,
                        bint is_left) noexcept nogil:
    """Whether the box with this radius reaches the left (right) side of a threshold; limit is its minimum (maximum)."""
    if is_left:
        return reaches_left(lower_bound(center, stretched(radius, weight, is_whole), limit), threshold)
    return reaches_right(upper_bound(center, stretched(radius, weight, is_whole), limit), threshold)


cdef inline double critical_radius(double center, double weight, double limit, bint is_whole, double threshold,
                                   bint is_left) noexcept nogil:
    """The smallest radius at which the box reaches one side of a threshold, INFINITY if no finite one does."""
    cdef int64_t low, high, middle, step = 1
    cdef double guess
    if passes(0.0, center, weight, limit, is_whole, threshold, is_left):
        return 0.0
    if not passes(DBL_MAX, center, weight, limit, is_whole, threshold, is_left):
        return INFINITY
    # Invariant: low does not pass, high does. The exact radius is usually within a few roundings of the guess.
    low, high = 0, order_of(DBL_MAX)
    if is_whole:
        guess = 0.0 if is_left else 1.0
    else:
        guess = 0.5 * (nextafter(threshold, INFINITY) - threshold)
    guess = fabs((center - threshold if is_left else threshold - center) + (-guess if is_left else guess)) / weight
    if guess < DBL_MAX:
        middle = order_of(guess)
        if low < middle < high:
            if passes(guess, center, weight, limit, is_whole, threshold, is_left):
                high = middle
                while high - step > low:
                    if not passes(number_at(high - step), center, weight, limit, is_whole, threshold, is_left):
                        low = high - step
                        break
                    high -= step
                    step *= 2
            else:
                low = middle
                while low + step < high:
                    if passes(number_at(low + step), center, weight, limit, is_whole, threshold, is_left):
                        high = low + step
                        break
                    low += step
                    step *= 2
    while high - low > 1:
        middle = low + (high - low) // 2
        if passes(number_at(middle), center, weight, limit, is_whole, threshold, is_left):
            high = middle
        else:
            low = middle
    return number_at(high)


cdef inline double radius_to_value(double center, double weight, double minimum, double maximum,
                                   double value) noexcept nogil:
    """The smallest radius at which the box holds a value, for a center that lies between the limits."""
    if value < center:
        return critical_radius(center, weight, minimum, False, value, True)
    if value > center:
        return critical_radius(center, weight, maximum, False, nextafter(value, -INFINITY), False)
    return 0.0


cdef inline double radius_to_interval(double center, double weight_down, double weight_up, double minimum,
                                      double maximum, bint is_whole, double low, double high) noexcept nogil:
    """The smallest radius at which the box holds a possible value between low and high; INFINITY for NaN."""
    cdef double radius = 0.0
    if not low <= high:
        return INFINITY
    if center > high:
        radius = critical_radius(center, weight_down, minimum, is_whole, high, True)
    elif center < low:
        radius = critical_radius(center, weight_up, maximum, is_whole, nextafter(low, -INFINITY), False)
    return radius


# Radii of rows.


cdef void _fill_option_radii(const Tables* tables, const uint64_t* allowed, const double* sample,
                             const double[::1] weight_down, const double[::1] weight_up,
                             const double[::1] minimum, const double[::1] maximum, double* radii,
                             double* to_value) noexcept nogil:
    """Write the smallest radius at which the box of a row holds each option of each group.

    Parameters
    ----------
    radii : receives the radii of the first group, then those of the second, and so on
    to_value : space for two numbers for each member
    """
    cdef int32_t group, place, f, option, value
    cdef double radius
    for group in range(tables.n_groups):
        for place in range(tables.group_starts[group], tables.group_starts[group + 1]):
            f = tables.members[place]
            for value in range(2):
                to_value[2 * place + value] = radius_to_value(
                    sample[f], weight_down[f] if value < sample[f] else weight_up[f], minimum[f], maximum[f], value)
        for option in range(tables.n_options[group]):
            radius = 0.0
            if allowed != NULL and not has_option(allowed + <size_t> group * tables.n_words, option):
                radius = INFINITY
            f = tables.codes[group]
            if f >= 0:
                radius = max(radius, radius_to_value(
                    sample[f], weight_down[f] if option < sample[f] else weight_up[f], minimum[f], maximum[f], option))
            for place in range(tables.group_starts[group], tables.group_starts[group + 1]):
                value = has_option(tables.ones + <size_t> place * tables.n_words, option)
                radius = max(radius, to_value[2 * place + value])
            radii[option] = radius
        radii += tables.n_options[group]


cdef double _radius_of_options(const Tables* tables, const double* low, const double* high, const double* radii,
                               uint64_t* options) noexcept nogil:
    """The smallest radius at which a box holds a point between low and high that takes an option of each group."""
    cdef int32_t group, option
    cdef double best, largest = 0.0
    for group in range(tables.n_groups):
        best = INFINITY
        if fill_options(tables, group, NULL, low, high, options):
            for option in range(tables.n_options[group]):
                if radii[option] < best and has_option(options, option):
                    best = radii[option]
        largest = max(largest, best)
        radii += tables.n_options[group]
    return largest


def fill_breaking_radii(const Node[::1] nodes, const int32_t[::1] leaf_predictions, Py_ssize_t max_depth,
                        const double[:, ::1] X, const double[::1] weight_down, const double[::1] weight_up,
                        const double[::1] minimum, const double[::1] maximum, const uint8_t[::1] is_whole,
                        const int32_t[::1] members, const int32_t[::1] group_starts, const int32_t[::1] codes,
                        const int32_t[::1] n_options, const uint64_t[:, ::1] ones, const uint64_t[:, :, ::1] allowed,
                        const int32_t[::1] group_of, const uint8_t[:, :] droppable, const int32_t[::1] expected, Py_ssize_t start, Py_ssize_t stop,
                        double[::1] radii):
    """Write for the rows start..stop-1 the smallest radius at which a prediction other than the expected is possible.

    Parameters
    ----------
    members, group_starts, codes, n_options, ones : table groups (table.pxd)
    allowed : for each row and group the allowed options, as bits of words; no rows if all are allowed
    group_of : group of each feature, -1 for none
    droppable : for each row and feature whether the value may become missing; no rows if none may
    radii : receives the radii, infinite where no finite one is large enough
    """
    cdef Py_ssize_t n_features = X.shape[1]
    # Bounds that the path sets for members of groups and droppable features.
    cdef double* low = <double*> malloc(max(4 * n_features, 1) * sizeof(double))
    cdef double* high = low + n_features
    cdef double* values = low + 2 * n_features
    cdef bint has_droppable = droppable.shape[0] > 0
    # The value of a visit is the smallest radius at which the box passes the tests above the node.
    cdef BoxVisit* stack = <BoxVisit*> malloc((3 * max_depth + 4) * sizeof(BoxVisit))
    cdef Py_ssize_t row, top, f, group
    cdef int32_t node, far
    cdef double best, largest_better, path_radius, radius, needed, threshold, weight, limit
    cdef bint far_is_left, is_dropped
    cdef Tables tables = make_tables(members, group_starts, codes, n_options, ones)
    cdef uint64_t* options
    # Radii of options, and space for two numbers for each member.
    cdef double* radii_of_options
    cdef Py_ssize_t n_all_options = 0
    for group in range(tables.n_groups):
        n_all_options += n_options[group]
    radii_of_options = <double*> malloc((n_all_options + 2 * tables.n_members + 1) * sizeof(double))
    options = <uint64_t*> malloc((tables.n_words + 1) * sizeof(uint64_t))
    if low == NULL or stack == NULL or radii_of_options == NULL or options == NULL:
        free(low)
        free(stack)
        free(radii_of_options)
        free(options)
        raise MemoryError()
    try:
        with nogil:
            for f in range(n_features):
                low[f] = -INFINITY
                high[f] = INFINITY
            for row in range(start, stop):
                if has_droppable:
                    for f in range(n_features):
                        values[2 * f], values[2 * f + 1] = -INFINITY, INFINITY
                        low[f] = NAN if droppable[row, f] else -INFINITY
                        high[f] = NAN if droppable[row, f] else INFINITY
                _fill_option_radii(&tables, allowed_of(allowed, row), &X[row, 0], weight_down, weight_up, minimum, maximum,
                                   radii_of_options, radii_of_options + n_all_options)
                best = INFINITY
                largest_better = DBL_MAX    # the largest radius that would improve the best one
                push_node(stack, 0, 0)
                top = 1
                while top > 0:
                    top -= 1
                    set_bounds(&stack[top], low, high, values)
                    node = stack[top].node
                    path_radius = stack[top].value
                    if node < 0 or path_radius > largest_better:
                        continue
                    f = nodes[node].feature
                    if f < 0:
                        if leaf_predictions[nodes[node].leaf] == expected[row]:
                            continue
                        radius = path_radius
                        if tables.n_groups > 0:
                            radius = max(radius, _radius_of_options(&tables, low, high, radii_of_options, options))
                        if has_droppable:
                            for f in range(n_features):
                                if droppable[row, f] and not is_missing(X[row, f]):
                                    is_dropped = is_missing(low[f])
                                    needed = radius_to_interval(
                                        X[row, f], weight_down[f], weight_up[f], minimum[f], maximum[f], is_whole[f],
                                        values[2 * f] if is_dropped else low[f],
                                        values[2 * f + 1] if is_dropped else high[f])
                                    radius = max(radius, min(needed, number_at(1)) if is_dropped else needed)
                        if radius < best:
                            best = radius
                            largest_better = nextafter(best, 0.0)
                        continue
                    threshold = nodes[node].threshold
                    if group_of[f] >= 0:
                        push_sides(stack, top, <int32_t> f, threshold, just_above(threshold), nodes[node].left,
                                   nodes[node].right, low, high, path_radius)
                        top += 3
                        continue
                    if is_missing(X[row, f]):
                        push_node(stack, top, default_child(&nodes[node]), path_radius)
                        top += 1
                        continue
                    if has_droppable and droppable[row, f]:
                        if is_missing(low[f]):
                            top += push_sides_of_missing(stack, top, &nodes[node], just_above(threshold), values,
                                                         path_radius)
                            continue
                        if not (low[f] <= threshold and threshold < high[f]):
                            push_node(stack, top, nodes[node].left if high[f] <= threshold else nodes[node].right,
                                      path_radius)
                            top += 1
                            continue
                        push_sides(stack, top, <int32_t> f, threshold, just_above(threshold), nodes[node].left,
                                   nodes[node].right, low, high, path_radius)
                        top += 3
                        continue
                    far_is_left = not goes_left(X[row, f], threshold)
                    weight = weight_down[f] if far_is_left else weight_up[f]
                    limit = minimum[f] if far_is_left else maximum[f]
                    if passes(largest_better, X[row, f], weight, limit, is_whole[f], threshold, far_is_left):
                        far = nodes[node].left if far_is_left else nodes[node].right
                        radius = critical_radius(X[row, f], weight, limit, is_whole[f], threshold, far_is_left)
                        push_node(stack, top, far, max(path_radius, radius))
                        top += 1
                    push_node(stack, top, nodes[node].right if far_is_left else nodes[node].left, path_radius)
                    top += 1
                radii[row] = best
    finally:
        free(low)
        free(stack)
        free(radii_of_options)
        free(options)


def fill_critical_radii(const double[::1] thresholds, const int32_t[::1] features,
                        const double[:, ::1] X, const double[::1] weight_down, const double[::1] weight_up,
                        const double[::1] minimum, const double[::1] maximum,
                        const uint8_t[::1] is_whole, Py_ssize_t row, double[::1] radii):
    """Write for each threshold the smallest radius at which the box of the row lies on both sides of it.

    It is infinite where the value is missing.
    """
    cdef Py_ssize_t item, f
    cdef bint is_left
    with nogil:
        for item in range(thresholds.shape[0]):
            f = features[item]
            if is_missing(X[row, f]):
                radii[item] = INFINITY
                continue
            is_left = not goes_left(X[row, f], thresholds[item])
            radii[item] = critical_radius(
                X[row, f], weight_down[f] if is_left else weight_up[f], minimum[f] if is_left else maximum[f],
                is_whole[f], thresholds[item], is_left)


def find_radius_of_leaves(const Node[::1] nodes, const int32_t[::1] parents, const int32_t[::1] leaf_nodes,
                          const int32_t[::1] leaves, const double[:, ::1] X,
                          const double[::1] weight_down, const double[::1] weight_up,
                          const double[::1] minimum, const double[::1] maximum,
                          const uint8_t[::1] is_whole, Py_ssize_t row):
    """The smallest radius at which the box of a row reaches the intersection of the given leaves of a forest.

    Parameters
    ----------
    parents : parent of each node, -1 for roots
    leaf_nodes : node of each leaf
    leaves : one leaf of each tree; some sample falls into all of them
    """
    cdef Py_ssize_t tree, f
    cdef int32_t node, parent
    cdef bint is_left
    cdef double weight, limit, radius = 0.0
    with nogil:
        for tree in range(leaves.shape[0]):
            node = leaf_nodes[leaves[tree]]
            parent = parents[node]
            while parent >= 0:
                f = nodes[parent].feature
                is_left = nodes[parent].left == node
                weight = weight_down[f] if is_left else weight_up[f]
                limit = minimum[f] if is_left else maximum[f]
                if not passes(radius, X[row, f], weight, limit, is_whole[f], nodes[parent].threshold, is_left):
                    radius = critical_radius(X[row, f], weight, limit, is_whole[f], nodes[parent].threshold, is_left)
                    if radius == INFINITY:
                        break
                node = parent
                parent = parents[node]
            if radius == INFINITY:
                break
    return radius


def fill_member_radii(const int32_t[::1] members, const double[:, ::1] X,
                      const double[::1] weight_down, const double[::1] weight_up,
                      const double[::1] minimum, const double[::1] maximum, Py_ssize_t row, double[::1] radii):
    """Write for each member of a one-hot group the smallest radius at which it may take the other value of 0 and 1."""
    cdef Py_ssize_t item, f
    with nogil:
        for item in range(members.shape[0]):
            f = members[item]
            if X[row, f] > 0.0:
                radii[item] = radius_to_value(X[row, f], weight_down[f], minimum[f], maximum[f], 0.0)
            else:
                radii[item] = radius_to_value(X[row, f], weight_up[f], minimum[f], maximum[f], 1.0)
