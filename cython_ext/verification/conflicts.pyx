"""Conflicts: pairs of rows with different labels whose boxes share a possible point, and what follows from them.

Rows come sorted by the lower bound of one feature, so that a row can only conflict with the ones after it whose lower
bound does not exceed its upper bound. Bounds of the most selective features are passed as arrays of their own (the
head); the others (the tail) are computed for the few pairs that the head does not separate. A feature with values that
are or may become missing is part of the tail; in the head, such values have endless bounds.

The graph of conflicts is matched twice over: each row is a vertex on the left and one on the right. Half of the size of
a maximum matching is the fractional vertex cover number of the graph. Which rows to compare, and what the numbers mean,
is left to metasilvae.verification.ceiling.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from common.box cimport lower_bound, upper_bound
from common.table cimport Tables, allowed_of, has_options, keep_options, make_tables, start_options

cdef struct Sweep:
    Py_ssize_t n_rows
    Py_ssize_t n_head
    Py_ssize_t n_tail
    Py_ssize_t n_features
    Py_ssize_t window               # number of following rows that are compared
    const double* head_low          # by row in sorted order and by feature of the head
    const double* head_high
    const int32_t* y                # in sorted order
    const int32_t* order            # row at each place of the sorted order
    const int32_t* tail             # features of the tail
    const double* low_center
    const double* high_center
    const double* radius_down
    const double* radius_up
    const double* minimum
    const double* maximum
    Tables tables                   # table groups
    const uint64_t* allowed         # options that rows allow, NULL for all
    uint64_t* options               # space for a set of options
    const uint8_t* dropping         # whether each value may become missing, by row and feature; NULL if none may
    Py_ssize_t drop_row             # strides of `dropping`
    Py_ssize_t drop_feature


cdef inline double shared_low(const Sweep* sweep, const double* one, const double* other, Py_ssize_t f) noexcept nogil:
    """Lower bound of the common part of two boxes, given by their low centers."""
    cdef double first = lower_bound(one[f], sweep.radius_down[f], sweep.minimum[f])
    cdef double second = lower_bound(other[f], sweep.radius_down[f], sweep.minimum[f])
    return first if first > second else second


cdef inline double shared_high(const Sweep* sweep, const double* one, const double* other, Py_ssize_t f) noexcept nogil:
    cdef double first = upper_bound(one[f], sweep.radius_up[f], sweep.maximum[f])
    cdef double second = upper_bound(other[f], sweep.radius_up[f], sweep.maximum[f])
    return first if first < second else second


cdef inline bint may_be_missing(const Sweep* sweep, Py_ssize_t row, const double* low_center,
                                Py_ssize_t f) noexcept nogil:
    """Whether a value is missing or may become so."""
    return low_center[f] != low_center[f] or (
        sweep.dropping != NULL and sweep.dropping[row * sweep.drop_row + f * sweep.drop_feature] != 0)


cdef bint share_beyond_head(const Sweep* sweep, Py_ssize_t one, Py_ssize_t other) noexcept nogil:
    """Whether the boxes of two rows overlap in the tail, and the common part holds options of all groups."""
    cdef const double* low_one = sweep.low_center + one * sweep.n_features
    cdef const double* low_other = sweep.low_center + other * sweep.n_features
    cdef const double* high_one = sweep.high_center + one * sweep.n_features
    cdef const double* high_other = sweep.high_center + other * sweep.n_features
    cdef Py_ssize_t position, group, f
    for position in range(sweep.n_tail):
        f = sweep.tail[position]
        # False if a value is missing; two missing values are equal.
        if (lower_bound(low_one[f], sweep.radius_down[f], sweep.minimum[f])
                <= upper_bound(high_other[f], sweep.radius_up[f], sweep.maximum[f])
                and lower_bound(low_other[f], sweep.radius_down[f], sweep.minimum[f])
                <= upper_bound(high_one[f], sweep.radius_up[f], sweep.maximum[f])):
            continue
        if not (may_be_missing(sweep, one, low_one, f) and may_be_missing(sweep, other, low_other, f)):
            return False
    for group in range(sweep.tables.n_groups):
        if not share_option(sweep, one, other, <int32_t> group):
            return False
    return True


cdef bint share_option(const Sweep* sweep, Py_ssize_t one, Py_ssize_t other, int32_t group) noexcept nogil:
    """Whether the common part of two boxes holds an option of a group."""
    cdef const Tables* tables = &sweep.tables
    cdef const double* low_one = sweep.low_center + one * sweep.n_features
    cdef const double* low_other = sweep.low_center + other * sweep.n_features
    cdef const double* high_one = sweep.high_center + one * sweep.n_features
    cdef const double* high_other = sweep.high_center + other * sweep.n_features
    cdef size_t n_words = tables.n_words, n_all = n_words * tables.n_groups
    cdef uint64_t* options = sweep.options
    cdef int32_t place, f, option, code = tables.codes[group]
    cdef size_t i
    cdef double low, high
    start_options(tables, group, NULL if sweep.allowed == NULL else sweep.allowed + one * n_all, options)
    if sweep.allowed != NULL:
        for i in range(n_words):
            options[i] &= sweep.allowed[other * n_all + group * n_words + i]
    if code >= 0:
        low, high = shared_low(sweep, low_one, low_other, code), shared_high(sweep, high_one, high_other, code)
        for option in range(tables.n_options[group]):
            if not low <= option <= high:
                options[option >> 6] &= ~((<uint64_t> 1) << (option & 63))
    for place in range(tables.group_starts[group], tables.group_starts[group + 1]):
        f = tables.members[place]
        low, high = shared_low(sweep, low_one, low_other, f), shared_high(sweep, high_one, high_other, f)
        if not low <= 0.0 <= high:
            keep_options(tables, place, True, options)
        if not low <= 1.0 <= high:
            keep_options(tables, place, False, options)
    return has_options(options, tables.n_words)


cdef inline bint is_conflict(const Sweep* sweep, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
    """Whether the rows at two places of the sorted order conflict; their first features overlap."""
    cdef const double* low_i = sweep.head_low + i * sweep.n_head
    cdef const double* low_j = sweep.head_low + j * sweep.n_head
    cdef const double* high_i = sweep.head_high + i * sweep.n_head
    cdef const double* high_j = sweep.head_high + j * sweep.n_head
    cdef Py_ssize_t k
    if sweep.y[i] == sweep.y[j]:
        return False
    for k in range(1, sweep.n_head):
        if low_i[k] > high_j[k] or low_j[k] > high_i[k]:
            return False
    if sweep.n_tail == 0 and sweep.tables.n_groups == 0:
        return True
    return share_beyond_head(sweep, sweep.order[i], sweep.order[j])


cdef Sweep make_sweep(const double[:, ::1] head_low, const double[:, ::1] head_high, const int32_t[::1] y,
                      const int32_t[::1] order, const int32_t[::1] tail, const double[:, ::1] low_center,
                      const double[:, ::1] high_center, const double[::1] radius_down, const double[::1] radius_up,
                      const double[::1] minimum, const double[::1] maximum, const int32_t[::1] members,
                      const int32_t[::1] group_starts, const int32_t[::1] codes, const int32_t[::1] n_options,
                      const uint64_t[:, ::1] ones, const uint64_t[:, :, ::1] allowed,
                      const uint8_t[:, :] dropping, Py_ssize_t window, uint64_t[::1] options):
    cdef Sweep sweep
    sweep.n_rows = head_low.shape[0]
    sweep.n_head = head_low.shape[1]
    sweep.n_tail = tail.shape[0]
    sweep.n_features = low_center.shape[1]
    sweep.window = window
    sweep.head_low, sweep.head_high = &head_low[0, 0], &head_high[0, 0]
    sweep.y, sweep.order = &y[0], &order[0]
    sweep.tail = &tail[0] if tail.shape[0] else NULL
    sweep.low_center, sweep.high_center = &low_center[0, 0], &high_center[0, 0]
    sweep.radius_down, sweep.radius_up = &radius_down[0], &radius_up[0]
    sweep.minimum, sweep.maximum = &minimum[0], &maximum[0]
    sweep.tables = make_tables(members, group_starts, codes, n_options, ones)
    sweep.allowed = allowed_of(allowed, 0)
    sweep.options = &options[0]
    sweep.dropping = &dropping[0, 0] if dropping.shape[0] else NULL
    sweep.drop_row, sweep.drop_feature = dropping.strides[0], dropping.strides[1]
    return sweep


cdef inline Py_ssize_t find_last(const Sweep* sweep, Py_ssize_t i) noexcept nogil:
    """Place behind the last row that is compared with the one at place i."""
    cdef Py_ssize_t last = min(sweep.n_rows, i + 1 + sweep.window)
    cdef double high = sweep.head_high[i * sweep.n_head]
    cdef Py_ssize_t first = i + 1, middle
    while first < last:
        middle = (first + last) // 2
        if sweep.head_low[middle * sweep.n_head] <= high:
            first = middle + 1
        else:
            last = middle
    return first


def find_conflicts(const double[:, ::1] head_low, const double[:, ::1] head_high, const int32_t[::1] y,
                   const int32_t[::1] order, const int32_t[::1] tail, const double[:, ::1] low_center,
                   const double[:, ::1] high_center, const double[::1] radius_down, const double[::1] radius_up,
                   const double[::1] minimum, const double[::1] maximum, const int32_t[::1] members,
                   const int32_t[::1] group_starts, const int32_t[::1] codes, const int32_t[::1] n_options,
                   const uint64_t[:, ::1] ones, const uint64_t[:, :, ::1] allowed,
                   const uint8_t[:, :] dropping, Py_ssize_t window, uint64_t[::1] options,
                   Py_ssize_t start, Py_ssize_t stop,
                   int32_t[:, ::1] pairs):
    """Fill pairs of rows that conflict, for the rows at places `start` to `stop` of the sorted order.

    Parameters
    ----------
    head_low, head_high : bounds of the head's features, the one that sorts the rows first
    y, order : label and number of the row at each place; low_center and high_center are by number
    tail : the other features, and those of the head with values that are or may become missing
    members, group_starts, codes, n_options, ones : table groups (table.pxd)
    allowed : for each row and group the allowed options, as bits of words; no rows if all are allowed
    dropping : which values may become missing, no rows if none may; a missing value has NaN as centers
    options : space for a set of options
    window : number of rows after each one that are compared with it
    pairs : output; a row whose pairs might not fit is left to the next call

    Returns
    -------
    place, n_pairs : where to continue, and the number of pairs
    """
    cdef Sweep sweep = make_sweep(head_low, head_high, y, order, tail, low_center, high_center, radius_down,
                                  radius_up, minimum, maximum, members, group_starts, codes, n_options, ones,
                                  allowed, dropping, window, options)
    cdef Py_ssize_t i, j, last
    cdef Py_ssize_t n_pairs = 0
    cdef Py_ssize_t capacity = pairs.shape[0]
    i = start
    with nogil:
        while i < stop:
            last = find_last(&sweep, i)
            if n_pairs + last - i - 1 > capacity:
                break
            for j in range(i + 1, last):
                if is_conflict(&sweep, i, j):
                    pairs[n_pairs, 0] = order[i]
                    pairs[n_pairs, 1] = order[j]
                    n_pairs += 1
            i += 1
    return i, n_pairs


def match_greedily(const double[:, ::1] head_low, const double[:, ::1] head_high, const int32_t[::1] y,
                   const int32_t[::1] order, const int32_t[::1] tail, const double[:, ::1] low_center,
                   const double[:, ::1] high_center, const double[::1] radius_down, const double[::1] radius_up,
                   const double[::1] minimum, const double[::1] maximum, const int32_t[::1] members,
                   const int32_t[::1] group_starts, const int32_t[::1] codes, const int32_t[::1] n_options,
                   const uint64_t[:, ::1] ones, const uint64_t[:, :, ::1] allowed,
                   const uint8_t[:, :] dropping, Py_ssize_t window, uint64_t[::1] options,
                   Py_ssize_t start, Py_ssize_t stop,
                   uint8_t[::1] is_matched):
    """Match each row that is free with the next free one that conflicts with it; returns the number of new pairs.

    `is_matched` is by place. The other parameters are those of `find_conflicts`; no pairs are stored.
    """
    cdef Sweep sweep = make_sweep(head_low, head_high, y, order, tail, low_center, high_center, radius_down,
                                  radius_up, minimum, maximum, members, group_starts, codes, n_options, ones,
                                  allowed, dropping, window, options)
    cdef Py_ssize_t i, j
    cdef Py_ssize_t n_pairs = 0
    with nogil:
        for i in range(start, stop):
            if is_matched[i]:
                continue
            for j in range(i + 1, find_last(&sweep, i)):
                if not is_matched[j] and is_conflict(&sweep, i, j):
                    is_matched[i] = is_matched[j] = 1
                    n_pairs += 1
                    break
    return n_pairs


def fill_neighbours(const int32_t[:, ::1] pairs, int64_t[::1] starts, int32_t[::1] neighbours):
    """Neighbours of each row, in the order of the pairs: those of row r are at starts[r] to starts[r + 1].

    Parameters
    ----------
    starts : number of rows + 1 zeros
    neighbours : twice the number of pairs
    """
    cdef Py_ssize_t pair, row, side
    cdef Py_ssize_t n_rows = starts.shape[0] - 1
    with nogil:
        for pair in range(pairs.shape[0]):
            for side in range(2):
                starts[pairs[pair, side] + 1] += 1
        for row in range(n_rows):
            starts[row + 1] += starts[row]
        # From here on, starts[r] is the place for the next neighbour of r, and in the end the start of r + 1.
        for pair in range(pairs.shape[0]):
            for side in range(2):
                row = pairs[pair, side]
                neighbours[starts[row]] = pairs[pair, 1 - side]
                starts[row] += 1
        for row in range(n_rows, 0, -1):
            starts[row] = starts[row - 1]
        starts[0] = 0


def augment(const int64_t[::1] starts, const int32_t[::1] neighbours, int32_t[::1] left, int32_t[::1] right,
            int32_t[::1] distance, int32_t[::1] queue, int64_t[::1] cursor):
    """One phase of Hopcroft and Karp: enlarge a matching along shortest augmenting paths, as many as do not meet.

    Parameters
    ----------
    left, right : partner of each vertex on the other side, -1 for none; changed
    distance, queue, cursor : space for one number for each vertex

    Returns
    -------
    Number of pairs by which the matching has grown; 0 if it is a maximum matching.
    """
    cdef Py_ssize_t n_rows = left.shape[0]
    cdef Py_ssize_t first = 0, n_queued = 0, n_found = 0, top, root
    cdef int64_t place
    cdef int32_t vertex, other, partner, previous
    cdef bint is_reached = False
    with nogil:
        for root in range(n_rows):
            distance[root] = -1
            cursor[root] = starts[root]
            if left[root] < 0:
                distance[root] = 0
                queue[n_queued] = root
                n_queued += 1
        while first < n_queued:
            vertex = queue[first]
            first += 1
            for place in range(starts[vertex], starts[vertex + 1]):
                partner = right[neighbours[place]]
                if partner < 0:
                    is_reached = True
                elif distance[partner] < 0:
                    distance[partner] = distance[vertex] + 1
                    queue[n_queued] = partner
                    n_queued += 1
        if is_reached:
            # The queue is the stack of a depth-first search from each free vertex.
            for root in range(n_rows):
                if left[root] >= 0:
                    continue
                top = 0
                queue[0] = root
                while top >= 0:
                    vertex = queue[top]
                    if cursor[vertex] == starts[vertex + 1]:
                        top -= 1
                        continue
                    other = neighbours[cursor[vertex]]
                    cursor[vertex] += 1
                    partner = right[other]
                    if partner >= 0:
                        if distance[partner] == distance[vertex] + 1 and cursor[partner] < starts[partner + 1]:
                            top += 1
                            queue[top] = partner
                        continue
                    n_found += 1
                    while top >= 0:
                        vertex = queue[top]
                        previous = left[vertex]
                        left[vertex] = other
                        right[other] = vertex
                        other = previous
                        top -= 1
    return n_found


def fill_cover(const int64_t[::1] starts, const int32_t[::1] neighbours, const int32_t[::1] left,
               const int32_t[::1] right, int32_t[::1] queue, uint8_t[::1] is_reached, uint8_t[::1] cover):
    """Twice the weight (0, 1 or 2) of each row in a minimum fractional vertex cover, from a maximum matching.

    Parameters
    ----------
    queue : space for one number for each row
    is_reached, cover : zeros; the weights are written to `cover`
    """
    cdef Py_ssize_t n_rows = left.shape[0]
    cdef Py_ssize_t first = 0, n_queued = 0, row
    cdef int64_t place
    cdef int32_t other, partner
    with nogil:
        for row in range(n_rows):
            if left[row] < 0:
                is_reached[row] = 1
                queue[n_queued] = row
                n_queued += 1
        while first < n_queued:
            row = queue[first]
            first += 1
            for place in range(starts[row], starts[row + 1]):
                other = neighbours[place]
                cover[other] = 1            # the vertex on the right is reached
                partner = right[other]
                if partner >= 0 and not is_reached[partner]:
                    is_reached[partner] = 1
                    queue[n_queued] = partner
                    n_queued += 1
        for row in range(n_rows):
            cover[row] += not is_reached[row]


def label_components(const int64_t[::1] starts, const int32_t[::1] neighbours, int32_t[::1] queue,
                     int32_t[::1] component):
    """Number the connected components, by their first rows; `component` holds -1. Returns how many there are."""
    cdef Py_ssize_t first, n_queued, row
    cdef int64_t place
    cdef int32_t vertex, number = 0
    with nogil:
        for row in range(component.shape[0]):
            if component[row] >= 0:
                continue
            component[row] = number
            queue[0] = row
            first, n_queued = 0, 1
            while first < n_queued:
                vertex = queue[first]
                first += 1
                for place in range(starts[vertex], starts[vertex + 1]):
                    if component[neighbours[place]] < 0:
                        component[neighbours[place]] = number
                        queue[n_queued] = neighbours[place]
                        n_queued += 1
            number += 1
    return number


def pick_independent(const int64_t[::1] starts, const int32_t[::1] neighbours, const int64_t[::1] candidates,
                     uint8_t[::1] is_taken):
    """Take each candidate that has no neighbour among the rows taken so far."""
    cdef Py_ssize_t position
    cdef int64_t place, row
    with nogil:
        for position in range(candidates.shape[0]):
            row = candidates[position]
            for place in range(starts[row], starts[row + 1]):
                if is_taken[neighbours[place]]:
                    break
            else:
                is_taken[row] = 1
