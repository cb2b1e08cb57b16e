"""Where two models predict differently: regions for two trees, a complete search for two forests; and needless tests.

Two trees are walked at once. Their leaves are compared by the number of their class, whatever that stands for (a label
set, a distribution): the caller numbers both trees alike. Nothing is sampled, so finding no difference is a proof that
there is none. The meaning of classes is left to metasilvae.comparison and metasilvae.simplification.

Two forests need a depth-first search, which can be paused. Their predictions differ at a point if and only if some
label l belongs to one label set and not to the other: in one forest no label is ahead of l, and in the other some label
k is. So in a box, for each l and k:

- bounding: the sums of the best margins of the trees, of l over each label in the one forest and of k over l in the
  other, must allow it; and so must their sum for l and k, in which trees that both forests share cancel out. Soundness
  of ABSENT rests on this alone.
- cutting: at the topmost test that the box does not decide, in the tree whose margins differ most; the side with the
  better margin first. Where no test is undecided, the bounds are attained: a difference.

Scores are whole numbers: exact, or within an error of the exact ones. In the latter case a box without undecided tests
that may hold a difference is a CANDIDATE, which the caller checks. Labels, votings and limits are left to
metasilvae.analysis.difference.

All boxes are closed; the right side of `x <= k` starts at the next float64 after k. Where values may be missing, samples
without a value belong to the box too. Features of table groups (table.pxd) are never missing; samples that take no option
of a group do not belong to the box.
"""

import numpy as np

cimport cython
from libc.math cimport NAN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc

from common.box cimport (
    REACHES_BOTH, REACHES_LEFT, REACHES_RIGHT, BoxVisit, bounds_of, is_empty_side, just_above, reach_of_missing,
    set_bounds, side_of,
)
from common.buffer cimport reserve
from common.descent cimport next_leaf, take_step
from common.node cimport Node, is_missing, reaches_left, reaches_right
from common.table cimport Tables, allowed_of, make_tables, tables_admit
from common.status cimport ABSENT, CANDIDATE, FOUND, UNDECIDED


cdef void _open_box(const double[::1] lower, const double[::1] upper, const uint8_t[::1] may_be_missing, double* low,
                    double* high, double* values) noexcept nogil:
    """Set the bounds with which a search starts; see box.pxd for those of features that may be missing."""
    cdef Py_ssize_t f
    for f in range(lower.shape[0]):
        low[f] = NAN if may_be_missing[f] else lower[f]
        high[f] = NAN if may_be_missing[f] else upper[f]
        values[2 * f], values[2 * f + 1] = lower[f], upper[f]


cdef void _close_box(Py_ssize_t n_features, const double* low, const double* high, const double* values,
                     double* lower, double* upper) noexcept nogil:
    """Write the bounds of the values of a box; NaN for features that are missing throughout."""
    cdef Py_ssize_t f
    for f in range(n_features):
        lower[f] = values[2 * f] if is_missing(low[f]) else low[f]
        upper[f] = values[2 * f + 1] if is_missing(low[f]) else high[f]


# Two trees.


@cython.final
cdef class TreePairWalk:
    """Both trees below two nodes inside a box, leaf by leaf; the box must not be empty."""

    cdef const Node* first_nodes
    cdef const Node* second_nodes
    cdef const int32_t* first_classes
    cdef const int32_t* second_classes
    cdef double* low
    cdef double* high
    cdef double* values
    # Nodes below each node of both trees, to visit the smaller side of a split first; NULL: the left side first.
    cdef const int32_t* sizes
    # Visits of nodes of the first tree, and for each the node of the second tree.
    cdef BoxVisit* stack
    cdef int32_t* seconds
    cdef Py_ssize_t top
    # Where the walk has found a difference.
    cdef int32_t first_leaf, second_leaf
    cdef Tables tables
    cdef const uint64_t* allowed
    cdef uint64_t* options

    def __cinit__(self, Py_ssize_t n_features, Py_ssize_t depth):
        self.low = <double*> malloc(max(n_features, 1) * sizeof(double))
        self.high = <double*> malloc(max(n_features, 1) * sizeof(double))
        self.values = <double*> malloc(max(2 * n_features, 1) * sizeof(double))
        self.sizes = NULL
        self.options = NULL
        self.tables.n_groups = 0
        # Each split leaves at most two visits behind while the walk is below it.
        self.stack = <BoxVisit*> malloc((3 * depth + 4) * sizeof(BoxVisit))
        self.seconds = <int32_t*> malloc((3 * depth + 4) * sizeof(int32_t))
        if (self.low == NULL or self.high == NULL or self.values == NULL or self.stack == NULL
                or self.seconds == NULL):
            raise MemoryError()

    def __dealloc__(self):
        free(self.low)
        free(self.high)
        free(self.values)
        free(self.stack)
        free(self.seconds)
        free(self.options)

    cdef int set_tables(self, Tables tables, const uint64_t* allowed) except -1:
        """Let only samples count that take options of groups."""
        self.tables, self.allowed = tables, allowed
        self.options = <uint64_t*> malloc((tables.n_words + 1) * sizeof(uint64_t))
        if self.options == NULL:
            raise MemoryError()
        return 0

    cdef bint is_possible(self) noexcept nogil:
        """Whether the box holds a sample that takes options of all groups."""
        return tables_admit(&self.tables, self.allowed, self.low, self.high, self.options)

    cdef void push(self, Py_ssize_t position, int32_t first, int32_t second, BoxVisit bounds) noexcept nogil:
        self.stack[position] = bounds
        self.stack[position].node = first
        self.seconds[position] = second

    cdef int reach(self, const Node* node) noexcept nogil:
        """The sides of a test that the box reaches."""
        if not reaches_right(self.high[node.feature], node.threshold):
            return REACHES_LEFT
        if not reaches_left(self.low[node.feature], node.threshold):
            return REACHES_RIGHT
        return reach_of_missing(node, self.values) if is_missing(self.low[node.feature]) else REACHES_BOTH

    cdef void push_nodes(self, int32_t first, int32_t second) noexcept nogil:
        """Push two nodes to visit with the bounds as they are then."""
        self.stack[self.top].node = first
        self.stack[self.top].feature = -1
        self.seconds[self.top] = second
        self.top += 1

    cdef void begin(self, int32_t first, int32_t second) noexcept nogil:
        self.top = 0
        self.push_nodes(first, second)

    cdef bint advance(self) noexcept nogil:
        """Continue to the next two leaves of different classes; False if there are none, then the box is as before."""
        cdef const Node* node
        cdef int32_t first, second, left_first, left_second, right_first, right_second
        cdef int reach
        cdef Py_ssize_t sooner, later
        while self.top > 0:
            self.top -= 1
            set_bounds(&self.stack[self.top], self.low, self.high, self.values)
            first = self.stack[self.top].node
            if first < 0:
                continue
            # Pass the tests of the second tree that the box decides, once for all leaves of the first tree below:
            # of two chains each test is then passed a few times, not once for each leaf of the other.
            second = self.seconds[self.top]
            node = &self.second_nodes[second]
            while node.feature >= 0:
                reach = self.reach(node)
                if reach == REACHES_BOTH:
                    break
                second = node.left if reach == REACHES_LEFT else node.right
                node = &self.second_nodes[second]
            node = &self.first_nodes[first]
            left_first, right_first = node.left, node.right
            left_second = right_second = second
            if node.feature < 0:
                node = &self.second_nodes[second]
                left_first = right_first = first
                left_second, right_second = node.left, node.right
                if node.feature < 0:
                    self.first_leaf = self.first_nodes[first].leaf
                    self.second_leaf = node.leaf
                    if self.first_classes[self.first_leaf] != self.second_classes[self.second_leaf]:
                        if self.tables.n_groups == 0 or self.is_possible():
                            return True
                    continue
            reach = self.reach(node)
            if reach == REACHES_LEFT:
                self.push_nodes(left_first, left_second)
            elif reach == REACHES_RIGHT:
                self.push_nodes(right_first, right_second)
            else:
                later, sooner = self.top + 1, self.top + 2
                if self.sizes != NULL and self.sizes[node.right] < self.sizes[node.left]:
                    later, sooner = sooner, later
                self.push(self.top, -1, -1, bounds_of(node.feature, self.low, self.high, self.values))
                self.push(later, right_first, right_second,
                          side_of(node, False, just_above(node.threshold), self.low, self.high, self.values))
                self.push(sooner, left_first, left_second,
                          side_of(node, True, 0.0, self.low, self.high, self.values))
                self.top += 3
        return False

    cdef void abandon(self) noexcept nogil:
        """Restore all bounds that the walk has changed."""
        while self.top > 0:
            self.top -= 1
            if self.stack[self.top].node < 0:
                set_bounds(&self.stack[self.top], self.low, self.high, self.values)


def find_differences(const Node[::1] first_nodes, int32_t first_root, const int32_t[::1] first_classes,
                     const Node[::1] second_nodes, int32_t second_root, const int32_t[::1] second_classes,
                     Py_ssize_t depth, const double[::1] lower, const double[::1] upper,
                     const uint8_t[::1] may_be_missing, const int32_t[::1] members, const int32_t[::1] group_starts,
                     const int32_t[::1] codes, const int32_t[::1] n_options, const uint64_t[:, ::1] ones,
                     const uint64_t[:, :, ::1] allowed,
                     int32_t[:, ::1] leaves, double[:, ::1] lowers, double[:, ::1] uppers):
    """Count the regions of a box in which two trees fall into leaves of different classes.

    Parameters
    ----------
    first_classes, second_classes : class of each leaf
    depth : of both trees together
    lower, upper : the box; not empty
    may_be_missing : for each feature whether samples without a value belong to the box
    members, group_starts, codes, n_options, ones : table groups (table.pxd)
    allowed : the allowed options of each group, as bits of words; no rows if all are allowed, else one
    leaves, lowers, uppers : receive both leaves and the bounds of as many regions as they have rows; NaN where there are
        no values, only samples without one
    """
    cdef Py_ssize_t n_features = lower.shape[0]
    cdef TreePairWalk walk = TreePairWalk(n_features, depth)
    cdef int64_t n_found = 0
    walk.first_nodes, walk.second_nodes = &first_nodes[0], &second_nodes[0]
    walk.first_classes, walk.second_classes = &first_classes[0], &second_classes[0]
    walk.set_tables(make_tables(members, group_starts, codes, n_options, ones), allowed_of(allowed, 0))
    with nogil:
        _open_box(lower, upper, may_be_missing, walk.low, walk.high, walk.values)
        walk.begin(first_root, second_root)
        while walk.advance():
            if n_found < leaves.shape[0]:
                leaves[n_found, 0], leaves[n_found, 1] = walk.first_leaf, walk.second_leaf
                _close_box(n_features, walk.low, walk.high, walk.values, &lowers[n_found, 0], &uppers[n_found, 0])
            n_found += 1
    return n_found


cdef bint _agree(TreePairWalk walk, int32_t first, int32_t second) noexcept nogil:
    walk.begin(first, second)
    if walk.advance():
        walk.abandon()
        return False
    return True


# Needless tests.


cdef enum Way:
    WAY_RIGHT
    WAY_LEFT
    WAY_BACK


cdef struct Step:
    int32_t node
    Way way             # where to go from the node next
    BoxVisit bounds     # of the node's feature before the last step down narrowed it
    bint is_empty       # no point of the box arrives here


@cython.final
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
        self.steps[self.length].node, self.steps[self.length].way = node, WAY_RIGHT
        self.steps[self.length].is_empty = is_empty
        self.length += 1


def drop_needless_tests(Node[::1] nodes, const int32_t[::1] parents, const int32_t[::1] classes, Py_ssize_t depth,
                        const double[::1] lower, const double[::1] upper, const uint8_t[::1] may_be_missing,
                        const int32_t[::1] members, const int32_t[::1] group_starts,
                        const int32_t[::1] codes, const int32_t[::1] n_options, const uint64_t[:, ::1] ones,
                        const uint64_t[:, :, ::1] allowed,
                        int32_t[::1] sizes, int32_t[::1] absorbed):
    """Replace splits by one of their children where that changes the class of no point of a box; return their number.

    A split is replaced by its right child if on its left side the right child is of the same class as the left one
    everywhere, and vice versa; so are splits of which the box reaches one side only. Of two possible children the
    smaller one is kept. Splits are visited from the leaves upwards.

    Parameters
    ----------
    nodes : trees, children behind their parents; a node that is replaced is overwritten by the child, so nodes that no
        root margins to any more remain in the array
    parents : parent of each node, -1 for roots
    depth : twice that of the trees
    lower, upper : the box; not empty
    may_be_missing : for each feature whether samples without a value belong to the box
    members, group_starts, codes, n_options, ones : table groups (table.pxd)
    allowed : the allowed options of each group, as bits of words; no rows if all are allowed, else one
    sizes : buffer for the number of nodes below each node
    absorbed : receives for each leaf the leaf that took over its samples, -1 if none did
    """
    cdef TreePairWalk walk = TreePairWalk(lower.shape[0], depth)
    cdef Path path = Path(depth // 2 + 1)
    cdef int32_t i
    cdef int64_t n_dropped = 0
    walk.first_nodes = walk.second_nodes = &nodes[0]
    walk.first_classes = walk.second_classes = &classes[0]
    # A difference is often found in a leaf beside a long chain.
    walk.sizes = &sizes[0]
    walk.set_tables(make_tables(members, group_starts, codes, n_options, ones), allowed_of(allowed, 0))
    with nogil:
        _open_box(lower, upper, may_be_missing, walk.low, walk.high, walk.values)
        for i in range(absorbed.shape[0]):
            absorbed[i] = -1
        for i in range(<int32_t> nodes.shape[0]):
            if parents[i] < 0:
                n_dropped += _drop_below(walk, path, &nodes[0], i, &sizes[0], &absorbed[0])
    return n_dropped


cdef int64_t _drop_below(TreePairWalk walk, Path path, Node* nodes, int32_t root, int32_t* sizes,
                         int32_t* absorbed) noexcept nogil:
    """Visit the right side of each split, then its left side, then the split, in the box of the points that arrive."""
    cdef int64_t n_dropped = 0
    cdef Step* step
    cdef BoxVisit side
    path.length = 0
    path.append(root, False)
    while path.length > 0:
        step = &path.steps[path.length - 1]
        if nodes[step.node].feature < 0:
            sizes[step.node] = 1
            path.length -= 1
            continue
        if step.way == WAY_RIGHT:
            step.bounds = bounds_of(nodes[step.node].feature, walk.low, walk.high, walk.values)
        else:
            set_bounds(&step.bounds, walk.low, walk.high, walk.values)
        if step.way != WAY_BACK:
            side = side_of(&nodes[step.node], step.way == WAY_LEFT, just_above(nodes[step.node].threshold), walk.low,
                           walk.high, walk.values)
            set_bounds(&side, walk.low, walk.high, walk.values)
            if step.way == WAY_RIGHT:
                step.way = WAY_LEFT
                path.append(nodes[step.node].right, step.is_empty or is_empty_side(&side))
            else:
                step.way = WAY_BACK
                path.append(nodes[step.node].left, step.is_empty or is_empty_side(&side))
        else:
            sizes[step.node] = 1 + sizes[nodes[step.node].left] + sizes[nodes[step.node].right]
            if not step.is_empty:
                n_dropped += _drop_one(walk, nodes, step.node, sizes, absorbed)
            path.length -= 1
    return n_dropped


cdef bint _drop_one(TreePairWalk walk, Node* nodes, int32_t i, int32_t* sizes, int32_t* absorbed) noexcept nogil:
    """Replace one split by a child, if it can be; the box of the walk is that of the points that arrive at it."""
    cdef int32_t left = nodes[i].left, right = nodes[i].right, kept
    cdef BoxVisit bounds = bounds_of(nodes[i].feature, walk.low, walk.high, walk.values)
    cdef BoxVisit left_side = side_of(&nodes[i], True, 0.0, walk.low, walk.high, walk.values)
    cdef BoxVisit right_side = side_of(&nodes[i], False, just_above(nodes[i].threshold), walk.low, walk.high,
                                       walk.values)
    cdef bint has_left = not is_empty_side(&left_side), has_right = not is_empty_side(&right_side)
    cdef bint keeps_right = True, keeps_left = True
    if has_left:
        set_bounds(&left_side, walk.low, walk.high, walk.values)
        keeps_right = _agree(walk, left, right)
        set_bounds(&bounds, walk.low, walk.high, walk.values)
    if has_right:
        set_bounds(&right_side, walk.low, walk.high, walk.values)
        keeps_left = _agree(walk, left, right)
        set_bounds(&bounds, walk.low, walk.high, walk.values)
    if not (keeps_left or keeps_right):
        return False
    kept = left if keeps_left and (not keeps_right or sizes[left] <= sizes[right]) else right
    # Leaves of different classes: no sample that takes options of all groups reaches the other one.
    if (has_left and has_right and nodes[left].feature < 0 and nodes[right].feature < 0
            and walk.first_classes[nodes[left].leaf] == walk.first_classes[nodes[right].leaf]):
        absorbed[nodes[right if kept == left else left].leaf] = nodes[kept].leaf
    sizes[i] = sizes[kept]
    nodes[i] = nodes[kept]
    return True


# Two forests.

cdef struct Doubt:
    # How a difference is still possible: label `inside` in the label set of one forest, `ahead` of it in the other.
    int32_t home        # forest whose label set holds the label
    int32_t inside
    int32_t ahead       # -1: the other forest does not know the label


@cython.final
cdef class DifferenceSearch:
    """One search in one box.

    Parameters
    ----------
    nodes, roots : the trees of both forests, without contradictory branches
    n_first : number of trees of the first forest; those of the second follow
    max_depth : of the trees
    is_shared : for each tree whether the other forest has a tree with the same margins everywhere in the box
    scores : shape (n_leaves, n_labels), over the labels of both forests
    is_known : shape (2, n_labels), for each forest whether it knows the label
    slack : for each forest how far a sum of margins may be from the exact one; 0 if they are exact
    lower, upper : the box; not empty
    may_be_missing : for each feature whether samples without a value belong to the box
    members, group_starts, codes, n_options, ones : table groups (table.pxd)
    allowed : the allowed options of each group, as bits of words; no rows if all are allowed, else one
    """

    cdef const Node[::1] nodes
    cdef const int32_t[::1] roots
    cdef int32_t n_first, n_trees, n_labels
    cdef const uint8_t[::1] is_shared
    cdef const int64_t[:, ::1] scores
    cdef const uint8_t[:, ::1] is_known
    cdef const int64_t[::1] slack
    cdef double[::1] low, high, values
    # By forest, label and label: sums of the best margins of the first label over the second, of all and unshared
    # trees.
    cdef int64_t[:, :, ::1] bounds, unshared
    # The same for each tree by itself.
    cdef int64_t[:, :, ::1] margins
    # By tree: its topmost undecided test, or its only leaf.
    cdef int32_t[::1] tops
    cdef int32_t[::1] waiting
    # Boxes to search, of which the value is the fraction of the whole search; those with node -1 only restore bounds.
    cdef BoxVisit* stack
    cdef size_t capacity
    cdef Py_ssize_t top
    cdef readonly int64_t n_steps
    cdef readonly double done
    cdef Tables tables
    # Kept alive for the tables, which point into them.
    cdef const int32_t[::1] members, group_starts, codes, n_options
    cdef const uint64_t[:, ::1] ones
    cdef const uint64_t[:, :, ::1] allowed
    cdef uint64_t[::1] options

    def __cinit__(self, const Node[::1] nodes, const int32_t[::1] roots, int32_t n_first, Py_ssize_t max_depth,
                  const uint8_t[::1] is_shared, const int64_t[:, ::1] scores, const uint8_t[:, ::1] is_known,
                  const int64_t[::1] slack, const double[::1] lower, const double[::1] upper,
                  const uint8_t[::1] may_be_missing, const int32_t[::1] members, const int32_t[::1] group_starts,
                  const int32_t[::1] codes, const int32_t[::1] n_options, const uint64_t[:, ::1] ones,
                  const uint64_t[:, :, ::1] allowed):
        self.nodes, self.roots, self.n_first = nodes, roots, n_first
        self.n_trees = <int32_t> roots.shape[0]
        self.n_labels = <int32_t> scores.shape[1]
        self.is_shared, self.scores, self.is_known, self.slack = is_shared, scores, is_known, slack
        self.low, self.high = np.zeros((2, lower.shape[0]))
        self.values = np.zeros(2 * lower.shape[0])
        _open_box(lower, upper, may_be_missing, &self.low[0], &self.high[0], &self.values[0])
        self.bounds, self.unshared = np.zeros((2, 2, self.n_labels, self.n_labels), dtype=np.int64)
        self.margins = np.zeros((self.n_trees, self.n_labels, self.n_labels), dtype=np.int64)
        self.tops = np.zeros(self.n_trees, dtype=np.int32)
        self.waiting = np.zeros(max_depth + 1, dtype=np.int32)
        self.members, self.group_starts, self.codes, self.n_options = members, group_starts, codes, n_options
        self.ones, self.allowed = ones, allowed
        self.tables = make_tables(members, group_starts, codes, n_options, ones)
        self.options = np.zeros(self.tables.n_words + 1, dtype=np.uint64)
        self._push(0, 0, BoxVisit(0, -1, 0.0, 0.0, 0.0), 1.0)
        self.top = 1

    def __dealloc__(self):
        free(self.stack)

    cdef int _push(self, Py_ssize_t position, int32_t node, BoxVisit bounds, double fraction) except -1 nogil:
        reserve(<void**> &self.stack, &self.capacity, position + 1, sizeof(BoxVisit))
        self.stack[position] = bounds
        self.stack[position].node, self.stack[position].value = node, fraction
        return 0

    @property
    def box(self):
        """Bounds of the values of the present box, shape (2, n_features); NaN for features that are missing."""
        cdef double[:, ::1] bounds = np.zeros((2, self.low.shape[0]))
        _close_box(self.low.shape[0], &self.low[0], &self.high[0], &self.values[0], &bounds[0, 0], &bounds[1, 0])
        return np.asarray(bounds)

    def advance(self, int64_t max_steps):
        """Continue for at most so many boxes; returns a SearchStatus. `box` is where a difference was found."""
        cdef int found
        with nogil:
            found = self._advance(max_steps)
        return found

    cdef int _advance(self, int64_t max_steps) except -1 nogil:
        cdef int64_t stop = self.n_steps + max_steps
        cdef Doubt doubt
        cdef int32_t tree
        cdef double fraction
        while self.top > 0:
            if self.n_steps >= stop:
                return UNDECIDED
            self.top -= 1
            set_bounds(&self.stack[self.top], &self.low[0], &self.high[0], &self.values[0])
            if self.stack[self.top].node < 0:
                continue
            fraction = self.stack[self.top].value
            self.n_steps += 1
            if self.tables.n_groups > 0 and not tables_admit(
                    &self.tables, allowed_of(self.allowed, 0), &self.low[0], &self.high[0], &self.options[0]):
                self.done += fraction
                continue
            self._bound()
            if not self._find_doubt(&doubt):
                self.done += fraction
                continue
            tree = self._choose_tree(&doubt)
            if tree < 0:
                self.done += fraction
                return CANDIDATE if self.slack[0] or self.slack[1] else FOUND
            self._cut(tree, &doubt, fraction)
        return ABSENT

    # Bounding.

    cdef void _bound(self) noexcept nogil:
        """Add up the best margins of all trees in the box."""
        cdef int32_t tree, forest, i, j
        self.bounds[:] = 0
        self.unshared[:] = 0
        for tree in range(self.n_trees):
            forest = tree >= self.n_first
            self._fill_margins(tree)
            for i in range(self.n_labels):
                for j in range(self.n_labels):
                    self.bounds[forest, i, j] += self.margins[tree, i, j]
                    if not self.is_shared[tree]:
                        self.unshared[forest, i, j] += self.margins[tree, i, j]

    cdef void _fill_margins(self, int32_t tree) noexcept nogil:
        """The best margins of one tree, and its topmost undecided test."""
        cdef int32_t node = self.roots[tree], i, j
        cdef const int64_t* scores
        cdef bint is_first = True
        cdef int64_t margin
        cdef Py_ssize_t top = 1
        while take_step(&self.nodes[0], &self.low[0], &self.high[0], &self.values[0], &node):
            pass
        self.tops[tree] = node
        self.waiting[0] = node
        while top > 0:
            node = next_leaf(&self.nodes[0], &self.low[0], &self.high[0], &self.values[0], &self.waiting[0], &top)
            scores = &self.scores[self.nodes[node].leaf, 0]
            for i in range(self.n_labels):
                for j in range(self.n_labels):
                    margin = scores[i] - scores[j]
                    if is_first or margin > self.margins[tree, i, j]:
                        self.margins[tree, i, j] = margin
            is_first = False

    # Differences that the bounds allow.

    cdef bint _find_doubt(self, Doubt* doubt) noexcept nogil:
        """The difference with the largest bound; False if the bounds allow none."""
        cdef int32_t home, away, label, other
        cdef int64_t bound, most = 0
        cdef bint has_doubt = False
        for home in range(2):
            away = 1 - home
            for label in range(self.n_labels):
                if not self._can_be_inside(home, label):
                    continue
                if not self.is_known[away, label]:
                    doubt[0] = Doubt(home, label, -1)
                    return True
                for other in range(self.n_labels):
                    if other == label or not self.is_known[away, other]:
                        continue
                    if self.bounds[away, other, label] < self._least(away, True):
                        continue
                    bound = self.unshared[home, label, other] + self.unshared[away, other, label]
                    if self.is_known[home, other] and bound < (
                            1 if self._is_exact() else -self.slack[0] - self.slack[1]):
                        continue
                    if not has_doubt or bound > most:
                        has_doubt = True
                        most = bound
                        doubt[0] = Doubt(home, label, other)
        return has_doubt

    cdef bint _is_exact(self) noexcept nogil:
        return self.slack[0] == 0 and self.slack[1] == 0

    cdef int64_t _least(self, int32_t forest, bint is_strict) noexcept nogil:
        """The smallest bound that allows one label to be ahead of another, or level with it."""
        return -self.slack[forest] if self.slack[forest] else is_strict

    cdef bint _can_be_inside(self, int32_t forest, int32_t label) noexcept nogil:
        cdef int32_t other
        if not self.is_known[forest, label]:
            return False
        for other in range(self.n_labels):
            if self.is_known[forest, other] and self.bounds[forest, label, other] < self._least(forest, False):
                return False
        return True

    # Cutting.

    cdef int32_t _choose_tree(self, const Doubt* doubt) noexcept nogil:
        """The tree with an undecided test whose margins differ most; -1 if all tests are decided."""
        cdef int32_t tree, best = -1, ahead, behind
        cdef int64_t spread, widest = -1
        for tree in range(self.n_trees):
            if self.nodes[self.tops[tree]].feature < 0:
                continue
            ahead, behind = self._label_pair(tree, doubt)
            spread = self.margins[tree, ahead, behind] + self.margins[tree, behind, ahead]
            if spread > widest:
                widest = spread
                best = tree
        return best

    cdef (int32_t, int32_t) _label_pair(self, int32_t tree, const Doubt* doubt) noexcept nogil:
        """Which label should be ahead of which in a tree to bring about the difference."""
        cdef int32_t forest = tree >= self.n_first, other, rival = doubt.inside
        if forest != doubt.home:
            return (doubt.ahead, doubt.inside) if doubt.ahead >= 0 else (doubt.inside, doubt.inside)
        if doubt.ahead >= 0 and self.is_known[forest, doubt.ahead]:
            return doubt.inside, doubt.ahead
        # Against the label that is hardest to beat.
        for other in range(self.n_labels):
            if other != doubt.inside and self.is_known[forest, other] and (
                    rival == doubt.inside
                    or self.bounds[forest, doubt.inside, other] < self.bounds[forest, doubt.inside, rival]):
                rival = other
        return doubt.inside, rival

    cdef int _cut(self, int32_t tree, const Doubt* doubt, double fraction) except -1 nogil:
        """Push both sides of the topmost undecided test of a tree, above a visit that restores the bounds."""
        cdef const Node* node = &self.nodes[self.tops[tree]]
        cdef const double* low = &self.low[0]
        cdef const double* high = &self.high[0]
        cdef const double* values = &self.values[0]
        cdef int32_t ahead, behind
        cdef bint left_first
        ahead, behind = self._label_pair(tree, doubt)
        left_first = (self._best_margin(node.left, ahead, behind) >= self._best_margin(node.right, ahead, behind))
        self._push(self.top, -1, bounds_of(node.feature, low, high, values), 0.0)
        self._push(self.top + 1 + left_first, 0, side_of(node, True, 0.0, low, high, values), 0.5 * fraction)
        self._push(self.top + 2 - left_first, 0, side_of(node, False, just_above(node.threshold), low, high, values),
                   0.5 * fraction)
        self.top += 3
        return 0

    cdef int64_t _best_margin(self, int32_t node, int32_t ahead, int32_t behind) noexcept nogil:
        """The best margin below a node."""
        cdef int64_t margin, best = 0
        cdef bint is_first = True
        cdef Py_ssize_t top = 1
        self.waiting[0] = node
        while top > 0:
            node = next_leaf(&self.nodes[0], &self.low[0], &self.high[0], &self.values[0], &self.waiting[0], &top)
            margin = self.scores[self.nodes[node].leaf, ahead] - self.scores[self.nodes[node].leaf, behind]
            if is_first or margin > best:
                best = margin
            is_first = False
        return best
