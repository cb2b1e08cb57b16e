"""Which leaf of each tree a sample falls into. Leaves counting votes to metasilvae.voting."""

from libc.stdint cimport int32_t

from ms_node cimport Node, goes_left


def fill_leaves(const Node[::1] nodes, const int32_t[::1] roots, const double[:, ::1] X,
                Py_ssize_t start, Py_ssize_t stop, int32_t[:, ::1] leaves):
    """Write the leaf of every tree for the rows start..stop-1 of X.

    Parameters
    ----------
    leaves : shape (n_samples, n_trees), receives positions in the model's table of leaves
    """
    cdef Py_ssize_t row, tree
    cdef int32_t node
    with nogil:
        for row in range(start, stop):
            for tree in range(roots.shape[0]):
                node = roots[tree]
                while nodes[node].feature >= 0:
                    if goes_left(X[row, nodes[node].feature], nodes[node].threshold):
                        node = nodes[node].left
                    else:
                        node = nodes[node].right
                leaves[row, tree] = nodes[node].leaf
