# The leaves of one tree that the box of a row reaches, one after another.

from libc.stdint cimport int32_t

from ms_box cimport lower_bound, upper_bound
from ms_node cimport Node, reaches_left, reaches_right

cdef struct RowBox:
    # The box of one row, by feature, as described in reach.pyx.
    const double* low_center
    const double* high_center
    const double* radius_down
    const double* radius_up
    const double* minimum
    const double* maximum


cdef inline int32_t descend(const Node* nodes, int32_t node, RowBox box, int32_t* waiting,
                            Py_ssize_t* top) noexcept nogil:
    """The first leaf below a node that the box reaches; right children that it reaches too are left to wait.

    Parameters
    ----------
    waiting : room for one node at each depth
    top : how many nodes are waiting
    """
    cdef int32_t f = nodes[node].feature
    cdef double threshold
    while f >= 0:
        threshold = nodes[node].threshold
        if reaches_left(lower_bound(box.low_center[f], box.radius_down[f], box.minimum[f]), threshold):
            if reaches_right(upper_bound(box.high_center[f], box.radius_up[f], box.maximum[f]), threshold):
                waiting[top[0]] = nodes[node].right
                top[0] += 1
            node = nodes[node].left
        else:
            node = nodes[node].right
        f = nodes[node].feature
    return node
