"""The part of a row's box that falls into given leaves of a forest, and its point nearest to the row.

Leaves it to others to find leaves that have a point of the box in common (forest_search.pyx).
"""

from libc.stdint cimport int32_t, int64_t

from ms_box cimport lower_bound, upper_bound
from ms_groups cimport fill_nearest
from ms_node cimport Node


def fill_regions(const Node[::1] nodes, const int32_t[::1] parents, const int32_t[::1] leaf_nodes,
                 const double[:, ::1] low_center, const double[:, ::1] high_center,
                 const double[::1] radius_down, const double[::1] radius_up,
                 const double[::1] minimum, const double[::1] maximum,
                 const int32_t[::1] members, const int32_t[::1] group_starts, const double[::1] right_starts,
                 const double[:, ::1] X, const int32_t[:, ::1] leaves, const int64_t[::1] rows,
                 Py_ssize_t start, Py_ssize_t stop,
                 double[:, ::1] points, double[:, ::1] lowers, double[:, ::1] uppers):
    """Fill the outputs at start..stop-1 for the rows at these places of the list `rows`.

    Parameters
    ----------
    parents : parent of each node, -1 for roots
    leaf_nodes : node of each leaf
    right_starts : for each node the smallest value that its test sends to the right
    leaves : shape (n_samples, n_trees), leaf of each tree for each row of the data
    points : receives the point nearest to the row, with one-hot groups
    lowers, uppers : receive the bounds of the part
    """
    cdef Py_ssize_t item, row, f, tree
    cdef int32_t node, parent
    with nogil:
        for item in range(start, stop):
            row = rows[item]
            for f in range(X.shape[1]):
                lowers[item, f] = lower_bound(low_center[row, f], radius_down[f], minimum[f])
                uppers[item, f] = upper_bound(high_center[row, f], radius_up[f], maximum[f])
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
            fill_nearest(members, group_starts, &X[row, 0], &lowers[item, 0], &uppers[item, 0], X.shape[1],
                         &points[item, 0])
