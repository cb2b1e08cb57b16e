"""Where two trees fall into leaves of different classes, by walking both at once; and tests that make no difference.

Leaves are compared by the number of their class, whatever that stands for (an answer, a distribution): the caller numbers
both trees alike. All boxes are closed; the right side of `x <= k` starts at the next float64 after k. Nothing is sampled,
so that no difference found is a proof that there is none. Leaves the meaning of classes to metasilvae.comparison and
metasilvae.simplification.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

from ms_box cimport just_above
from ms_node cimport Node, reaches_left, reaches_right

cdef struct Frame:
    int32_t first       # node of the first tree to visit next, or -1: only put a bound back
    int32_t second
    int32_t feature     # whose bounds are to be set first, -1 for none
    double low
    double high


cdef class Walk:
    """Both trees below two nodes inside a box, leaf by leaf; the box must not be empty."""

    cdef const Node* first_nodes
    cdef const Node* second_nodes
    cdef const int32_t* first_classes
    cdef const int32_t* second_classes
    cdef double* low
    cdef double* high
    cdef Frame* stack
    cdef Py_ssize_t top
    # Where the walk has found a difference.
    cdef int32_t first_leaf, second_leaf

    def __cinit__(self, Py_ssize_t n_features, Py_ssize_t depth):
        self.low = <double*> malloc(max(n_features, 1) * sizeof(double))
        self.high = <double*> malloc(max(n_features, 1) * sizeof(double))
        # Each split leaves at most two frames behind while the walk is below it.
        self.stack = <Frame*> malloc((3 * depth + 4) * sizeof(Frame))
        if self.low == NULL or self.high == NULL or self.stack == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.low)
        free(self.high)
        free(self.stack)

    cdef void begin(self, int32_t first, int32_t second) noexcept nogil:
        self.stack[0] = Frame(first, second, -1, 0.0, 0.0)
        self.top = 1

    cdef bint advance(self) noexcept nogil:
        """Go on to the next two leaves of different classes; False if there are none, the box is as before then."""
        cdef Frame frame
        cdef const Node* node
        cdef int32_t f, left_first, left_second, right_first, right_second
        while self.top > 0:
            self.top -= 1
            frame = self.stack[self.top]
            if frame.feature >= 0:
                self.low[frame.feature] = frame.low
                self.high[frame.feature] = frame.high
            if frame.first < 0:
                continue
            node = &self.first_nodes[frame.first]
            left_first, right_first = node.left, node.right
            left_second = right_second = frame.second
            if node.feature < 0:
                node = &self.second_nodes[frame.second]
                left_first = right_first = frame.first
                left_second, right_second = node.left, node.right
                if node.feature < 0:
                    self.first_leaf = self.first_nodes[frame.first].leaf
                    self.second_leaf = node.leaf
                    if self.first_classes[self.first_leaf] != self.second_classes[self.second_leaf]:
                        return True
                    continue
            f = node.feature
            if not reaches_right(self.high[f], node.threshold):
                self.stack[self.top] = Frame(left_first, left_second, -1, 0.0, 0.0)
                self.top += 1
            elif not reaches_left(self.low[f], node.threshold):
                self.stack[self.top] = Frame(right_first, right_second, -1, 0.0, 0.0)
                self.top += 1
            else:
                self.stack[self.top] = Frame(-1, -1, f, self.low[f], self.high[f])
                self.stack[self.top + 1] = Frame(right_first, right_second, f, just_above(node.threshold), self.high[f])
                self.stack[self.top + 2] = Frame(left_first, left_second, f, self.low[f], node.threshold)
                self.top += 3
        return False

    cdef void abandon(self) noexcept nogil:
        """Put all bounds back that the walk has changed."""
        while self.top > 0:
            self.top -= 1
            if self.stack[self.top].first < 0:
                self.low[self.stack[self.top].feature] = self.stack[self.top].low
                self.high[self.stack[self.top].feature] = self.stack[self.top].high


def find_differences(const Node[::1] first_nodes, int32_t first_root, const int32_t[::1] first_classes,
                     const Node[::1] second_nodes, int32_t second_root, const int32_t[::1] second_classes,
                     Py_ssize_t depth, const double[::1] lower, const double[::1] upper,
                     int32_t[:, ::1] leaves, double[:, ::1] lowers, double[:, ::1] uppers):
    """Count the regions of a box in which two trees fall into leaves of different classes.

    Parameters
    ----------
    first_classes, second_classes : class of each leaf
    depth : of both trees together
    lower, upper : the box; not empty
    leaves, lowers, uppers : receive both leaves and the bounds of as many regions as there is room for
    """
    cdef Py_ssize_t n_features = lower.shape[0], f
    cdef Walk walk = Walk(n_features, depth)
    cdef int64_t n_found = 0
    walk.first_nodes, walk.second_nodes = &first_nodes[0], &second_nodes[0]
    walk.first_classes, walk.second_classes = &first_classes[0], &second_classes[0]
    with nogil:
        for f in range(n_features):
            walk.low[f], walk.high[f] = lower[f], upper[f]
        walk.begin(first_root, second_root)
        while walk.advance():
            if n_found < leaves.shape[0]:
                leaves[n_found, 0], leaves[n_found, 1] = walk.first_leaf, walk.second_leaf
                for f in range(n_features):
                    lowers[n_found, f], uppers[n_found, f] = walk.low[f], walk.high[f]
            n_found += 1
    return n_found


cdef bint _agree(Walk walk, int32_t first, int32_t second) noexcept nogil:
    walk.begin(first, second)
    if walk.advance():
        walk.abandon()
        return False
    return True


def drop_needless_tests(Node[::1] nodes, const int32_t[::1] parents, const int32_t[::1] classes, Py_ssize_t depth,
                        const double[::1] lower, const double[::1] upper, int32_t[::1] sizes, int32_t[::1] absorbed):
    """Replace splits by one of their children where that changes the class of no point of a box; return their number.

    A split gives way to its right child if on its left side the right child is of the same class as the left one
    everywhere, and the other way round; so do splits of which the box reaches one side only. Of two such children the
    smaller one is kept. Splits are looked at from the leaves upwards.

    Parameters
    ----------
    nodes : trees, children behind their parents; a node that gives way is overwritten by the child, so that nodes which
        no root leads to any more are left in the array
    parents : parent of each node, -1 for roots
    depth : twice that of the trees
    lower, upper : the box; not empty
    sizes : room for the number of nodes below each node
    absorbed : receives for each leaf the leaf that took over its samples, -1 if none did
    """
    cdef Py_ssize_t n_features = lower.shape[0]
    cdef Walk walk = Walk(n_features, depth)
    cdef int32_t i, node, parent, f, left, right, kept
    cdef double low, high, threshold
    cdef bint has_left, has_right, is_empty, keeps_left, keeps_right
    cdef int64_t n_dropped = 0
    walk.first_nodes = walk.second_nodes = &nodes[0]
    walk.first_classes = walk.second_classes = &classes[0]
    with nogil:
        for f in range(n_features):
            walk.low[f], walk.high[f] = lower[f], upper[f]
        for i in range(absorbed.shape[0]):
            absorbed[i] = -1
        for i in range(<int32_t> nodes.shape[0] - 1, -1, -1):
            if nodes[i].feature < 0:
                sizes[i] = 1
                continue
            left, right = nodes[i].left, nodes[i].right
            sizes[i] = 1 + sizes[left] + sizes[right]
            # Narrow the box to the points that arrive here.
            node = i
            parent = parents[node]
            is_empty = False
            while parent >= 0:
                f = nodes[parent].feature
                if nodes[parent].left == node:
                    walk.high[f] = min(walk.high[f], nodes[parent].threshold)
                else:
                    walk.low[f] = max(walk.low[f], just_above(nodes[parent].threshold))
                is_empty |= walk.low[f] > walk.high[f]
                node = parent
                parent = parents[node]
            if not is_empty:
                f, threshold = nodes[i].feature, nodes[i].threshold
                low, high = walk.low[f], walk.high[f]
                has_left, has_right = reaches_left(low, threshold), reaches_right(high, threshold)
                keeps_right = keeps_left = True
                if has_left:
                    walk.high[f] = min(high, threshold)
                    keeps_right = _agree(walk, left, right)
                    walk.high[f] = high
                if has_right:
                    walk.low[f] = max(low, just_above(threshold))
                    keeps_left = _agree(walk, left, right)
                    walk.low[f] = low
                if keeps_left or keeps_right:
                    kept = left if keeps_left and (not keeps_right or sizes[left] <= sizes[right]) else right
                    if has_left and has_right and nodes[left].feature < 0 and nodes[right].feature < 0:
                        absorbed[nodes[right if kept == left else left].leaf] = nodes[kept].leaf
                    sizes[i] = sizes[kept]
                    nodes[i] = nodes[kept]
                    n_dropped += 1
            # Widen the box again.
            node = i
            parent = parents[node]
            while parent >= 0:
                f = nodes[parent].feature
                walk.low[f], walk.high[f] = lower[f], upper[f]
                node = parent
                parent = parents[node]
    return n_dropped
