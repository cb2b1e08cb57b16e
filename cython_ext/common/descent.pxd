# Going down trees: several trees at once as far as a box takes one way only, and leaf by leaf through one tree.

from libc.stdint cimport int32_t

from common.box cimport REACHES_BOTH, REACHES_LEFT, RowBox, lower_bound, reach_of_missing, upper_bound
from common.node cimport (
    Node, child, default_child, goes_left, is_missing, missing_goes_left, reaches_left, reaches_right,
)

# Several trees at once. Each step of a descent depends on the one before; steps in different trees are independent, so
# the processor works on four of them at the same time.


cdef inline bint take_step(const Node* nodes, const double* lower, const double* upper, const double* values,
                           int32_t* node) noexcept nogil:
    """Go to the only child that a box reaches; False at a leaf and at a split that the box reaches both sides of."""
    cdef int32_t feature = nodes[node[0]].feature
    cdef bint is_left
    if feature < 0:
        return False
    is_left = reaches_left(lower[feature], nodes[node[0]].threshold)
    if is_left & reaches_right(upper[feature], nodes[node[0]].threshold):
        return is_missing(lower[feature]) and _take_missing_step(nodes, values, node)
    node[0] = child(&nodes[node[0]], is_left)
    return True


cdef inline bint _take_missing_step(const Node* nodes, const double* values, int32_t* node) noexcept nogil:
    """The same for a feature with NaN bounds."""
    cdef int reach = reach_of_missing(&nodes[node[0]], values)
    if reach == REACHES_BOTH:
        return False
    node[0] = nodes[node[0]].left if reach == REACHES_LEFT else nodes[node[0]].right
    return True


cdef inline void descend_together(const Node* nodes, const int32_t* roots, int32_t n_trees, const double* lower,
                                  const double* upper, const double* values, int32_t* ends) noexcept nogil:
    """Follow a box from each root as far as it goes one way.

    Parameters
    ----------
    lower, upper : bounds of the box, by feature
    values : intervals of features that may be missing (box.pxd), or NULL
    ends : for each tree the leaf that the whole box falls into, or the first split that it reaches both sides of
    """
    cdef int32_t tree
    for tree in range(n_trees):
        ends[tree] = roots[tree]
    tree = 0
    while tree + 4 <= n_trees:
        while (take_step(nodes, lower, upper, values, &ends[tree])
               | take_step(nodes, lower, upper, values, &ends[tree + 1])
               | take_step(nodes, lower, upper, values, &ends[tree + 2])
               | take_step(nodes, lower, upper, values, &ends[tree + 3])):
            pass
        tree += 4
    while tree < n_trees:
        while take_step(nodes, lower, upper, values, &ends[tree]):
            pass
        tree += 1


cdef inline bint take_step_of_sample(const Node* nodes, const double* sample, bint has_missing,
                                     int32_t* node) noexcept nogil:
    """Go to the child of a sample; False at a leaf. Without missing values, no time is spent on them."""
    cdef int32_t feature = nodes[node[0]].feature
    cdef bint is_left
    if feature < 0:
        return False
    is_left = goes_left(sample[feature], nodes[node[0]].threshold)
    if has_missing and is_missing(sample[feature]):
        is_left = missing_goes_left(&nodes[node[0]])
    node[0] = child(&nodes[node[0]], is_left)
    return True


cdef inline void descend_sample(const Node* nodes, const int32_t* roots, int32_t n_trees, const double* sample,
                                bint has_missing, int32_t* ends) noexcept nogil:
    """Write for each tree the leaf that a sample falls into."""
    cdef int32_t tree
    for tree in range(n_trees):
        ends[tree] = roots[tree]
    tree = 0
    while tree + 4 <= n_trees:
        while (take_step_of_sample(nodes, sample, has_missing, &ends[tree])
               | take_step_of_sample(nodes, sample, has_missing, &ends[tree + 1])
               | take_step_of_sample(nodes, sample, has_missing, &ends[tree + 2])
               | take_step_of_sample(nodes, sample, has_missing, &ends[tree + 3])):
            pass
        tree += 4
    while tree < n_trees:
        while take_step_of_sample(nodes, sample, has_missing, &ends[tree]):
            pass
        tree += 1


# Leaf by leaf. `waiting` holds nodes that a walk has still to visit, at most one for each split on the path, and `top`
# is their number. There are two kinds of boxes: given by their bounds, and of a row, whose bounds are computed where
# they are needed.


cdef inline int32_t next_leaf(const Node* nodes, const double* lower, const double* upper, const double* values,
                              int32_t* waiting, Py_ssize_t* top) noexcept nogil:
    """The first leaf below the last waiting node that a box reaches; right children that it also reaches must wait.

    A walk starts with the root as the only waiting node and takes the next leaf while nodes wait. Features that may be
    missing pass each test by themselves, so that a leaf may be found that no sample of the box falls into.
    """
    cdef Py_ssize_t n_waiting = top[0] - 1
    cdef int32_t node = waiting[n_waiting], feature
    feature = nodes[node].feature
    while feature >= 0:
        if reaches_left(lower[feature], nodes[node].threshold):
            if reaches_right(upper[feature], nodes[node].threshold):
                if is_missing(lower[feature]) and _take_missing_step(nodes, values, &node):
                    feature = nodes[node].feature
                    continue
                waiting[n_waiting] = nodes[node].right
                n_waiting += 1
            node = nodes[node].left
        else:
            node = nodes[node].right
        feature = nodes[node].feature
    top[0] = n_waiting
    return node


cdef inline int32_t first_leaf_of_row(const Node* nodes, int32_t node, RowBox box, bint has_missing, int32_t* waiting,
                                      Py_ssize_t* top) noexcept nogil:
    """The first leaf below a node that the box of a row reaches; right children that it also reaches must wait.

    A walk starts with the first leaf below the root and no waiting node, and takes the next leaf while nodes wait.
    Measured: with the root as a waiting node, verification of trees takes a fifth more instructions. A missing value
    goes one way; values that may become missing are left to find_witnesses of reach.pyx. Callers pass `has_missing` as
    a constant, so that walks without missing values spend no time on them.
    """
    cdef int32_t f = nodes[node].feature
    cdef double threshold, lower
    while f >= 0:
        threshold = nodes[node].threshold
        lower = lower_bound(box.low_center[f], box.radius_down[f], box.minimum[f], has_missing)
        if reaches_left(lower, threshold):
            if reaches_right(upper_bound(box.high_center[f], box.radius_up[f], box.maximum[f], has_missing), threshold):
                if has_missing and is_missing(lower):
                    node = default_child(&nodes[node])
                    f = nodes[node].feature
                    continue
                waiting[top[0]] = nodes[node].right
                top[0] += 1
            node = nodes[node].left
        else:
            node = nodes[node].right
        f = nodes[node].feature
    return node


cdef inline int32_t next_leaf_of_row(const Node* nodes, RowBox box, bint has_missing, int32_t* waiting,
                                     Py_ssize_t* top) noexcept nogil:
    """The first leaf below the last waiting node."""
    top[0] -= 1
    return first_leaf_of_row(nodes, waiting[top[0]], box, has_missing, waiting, top)
