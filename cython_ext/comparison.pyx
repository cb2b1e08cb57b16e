"""Where two trees fall into leaves of different classes, by walking both at once; and tests that make no difference.

Leaves are compared by the number of their class, whatever that stands for (an answer, a distribution): the caller numbers
both trees alike. All boxes are closed; the right side of `x <= k` starts at the next float64 after k. Nothing is sampled,
so that no difference found is a proof that there is none. Leaves the meaning of classes to metasilvae.analysis.difference and
metasilvae.analysis.simplification.
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
    # Nodes below each node of both trees, to look at the smaller side of a split first; NULL: the left side first.
    cdef const int32_t* sizes
    cdef Frame* stack
    cdef Py_ssize_t top
    # Where the walk has found a difference.
    cdef int32_t first_leaf, second_leaf

    def __cinit__(self, Py_ssize_t n_features, Py_ssize_t depth):
        self.low = <double*> malloc(max(n_features, 1) * sizeof(double))
        self.high = <double*> malloc(max(n_features, 1) * sizeof(double))
        self.sizes = NULL
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
        cdef Py_ssize_t sooner, later
        while self.top > 0:
            self.top -= 1
            frame = self.stack[self.top]
            if frame.feature >= 0:
                self.low[frame.feature] = frame.low
                self.high[frame.feature] = frame.high
            if frame.first < 0:
                continue
            # Pass the tests of the second tree that the box decides, once for all leaves of the first tree below:
            # of two chains each test is then passed a few times, not once for each leaf of the other.
            node = &self.second_nodes[frame.second]
            while node.feature >= 0:
                if not reaches_right(self.high[node.feature], node.threshold):
                    frame.second = node.left
                elif not reaches_left(self.low[node.feature], node.threshold):
                    frame.second = node.right
                else:
                    break
                node = &self.second_nodes[frame.second]
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
                later, sooner = self.top + 1, self.top + 2
                if self.sizes != NULL and self.sizes[node.right] < self.sizes[node.left]:
                    later, sooner = sooner, later
                self.stack[self.top] = Frame(-1, -1, f, self.low[f], self.high[f])
                self.stack[later] = Frame(right_first, right_second, f, just_above(node.threshold), self.high[f])
                self.stack[sooner] = Frame(left_first, left_second, f, self.low[f], node.threshold)
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


cdef enum Way:
    WAY_RIGHT
    WAY_LEFT
    WAY_BACK


cdef struct Step:
    int32_t node
    Way way             # where to go from the node next
    double bound        # of the node's feature before the last step down narrowed it
    bint is_empty       # no point of the box arrives here


cdef class Path:
    """The splits from a root down to the node that is visited."""

    cdef Step* steps
    cdef Py_ssize_t length

    def __cinit__(self, Py_ssize_t n_steps):
        self.steps = <Step*> malloc(n_steps * sizeof(Step))
        if self.steps == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.steps)

    cdef void append(self, int32_t node, bint is_empty) noexcept nogil:
        self.steps[self.length] = Step(node, WAY_RIGHT, 0.0, is_empty)
        self.length += 1


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
    cdef Walk walk = Walk(lower.shape[0], depth)
    cdef Path path = Path(depth // 2 + 1)
    cdef int32_t i, f
    cdef int64_t n_dropped = 0
    walk.first_nodes = walk.second_nodes = &nodes[0]
    walk.first_classes = walk.second_classes = &classes[0]
    # A difference is often found in a leaf beside a long chain.
    walk.sizes = &sizes[0]
    with nogil:
        for f in range(lower.shape[0]):
            walk.low[f], walk.high[f] = lower[f], upper[f]
        for i in range(absorbed.shape[0]):
            absorbed[i] = -1
        for i in range(<int32_t> nodes.shape[0]):
            if parents[i] < 0:
                n_dropped += _drop_below(walk, path, &nodes[0], i, &sizes[0], &absorbed[0])
    return n_dropped


cdef int64_t _drop_below(Walk walk, Path path, Node* nodes, int32_t root, int32_t* sizes,
                         int32_t* absorbed) noexcept nogil:
    """Visit the right side of each split, then its left side, then the split, in the box of the points that arrive."""
    cdef int64_t n_dropped = 0
    cdef Step* step
    cdef int32_t f
    path.steps[0] = Step(root, WAY_RIGHT, 0.0, False)
    path.length = 1
    while path.length > 0:
        step = &path.steps[path.length - 1]
        f = nodes[step.node].feature
        if f < 0:
            sizes[step.node] = 1
            path.length -= 1
        elif step.way == WAY_RIGHT:
            step.way, step.bound = WAY_LEFT, walk.low[f]
            walk.low[f] = max(walk.low[f], just_above(nodes[step.node].threshold))
            path.append(nodes[step.node].right, step.is_empty or walk.low[f] > walk.high[f])
        elif step.way == WAY_LEFT:
            walk.low[f] = step.bound
            step.way, step.bound = WAY_BACK, walk.high[f]
            walk.high[f] = min(walk.high[f], nodes[step.node].threshold)
            path.append(nodes[step.node].left, step.is_empty or walk.low[f] > walk.high[f])
        else:
            walk.high[f] = step.bound
            sizes[step.node] = 1 + sizes[nodes[step.node].left] + sizes[nodes[step.node].right]
            if not step.is_empty:
                n_dropped += _drop_one(walk, nodes, step.node, sizes, absorbed)
            path.length -= 1
    return n_dropped


cdef bint _drop_one(Walk walk, Node* nodes, int32_t i, int32_t* sizes, int32_t* absorbed) noexcept nogil:
    """Replace one split by a child, if it can be; the box of the walk is that of the points that arrive at it."""
    cdef int32_t f = nodes[i].feature, left = nodes[i].left, right = nodes[i].right, kept
    cdef double threshold = nodes[i].threshold, low = walk.low[f], high = walk.high[f]
    cdef bint has_left = reaches_left(low, threshold), has_right = reaches_right(high, threshold)
    cdef bint keeps_right = True, keeps_left = True
    if has_left:
        walk.high[f] = min(high, threshold)
        keeps_right = _agree(walk, left, right)
        walk.high[f] = high
    if has_right:
        walk.low[f] = max(low, just_above(threshold))
        keeps_left = _agree(walk, left, right)
        walk.low[f] = low
    if not (keeps_left or keeps_right):
        return False
    kept = left if keeps_left and (not keeps_right or sizes[left] <= sizes[right]) else right
    if has_left and has_right and nodes[left].feature < 0 and nodes[right].feature < 0:
        absorbed[nodes[right if kept == left else left].leaf] = nodes[kept].leaf
    sizes[i] = sizes[kept]
    nodes[i] = nodes[kept]
    return True
