"""Which leaf of each tree a sample falls into. Counting votes is left to metasilvae.voting."""

from libc.stdint cimport int32_t

from common.descent cimport descend_sample
from common.node cimport Node


cdef inline void _fill(const Node* nodes, const int32_t* roots, int32_t n_trees, const double* sample,
                       Py_ssize_t n_features, Py_ssize_t n_rows, bint has_missing, int32_t* leaves) noexcept nogil:
    """Write the leaves of rows that follow each other; called with a constant `has_missing`."""
    cdef Py_ssize_t row
    cdef int32_t tree
    for row in range(n_rows):
        descend_sample(nodes, roots, n_trees, sample, has_missing, leaves)
        for tree in range(n_trees):
            leaves[tree] = nodes[leaves[tree]].leaf
        sample += n_features
        leaves += n_trees


def fill_leaves(const Node[::1] nodes, const int32_t[::1] roots, const double[:, ::1] X, bint has_missing,
                Py_ssize_t start, Py_ssize_t stop, int32_t[:, ::1] leaves):
    """Write the leaf of every tree for the rows start..stop-1 of X, where NaN is a missing value.

    Parameters
    ----------
    has_missing : whether there may be missing values
    leaves : shape (n_samples, n_trees), receives positions in the model's table of leaves
    """
    cdef int32_t n_trees = <int32_t> roots.shape[0]
    if start >= stop:
        return
    if start < 0 or stop > X.shape[0] or stop > leaves.shape[0] or leaves.shape[1] != n_trees:
        raise IndexError(f"rows {start} to {stop} of {X.shape[0]}, {leaves.shape[0]} x {leaves.shape[1]} leaves")
    with nogil:
        if has_missing:
            _fill(&nodes[0], &roots[0], n_trees, &X[start, 0], X.shape[1], stop - start, True, &leaves[start, 0])
        else:
            _fill(&nodes[0], &roots[0], n_trees, &X[start, 0], X.shape[1], stop - start, False, &leaves[start, 0])
