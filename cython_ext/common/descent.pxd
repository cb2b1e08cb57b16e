# Going down several trees at once. Each step waits for the one before it; steps in different trees wait for each other
# no longer.

from libc.stdint cimport int32_t

from common.box cimport lower_bound, upper_bound
from common.node cimport Node, child, reaches_left, reaches_right


cdef inline bint take_step(const Node* nodes, const double* lower, const double* upper, int32_t* node) noexcept nogil:
    """Go to the only child that a box reaches; False at a leaf and at a split that the box reaches both sides of."""
    cdef int32_t feature = nodes[node[0]].feature
    cdef bint is_left
    if feature < 0:
        return False
    is_left = reaches_left(lower[feature], nodes[node[0]].threshold)
    if is_left & reaches_right(upper[feature], nodes[node[0]].threshold):
        return False
    node[0] = child(&nodes[node[0]], is_left)
    return True


cdef inline void descend_together(const Node* nodes, const int32_t* roots, int32_t n_trees, const double* lower,
                                  const double* upper, int32_t* ends) noexcept nogil:
    """Follow a box from each root as far as it goes one way.

    Parameters
    ----------
    lower, upper : bounds of the box, by feature; the same for a single sample
    ends : for each tree the leaf that the whole box falls into, or the first split that it reaches both sides of
    """
    cdef int32_t tree
    for tree in range(n_trees):
        ends[tree] = roots[tree]
    tree = 0
    while tree + 4 <= n_trees:
        while (take_step(nodes, lower, upper, &ends[tree]) | take_step(nodes, lower, upper, &ends[tree + 1])
               | take_step(nodes, lower, upper, &ends[tree + 2]) | take_step(nodes, lower, upper, &ends[tree + 3])):
            pass
        tree += 4
    while tree < n_trees:
        while take_step(nodes, lower, upper, &ends[tree]):
            pass
        tree += 1


# The leaves of one tree that the box of a row reaches, one after another.

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
