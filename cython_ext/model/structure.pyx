"""Facts about the shape of trees: depths, and which branches no sample can take.

Classification is left to predict.pyx, boxes around samples to the kernels of verification. Nothing here recurses, so a
chain of a hundred thousand splits is as good as a balanced tree.
"""

from libc.float cimport DBL_MAX
from libc.math cimport INFINITY
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc

from common.box cimport BoxVisit, push_node, push_sides, set_bounds
from common.node cimport Node


def fill_depths(const Node[::1] nodes, const int32_t[::1] roots, int32_t[::1] depths):
    """Write the number of splits above each node. Children lie behind their parents, so one pass is enough."""
    cdef Py_ssize_t i
    with nogil:
        for i in range(roots.shape[0]):
            depths[roots[i]] = 0
        for i in range(nodes.shape[0]):
            if nodes[i].feature >= 0:
                depths[nodes[i].left] = depths[i] + 1
                depths[nodes[i].right] = depths[i] + 1


def drop_contradictions(const Node[::1] nodes, const int32_t[::1] roots, Py_ssize_t n_features,
                        Node[::1] kept, int32_t[::1] kept_roots):
    """Copy the trees without branches that no finite sample can take; return the number of nodes kept.

    The samples that arrive at a node have low[f] < x[f] <= high[f] for each feature f. A split with threshold k has
    a left side iff low[f] < k, a right side iff k < high[f]; with one side only it is replaced by that side.

    Parameters
    ----------
    nodes, roots : the trees, each in pre-order
    kept : as many nodes as there are in `nodes`; filled in pre-order
    kept_roots : receives the roots
    """
    cdef Py_ssize_t n_nodes = nodes.shape[0]
    cdef double* low = <double*> malloc(max(2 * n_features, 1) * sizeof(double))
    cdef double* high = low + n_features
    # Each visited split replaces the visit that led to it by three others.
    cdef BoxVisit* stack = <BoxVisit*> malloc((3 * n_nodes + 4) * sizeof(BoxVisit))
    # For each visit the kept node that gets this one as a child, -1 for a root.
    cdef int32_t* kept_parents = <int32_t*> malloc((3 * n_nodes + 4) * sizeof(int32_t))
    cdef Py_ssize_t n_kept = 0
    cdef Py_ssize_t top, tree, f
    cdef int32_t node, feature, parent
    cdef bint left_open, right_open
    if low == NULL or stack == NULL or kept_parents == NULL:
        free(low)
        free(stack)
        free(kept_parents)
        raise MemoryError()
    try:
        with nogil:
            for f in range(n_features):
                low[f] = -INFINITY
                high[f] = DBL_MAX
            for tree in range(roots.shape[0]):
                kept_roots[tree] = <int32_t> n_kept
                push_node(stack, 0, roots[tree])
                kept_parents[0] = -1
                top = 1
                while top > 0:
                    top -= 1
                    set_bounds(&stack[top], low, high)
                    node = stack[top].node
                    if node < 0:
                        continue
                    parent = kept_parents[top]
                    while nodes[node].feature >= 0:
                        left_open = low[nodes[node].feature] < nodes[node].threshold
                        right_open = nodes[node].threshold < high[nodes[node].feature]
                        if left_open and right_open:
                            break
                        # low < high, so one side is always open.
                        node = nodes[node].left if left_open else nodes[node].right
                    kept[n_kept] = nodes[node]
                    if parent >= 0:
                        # In pre-order the left child directly follows its parent.
                        if n_kept == parent + 1:
                            kept[parent].left = <int32_t> n_kept
                        else:
                            kept[parent].right = <int32_t> n_kept
                    feature = nodes[node].feature
                    if feature >= 0:
                        push_sides(stack, top, feature, nodes[node].threshold, nodes[node].threshold, nodes[node].left,
                                   nodes[node].right, low, high)
                        kept_parents[top + 1] = kept_parents[top + 2] = <int32_t> n_kept
                        top += 3
                    n_kept += 1
        return n_kept
    finally:
        free(low)
        free(stack)
        free(kept_parents)
