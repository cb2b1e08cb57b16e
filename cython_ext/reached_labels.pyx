"""Which labels one tree may answer somewhere in a box.

Expects a tree without contradictory branches and boxes as described in reach.pyx. What follows for a forest is left to
metasilvae.training.forest_votes.
"""

from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from ms_node cimport Node
from ms_walk cimport RowBox, descend


def fill_reached_labels(const Node[::1] nodes, const uint8_t[:, ::1] leaf_votes, Py_ssize_t max_depth,
                        const double[:, ::1] low_center, const double[:, ::1] high_center,
                        const double[::1] radius_down, const double[::1] radius_up,
                        const double[::1] minimum, const double[::1] maximum,
                        Py_ssize_t start, Py_ssize_t stop, uint8_t[:, ::1] reached):
    """Write for the rows start..stop-1 and each label whether some leaf that the box reaches votes for it."""
    cdef Py_ssize_t row, top, label, n_labels = leaf_votes.shape[1]
    cdef int32_t node, leaf
    cdef RowBox box
    # Right children that wait while the left subtree is searched: at most one for each split on the path.
    cdef int32_t* waiting = <int32_t*> malloc((max_depth + 1) * sizeof(int32_t))
    if waiting == NULL:
        raise MemoryError()
    try:
        with nogil:
            for row in range(start, stop):
                memset(&reached[row, 0], 0, n_labels)
                box = RowBox(&low_center[row, 0], &high_center[row, 0], &radius_down[0], &radius_up[0],
                             &minimum[0], &maximum[0])
                top = 0
                node = descend(&nodes[0], 0, box, waiting, &top)
                while True:
                    leaf = nodes[node].leaf
                    for label in range(n_labels):
                        reached[row, label] |= leaf_votes[leaf, label]
                    if top == 0:
                        break
                    top -= 1
                    node = descend(&nodes[0], waiting[top], box, waiting, &top)
    finally:
        free(waiting)
