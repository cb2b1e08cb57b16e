"""Which labels one tree may answer somewhere in a box.

Expects a tree without contradictory branches and boxes as described in reach.pyx. What follows for a forest is left to
metasilvae.ensemble_votes.
"""

from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from ms_box cimport lower_bound, upper_bound
from ms_node cimport Node, reaches_left, reaches_right


def fill_reached_labels(const Node[::1] nodes, const uint8_t[:, ::1] leaf_votes, Py_ssize_t max_depth,
                        const double[:, ::1] low_center, const double[:, ::1] high_center,
                        const double[::1] radius_down, const double[::1] radius_up,
                        const double[::1] minimum, const double[::1] maximum,
                        Py_ssize_t start, Py_ssize_t stop, uint8_t[:, ::1] reached):
    """Write for the rows start..stop-1 and each label whether some leaf that the box reaches votes for it."""
    cdef Py_ssize_t row, top, f, label, n_labels = leaf_votes.shape[1]
    cdef int32_t node, leaf
    cdef double threshold
    # Right children that wait while the left subtree is searched: at most one for each split on the path.
    cdef int32_t* waiting = <int32_t*> malloc((max_depth + 1) * sizeof(int32_t))
    if waiting == NULL:
        raise MemoryError()
    try:
        with nogil:
            for row in range(start, stop):
                memset(&reached[row, 0], 0, n_labels)
                node = 0
                top = 0
                while True:
                    f = nodes[node].feature
                    if f < 0:
                        leaf = nodes[node].leaf
                        for label in range(n_labels):
                            reached[row, label] |= leaf_votes[leaf, label]
                        if top == 0:
                            break
                        top -= 1
                        node = waiting[top]
                        continue
                    threshold = nodes[node].threshold
                    if reaches_left(lower_bound(low_center[row, f], radius_down[f], minimum[f]), threshold):
                        if reaches_right(upper_bound(high_center[row, f], radius_up[f], maximum[f]), threshold):
                            waiting[top] = nodes[node].right
                            top += 1
                        node = nodes[node].left
                    else:
                        node = nodes[node].right
    finally:
        free(waiting)
