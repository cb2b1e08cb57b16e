"""Whether a forest has another prediction somewhere in a box: a complete depth-first search that can be paused.

The prediction of a forest is the set of labels with the largest score. It differs from a label set A with a member a if
and only if some label outside A scores at least as much as a, or some other member of A more or less than a. So there
is a list of label pairs, each with the question whether one label can be ahead of the other (or level with it). For
each pair:

- bounding (leaf_sets.pxd): the sum of the best margins of all trees; no point of the box has a larger margin. Soundness
  of STABLE rests on this alone.
- cutting (cells.pxd): where best leaves of two trees have no point in common, they differ in some feature, and a cut
  between them removes one of them on either side. The cut that lowers the bounds most is made, and the side with the
  higher bound is searched first. When all best leaves have a point in common, the bound is attained: a witness.

Most rows are decided by a few such steps. For the others there are two stronger tools. A local search (local_search.pxd)
looks for a witness. If there is none, messages between trees (dual_bound.pxd) lower the bound of the whole box, usually
by far, and the box is divided into parts until the bound decides each of them.

Scores are whole numbers: exact, or within `error` of the exact ones. Where rounding could matter, the `referee`
decides, a Python function that knows the exact scores. Budgets, clocks and threads are left to
metasilvae.verification.forest.
"""

import numpy as np

cimport cython
from libc.math cimport NAN
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from common.box cimport lower_bound, upper_bound
from common.buffer cimport reserve
from common.descent cimport descend_together, next_leaf
from common.node cimport Node, is_missing
from common.table cimport Tables, allowed_of, make_tables
from common.status cimport ABSENT, FOUND, INADMISSIBLE, UNDECIDED
from verification.cells cimport (
    CellBox, CellCut, CommonRange, Intersection, SavedCells, apply_cut, begin_intersection, free_cell_box,
    free_intersection, intersect_with, intersects, open_cells, propose_between,
    propose_group_cuts, reserve_cell_box, reserve_intersection, reset_cells, restrict_group, set_cells, undo_narrowing,
)
from verification.dual_bound cimport (
    CutBounds, DualBound, MAX_PROBES, SWEEPS_PER_PROBE, begin_dual_bound, decode_point, free_dual_bound,
    narrow_to_remaining, propose_cut, remove_side, restore_messages, save_messages, set_values, sweep,
)
from verification.local_search cimport (
    Forest, LocalSearch, free_local_search, leaf_of_point, list_free_features, reserve_local_search, search_locally,
)
from verification.leaf_sets cimport (
    LeafSets, Reached, bound_after, collect_reached, first_bit, free_leaf_sets, free_reached, make_masks, rank_leaves,
    reserve_for_leaves, reserve_leaf_sets, reserve_reached, set_entries, undo_cuts,
)


# Label pairs: can one label be ahead of the other (or level with it) somewhere in a box?

cdef struct LabelPair:
    int32_t ahead
    int32_t behind
    bint is_strict          # ahead, not level
    int64_t best            # margin in the tree that is processed
    int64_t bound           # the sum of the best margins


cdef inline int32_t list_pairs(const uint8_t* is_expected, int32_t n_labels, LabelPair* pairs) noexcept nogil:
    """The pairs of which one is possible if and only if a prediction other than the expected one is possible.

    Parameters
    ----------
    is_expected : for each label whether it belongs to the expected label set
    pairs : buffer for 2 * n_labels

    Returns their number.
    """
    cdef int32_t label, one = 0, n_pairs = 0
    while not is_expected[one]:
        one += 1
    for label in range(n_labels):
        if label == one:
            continue
        pairs[n_pairs] = LabelPair(label, one, is_expected[label], 0, 0)
        n_pairs += 1
        if is_expected[label]:
            pairs[n_pairs] = LabelPair(one, label, True, 0, 0)
            n_pairs += 1
    return n_pairs


cdef inline void bound_pairs(LabelPair* pairs, int32_t n_pairs, const Node* nodes, const int32_t* starts,
                                int32_t n_trees, const int64_t* scores, int32_t n_labels, const double* lower,
                                const double* upper, const double* values, int32_t* waiting) noexcept nogil:
    """Add up the best margins of all trees in a box.

    Parameters
    ----------
    starts : for each tree the root, or where `descend_together` ended
    lower, upper, values : bounds of the box, by feature; see box.pxd
    waiting : buffer for one node at each depth
    """
    cdef int32_t tree, node, i
    cdef Py_ssize_t top
    cdef const int64_t* leaf_scores
    cdef int64_t margin
    cdef bint is_first
    for tree in range(n_trees):
        waiting[0] = starts[tree]
        top = 1
        is_first = True
        while top > 0:
            node = next_leaf(nodes, lower, upper, values, waiting, &top)
            leaf_scores = &scores[<size_t> nodes[node].leaf * n_labels]
            for i in range(n_pairs):
                margin = leaf_scores[pairs[i].ahead] - leaf_scores[pairs[i].behind]
                if is_first or margin > pairs[i].best:
                    pairs[i].best = margin
            is_first = False
        for i in range(n_pairs):
            pairs[i].bound += pairs[i].best


cdef inline int32_t keep_open_pairs(LabelPair* pairs, int32_t n_pairs, int64_t least,
                                    int64_t least_strict) noexcept nogil:
    """Keep the pairs whose bound does not decide them, the highest bound first; returns their number."""
    cdef int32_t i, place, n_open = 0
    cdef LabelPair pair
    for i in range(n_pairs):
        pair = pairs[i]
        if pair.bound < (least_strict if pair.is_strict else least):
            continue
        place = n_open
        while place > 0 and pairs[place - 1].bound < pair.bound:
            pairs[place] = pairs[place - 1]
            place -= 1
        pairs[place] = pair
        n_open += 1
    return n_open


# Which of the remaining leaves of a tree intersect the leaves chosen for other trees, and where cuts would separate
# them.

# Cuts that are compared before one is made.
cdef enum:
    MAX_CANDIDATES = 32


cdef inline bint is_remaining(const LeafSets* sets, const Reached* reached, int32_t tree, int32_t place) noexcept nogil:
    """Whether a ranked leaf of a tree remains in the box."""
    cdef int32_t bit = place - reached.tree_start[tree]
    return sets.words[sets.word_start[tree] + (bit >> 6)] >> (bit & 63) & 1


cdef inline int32_t first_intersecting(LeafSets* sets, Reached* reached, Intersection* intersection,
                                       int32_t tree) noexcept nogil:
    """The best remaining leaf of a tree that intersects those chosen so far; there is always one."""
    cdef int32_t word, start = sets.word_start[tree], place = -1
    cdef uint64_t left
    for word in range(start, sets.word_start[tree + 1]):
        left = sets.words[word]
        while left:
            place = reached.tree_start[tree] + 64 * (word - start) + first_bit(left)
            if intersects(intersection, reached, sets.ranked[place].leaf):
                return place
            left &= left - 1
    return place


cdef inline int propose_between_best(LeafSets* sets, Reached* reached, Intersection* intersection, const CellBox* box,
                                     int32_t tree) except -1 nogil:
    """Propose cuts between the best leaves of a tree, none of which intersects, and those chosen so far."""
    cdef int32_t word, start = sets.word_start[tree], place
    cdef uint64_t left
    cdef int64_t best = sets.ranked[sets.best[tree]].margin
    for word in range(start, sets.word_start[tree + 1]):
        left = sets.words[word]
        while left:
            place = reached.tree_start[tree] + 64 * (word - start) + first_bit(left)
            if sets.ranked[place].margin < best or intersection.n_cuts >= MAX_CANDIDATES:
                return 0
            propose_between(intersection, reached, sets.ranked[place].leaf, box.low, box.high)
            left &= left - 1
    return 0


cdef enum:
    # Random changes of a local search.
    N_RESTARTS = 16
    # Sweeps over the messages in the whole box, and in parts of it.
    SWEEPS = 24
    SWEEPS_AGAIN = 4


cdef enum Choice:
    # What the leaves chosen for the trees say about the remaining box.
    CHOICE_FAILED = -1
    HOPELESS            # the box holds no witness
    CUTTABLE            # there are candidates for cuts
    WITNESS             # the chosen leaves have a point in common that is a witness

cdef struct Branch:
    # The other side of a cut, and the state before it.
    CellCut other
    size_t n_saved_words
    size_t n_saved_best
    size_t n_saved_cells
    int64_t bound


@cython.final
cdef class ForestSearch:
    """One search at a time in the boxes of one forest; each thread needs its own.

    Parameters
    ----------
    nodes, roots : the trees, without contradictory branches
    max_depth : of the trees
    thresholds : of all features, increasing for each
    threshold_starts : where those of each feature begin, and the end
    node_cuts : for each split the number of its threshold among those of its feature
    scores : shape (n_leaves, n_labels)
    error : how far a score may be from the exact one, in its unit
    members, group_starts, codes, n_options, ones : table groups (table.pxd)
    allowed : for each row and group the allowed options, as bits of words; no rows if all are allowed
    low_center, high_center, radius_down, radius_up, minimum, maximum : the boxes, as in reach.pyx
    droppable : for each row and feature whether the value may become missing; no rows if none may
    has_missing : whether some centers may be missing values, or values may become missing
    predictions : number of the label set that is expected for each row
    is_member : for each label set and label whether the label belongs to it
    referee : function (ahead, behind, is_strict, lists of leaves), called where rounding could matter; returns for each
        list, in their order, the leaf with the exact largest margin, or None if these margins add up to too little
    steps_before_local : a first local search for a witness is made after so many steps of a row, and others whenever
        the number of steps has doubled
    steps_before_division : steps in the box of a row before its bound is tightened and the box is divided
    """

    cdef const Node[::1] nodes
    cdef const int32_t[::1] roots
    cdef const double[::1] thresholds
    cdef const int32_t[::1] threshold_starts
    cdef const int32_t[::1] node_cuts
    cdef const int64_t[:, ::1] scores
    cdef int64_t error
    # Kept alive for the box, which points into them.
    cdef const int32_t[::1] members, group_starts, codes, n_options
    cdef const uint64_t[:, ::1] ones
    cdef const uint64_t[:, :, ::1] allowed
    cdef const double[:, ::1] low_center, high_center
    cdef const double[::1] radius_down, radius_up, minimum, maximum
    cdef const uint8_t[:, :] droppable
    cdef bint has_missing, row_has_missing
    cdef const int32_t[::1] predictions
    cdef const uint8_t[:, ::1] is_member
    cdef object referee
    cdef int32_t n_features, n_labels, n_trees
    # By tree.
    cdef int32_t[::1] choice, order, starts
    # Nodes, by depth.
    cdef int32_t[::1] waiting
    cdef CellBox box
    cdef Reached reached
    cdef LeafSets sets
    cdef Intersection intersection
    cdef LocalSearch local
    # Leaves of the point that the local search found, in the model's numbering.
    cdef int32_t[::1] found_leaves
    cdef bint is_found_locally, is_local_tried
    cdef int64_t next_local
    cdef DualBound dual
    # Parts of the box that wait: whether each cell is removed.
    cdef char* parts
    cdef size_t part_capacity, n_parts
    cdef int32_t* part_depths
    cdef size_t depth_capacity
    # The lowest and the highest cell of each feature in the box of the row, while it is divided.
    cdef int32_t* whole
    cdef size_t whole_capacity
    cdef bint is_divided
    cdef int64_t box_limit
    cdef LabelPair* pairs
    cdef size_t pair_capacity
    cdef int32_t n_pairs, pair
    cdef bint is_running, has_entries, has_masks
    cdef Branch* branches
    cdef size_t branch_capacity, n_branches
    cdef int64_t slack, least
    cdef readonly int64_t n_steps
    cdef int64_t steps_before_local, steps_before_division

    def __cinit__(self, const Node[::1] nodes, const int32_t[::1] roots, Py_ssize_t max_depth,
                  const double[::1] thresholds, const int32_t[::1] threshold_starts, const int32_t[::1] node_cuts,
                  const int64_t[:, ::1] scores, int64_t error,
                  const int32_t[::1] members, const int32_t[::1] group_starts, const int32_t[::1] codes,
                  const int32_t[::1] n_options, const uint64_t[:, ::1] ones, const uint64_t[:, :, ::1] allowed,
                  const double[:, ::1] low_center, const double[:, ::1] high_center,
                  const double[::1] radius_down, const double[::1] radius_up,
                  const double[::1] minimum, const double[::1] maximum,
                  const uint8_t[:, :] droppable, bint has_missing,
                  const int32_t[::1] predictions, const uint8_t[:, ::1] is_member, referee,
                  int64_t steps_before_local, int64_t steps_before_division):
        self.nodes, self.roots = nodes, roots
        self.thresholds, self.threshold_starts, self.node_cuts = thresholds, threshold_starts, node_cuts
        self.scores, self.error, self.referee = scores, error, referee
        cdef Tables tables = make_tables(members, group_starts, codes, n_options, ones)
        self.members, self.group_starts, self.codes, self.n_options = members, group_starts, codes, n_options
        self.ones, self.allowed = ones, allowed
        self.low_center, self.high_center = low_center, high_center
        self.radius_down, self.radius_up = radius_down, radius_up
        self.minimum, self.maximum = minimum, maximum
        self.droppable, self.has_missing = droppable, has_missing
        self.predictions, self.is_member = predictions, is_member
        self.n_features = <int32_t> threshold_starts.shape[0] - 1
        self.n_labels = <int32_t> scores.shape[1]
        self.n_trees = <int32_t> roots.shape[0]
        self.choice, self.starts = np.zeros((2, self.n_trees), dtype=np.int32)
        self.order = np.arange(self.n_trees, dtype=np.int32)
        self.waiting = np.zeros(max_depth + 1, dtype=np.int32)
        self.slack = 2 * error * self.n_trees
        self.steps_before_local, self.steps_before_division = steps_before_local, steps_before_division
        reserve_cell_box(&self.box, self.n_features, has_missing, &tables)
        reserve_reached(&self.reached, self.n_trees, self.n_features, <int32_t> max_depth)
        reserve_leaf_sets(&self.sets, self.n_trees, self.n_features * (1 + has_missing))
        reserve_intersection(&self.intersection, self.n_features, has_missing)
        reserve_local_search(&self.local, self.n_features, <int32_t> max_depth)
        self.found_leaves = np.zeros(self.n_trees, dtype=np.int32)

    def __dealloc__(self):
        free_cell_box(&self.box)
        free_reached(&self.reached)
        free_leaf_sets(&self.sets)
        free_intersection(&self.intersection)
        free_local_search(&self.local)
        free_dual_bound(&self.dual)
        free(self.parts)
        free(self.part_depths)
        free(self.whole)
        free(self.pairs)
        free(self.branches)

    def decide(self, Py_ssize_t first, Py_ssize_t last, int64_t max_steps, uint8_t[::1] found,
               int32_t[:, ::1] leaves):
        """Search for the rows first..last-1, at most so many steps for each; `found` receives a SearchStatus.

        Parameters
        ----------
        leaves : shape (n_samples, n_trees); where a witness is found it receives the leaves that the witness falls into
        """
        cdef Py_ssize_t row
        with nogil:
            for row in range(first, last):
                self._begin(row)
                found[row] = self._advance(max_steps)
                if found[row] == FOUND:
                    self._fill_witness(leaves[row])

    def begin(self, Py_ssize_t row):
        """Set up the search for one row, to be continued with `advance`."""
        with nogil:
            self._begin(row)

    def advance(self, int64_t max_steps):
        """Continue for at most so many steps; returns a SearchStatus."""
        cdef int found
        with nogil:
            found = self._advance(max_steps)
        return found

    def witness(self, int32_t[::1] leaves):
        """Write the leaf of each tree, in the model's numbering, for the witness that was found."""
        self._fill_witness(leaves)

    cdef void _fill_witness(self, int32_t[::1] leaves) noexcept nogil:
        cdef int32_t tree
        for tree in range(self.n_trees):
            if self.is_found_locally:
                leaves[tree] = self.found_leaves[tree]
            else:
                leaves[tree] = self.reached.leaf[self.sets.ranked[self.choice[tree]].leaf]

    cdef int _begin(self, Py_ssize_t row) except -1 nogil:
        cdef int32_t f
        for f in range(self.n_features):
            self.box.lower[f] = lower_bound(self.low_center[row, f], self.radius_down[f], self.minimum[f])
            self.box.upper[f] = upper_bound(self.high_center[row, f], self.radius_up[f], self.maximum[f])
        self.row_has_missing = self.has_missing and self._allow_missing(row)
        self.n_steps = 0
        self.pair = -1
        self.n_pairs = 0
        self.is_running = self.has_entries = self.is_found_locally = self.is_divided = False
        # A search of another row may have been given up in the middle.
        self.n_parts = 0
        # The local search does not know missing values.
        self.next_local = INT64_MAX if self.row_has_missing else self.steps_before_local
        self.is_local_tried = False
        self.local.random = 0
        for f in range(self.box.tables.n_groups):
            if not restrict_group(&self.box, f, allowed_of(self.allowed, row)):
                self.n_pairs = -1
                return 0
        self._open_pairs(row)
        if self.n_pairs == 0:
            return 0
        set_cells(&self.box, &self.thresholds[0] if self.thresholds.shape[0] else NULL, &self.threshold_starts[0])
        self._collect()
        for f in range(self.n_trees):
            self.order[f] = f
        return 0

    cdef bint _allow_missing(self, Py_ssize_t row) noexcept nogil:
        """Set the bounds of features that are or may become missing, see box.pxd; returns whether there are some."""
        cdef int32_t f
        cdef bint has_some = False
        for f in range(self.n_features):
            self.box.table[2 * f], self.box.table[2 * f + 1] = self.box.lower[f], self.box.upper[f]
            if self.droppable.shape[0] > 0 and self.droppable[row, f]:
                self.box.lower[f] = self.box.upper[f] = NAN
            has_some |= is_missing(self.box.lower[f])
        return has_some

    cdef int _collect(self) except -1 nogil:
        """Collect the leaves that the box reaches."""
        if self.row_has_missing:
            open_cells(&self.box)
            collect_reached(&self.reached, &self.nodes[0], &self.roots[0], self.n_trees, &self.node_cuts[0],
                            self.box.merged_low, self.box.merged_high, self.box.low, self.box.high, self.box.values,
                            self.n_features)
        else:
            collect_reached(&self.reached, &self.nodes[0], &self.roots[0], self.n_trees, &self.node_cuts[0],
                            self.box.merged_low, self.box.merged_high, self.box.row_low, self.box.row_high, NULL,
                            self.n_features)
        reserve_for_leaves(&self.sets, &self.reached)
        self.has_entries = False
        return 0

    cdef int _advance(self, int64_t max_steps) except -1 nogil:
        cdef int64_t stop = self.n_steps + max_steps
        if self.n_pairs < 0:
            return INADMISSIBLE
        while True:
            if not self.is_running and self.n_parts > 0:
                if self.n_steps >= stop:
                    return UNDECIDED
                if self._search_part():
                    return FOUND
                continue
            if not self.is_running:
                self.pair += 1
                if self.pair >= self.n_pairs:
                    self.pair = self.n_pairs
                    return ABSENT
                if self.is_divided:
                    self.is_divided = False
                    memcpy(self.box.row_low, self.whole, self.n_features * sizeof(int32_t))
                    memcpy(self.box.row_high, self.whole + self.n_features, self.n_features * sizeof(int32_t))
                    self._collect()
                self._begin_pair()
            if self._search(min(stop, self.box_limit)):
                return FOUND
            if self.is_running:
                if self.n_steps >= stop:
                    return UNDECIDED
                self._divide()

    # Parts of a box, with the bound by messages.

    cdef int _divide(self) except -1 nogil:
        """Give up the search in the whole box, after many steps, for one with a tighter bound in parts of the box."""
        self.box_limit = INT64_MAX
        if not self.has_entries:
            set_entries(&self.sets, &self.reached)
            self.has_entries = True
        if not begin_dual_bound(&self.dual, &self.sets, &self.reached, self.least):
            return 0
        self.is_running = False
        reserve(<void**> &self.whole, &self.whole_capacity, 2 * <size_t> self.n_features + 1, sizeof(int32_t))
        memcpy(self.whole, self.box.row_low, self.n_features * sizeof(int32_t))
        memcpy(self.whole + self.n_features, self.box.row_high, self.n_features * sizeof(int32_t))
        self._push_part(0)
        return 0

    cdef int _push_part(self, int32_t depth) except -1 nogil:
        """Keep the cells that remain for later."""
        reserve(<void**> &self.part_depths, &self.depth_capacity, self.n_parts + 1, sizeof(int32_t))
        self.part_depths[self.n_parts] = depth
        reserve(<void**> &self.parts, &self.part_capacity, (self.n_parts + 1) * <size_t> self.dual.n_cells + 1,
                sizeof(char))
        memcpy(self.parts + self.n_parts * self.dual.n_cells, self.dual.is_removed, self.dual.n_cells)
        self.n_parts += 1
        return 0

    cdef bint _search_part(self) except -1 nogil:
        """Bound the last part, and divide it in two if that does not decide it; returns whether there is a witness."""
        cdef int32_t i, depth, n_sweeps
        cdef CutBounds cut
        cdef bint is_left_first
        self.n_parts -= 1
        depth = self.part_depths[self.n_parts]
        n_sweeps = SWEEPS if depth == 0 else SWEEPS_AGAIN
        if depth > 0:
            restore_messages(&self.dual, depth - 1)
        memcpy(self.dual.is_removed, self.parts + self.n_parts * self.dual.n_cells, self.dual.n_cells)
        self.dual.bound = set_values(&self.dual)
        if self.dual.bound < self.dual.least:
            return False
        for i in range(n_sweeps):
            self.n_steps += 1
            if not sweep(&self.dual, i + 2 < n_sweeps):
                return False
        if depth == 0:
            decode_point(&self.dual, self.box.row_low, self.box.row_high, self.local.point)
            if self._climb(&self.pairs[self.pair]):
                return True
        save_messages(&self.dual, depth)
        cut = self._choose_cut(depth)
        if cut.feature < 0:
            # One cell of each feature remains: the plain search decides it.
            self.is_divided = True
            memcpy(self.box.row_low, self.whole, self.n_features * sizeof(int32_t))
            memcpy(self.box.row_high, self.whole + self.n_features, self.n_features * sizeof(int32_t))
            narrow_to_remaining(&self.dual, self.box.row_low, self.box.row_high)
            self._collect()
            self._begin_pair()
            self.box_limit = INT64_MAX
            return False
        is_left_first = cut.left > cut.right
        self._push_side(cut, not is_left_first, depth + 1)
        self._push_side(cut, is_left_first, depth + 1)
        return False

    cdef CutBounds _choose_cut(self, int32_t depth) noexcept nogil:
        """Try both sides of the most promising cuts; returns the one after which the bounds are lowest."""
        cdef CutBounds best[MAX_PROBES]
        cdef CutBounds cut
        cdef int32_t f, i, n_cuts = 0
        cdef double unit = 1.0 + <double> (self.dual.bound - self.dual.least) / 64.0
        cdef int64_t bound = self.dual.bound
        for f in range(self.n_features):
            cut = propose_cut(&self.dual, f)
            if cut.feature < 0:
                continue
            i = n_cuts if n_cuts < MAX_PROBES else MAX_PROBES - 1
            if n_cuts == MAX_PROBES and cut.score <= best[i].score:
                continue
            while i > 0 and best[i - 1].score < cut.score:
                best[i] = best[i - 1]
                i -= 1
            best[i] = cut
            if n_cuts < MAX_PROBES:
                n_cuts += 1
        if n_cuts == 0:
            return CutBounds(-1, 0, 0, 0, 0.0)
        memcpy(self.dual.kept_removed, self.dual.is_removed, self.dual.n_cells)
        cut = best[0]
        cut.score = -1.0
        for i in range(n_cuts):
            best[i].left = self._probe(best[i], True, depth)
            best[i].right = self._probe(best[i], False, depth)
            best[i].score = (<double> (bound - best[i].left) + unit) * (<double> (bound - best[i].right) + unit)
            if best[i].score > cut.score:
                cut = best[i]
            if best[i].left < self.dual.least or best[i].right < self.dual.least:
                cut = best[i]
                break
        memcpy(self.dual.is_removed, self.dual.kept_removed, self.dual.n_cells)
        return cut

    cdef int64_t _probe(self, CutBounds cut, bint is_left, int32_t depth) noexcept nogil:
        """The bound on one side of a cut after some sweeps."""
        cdef int32_t i
        restore_messages(&self.dual, depth)
        memcpy(self.dual.is_removed, self.dual.kept_removed, self.dual.n_cells)
        remove_side(&self.dual, cut, is_left)
        self.dual.bound = set_values(&self.dual)
        for i in range(SWEEPS_PER_PROBE):
            if self.dual.bound < self.dual.least or not sweep(&self.dual, i + 1 < SWEEPS_PER_PROBE):
                return self.dual.least - 1
            self.n_steps += 1
        return self.dual.bound

    cdef int _push_side(self, CutBounds cut, bint is_left, int32_t depth) except -1 nogil:
        if (cut.left if is_left else cut.right) < self.dual.least:
            return 0
        memcpy(self.dual.is_removed, self.dual.kept_removed, self.dual.n_cells)
        remove_side(&self.dual, cut, is_left)
        return self._push_part(depth)

    # Label pairs.

    cdef int _open_pairs(self, Py_ssize_t row) except -1 nogil:
        """All pairs that the sum of the best margins does not decide, the most promising first."""
        reserve(<void**> &self.pairs, &self.pair_capacity, 2 * <size_t> self.n_labels, sizeof(LabelPair))
        self.n_pairs = list_pairs(&self.is_member[self.predictions[row], 0], self.n_labels, self.pairs)
        descend_together(&self.nodes[0], &self.roots[0], self.n_trees, self.box.lower, self.box.upper, self.box.table,
                         &self.starts[0])
        bound_pairs(self.pairs, self.n_pairs, &self.nodes[0], &self.starts[0], self.n_trees,
                       &self.scores[0, 0], self.n_labels, self.box.lower, self.box.upper, self.box.table,
                       &self.waiting[0])
        self.n_pairs = keep_open_pairs(self.pairs, self.n_pairs, self._least(False), self._least(True))
        return 0

    cdef int64_t _least(self, bint is_strict) noexcept nogil:
        """The smallest bound that leaves a pair open."""
        return -self.slack if self.error else is_strict

    cdef int _begin_pair(self) except -1 nogil:
        cdef LabelPair* pair = &self.pairs[self.pair]
        rank_leaves(&self.sets, &self.reached, &self.scores[0, 0], self.n_labels, pair.ahead, pair.behind)
        self.has_masks = False
        reset_cells(&self.box)
        self.least = self._least(pair.is_strict)
        # Table groups tie features together, which messages do not know, and neither do they know missing values.
        self.box_limit = (INT64_MAX if self.box.tables.n_groups or self.row_has_missing
                          else self.n_steps + self.steps_before_division)
        self.n_branches = 0
        self.is_running = True
        return 0

    # The search.

    cdef bint _search(self, int64_t stop) except -1 nogil:
        """Continue with the present pair; returns whether there is a witness. Not running afterwards: it is decided."""
        cdef Choice choice
        while self.n_steps < stop:
            self.n_steps += 1
            choice = self._choose_leaves() if self.sets.bound >= self.least else HOPELESS
            if choice == WITNESS:
                return True
            if choice == CUTTABLE and self.n_steps >= self.next_local and self._search_locally():
                return True
            if choice == CUTTABLE and self._branch():
                continue
            while True:
                if self.n_branches == 0:
                    self.is_running = False
                    return False
                if self._backtrack():
                    break
        return False

    cdef bint _search_locally(self) except -1 nogil:
        """Look for a witness near the intersection of the chosen leaves, the first time for all remaining pairs."""
        cdef int32_t f, i, last = self.pair + 1 if self.is_local_tried else self.n_pairs
        self.is_local_tried = True
        self.next_local = 2 * self.n_steps
        for i in range(self.pair, last):
            for f in range(self.n_features):
                if self.intersection.ranges[f].stamp == self.intersection.stamp:
                    self.local.point[f] = self.intersection.ranges[f].low
                else:
                    self.local.point[f] = self.box.low[f]
            if self._climb(&self.pairs[i]):
                return True
        return False

    cdef bint _climb(self, const LabelPair* pair) except -1 nogil:
        """Look for a witness of a label pair by a local search from its point."""
        cdef int32_t tree
        cdef int64_t enough = self.slack + 1 if self.error else self._least(pair.is_strict)
        cdef Forest forest = Forest(
            &self.nodes[0], &self.starts[0], &self.node_cuts[0], &self.scores[0, 0], self.n_trees, self.n_labels)
        if self.box.tables.n_groups > 0:
            # Points must take options of table groups, which line searches do not know.
            return False
        if not self.has_entries:
            set_entries(&self.sets, &self.reached)
            self.has_entries = True
        list_free_features(&self.local, &self.box, &self.sets)
        if not search_locally(&self.local, &forest, &self.box, &self.sets, pair.ahead, pair.behind, enough,
                              N_RESTARTS):
            return False
        for tree in range(self.n_trees):
            self.found_leaves[tree] = leaf_of_point(&forest, &self.box, self.local.point, tree)
        self.is_found_locally = True
        return True

    cdef bint _backtrack(self) noexcept nogil:
        """Go to the other side of the last cut; False if nothing remains there."""
        cdef Branch branch
        self.n_branches -= 1
        branch = self.branches[self.n_branches]
        undo_cuts(&self.sets, branch.n_saved_words, branch.n_saved_best, branch.bound)
        undo_narrowing(&self.box, branch.n_saved_cells)
        return apply_cut(&self.box, &self.sets, &self.reached, branch.other)

    cdef Choice _choose_leaves(self) except CHOICE_FAILED nogil:
        """Choose a leaf of each tree that intersects the others, as good as possible, one tree after the other."""
        cdef int32_t i, tree, place, worst = -1
        cdef int64_t margin = 0, loss, largest_loss = 0
        begin_intersection(&self.intersection)
        for i in range(self.n_trees):
            tree = self.order[i]
            place = first_intersecting(&self.sets, &self.reached, &self.intersection, tree)
            loss = self.sets.ranked[self.sets.best[tree]].margin - self.sets.ranked[place].margin
            if loss > 0 and self.intersection.n_cuts < MAX_CANDIDATES:
                propose_between_best(&self.sets, &self.reached, &self.intersection, &self.box, tree)
            if loss > largest_loss:
                largest_loss = loss
                worst = i
            self.choice[tree] = place
            margin += self.sets.ranked[place].margin
            intersect_with(&self.intersection, &self.reached, self.sets.ranked[place].leaf, self.box.low, self.box.high)
        if worst > 0:
            # The tree that lost most by its late turn is first next time.
            tree = self.order[worst]
            for i in range(worst, 0, -1):
                self.order[i] = self.order[i - 1]
            self.order[0] = tree
        if margin > self.slack or (self.error == 0 and margin >= self.least):
            return CUTTABLE if propose_group_cuts(&self.box, &self.intersection) else WITNESS
        if self.error == 0 or self.sets.bound > self.slack:
            return CUTTABLE
        return self._choose_exactly()

    cdef Choice _choose_exactly(self) except CHOICE_FAILED nogil:
        """The same where rounding could matter, with exact margins."""
        cdef int32_t tree, leaf
        if not self._ask_referee():
            return HOPELESS
        begin_intersection(&self.intersection)
        for tree in range(self.n_trees):
            leaf = self.sets.ranked[self.choice[tree]].leaf
            if intersects(&self.intersection, &self.reached, leaf):
                intersect_with(&self.intersection, &self.reached, leaf, self.box.low, self.box.high)
            else:
                propose_between(&self.intersection, &self.reached, leaf, self.box.low, self.box.high)
        return CUTTABLE if self.intersection.n_cuts or propose_group_cuts(&self.box, &self.intersection) else WITNESS

    cdef int _ask_referee(self) except -1 with gil:
        """Let the referee choose the best leaf of each tree; False if even their margin is too small."""
        cdef int32_t tree, place
        cdef LabelPair pair = self.pairs[self.pair]
        cdef int64_t best
        places = []
        for tree in range(self.n_trees):
            best = self.sets.ranked[self.sets.best[tree]].margin
            # The order of two margins is uncertain only if they differ by no more than their errors.
            places.append([
                place for place in range(self.reached.tree_start[tree], self.reached.tree_start[tree + 1])
                if is_remaining(&self.sets, &self.reached, tree, place)
                and best - self.sets.ranked[place].margin <= 4 * self.error
            ])
        leaves = [[self.reached.leaf[self.sets.ranked[place].leaf] for place in tree_places] for tree_places in places]
        chosen = self.referee(pair.ahead, pair.behind, pair.is_strict, leaves)
        if chosen is None:
            return 0
        for tree in range(self.n_trees):
            self.choice[tree] = places[tree][leaves[tree].index(chosen[tree])]
        return 1

    cdef int _branch(self) except -1 nogil:
        """Make the best of the proposed cuts; 0 if the box holds no witness on either side of one of them."""
        cdef int32_t i
        cdef int64_t left, right, best_left = 0, best_right = 0
        cdef double score, best_score = -1.0, unit = 1.0
        cdef CellCut cut, best
        cdef CommonRange* known
        cdef bint is_forced = False
        if not self.has_masks:
            # Many searches end before the first cut.
            if not self.has_entries:
                set_entries(&self.sets, &self.reached)
                self.has_entries = True
            make_masks(&self.sets, &self.reached, self.box.row_low, self.box.row_high, self.n_features)
            self.has_masks = True
        unit = 1.0 + <double> (self.sets.bound - self.least) / 64.0
        reserve(<void**> &self.box.saved, &self.box.saved_capacity,
                self.box.n_saved + (self.intersection.n_cuts + 1) * (2 + self.box.tables.n_members), sizeof(SavedCells))
        for i in range(self.intersection.n_cuts):
            cut = self.intersection.cuts[i]
            if not self.box.low[cut.feature] <= cut.cut < self.box.high[cut.feature]:
                continue
            left = bound_after(&self.sets, &self.reached, cut.feature, cut.cut, True)
            right = bound_after(&self.sets, &self.reached, cut.feature, cut.cut, False)
            if left < self.least and right < self.least:
                return 0
            if left < self.least or right < self.least:
                cut.is_left = right < self.least
                is_forced = True
                if not apply_cut(&self.box, &self.sets, &self.reached, cut):
                    return 0
                continue
            score = (<double> (self.sets.bound - left) + unit) * (<double> (self.sets.bound - right) + unit)
            if score > best_score:
                best_score = score
                best = cut
                best_left, best_right = left, right
        if is_forced:
            return 1
        known = &self.intersection.ranges[best.feature]
        # Of two equal sides the one that holds the intersection of the chosen leaves.
        best.is_left = best_left > best_right or (
            best_left == best_right and not (known.stamp == self.intersection.stamp and known.low > best.cut))
        reserve(<void**> &self.branches, &self.branch_capacity, self.n_branches + 1, sizeof(Branch))
        self.branches[self.n_branches] = Branch(
            CellCut(best.feature, best.cut, not best.is_left), self.sets.n_saved_words, self.sets.n_saved_best,
            self.box.n_saved, self.sets.bound)
        self.n_branches += 1
        return apply_cut(&self.box, &self.sets, &self.reached, best)
