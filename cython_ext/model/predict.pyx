"""Which leaf of each tree a sample falls into. Counting votes is left to metasilvae.voting."""

from libc.stdint cimport int32_t

from common.descent cimport descend_together
from common.node cimport Node


def fill_leaves(const Node[::1] nodes, const int32_t[::1] roots, const double[:, ::1] X,
                Py_ssize_t start, Py_ssize_t stop, int32_t[:, ::1] leaves):
    """Write the leaf of every tree for the rows start..stop-1 of X, where NaN is a missing value.

    Parameters
    ----------
    leaves : shape (n_samples, n_trees), receives positions in the model's table of leaves
    """
    cdef Py_ssize_t row
    cdef int32_t tree, n_trees = <int32_t> roots.shape[0]
    with nogil:
        for row in range(start, stop):
            descend_together(&nodes[0], &roots[0], n_trees, &X[row, 0], &X[row, 0], NULL, &leaves[row, 0])
            for tree in range(n_trees):
                leaves[row, tree] = nodes[leaves[row, tree]].leaf
