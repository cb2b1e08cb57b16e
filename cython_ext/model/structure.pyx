"""Facts about the shape of trees: depths, and which branches no sample can take.

Leaves classification and boxes to predict.pyx and reach.pyx. Nothing here recurses, so a chain of a hundred thousand
splits is as good as a balanced tree.
"""

from libc.float cimport DBL_MAX
from libc.math cimport INFINITY
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc

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


cdef struct Frame:
    int32_t source          # node in the original array
    int32_t parent          # node in the new array that gets this one as a child, -1 for a root
    bint is_right
    int32_t feature         # >= 0: a bound to put back instead of a node to visit
    double low
    double high


def drop_contradictions(const Node[::1] nodes, const int32_t[::1] roots, Py_ssize_t n_features,
                        Node[::1] kept, int32_t[::1] kept_roots):
    """Copy the trees without branches that no finite sample can take; return the number of nodes kept.

    The samples that arrive at a node have low[f] < x[f] <= high[f] for each feature f. A split with threshold k has
    a left side iff low[f] < k, a right side iff k < high[f]; with one side only it is replaced by that side.

    Parameters
    ----------
    nodes, roots : the trees, each in pre-order
    kept : room for as many nodes as there are in `nodes`; filled in pre-order
    kept_roots : room for the roots
    """
    cdef Py_ssize_t n_nodes = nodes.shape[0]
    cdef double* low = <double*> malloc(max(n_features, 1) * sizeof(double))
    cdef double* high = <double*> malloc(max(n_features, 1) * sizeof(double))
    # Each visited split pushes at most four frames and pops the one that led to it.
    cdef Frame* stack = <Frame*> malloc((4 * n_nodes + 4) * sizeof(Frame))
    cdef Py_ssize_t n_kept = 0
    cdef Py_ssize_t top, tree, f
    cdef Frame frame
    cdef int32_t source, feature
    cdef double threshold
    cdef bint left_open, right_open
    if low == NULL or high == NULL or stack == NULL:
        free(low)
        free(high)
        free(stack)
        raise MemoryError()
    try:
        with nogil:
            for f in range(n_features):
                low[f] = -INFINITY
                high[f] = DBL_MAX
            for tree in range(roots.shape[0]):
                kept_roots[tree] = <int32_t> n_kept
                stack[0] = Frame(roots[tree], -1, False, -1, 0.0, 0.0)
                top = 1
                while top > 0:
                    top -= 1
                    frame = stack[top]
                    if frame.feature >= 0:
                        low[frame.feature] = frame.low
                        high[frame.feature] = frame.high
                        continue
                    source = frame.source
                    while nodes[source].feature >= 0:
                        left_open = low[nodes[source].feature] < nodes[source].threshold
                        right_open = nodes[source].threshold < high[nodes[source].feature]
                        if left_open and right_open:
                            break
                        # low < high, so one side is always open.
                        source = nodes[source].left if left_open else nodes[source].right
                    kept[n_kept] = nodes[source]
                    if frame.parent >= 0:
                        if frame.is_right:
                            kept[frame.parent].right = <int32_t> n_kept
                        else:
                            kept[frame.parent].left = <int32_t> n_kept
                    feature = nodes[source].feature
                    if feature >= 0:
                        threshold = nodes[source].threshold
                        # Popped in reverse: narrow for the left child, visit it, narrow for the right one, visit it,
                        # put the bounds back.
                        stack[top] = Frame(0, 0, False, feature, low[feature], high[feature])
                        stack[top + 1] = Frame(nodes[source].right, <int32_t> n_kept, True, -1, 0.0, 0.0)
                        stack[top + 2] = Frame(0, 0, False, feature, threshold, high[feature])
                        stack[top + 3] = Frame(nodes[source].left, <int32_t> n_kept, False, -1, 0.0, 0.0)
                        high[feature] = threshold
                        top += 4
                    n_kept += 1
        return n_kept
    finally:
        free(low)
        free(high)
        free(stack)
