"""Which leaves of one tree a box reaches, and hence whether a perturbation can change the prediction.

Every function expects a tree without contradictory branches (`metasilvae.model.Model.feasible`): there a box reaches a
leaf if and only if it passes each test on the path by itself. The box of row i is, for each feature f,

    [ max(low_center[i, f] - radius_down[f], minimum[f]),  min(high_center[i, f] + radius_up[f], maximum[f]) ]

and must not be empty (`find_empty_box`). A missing value, NaN as a center, stays missing, and goes where the split sends
missing values; a value that is `droppable` may become missing. The search in forests is left to forest_search.pyx;
what the labels that single trees can predict mean for a forest is left to metasilvae.training.forest_votes.
"""

from libc.math cimport INFINITY, NAN, fabs
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from common.box cimport (
    BoxVisit, RowBox, lower_bound, push_node, push_sides, push_sides_of_missing, set_bounds, upper_bound,
)
from common.descent cimport first_leaf_of_row, next_leaf_of_row
from common.node cimport Node, is_missing, reaches_left, reaches_right
from common.table cimport Tables, allowed_of, fill_options, has_option, make_tables, tables_admit
from common.status cimport ABSENT, FOUND, INADMISSIBLE, STABLE, UNSTABLE


def find_empty_box(const double[:, ::1] low_center, const double[:, ::1] high_center,
                   const double[::1] radius_down, const double[::1] radius_up,
                   const double[::1] minimum, const double[::1] maximum):
    """First (row, feature) whose interval is empty, or None; missing values have no interval."""
    cdef Py_ssize_t row, f
    cdef Py_ssize_t found_row = -1, found_feature = -1
    with nogil:
        for row in range(low_center.shape[0]):
            for f in range(low_center.shape[1]):
                if is_missing(low_center[row, f]):
                    continue
                if not (lower_bound(low_center[row, f], radius_down[f], minimum[f])
                        <= upper_bound(high_center[row, f], radius_up[f], maximum[f])):
                    found_row = row
                    found_feature = f
                    break
            if found_row >= 0:
                break
    return None if found_row < 0 else (found_row, found_feature)


# Leaves that a box reaches.


cdef int32_t* _new_waiting(Py_ssize_t max_depth) except NULL:
    """A buffer for the nodes that wait during a walk: at most one for each split on the path."""
    cdef int32_t* waiting = <int32_t*> malloc((max_depth + 1) * sizeof(int32_t))
    if waiting == NULL:
        raise MemoryError()
    return waiting


cdef inline bint _is_stable(const Node* nodes, const int32_t* leaf_predictions, int32_t expected, RowBox box,
                            bint has_missing, int32_t* waiting) noexcept nogil:
    """Whether every leaf that the box of a row reaches predicts as expected."""
    cdef Py_ssize_t top = 0
    cdef int32_t node = first_leaf_of_row(nodes, 0, box, has_missing, waiting, &top)
    while leaf_predictions[nodes[node].leaf] == expected:
        if top == 0:
            return True
        node = next_leaf_of_row(nodes, box, has_missing, waiting, &top)
    return False


def check_stability(const Node[::1] nodes, const int32_t[::1] leaf_predictions, Py_ssize_t max_depth,
                    const double[:, ::1] low_center, const double[:, ::1] high_center,
                    const double[::1] radius_down, const double[::1] radius_up,
                    const double[::1] minimum, const double[::1] maximum, bint has_missing,
                    const int32_t[::1] expected, Py_ssize_t start, Py_ssize_t stop, uint8_t[::1] stability):
    """Write for the rows start..stop-1 STABLE if every leaf that the box reaches predicts as expected, else UNSTABLE.

    Stops at the first leaf that predicts otherwise. `has_missing` tells whether some centers may be missing values.
    """
    cdef Py_ssize_t row
    cdef RowBox box
    cdef bint is_stable
    cdef int32_t* waiting = _new_waiting(max_depth)
    try:
        with nogil:
            for row in range(start, stop):
                box = RowBox(&low_center[row, 0], &high_center[row, 0], &radius_down[0], &radius_up[0],
                             &minimum[0], &maximum[0])
                if has_missing:
                    is_stable = _is_stable(&nodes[0], &leaf_predictions[0], expected[row], box, True, waiting)
                else:
                    is_stable = _is_stable(&nodes[0], &leaf_predictions[0], expected[row], box, False, waiting)
                stability[row] = STABLE if is_stable else UNSTABLE
    finally:
        free(waiting)


# Values that may become missing.


cdef bint allow_dropping(const uint8_t[:, :] droppable, Py_ssize_t row, Py_ssize_t n_features, double* low,
                         double* high, double* values) noexcept nogil:
    """Turn the bounds of features that are or may become missing into NaN, with their intervals in a table (box.pxd).

    Parameters
    ----------
    droppable : for each row and feature whether the value may become missing; no rows if none may

    Returns whether there are such features.
    """
    cdef Py_ssize_t f
    cdef bint has_some = False
    if droppable.shape[0] == 0:
        return False
    for f in range(n_features):
        values[2 * f], values[2 * f + 1] = low[f], high[f]
        if droppable[row, f] and not is_missing(low[f]):
            low[f] = high[f] = NAN
        has_some |= is_missing(low[f])
    return has_some


cdef inline void take_values(Py_ssize_t n_features, double* low, double* high, const double* values) noexcept nogil:
    """Give features that may be missing the interval of their values, if there is one."""
    cdef Py_ssize_t f
    for f in range(n_features):
        if is_missing(low[f]):
            low[f], high[f] = values[2 * f], values[2 * f + 1]


cdef struct DropWalk:
    # A walk over the leaves that a box reaches, where values may become missing.
    double* low
    double* high
    double* table
    double* values
    BoxVisit* stack
    Py_ssize_t top


cdef int _new_walk(DropWalk* walk, Py_ssize_t n_features, Py_ssize_t max_depth) except -1:
    walk.low = <double*> malloc(max(4 * n_features, 1) * sizeof(double))
    walk.high = walk.low + n_features
    walk.table = walk.low + 2 * n_features
    walk.stack = <BoxVisit*> malloc((3 * max_depth + 4) * sizeof(BoxVisit))
    if walk.low == NULL or walk.stack == NULL:
        raise MemoryError()
    return 0


cdef void _free_walk(DropWalk* walk) noexcept:
    free(walk.low)
    free(walk.stack)


cdef void _take_row(DropWalk* walk, RowBox box, const uint8_t[:, :] droppable, Py_ssize_t row,
                    Py_ssize_t n_features) noexcept nogil:
    """Begin with the box of a row; a walk from a root restores it at its end."""
    cdef Py_ssize_t f
    for f in range(n_features):
        walk.low[f] = lower_bound(box.low_center[f], box.radius_down[f], box.minimum[f])
        walk.high[f] = upper_bound(box.high_center[f], box.radius_up[f], box.maximum[f])
    walk.values = NULL
    if allow_dropping(droppable, row, n_features, walk.low, walk.high, walk.table):
        walk.values = walk.table


cdef inline void _begin_tree(DropWalk* walk, int32_t root) noexcept nogil:
    push_node(walk.stack, 0, root)
    walk.top = 1


cdef int32_t _next_reached(DropWalk* walk, const Node* nodes, const double* right_starts) noexcept nogil:
    """The next leaf that some sample of the box falls into, -1 at the end."""
    cdef int32_t node, feature
    while walk.top > 0:
        walk.top -= 1
        set_bounds(&walk.stack[walk.top], walk.low, walk.high, walk.values)
        node = walk.stack[walk.top].node
        if node < 0:
            continue
        feature = nodes[node].feature
        while feature >= 0:
            if not reaches_right(walk.high[feature], nodes[node].threshold):
                node = nodes[node].left
            elif not reaches_left(walk.low[feature], nodes[node].threshold):
                node = nodes[node].right
            else:
                break
            feature = nodes[node].feature
        if feature < 0:
            return node
        if is_missing(walk.low[feature]):
            walk.top += push_sides_of_missing(walk.stack, walk.top, &nodes[node], right_starts[node], walk.values)
        else:
            push_sides(walk.stack, walk.top, feature, nodes[node].threshold, right_starts[node], nodes[node].left,
                       nodes[node].right, walk.low, walk.high)
            walk.top += 3
    return -1


def fill_reached_labels(const Node[::1] nodes, const uint8_t[:, ::1] leaf_votes, Py_ssize_t max_depth,
                        const double[:, ::1] low_center, const double[:, ::1] high_center,
                        const double[::1] radius_down, const double[::1] radius_up,
                        const double[::1] minimum, const double[::1] maximum, const uint8_t[:, :] droppable,
                        const double[::1] right_starts,
                        Py_ssize_t start, Py_ssize_t stop, uint8_t[:, ::1] reached):
    """Write for the rows start..stop-1 and each label whether some leaf that the box reaches votes for it.

    Parameters
    ----------
    droppable : for each row and feature whether the value may become missing; no rows if none may
    right_starts : for each node the smallest value that its test sends to the right
    """
    cdef Py_ssize_t row, top, label, n_labels = leaf_votes.shape[1], n_features = radius_down.shape[0]
    cdef int32_t node
    cdef RowBox box
    cdef bint may_drop = droppable.shape[0] > 0
    cdef DropWalk walk
    cdef int32_t* waiting = _new_waiting(max_depth)
    memset(&walk, 0, sizeof(walk))
    try:
        if may_drop:
            _new_walk(&walk, n_features, max_depth)
        with nogil:
            for row in range(start, stop):
                memset(&reached[row, 0], 0, n_labels)
                box = RowBox(&low_center[row, 0], &high_center[row, 0], &radius_down[0], &radius_up[0],
                             &minimum[0], &maximum[0])
                if may_drop:
                    _take_row(&walk, box, droppable, row, n_features)
                    _begin_tree(&walk, 0)
                    node = _next_reached(&walk, &nodes[0], &right_starts[0])
                    while node >= 0:
                        for label in range(n_labels):
                            reached[row, label] |= leaf_votes[nodes[node].leaf, label]
                        node = _next_reached(&walk, &nodes[0], &right_starts[0])
                    continue
                top = 0
                node = first_leaf_of_row(&nodes[0], 0, box, True, waiting, &top)
                while True:
                    for label in range(n_labels):
                        reached[row, label] |= leaf_votes[nodes[node].leaf, label]
                    if top == 0:
                        break
                    node = next_leaf_of_row(&nodes[0], box, True, waiting, &top)
    finally:
        free(waiting)
        _free_walk(&walk)


def fill_score_bounds(const Node[::1] nodes, const int32_t[::1] roots, const double[:, ::1] leaf_scores,
                      Py_ssize_t max_depth,
                      const double[:, ::1] low_center, const double[:, ::1] high_center,
                      const double[::1] radius_down, const double[::1] radius_up,
                      const double[::1] minimum, const double[::1] maximum, const uint8_t[:, :] droppable,
                      const double[::1] right_starts,
                      Py_ssize_t start, Py_ssize_t stop, double[:, ::1] lowest, double[:, ::1] highest):
    """Write for the rows start..stop-1 and each label the sum over all trees of the lowest and of the highest score.

    The score of a tree is that of a leaf that the box reaches. Rows come first: the box of one row stays in the cache.
    `droppable` and `right_starts` are those of `fill_reached_labels`.
    """
    cdef Py_ssize_t row, top, label, tree, n_labels = leaf_scores.shape[1], n_features = radius_down.shape[0]
    cdef bint may_drop = droppable.shape[0] > 0
    cdef DropWalk walk
    cdef int32_t node
    cdef RowBox box
    cdef const double* scores
    cdef int32_t* waiting = _new_waiting(max_depth)
    cdef double* least = <double*> malloc(2 * n_labels * sizeof(double))
    cdef double* most = least + n_labels
    if least == NULL:
        free(waiting)
        raise MemoryError()
    memset(&walk, 0, sizeof(walk))
    try:
        if may_drop:
            _new_walk(&walk, n_features, max_depth)
        with nogil:
            for row in range(start, stop):
                box = RowBox(&low_center[row, 0], &high_center[row, 0], &radius_down[0], &radius_up[0],
                             &minimum[0], &maximum[0])
                for label in range(n_labels):
                    lowest[row, label] = highest[row, label] = 0.0
                if may_drop:
                    _take_row(&walk, box, droppable, row, n_features)
                for tree in range(roots.shape[0]):
                    top = 0
                    if may_drop:
                        for label in range(n_labels):
                            least[label], most[label] = INFINITY, -INFINITY
                        _begin_tree(&walk, roots[tree])
                        node = _next_reached(&walk, &nodes[0], &right_starts[0])
                        while node >= 0:
                            scores = &leaf_scores[nodes[node].leaf, 0]
                            for label in range(n_labels):
                                least[label] = min(least[label], scores[label])
                                most[label] = max(most[label], scores[label])
                            node = _next_reached(&walk, &nodes[0], &right_starts[0])
                        for label in range(n_labels):
                            lowest[row, label] += least[label]
                            highest[row, label] += most[label]
                        continue
                    node = first_leaf_of_row(&nodes[0], roots[tree], box, True, waiting, &top)
                    scores = &leaf_scores[nodes[node].leaf, 0]
                    for label in range(n_labels):
                        least[label] = most[label] = scores[label]
                    while top > 0:
                        node = next_leaf_of_row(&nodes[0], box, True, waiting, &top)
                        scores = &leaf_scores[nodes[node].leaf, 0]
                        for label in range(n_labels):
                            least[label] = min(least[label], scores[label])
                            most[label] = max(most[label], scores[label])
                    for label in range(n_labels):
                        lowest[row, label] += least[label]
                        highest[row, label] += most[label]
    finally:
        free(waiting)
        free(least)
        _free_walk(&walk)


# Points of a box. Features of a table group (table.pxd) take one of its options together.


cdef inline double _clamp(double value, double low, double high) noexcept nogil:
    if value < low:
        return low
    return high if value > high else value


cdef inline int32_t _choose_option(const Tables* tables, int32_t group, const double* sample,
                                   const uint64_t* options) noexcept nogil:
    """Of some options the one of the sample, else the first one; in a one-hot group the member with the largest value."""
    cdef int32_t option, code = tables.codes[group], chosen = -1
    cdef const int32_t* members = tables.members + tables.group_starts[group]
    if code >= 0 and 0.0 <= sample[code] < tables.n_options[group]:
        option = <int32_t> sample[code]
        if has_option(options, option):
            return option
    for option in range(tables.n_options[group]):
        if has_option(options, option):
            if chosen < 0 or (code < 0 and sample[members[option]] > sample[members[chosen]]):
                chosen = option
    return chosen


cdef void fill_nearest(const Tables* tables, const uint64_t* allowed, const double* sample, const double* low,
                       const double* high, Py_ssize_t n_features, double* point, uint64_t* options) noexcept nogil:
    """Write the point of an admissible box that is nearest to the sample, apart from codes (`fill_codes`).

    A feature with NaN bounds is missing.

    Parameters
    ----------
    allowed : options that the row allows, NULL for all
    options : space for a set of options and for a number of each group
    """
    cdef Py_ssize_t f
    cdef int32_t group, place, chosen
    cdef int32_t* choices = <int32_t*> (options + tables.n_words)
    for f in range(n_features):
        point[f] = _clamp(sample[f], low[f], high[f]) if low[f] <= high[f] else NAN
    for group in range(tables.n_groups):
        fill_options(tables, group, allowed, low, high, options)
        choices[group] = chosen = _choose_option(tables, group, sample, options)
        if chosen < 0:
            continue
        for place in range(tables.group_starts[group], tables.group_starts[group + 1]):
            point[tables.members[place]] = has_option(tables.ones + <size_t> place * tables.n_words, chosen)


cdef inline void fill_codes(const Tables* tables, const uint64_t* options, double* point) noexcept nogil:
    """Write the numbers of the options that `fill_nearest` chose."""
    cdef int32_t group
    for group in range(tables.n_groups):
        if tables.codes[group] >= 0:
            point[tables.codes[group]] = (<const int32_t*> (options + tables.n_words))[group]


cdef inline uint64_t* _new_options(const Tables* tables) except NULL:
    """Space for a set of options and for a number of each group."""
    cdef uint64_t* options = <uint64_t*> malloc((tables.n_words + tables.n_groups + 1) * sizeof(uint64_t))
    if options == NULL:
        raise MemoryError()
    return options


# Witnesses: points of a box with another prediction.


def find_witnesses(const Node[::1] nodes, const int32_t[::1] leaf_predictions, Py_ssize_t max_depth,
                   const double[:, ::1] low_center, const double[:, ::1] high_center,
                   const double[::1] radius_down, const double[::1] radius_up,
                   const double[::1] minimum, const double[::1] maximum,
                   const int32_t[::1] members, const int32_t[::1] group_starts, const int32_t[::1] codes,
                   const int32_t[::1] n_options, const uint64_t[:, ::1] ones, const uint64_t[:, :, ::1] allowed,
                   const uint8_t[:, :] droppable, const double[::1] right_starts,
                   const double[:, ::1] X, const int32_t[::1] expected, const int64_t[::1] rows,
                   Py_ssize_t start, Py_ssize_t stop,
                   uint8_t[::1] found, double[:, ::1] points, double[:, ::1] lowers, double[:, ::1] uppers):
    """Search the boxes of the given rows for the nearest admissible point with an unexpected prediction.

    Parameters
    ----------
    members, group_starts, codes, n_options, ones : table groups (table.pxd); their members are not missing
    allowed : for each row and group the allowed options, as bits of words; no rows if all are allowed
    droppable : for each row and feature whether the value may become missing; no rows if none may
    right_starts : for each node the smallest value that its test sends to the right
    rows : the rows to search; outputs are indexed by position in this list, start..stop-1 are filled
    found : receives ABSENT, FOUND, or INADMISSIBLE where no point of the box takes options of all groups
    points : receives the witness: as few values as possible become missing, and among these points it is the nearest to
        the sample in the maximum norm; NaN where it has no value
    lowers, uppers : receive the part of the box that falls into the leaf of the witness, NaN where it has no values

    `points`, `lowers` and `uppers` may have no rows if only `found` is wanted.
    """
    cdef Py_ssize_t n_features = X.shape[1]
    cdef bint wants_points = points.shape[0] > 0
    cdef Tables tables = make_tables(members, group_starts, codes, n_options, ones)
    cdef const uint64_t* row_allowed
    cdef uint64_t* options = _new_options(&tables)
    # Bounds, the bounds in a leaf, the nearest point there, and the table of values.
    cdef double* low = <double*> malloc(max(7 * n_features, 1) * sizeof(double))
    cdef double* high = low + n_features
    cdef double* spare_low = low + 2 * n_features
    cdef double* spare_high = low + 3 * n_features
    cdef double* leaf_low
    cdef double* leaf_high
    cdef double* point = low + 4 * n_features
    cdef double* table = low + 5 * n_features
    cdef double* values
    cdef BoxVisit* stack = <BoxVisit*> malloc((3 * max_depth + 4) * sizeof(BoxVisit))
    cdef Py_ssize_t item, row, top, f
    cdef int32_t node, feature
    cdef Py_ssize_t n_dropped, fewest
    cdef double threshold, distance, best
    cdef bint admissible
    if low == NULL or stack == NULL:
        free(low)
        free(stack)
        free(options)
        raise MemoryError()
    try:
        with nogil:
            for item in range(start, stop):
                row = rows[item]
                row_allowed = allowed_of(allowed, row)
                for f in range(n_features):
                    low[f] = lower_bound(low_center[row, f], radius_down[f], minimum[f])
                    high[f] = upper_bound(high_center[row, f], radius_up[f], maximum[f])
                values = table if allow_dropping(droppable, row, n_features, low, high, table) else NULL
                leaf_low = low if values == NULL else spare_low
                leaf_high = high if values == NULL else spare_high
                found[item] = INADMISSIBLE
                best = -1.0
                fewest = 0
                admissible = False
                push_node(stack, 0, 0)
                top = 1
                while top > 0:
                    top -= 1
                    set_bounds(&stack[top], low, high, values)
                    node = stack[top].node
                    if node < 0:
                        continue
                    feature = nodes[node].feature
                    while feature >= 0:
                        threshold = nodes[node].threshold
                        if not reaches_right(high[feature], threshold):
                            node = nodes[node].left
                        elif not reaches_left(low[feature], threshold):
                            node = nodes[node].right
                        else:
                            break
                        feature = nodes[node].feature
                    if feature >= 0:
                        if is_missing(low[feature]):
                            top += push_sides_of_missing(stack, top, &nodes[node], right_starts[node], values)
                        else:
                            push_sides(stack, top, feature, threshold, right_starts[node], nodes[node].left,
                                       nodes[node].right, low, high)
                            top += 3
                        continue
                    if tables.n_groups > 0:
                        if not tables_admit(&tables, row_allowed, low, high, options):
                            continue
                    admissible = True
                    if leaf_predictions[nodes[node].leaf] == expected[row]:
                        continue
                    found[item] = FOUND
                    if not wants_points:
                        break
                    if values != NULL:
                        for f in range(n_features):
                            leaf_low[f], leaf_high[f] = low[f], high[f]
                        take_values(n_features, leaf_low, leaf_high, values)
                    fill_nearest(&tables, row_allowed, &X[row, 0], leaf_low, leaf_high, n_features, point, options)
                    distance = 0.0
                    n_dropped = 0
                    for f in range(n_features):
                        # A maximum with NaN, for a missing value, is the distance so far.
                        distance = max(distance, fabs(point[f] - X[row, f]))
                    if values != NULL:
                        for f in range(n_features):
                            n_dropped += is_missing(point[f]) and not is_missing(X[row, f])
                    if best < 0.0 or n_dropped < fewest or (n_dropped == fewest and distance < best):
                        best = distance
                        fewest = n_dropped
                        fill_codes(&tables, options, point)
                        for f in range(n_features):
                            points[item, f] = point[f]
                            lowers[item, f] = leaf_low[f]
                            uppers[item, f] = leaf_high[f]
                if found[item] == INADMISSIBLE and admissible:
                    found[item] = ABSENT
    finally:
        free(low)
        free(stack)
        free(options)


def fill_regions(const Node[::1] nodes, const int32_t[::1] parents, const int32_t[::1] leaf_nodes,
                 const double[:, ::1] low_center, const double[:, ::1] high_center,
                 const double[::1] radius_down, const double[::1] radius_up,
                 const double[::1] minimum, const double[::1] maximum,
                 const int32_t[::1] members, const int32_t[::1] group_starts, const int32_t[::1] codes,
                 const int32_t[::1] n_options, const uint64_t[:, ::1] ones, const uint64_t[:, :, ::1] allowed,
                 const double[::1] right_starts,
                 const double[:, ::1] X, const int32_t[:, ::1] leaves, const int64_t[::1] rows,
                 Py_ssize_t start, Py_ssize_t stop,
                 double[:, ::1] points, double[:, ::1] lowers, double[:, ::1] uppers):
    """Write the part of a row's box that falls into given leaves of a forest, and its point nearest to the row.

    The leaves have a point of the box in common (forest_search.pyx finds such leaves).

    Parameters
    ----------
    parents : parent of each node, -1 for roots
    leaf_nodes : node of each leaf
    right_starts : for each node the smallest value that its test sends to the right
    leaves : shape (n_samples, n_trees), leaf of each tree for each row of the data
    rows : the rows to look at; outputs are indexed by position in this list, start..stop-1 are filled
    points : receives the point nearest to the row; NaN where it has no value
    lowers, uppers : receive the bounds of the part; NaN where there are no values
    """
    cdef Py_ssize_t item, row, f, tree
    cdef int32_t node, parent
    cdef Tables tables = make_tables(members, group_starts, codes, n_options, ones)
    cdef uint64_t* options = _new_options(&tables)
    with nogil:
        for item in range(start, stop):
            row = rows[item]
            for f in range(X.shape[1]):
                lowers[item, f] = lower_bound(low_center[row, f], radius_down[f], minimum[f])
                uppers[item, f] = upper_bound(high_center[row, f], radius_up[f], maximum[f])
                if is_missing(lowers[item, f]):
                    lowers[item, f], uppers[item, f] = INFINITY, -INFINITY
            for tree in range(leaves.shape[1]):
                node = leaf_nodes[leaves[row, tree]]
                parent = parents[node]
                while parent >= 0:
                    f = nodes[parent].feature
                    if node == nodes[parent].left:
                        uppers[item, f] = min(uppers[item, f], nodes[parent].threshold)
                    else:
                        lowers[item, f] = max(lowers[item, f], right_starts[parent])
                    node = parent
                    parent = parents[node]
            for f in range(X.shape[1]):
                # The leaves have a point in common; without a common value, the feature is missing there.
                if not lowers[item, f] <= uppers[item, f]:
                    lowers[item, f] = uppers[item, f] = NAN
            fill_nearest(&tables, allowed_of(allowed, row), &X[row, 0], &lowers[item, 0], &uppers[item, 0], X.shape[1],
                         &points[item, 0], options)
            fill_codes(&tables, options, &points[item, 0])
    free(options)
