"""Whether two inputs that share some features satisfy linear constraints on the scores of a forest: a complete search.

The joint features are those of the first input, and once more those features that the second input has by itself. Each
tree of the forest becomes one joint tree, whose leaves are pairs of leaves: the one of the first input and the one of the
second. Where both inputs share all features that a path tests, they fall into the same leaf, so that what the two leaves
add to a difference of scores cancels out. `join_copies` makes a joint tree.

`PairSearch` looks for a box of joint inputs in which all constraints hold: the sum over all trees of the values of their
leaves is at least so large. It is a depth-first search that can be paused:

- bounding: for each constraint the sum of the best values of all trees in the box; no point has a larger one. Soundness
  of ABSENT rests on this alone.
- diving: a box is narrowed to the best leaf of one tree after the other. Where the constraints hold there: found.
- cutting: tests that the box does not decide are tried, and the one that lowers the bounds most on both sides is made.

Some features of the second input may be bounded by those of the first (`orders`), and the features of a table group take
one of its options together. Both narrow the box after each cut. Scores are whole numbers: exact, or within an error of the exact
ones. In the latter case a box in which all tests are decided is a CANDIDATE, which the caller checks. Labels, votings and
limits are left to metasilvae.analysis.proofs.

All boxes are closed; the right side of `x <= k` starts at the next float64 after k. Where values may be missing, samples
without a value belong to the box too.
"""

import numpy as np

cimport cython
from libc.math cimport NAN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free

from common.box cimport (
    REACHES_BOTH, REACHES_LEFT, REACHES_RIGHT, BoxVisit, bounds_of, is_empty_side, just_above, reach_of_missing,
    set_bounds, side_of,
)
from common.buffer cimport reserve
from common.descent cimport next_leaf, take_step
from common.node cimport Node, is_missing, reaches_left, reaches_right
from common.status cimport ABSENT, CANDIDATE, FOUND, UNDECIDED
from common.table cimport Tables, allowed_of, can_be, fill_options, make_tables

cdef enum:
    # Tests that are tried before one of them is made.
    N_TRIED = 8
    # A dive is made in each box until there were so many, then in every DIVE_STEP-th box.
    N_DIVES = 64
    DIVE_STEP = 16


cdef void _open_box(const double[::1] lower, const double[::1] upper, const uint8_t[::1] may_be_missing, double* low,
                    double* high, double* values) noexcept nogil:
    """Set the bounds with which a search starts; see box.pxd for those of features that may be missing."""
    cdef Py_ssize_t f
    for f in range(lower.shape[0]):
        low[f] = NAN if may_be_missing[f] else lower[f]
        high[f] = NAN if may_be_missing[f] else upper[f]
        values[2 * f], values[2 * f + 1] = lower[f], upper[f]


cdef struct JointVisit:
    # Two nodes of a tree to visit together.
    BoxVisit bounds
    int32_t second
    int32_t ahead       # tests that the first input passed, less those of the second one
    int32_t parent      # joint node that gets this one as a child, -1 for the root
    bint is_left


def join_copies(const Node[::1] nodes, int32_t root, const int32_t[::1] copies, const double[::1] lower,
                const double[::1] upper, const uint8_t[::1] may_be_missing, Py_ssize_t max_leaves):
    """The joint tree of two inputs, inside a box.

    Parameters
    ----------
    copies : for each feature its joint number in the second input; the same number if both inputs share it
    lower, upper, may_be_missing : the box, by joint feature
    max_leaves : of the joint tree

    Returns
    -------
    nodes : record array, children behind their parents; leaves are numbered from 0
    pairs : int32 array, shape (n_leaves, 2), the leaves of the first and the second input; None for both if there would
        be more than `max_leaves` leaves
    """
    cdef Py_ssize_t n_joint = lower.shape[0], top = 1, n_nodes = 0, n_leaves = 0
    cdef double[::1] low = np.empty(n_joint), high = np.empty(n_joint), values = np.empty(2 * n_joint)
    cdef JointVisit* stack = NULL
    cdef Node* found = NULL
    cdef int32_t* leaves = NULL
    cdef size_t stack_capacity = 0, node_capacity = 0, leaf_capacity = 0
    cdef JointVisit visit
    cdef Node test
    cdef int32_t first, second
    cdef int reach
    cdef bint is_first, is_complete = True
    cdef Node[::1] kept
    cdef int32_t[:, ::1] pairs
    _open_box(lower, upper, may_be_missing, &low[0], &high[0], &values[0])
    try:
        with nogil:
            reserve(<void**> &stack, &stack_capacity, 1, sizeof(JointVisit))
            stack[0] = JointVisit(BoxVisit(root, -1, 0.0, 0.0, 0.0), root, 0, -1, False)
            while top > 0:
                top -= 1
                visit = stack[top]
                set_bounds(&visit.bounds, &low[0], &high[0], &values[0])
                first, second = visit.bounds.node, visit.second
                if first < 0:
                    continue
                while True:
                    # The next test is that of the input that is behind, so that both go down together.
                    if nodes[first].feature < 0 and nodes[second].feature < 0:
                        break
                    is_first = nodes[second].feature < 0 or (nodes[first].feature >= 0 and visit.ahead <= 0)
                    test = nodes[first] if is_first else nodes[second]
                    if not is_first:
                        test.feature = copies[test.feature]
                    if is_missing(low[test.feature]):
                        reach = reach_of_missing(&test, &values[0])
                    else:
                        reach = ((REACHES_LEFT if reaches_left(low[test.feature], test.threshold) else 0)
                                 | (REACHES_RIGHT if reaches_right(high[test.feature], test.threshold) else 0))
                    if reach == REACHES_BOTH:
                        break
                    visit.ahead += 1 if is_first else -1
                    if is_first:
                        first = test.left if reach == REACHES_LEFT else test.right
                    else:
                        second = test.left if reach == REACHES_LEFT else test.right
                reserve(<void**> &found, &node_capacity, n_nodes + 1, sizeof(Node))
                if visit.parent >= 0:
                    if visit.is_left:
                        found[visit.parent].left = <int32_t> n_nodes
                    else:
                        found[visit.parent].right = <int32_t> n_nodes
                if nodes[first].feature < 0 and nodes[second].feature < 0:
                    if n_leaves >= max_leaves:
                        is_complete = False
                        break
                    reserve(<void**> &leaves, &leaf_capacity, 2 * n_leaves + 2, sizeof(int32_t))
                    leaves[2 * n_leaves], leaves[2 * n_leaves + 1] = nodes[first].leaf, nodes[second].leaf
                    found[n_nodes] = nodes[first]
                    found[n_nodes].leaf = <int32_t> n_leaves
                    n_leaves += 1
                    n_nodes += 1
                    continue
                found[n_nodes] = test
                reserve(<void**> &stack, &stack_capacity, top + 3, sizeof(JointVisit))
                stack[top] = JointVisit(bounds_of(test.feature, &low[0], &high[0], &values[0]), -1, 0, -1, False)
                stack[top].bounds.node = -1
                stack[top + 1] = JointVisit(
                    side_of(&test, False, just_above(test.threshold), &low[0], &high[0], &values[0]),
                    second if is_first else test.right, visit.ahead + (1 if is_first else -1), <int32_t> n_nodes, False)
                stack[top + 1].bounds.node = test.right if is_first else first
                stack[top + 2] = JointVisit(
                    side_of(&test, True, 0.0, &low[0], &high[0], &values[0]),
                    second if is_first else test.left, visit.ahead + (1 if is_first else -1), <int32_t> n_nodes, True)
                stack[top + 2].bounds.node = test.left if is_first else first
                top += 3
                n_nodes += 1
        if not is_complete:
            return None, None
        result = np.empty(n_nodes, dtype=np.asarray(nodes).dtype)
        kept = result
        pairs = np.empty((n_leaves, 2), dtype=np.int32)
        for top in range(n_nodes):
            kept[top] = found[top]
        for top in range(n_leaves):
            pairs[top, 0], pairs[top, 1] = leaves[2 * top], leaves[2 * top + 1]
        return result, np.asarray(pairs)
    finally:
        free(stack)
        free(found)
        free(leaves)


cdef struct SavedTree:
    # What a tree had before the box was narrowed; its best and worst values are saved beside it.
    int32_t tree
    int32_t top

cdef struct Mark:
    # How much was saved at some time.
    size_t n_bounds
    size_t n_trees

cdef struct Frame:
    # The other side of a cut, and what was saved before it.
    Node test
    bint is_left
    Mark mark
    double fraction


@cython.final
cdef class PairSearch:
    """One search in one box of joint inputs.

    Parameters
    ----------
    nodes, roots : the joint trees one after another, without contradictory branches; children behind their parents
    max_depth : of the trees
    leaf_values : shape (n_leaves, n_constraints)
    least : for each constraint the smallest sum that satisfies it; if sums are not exact, the smallest one that may
    is_exact : whether sums are exact
    lower, upper, may_be_missing : the box, by joint feature; not empty
    orders : shape (n_orders, 2), pairs of joint features of which the first one is at most the second one; neither may
        be missing
    members, group_starts, codes, n_options, ones : table groups of joint features (table.pxd), of which none may be
        missing; their tests are `x <= 0`
    allowed : the options of groups that belong to the box, one row; no rows if all of them do
    """

    cdef const Node[::1] nodes
    cdef const int32_t[::1] roots
    cdef const int64_t[:, ::1] leaf_values
    cdef const int64_t[::1] least
    cdef const int32_t[:, ::1] orders
    # Kept alive for the tables, which point into them.
    cdef const int32_t[::1] members, group_starts, codes, n_options
    cdef const uint64_t[:, ::1] ones
    cdef const uint64_t[:, :, ::1] allowed
    cdef Tables tables
    cdef uint64_t[::1] options
    cdef int32_t n_trees, n_joint, n_constraints
    cdef bint is_exact
    cdef double[::1] low, high, values
    cdef double[:, ::1] found
    cdef int32_t[::1] parents
    # For each tree and joint feature whether the tree tests it.
    cdef uint8_t[:, ::1] is_tested
    # By tree: its topmost undecided test or its only leaf, and the best and worst values of its leaves in the box.
    cdef int32_t[::1] tops
    cdef int64_t[:, ::1] best, worst
    cdef int64_t[::1] total
    cdef int32_t[::1] waiting
    # How much each constraint matters: the inverse of what its bound may lose.
    cdef double[::1] weights
    # Trees by what their leaves still leave open.
    cdef double[::1] spreads
    cdef int32_t[::1] order
    # Joint features whose bounds changed since trees were bounded.
    cdef uint8_t[::1] is_changed
    cdef int32_t[::1] changed
    cdef int32_t n_changed
    cdef BoxVisit* saved_bounds
    cdef SavedTree* saved_trees
    cdef int64_t* saved_values
    cdef size_t bound_capacity, tree_capacity, value_capacity
    cdef Mark mark
    cdef Frame* frames
    cdef size_t n_frames, frame_capacity
    cdef bint is_started, is_over
    cdef double fraction
    cdef readonly int64_t n_steps
    cdef readonly double done

    def __cinit__(self, const Node[::1] nodes, const int32_t[::1] roots, Py_ssize_t max_depth,
                  const int64_t[:, ::1] leaf_values, const int64_t[::1] least, bint is_exact,
                  const double[::1] lower, const double[::1] upper, const uint8_t[::1] may_be_missing,
                  const int32_t[:, ::1] orders, const int32_t[::1] members, const int32_t[::1] group_starts,
                  const int32_t[::1] codes, const int32_t[::1] n_options, const uint64_t[:, ::1] ones,
                  const uint64_t[:, :, ::1] allowed):
        cdef Py_ssize_t i, tree
        self.nodes, self.roots, self.leaf_values, self.least = nodes, roots, leaf_values, least
        self.is_exact, self.orders = is_exact, orders
        self.members, self.group_starts, self.codes, self.n_options = members, group_starts, codes, n_options
        self.ones, self.allowed = ones, allowed
        self.tables = make_tables(members, group_starts, codes, n_options, ones)
        self.options = np.zeros(self.tables.n_words + 1, dtype=np.uint64)
        self.n_trees = <int32_t> roots.shape[0]
        self.n_joint = <int32_t> lower.shape[0]
        self.n_constraints = <int32_t> least.shape[0]
        # One more than needed, so that none is empty.
        self.low, self.high = np.zeros((2, self.n_joint + 1))
        self.values = np.zeros(2 * self.n_joint + 2)
        self.found = np.zeros((2, self.n_joint))
        _open_box(lower, upper, may_be_missing, &self.low[0], &self.high[0], &self.values[0])
        self.is_tested = np.zeros((self.n_trees, self.n_joint + 1), dtype=np.uint8)
        self.parents = np.full(nodes.shape[0], -1, dtype=np.int32)
        for tree in range(self.n_trees):
            for i in range(roots[tree], roots[tree + 1] if tree + 1 < self.n_trees else nodes.shape[0]):
                if nodes[i].feature >= 0:
                    self.is_tested[tree, nodes[i].feature] = 1
                    self.parents[nodes[i].left] = self.parents[nodes[i].right] = <int32_t> i
        self.tops = np.array(roots, dtype=np.int32)
        self.best, self.worst = np.zeros((2, self.n_trees, self.n_constraints), dtype=np.int64)
        self.total = np.zeros(self.n_constraints, dtype=np.int64)
        self.weights = np.zeros(self.n_constraints)
        self.spreads = np.zeros(self.n_trees)
        self.order = np.arange(self.n_trees, dtype=np.int32)
        self.is_changed = np.zeros(self.n_joint + 1, dtype=np.uint8)
        self.changed = np.zeros(self.n_joint + 1, dtype=np.int32)
        self.waiting = np.zeros(max_depth + 2, dtype=np.int32)
        self.fraction = 1.0

    def __dealloc__(self):
        free(self.saved_bounds)
        free(self.saved_trees)
        free(self.saved_values)
        free(self.frames)

    @property
    def box(self):
        """Bounds of the values of the box that was found, shape (2, n_joint); NaN for features that are missing."""
        return np.array(self.found)

    def advance(self, int64_t max_steps):
        """Continue for at most so many boxes; returns a SearchStatus. `box` is where the constraints hold."""
        cdef int status
        with nogil:
            status = self._advance(max_steps)
        return status

    cdef int _advance(self, int64_t max_steps) except -1 nogil:
        cdef int64_t stop = self.n_steps + max_steps
        cdef int32_t tree, f
        if not self.is_started:
            self.is_started = True
            for tree in range(self.n_trees):
                self._bound_tree(tree)
            for f in range(self.n_joint):
                self._note_change(f)
            if not (self._propagate() and self._bound_changed()):
                self.is_over = True
        while not self.is_over:
            if self.n_steps >= stop:
                return UNDECIDED
            self.n_steps += 1
            if not self._weigh():
                self._backtrack()
                continue
            if (self.n_steps <= N_DIVES or self.n_steps % DIVE_STEP == 0) and self._dive():
                return FOUND if self.is_exact else CANDIDATE
            if self.nodes[self.tops[self.order[0]]].feature < 0:
                # All tests are decided, and the bounds are attained.
                self._keep_box()
                self._backtrack()
                return FOUND if self.is_exact else CANDIDATE
            if not self._branch():
                self._backtrack()
        return ABSENT

    # Bounding.

    cdef void _bound_tree(self, int32_t tree) noexcept nogil:
        """Find the best and the worst values of a tree in the box, and its topmost undecided test."""
        cdef int32_t node = self.tops[tree], c
        cdef const int64_t* values
        cdef int64_t* best = &self.best[tree, 0]
        cdef int64_t* worst = &self.worst[tree, 0]
        cdef bint is_first = True
        cdef Py_ssize_t top = 1
        while take_step(&self.nodes[0], &self.low[0], &self.high[0], &self.values[0], &node):
            pass
        self.tops[tree] = node
        for c in range(self.n_constraints):
            self.total[c] -= best[c]
        self.waiting[0] = node
        while top > 0:
            node = next_leaf(&self.nodes[0], &self.low[0], &self.high[0], &self.values[0], &self.waiting[0], &top)
            values = &self.leaf_values[self.nodes[node].leaf, 0]
            for c in range(self.n_constraints):
                if is_first or values[c] > best[c]:
                    best[c] = values[c]
                if is_first or values[c] < worst[c]:
                    worst[c] = values[c]
            is_first = False
        for c in range(self.n_constraints):
            self.total[c] += best[c]

    cdef bint _is_open(self) noexcept nogil:
        """Whether the bounds allow all constraints."""
        cdef int32_t c
        for c in range(self.n_constraints):
            if self.total[c] < self.least[c]:
                return False
        return True

    cdef int _bound_changed(self) except -1 nogil:
        """Bound the trees that test features whose bounds changed; False if a bound forbids a constraint."""
        cdef int32_t tree, i, c
        cdef int64_t* saved
        cdef bint is_affected, is_open = True
        for tree in range(self.n_trees):
            if self.nodes[self.tops[tree]].feature < 0:
                continue
            is_affected = False
            for i in range(self.n_changed):
                if self.is_tested[tree, self.changed[i]]:
                    is_affected = True
                    break
            if not is_affected:
                continue
            reserve(<void**> &self.saved_trees, &self.tree_capacity, self.mark.n_trees + 1, sizeof(SavedTree))
            reserve(<void**> &self.saved_values, &self.value_capacity,
                    (self.mark.n_trees + 1) * 2 * self.n_constraints, sizeof(int64_t))
            self.saved_trees[self.mark.n_trees] = SavedTree(tree, self.tops[tree])
            saved = self.saved_values + self.mark.n_trees * 2 * self.n_constraints
            for c in range(self.n_constraints):
                saved[c], saved[self.n_constraints + c] = self.best[tree, c], self.worst[tree, c]
            self.mark.n_trees += 1
            self._bound_tree(tree)
            is_open = self._is_open()
            if not is_open:
                break
        self._forget_changes()
        return is_open

    cdef void _forget_changes(self) noexcept nogil:
        cdef int32_t i
        for i in range(self.n_changed):
            self.is_changed[self.changed[i]] = 0
        self.n_changed = 0

    cdef void _note_change(self, int32_t feature) noexcept nogil:
        if not self.is_changed[feature]:
            self.is_changed[feature] = 1
            self.changed[self.n_changed] = feature
            self.n_changed += 1

    # Narrowing.

    cdef int _set_side(self, BoxVisit side) except -1 nogil:
        """Give a feature new bounds; False if they hold no sample."""
        cdef int32_t f = side.feature if side.feature >= 0 else -2 - side.feature
        reserve(<void**> &self.saved_bounds, &self.bound_capacity, self.mark.n_bounds + 1, sizeof(BoxVisit))
        self.saved_bounds[self.mark.n_bounds] = bounds_of(f, &self.low[0], &self.high[0], &self.values[0])
        self.mark.n_bounds += 1
        if is_empty_side(&side):
            return False
        set_bounds(&side, &self.low[0], &self.high[0], &self.values[0])
        self._note_change(f)
        return True

    cdef int _narrow(self, const Node* test, bint is_left) except -1 nogil:
        """Restrict the box to one side of a test; False if nothing is left."""
        return self._set_side(side_of(
            test, is_left, just_above(test.threshold), &self.low[0], &self.high[0], &self.values[0]))

    cdef int _propagate(self) except -1 nogil:
        """Narrow the box by orders and groups until nothing changes; False if nothing is left."""
        cdef Py_ssize_t i
        cdef int32_t one, other
        cdef bint is_new = True
        while is_new:
            is_new = False
            for i in range(self.orders.shape[0]):
                one, other = self.orders[i, 0], self.orders[i, 1]
                if self.high[one] > self.high[other]:
                    is_new = True
                    if not self._set_side(BoxVisit(-1, one, self.low[one], self.high[other], 0.0)):
                        return False
                if self.low[other] < self.low[one]:
                    is_new = True
                    if not self._set_side(BoxVisit(-1, other, self.low[one], self.high[other], 0.0)):
                        return False
            for i in range(self.tables.n_groups):
                if not self._propagate_group(<int32_t> i, &is_new):
                    return False
        return True

    cdef int _propagate_group(self, int32_t group, bint* is_new) except -1 nogil:
        """Narrow the members of a group to the options that are left; a member that is above 0 is 1."""
        cdef int32_t place, f
        cdef uint64_t* options = &self.options[0]
        if not fill_options(&self.tables, group, allowed_of(self.allowed, 0), &self.low[0], &self.high[0], options):
            return False
        for place in range(self.group_starts[group], self.group_starts[group + 1]):
            f = self.members[place]
            if self.high[f] > 0.0 and not can_be(&self.tables, place, True, options):
                is_new[0] = True
                if not self._set_side(BoxVisit(-1, f, self.low[f], 0.0, 0.0)):
                    return False
            if not self.low[f] > 0.0 and not can_be(&self.tables, place, False, options):
                is_new[0] = True
                if not self._set_side(BoxVisit(-1, f, just_above(0.0), self.high[f], 0.0)):
                    return False
        return True

    cdef void _undo(self, Mark mark) noexcept nogil:
        """Restore bounds and trees as they were."""
        cdef int32_t tree, c
        cdef int64_t* saved
        self._forget_changes()
        while self.mark.n_bounds > mark.n_bounds:
            self.mark.n_bounds -= 1
            set_bounds(&self.saved_bounds[self.mark.n_bounds], &self.low[0], &self.high[0], &self.values[0])
        while self.mark.n_trees > mark.n_trees:
            self.mark.n_trees -= 1
            tree = self.saved_trees[self.mark.n_trees].tree
            self.tops[tree] = self.saved_trees[self.mark.n_trees].top
            saved = self.saved_values + self.mark.n_trees * 2 * self.n_constraints
            for c in range(self.n_constraints):
                self.total[c] += saved[c] - self.best[tree, c]
                self.best[tree, c], self.worst[tree, c] = saved[c], saved[self.n_constraints + c]

    cdef int _backtrack(self) except -1 nogil:
        """Go to the other side of the last cut that leaves something there; the search is over if there is none."""
        cdef Frame frame
        self.done += self.fraction
        while self.n_frames > 0:
            self.n_frames -= 1
            frame = self.frames[self.n_frames]
            self._undo(frame.mark)
            self.fraction = frame.fraction
            if self._narrow(&frame.test, frame.is_left) and self._propagate() and self._bound_changed():
                return 0
            self.done += self.fraction
        self.is_over = True
        return 0

    # Diving and cutting.

    cdef bint _weigh(self) noexcept nogil:
        """Weigh the constraints, and put trees with undecided tests first by spread; False if a bound forbids one."""
        cdef int32_t c, i, tree, place, n_kept = 0
        cdef double spread
        for c in range(self.n_constraints):
            if self.total[c] < self.least[c]:
                return False
            self.weights[c] = 1.0 / (<double> self.total[c] - <double> self.least[c] + 1.0)
        for tree in range(self.n_trees):
            spread = -1.0
            if self.nodes[self.tops[tree]].feature >= 0:
                spread = 0.0
                for c in range(self.n_constraints):
                    spread += self.weights[c] * <double> (self.best[tree, c] - self.worst[tree, c])
            self.spreads[tree] = spread
        # The order changes little from box to box.
        for i in range(self.n_trees):
            tree = self.order[i]
            spread = self.spreads[tree]
            place = i
            while place > 0 and self.spreads[self.order[place - 1]] < spread:
                self.order[place] = self.order[place - 1]
                place -= 1
            self.order[place] = tree
        return True

    cdef void _keep_box(self) noexcept nogil:
        cdef Py_ssize_t f
        for f in range(self.n_joint):
            self.found[0, f] = self.values[2 * f] if is_missing(self.low[f]) else self.low[f]
            self.found[1, f] = self.values[2 * f + 1] if is_missing(self.low[f]) else self.high[f]

    cdef int _dive(self) except -1 nogil:
        """Narrow the box to the best leaf of one tree after the other; whether all constraints hold there.

        If so, the box is kept. In any case the search goes on with the box as it was.
        """
        cdef Mark mark = self.mark
        cdef int32_t i, c, tree, node, leaf, parent, best
        cdef double worth, most
        cdef Py_ssize_t top
        cdef bint is_found = True
        cdef const int64_t* values
        for i in range(self.n_trees):
            tree = self.order[i]
            if self.nodes[self.tops[tree]].feature < 0:
                break
            self.waiting[0] = self.tops[tree]
            top = 1
            best, most = -1, 0.0
            while top > 0:
                leaf = next_leaf(&self.nodes[0], &self.low[0], &self.high[0], &self.values[0], &self.waiting[0], &top)
                values = &self.leaf_values[self.nodes[leaf].leaf, 0]
                worth = 0.0
                for c in range(self.n_constraints):
                    worth += self.weights[c] * <double> values[c]
                if best < 0 or worth > most:
                    best, most = leaf, worth
            node = best
            while is_found and node != self.tops[tree]:
                parent = self.parents[node]
                is_found = self._narrow(&self.nodes[parent], self.nodes[parent].left == node)
                node = parent
            is_found = is_found and self._propagate()
            if not is_found:
                break
        if is_found:
            # In the box that is left each tree has one leaf.
            is_found = self._bound_changed()
        if is_found:
            self._keep_box()
        self._undo(mark)
        return is_found

    cdef int _try_side(self, const Node* test, bint is_left, double* lost) except -1 nogil:
        """Find the largest fraction that a constraint loses of what its bound may lose; False if one loses too much."""
        cdef Mark mark = self.mark
        cdef int32_t c
        cdef bint is_open
        cdef double part
        lost[0] = 0.0
        is_open = self._narrow(test, is_left) and self._propagate() and self._bound_changed()
        if is_open:
            for c in range(self.n_constraints):
                part = 1.0 - self.weights[c] * (<double> self.total[c] - <double> self.least[c] + 1.0)
                lost[0] = max(lost[0], part)
        self._undo(mark)
        return is_open

    cdef int _branch(self) except -1 nogil:
        """Make the best of some cuts; False if nothing is left of the box."""
        cdef int32_t i, n_tried = 0
        cdef double left, right, score, best_score = -1.0, best_left = 0.0, best_right = 0.0
        cdef Node test, best
        cdef bint has_left, has_right
        best = self.nodes[self.tops[self.order[0]]]
        for i in range(self.n_trees):
            test = self.nodes[self.tops[self.order[i]]]
            if test.feature < 0 or n_tried >= N_TRIED:
                break
            if i > 0 and test.feature == best.feature and test.threshold == best.threshold:
                continue
            n_tried += 1
            has_left = self._try_side(&test, True, &left)
            has_right = self._try_side(&test, False, &right)
            if not has_left and not has_right:
                return False
            if not has_left or not has_right:
                return self._narrow(&test, has_left) and self._propagate() and self._bound_changed()
            score = (left + 0.01) * (right + 0.01)
            if score > best_score:
                best_score, best, best_left, best_right = score, test, left, right
        reserve(<void**> &self.frames, &self.frame_capacity, self.n_frames + 1, sizeof(Frame))
        self.fraction *= 0.5
        has_left = best_left <= best_right
        self.frames[self.n_frames] = Frame(best, not has_left, self.mark, self.fraction)
        self.n_frames += 1
        return self._narrow(&best, has_left) and self._propagate() and self._bound_changed()
