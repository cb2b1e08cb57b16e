"""Codes of samples for boosted trees, and walks of samples and their boxes through a tree.

Thresholds have numbers by feature, and the code of a value is the number of thresholds below it: x <= threshold j if and
only if code <= j. A box has the codes of its ends, compared as the verifier compares them.
"""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t

from common.box cimport lower_bound, upper_bound

# Codes are bytes.
MOST_THRESHOLDS = 255


cdef inline uint8_t _code(const double* thresholds, Py_ssize_t n_thresholds, double value) noexcept nogil:
    """Number of thresholds below a value."""
    cdef Py_ssize_t low = 0, half, left = n_thresholds
    while left > 0:
        half = left >> 1
        if thresholds[low + half] < value:
            low += half + 1
            left -= half + 1
        else:
            left = half
    return <uint8_t> low


def fill_codes(const double[:, ::1] X, const double[:, ::1] low_center, const double[:, ::1] high_center,
               const double[::1] radius_down, const double[::1] radius_up,
               const double[::1] minimum, const double[::1] maximum,
               const double[::1] thresholds, const int64_t[::1] threshold_starts, Py_ssize_t start, Py_ssize_t stop,
               uint8_t[:, ::1] own_codes, uint8_t[:, ::1] low_codes, uint8_t[:, ::1] high_codes):
    """Write the codes of the rows start..stop-1 and of the ends of their boxes, by feature and row."""
    cdef Py_ssize_t row, f, n
    cdef const double* own
    with nogil:
        for f in range(X.shape[1]):
            n = threshold_starts[f + 1] - threshold_starts[f]
            if n == 0:
                for row in range(start, stop):
                    own_codes[f, row] = low_codes[f, row] = high_codes[f, row] = 0
                continue
            own = &thresholds[threshold_starts[f]]
            for row in range(start, stop):
                own_codes[f, row] = _code(own, n, X[row, f])
                low_codes[f, row] = _code(own, n, lower_bound(low_center[row, f], radius_down[f], minimum[f]))
                high_codes[f, row] = _code(own, n, upper_bound(high_center[row, f], radius_up[f], maximum[f]))


def order_nodes(const int32_t[:] node_features, const int32_t[:] left, const int32_t[:] right,
                int32_t[::1] order, int32_t[::1] places):
    """Write the nodes of a tree in pre-order, and the place of each node in it; returns the depth of the tree.

    Parameters
    ----------
    node_features : -1 in a leaf
    order : room for all nodes; those that wait are kept at its end meanwhile
    """
    cdef Py_ssize_t n_nodes = node_features.shape[0], n_done = 0, first = n_nodes - 1
    cdef int32_t node, depth, deepest = 0
    with nogil:
        order[first] = 0
        # Depths, until the place is known.
        places[0] = 0
        while first < n_nodes:
            node = order[first]
            first += 1
            depth = places[node]
            deepest = max(deepest, depth)
            places[node] = <int32_t> n_done
            order[n_done] = node
            n_done += 1
            if node_features[node] >= 0:
                first -= 2
                order[first + 1] = right[node]
                order[first] = left[node]
                places[left[node]] = places[right[node]] = depth + 1
    return deepest


def order_levels(const int32_t[::1] left, const int32_t[::1] right, const uint8_t[::1] is_leaf, int32_t[::1] order):
    """Write the nodes of a tree level by level, down to the first leaf on each path; returns their number."""
    cdef Py_ssize_t n_done = 0, n_found = 1
    cdef int32_t node
    with nogil:
        order[0] = 0
        while n_done < n_found:
            node = order[n_done]
            n_done += 1
            if not is_leaf[node]:
                order[n_found] = left[node]
                order[n_found + 1] = right[node]
                n_found += 2
    return n_found


def number_leaves(const int32_t[::1] node_features, const int32_t[::1] right, int32_t[::1] first, int32_t[::1] last):
    """Write which leaves lie below each node of a tree in pre-order, by their numbers: first..last-1."""
    cdef Py_ssize_t node, n_nodes = node_features.shape[0]
    cdef int32_t n_leaves = 0
    with nogil:
        for node in range(n_nodes):
            first[node] = n_leaves
            n_leaves += node_features[node] < 0
        for node in range(n_nodes - 1, -1, -1):
            last[node] = first[node] + 1 if node_features[node] < 0 else last[right[node]]


cdef inline int32_t _find_leaf(const uint8_t[:, ::1] codes, const int32_t[::1] node_features,
                               const int32_t[::1] node_codes, const int32_t[::1] left, const int32_t[::1] right,
                               Py_ssize_t row) noexcept nogil:
    """The leaf that a row falls into."""
    cdef int32_t node = 0
    while node_features[node] >= 0:
        node = left[node] if codes[node_features[node], row] <= node_codes[node] else right[node]
    return node


cdef inline int32_t _next_leaf(const uint8_t[:, ::1] low_codes, const uint8_t[:, ::1] high_codes,
                               const int32_t[::1] node_features, const int32_t[::1] node_codes,
                               const int32_t[::1] left, const int32_t[::1] right, Py_ssize_t row,
                               int32_t[::1] waiting, Py_ssize_t* n_waiting) noexcept nogil:
    """The leftmost leaf below the last one of the waiting nodes that the box of a row reaches; others wait."""
    cdef int32_t node, f
    n_waiting[0] -= 1
    node = waiting[n_waiting[0]]
    f = node_features[node]
    while f >= 0:
        if low_codes[f, row] <= node_codes[node]:
            if high_codes[f, row] > node_codes[node]:
                waiting[n_waiting[0]] = right[node]
                n_waiting[0] += 1
            node = left[node]
        else:
            node = right[node]
        f = node_features[node]
    return node


def add_tree(const uint8_t[:, ::1] own_codes, const uint8_t[:, ::1] low_codes, const uint8_t[:, ::1] high_codes,
             const int32_t[::1] node_features, const int32_t[::1] node_codes, const int32_t[::1] left,
             const int32_t[::1] right, const double[::1] values, int32_t[::1] waiting,
             Py_ssize_t start, Py_ssize_t stop, double[::1] own, double[::1] lowest, double[::1] highest):
    """Add the value of a tree for the rows start..stop-1: at the row, and the lowest and the highest in its box.

    Parameters
    ----------
    node_features : -1 in a leaf
    waiting : room for as many nodes as the tree is deep, and one more
    """
    cdef Py_ssize_t row, n_waiting
    cdef int32_t leaf
    cdef double low, high
    with nogil:
        for row in range(start, stop):
            own[row] += values[_find_leaf(own_codes, node_features, node_codes, left, right, row)]
            low = INFINITY
            high = -INFINITY
            waiting[0] = 0
            n_waiting = 1
            while n_waiting > 0:
                leaf = _next_leaf(low_codes, high_codes, node_features, node_codes, left, right, row, waiting,
                                  &n_waiting)
                low = min(low, values[leaf])
                high = max(high, values[leaf])
            lowest[row] += low
            highest[row] += high


def reach_leaves(const uint8_t[:, ::1] own_codes, const uint8_t[:, ::1] low_codes, const uint8_t[:, ::1] high_codes,
                 const int32_t[::1] node_features, const int32_t[::1] node_codes, const int32_t[::1] left,
                 const int32_t[::1] right, const int32_t[::1] numbers, int32_t[::1] waiting,
                 int32_t[::1] own_leaves, int64_t[::1] starts, int32_t[::1] reached):
    """Write the leaf that each row falls into, and those that its box reaches, row by row, by their `numbers`.

    Returns the number of pairs of a row and a leaf. If there is less room, only the first ones are written.
    """
    cdef Py_ssize_t row, n_waiting
    cdef int32_t leaf
    cdef int64_t total = 0, room = reached.shape[0]
    with nogil:
        starts[0] = 0
        for row in range(low_codes.shape[1]):
            own_leaves[row] = numbers[_find_leaf(own_codes, node_features, node_codes, left, right, row)]
            waiting[0] = 0
            n_waiting = 1
            while n_waiting > 0:
                leaf = _next_leaf(low_codes, high_codes, node_features, node_codes, left, right, row, waiting,
                                  &n_waiting)
                if total < room:
                    reached[total] = numbers[leaf]
                total += 1
            starts[row + 1] = total
    return total
