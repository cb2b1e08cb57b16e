# Going down several trees at once. Each step waits for the one before it; steps in different trees wait for each other
# no longer.

from libc.stdint cimport int32_t

from ms_node cimport Node, child, reaches_left, reaches_right


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
