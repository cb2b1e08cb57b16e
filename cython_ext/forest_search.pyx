"""Whether some point of a box gets another answer from a forest: a complete search, depth first, that can be paused.

The answer of a forest is the set of labels with the largest score. It differs from a set A with a member a if and only
if some label outside A scores at least as much as a, or some other member of A more or less than a. So there is a list
of contests, each the question whether one label can be ahead of another (or level with it). For each contest:

- bounding (ms_bounding.pxd): the sum of the best leads of all trees; no point of the box has a larger lead. Soundness
  of STABLE rests on this alone.
- cutting: where best leaves of two trees have no point in common, they differ in some feature, and a cut between them
  takes one of them away on either side. The cut that lowers the bounds most is taken, the side with the higher bound
  first. When all best leaves have a point in common, the bound is attained: a witness.

Scores are whole numbers: exact, or within `error` of the exact ones. Where rounding could matter, the `referee` is
asked, a Python function that knows the exact scores. Leaves budgets, clocks and threads to
metasilvae.forest_verification.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free

from ms_bounding cimport (
    Arena, bound_after, cut_leaves, free_arena, lay_out, make_masks, ms_first_bit, rank_leaves,
    reserve_arena, set_entries, undo_cuts,
)
from ms_box cimport lower_bound, upper_bound
from ms_contest cimport Contest, bound_contests, list_contests, sort_open
from ms_meeting cimport (
    Cut, Meeting, Part, begin_meeting, free_meeting, join_meeting, meets, propose, propose_between, reserve_meeting,
)
from ms_node cimport Node
from ms_reached cimport Reached, collect_reached, free_reached, reserve_reached
from ms_room cimport reserve

# What a search can say; metasilvae.forest_verification uses the names.
UNDECIDED, STABLE, UNSTABLE, NO_ADMISSIBLE_POINT = 0, 1, 2, 3

# Cuts that are compared before one is taken.
cdef enum:
    MAX_CANDIDATES = 32

cdef struct Branch:
    # The other side of a cut, and the state before it.
    Cut other
    size_t n_lost
    size_t n_replaced
    size_t n_narrowed
    int64_t bound

cdef struct Narrowed:
    int32_t feature
    int32_t low
    int32_t high


cdef int32_t _cell(const double[::1] thresholds, int32_t first, int32_t last, double value) noexcept nogil:
    """Number of thresholds of a feature that are below a value."""
    cdef int32_t start = first, middle
    while first < last:
        middle = (first + last) // 2
        if thresholds[middle] < value:
            first = middle + 1
        else:
            last = middle
    return first - start


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
    members, group_starts : one-hot groups; group g consists of members[group_starts[g]:group_starts[g+1]]
    low_center, high_center, radius_down, radius_up, minimum, maximum : the boxes, as in reach.pyx
    answers : number of the answer that is expected for each row
    is_member : for each answer and label whether the label belongs to it
    referee : function (ahead, behind, is_strict, lists of leaves), called where rounding could matter; returns for each
        list, in their order, the leaf with the exact largest lead, or None if these leads add up to too little
    """

    cdef const Node[::1] nodes
    cdef const int32_t[::1] roots
    cdef const double[::1] thresholds
    cdef const int32_t[::1] threshold_starts
    cdef const int32_t[::1] node_cuts
    cdef const int64_t[:, ::1] scores
    cdef int64_t error
    cdef const int32_t[::1] members
    cdef const int32_t[::1] group_starts
    cdef const double[:, ::1] low_center, high_center
    cdef const double[::1] radius_down, radius_up, minimum, maximum
    cdef const int32_t[::1] answers
    cdef const uint8_t[:, ::1] is_member
    cdef object referee
    cdef int32_t n_features, n_labels, n_trees
    # By feature.
    cdef int32_t[::1] group_of, merged_low, merged_high, row_low, row_high, low, high
    cdef double[::1] lower, upper
    # By group: whether a member that no tree looks at may be 1.
    cdef uint8_t[::1] is_free, is_settled
    # By tree.
    cdef int32_t[::1] choice, order
    # Nodes, by depth.
    cdef int32_t[::1] waiting
    cdef Reached reached
    cdef Arena arena
    cdef Meeting meeting
    cdef Contest* contests
    cdef size_t contest_capacity
    cdef int32_t n_contests, contest
    cdef bint is_running, has_entries, has_masks
    cdef Branch* branches
    cdef size_t branch_capacity, n_branches
    cdef Narrowed* narrowed
    cdef size_t narrowed_capacity, n_narrowed
    cdef int64_t slack, least
    cdef readonly int64_t n_steps

    def __cinit__(self, const Node[::1] nodes, const int32_t[::1] roots, Py_ssize_t max_depth,
                  const double[::1] thresholds, const int32_t[::1] threshold_starts, const int32_t[::1] node_cuts,
                  const int64_t[:, ::1] scores, int64_t error,
                  const int32_t[::1] members, const int32_t[::1] group_starts,
                  const double[:, ::1] low_center, const double[:, ::1] high_center,
                  const double[::1] radius_down, const double[::1] radius_up,
                  const double[::1] minimum, const double[::1] maximum,
                  const int32_t[::1] answers, const uint8_t[:, ::1] is_member, referee):
        cdef Py_ssize_t group, place
        self.nodes, self.roots = nodes, roots
        self.thresholds, self.threshold_starts, self.node_cuts = thresholds, threshold_starts, node_cuts
        self.scores, self.error, self.referee = scores, error, referee
        self.members, self.group_starts = members, group_starts
        self.low_center, self.high_center = low_center, high_center
        self.radius_down, self.radius_up = radius_down, radius_up
        self.minimum, self.maximum = minimum, maximum
        self.answers, self.is_member = answers, is_member
        self.n_features = <int32_t> threshold_starts.shape[0] - 1
        self.n_labels = <int32_t> scores.shape[1]
        self.n_trees = <int32_t> roots.shape[0]
        ints = np.zeros((7, max(self.n_features, 1)), dtype=np.int32)
        self.group_of, self.merged_low, self.merged_high, self.row_low, self.row_high, self.low, self.high = ints
        self.lower, self.upper = np.zeros((2, max(self.n_features, 1)))
        self.is_free, self.is_settled = np.zeros((2, group_starts.shape[0]), dtype=np.uint8)
        self.choice = np.zeros(self.n_trees, dtype=np.int32)
        self.order = np.arange(self.n_trees, dtype=np.int32)
        self.waiting = np.zeros(max_depth + 1, dtype=np.int32)
        for place in range(self.n_features):
            self.group_of[place] = -1
        for group in range(group_starts.shape[0] - 1):
            for place in range(group_starts[group], group_starts[group + 1]):
                self.group_of[members[place]] = <int32_t> group
        self.slack = 2 * error * self.n_trees
        reserve_reached(&self.reached, self.n_trees, self.n_features, <int32_t> max_depth)
        reserve_arena(&self.arena, self.n_trees, self.n_features)
        reserve_meeting(&self.meeting, self.n_features)

    def __dealloc__(self):
        free_reached(&self.reached)
        free_arena(&self.arena)
        free_meeting(&self.meeting)
        free(self.contests)
        free(self.branches)
        free(self.narrowed)

    def decide(self, Py_ssize_t first, Py_ssize_t last, int64_t max_steps, uint8_t[::1] found,
               int32_t[:, ::1] leaves):
        """Search for the rows first..last-1, at most so many steps for each; `found` gets one of the words above.

        Parameters
        ----------
        leaves : shape (n_samples, n_trees); for unstable rows it gets leaves that the answer differs in
        """
        cdef Py_ssize_t row
        with nogil:
            for row in range(first, last):
                self._begin(row)
                found[row] = self._advance(max_steps)
                if found[row] == 2:
                    self._fill_witness(leaves[row])

    def begin(self, Py_ssize_t row):
        """Set up the search for one row, to go on with `advance`."""
        with nogil:
            self._begin(row)

    def advance(self, int64_t max_steps):
        """Go on for at most so many steps; returns one of the words above, UNDECIDED when steps ran out."""
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
            leaves[tree] = self.reached.leaf[self.arena.ranked[self.choice[tree]].leaf]

    cdef int _begin(self, Py_ssize_t row) except -1 nogil:
        cdef int32_t f
        for f in range(self.n_features):
            self.lower[f] = lower_bound(self.low_center[row, f], self.radius_down[f], self.minimum[f])
            self.upper[f] = upper_bound(self.high_center[row, f], self.radius_up[f], self.maximum[f])
        self.n_steps = 0
        self.contest = -1
        self.n_contests = 0
        self.is_running = self.has_entries = False
        for f in range(<int32_t> self.group_starts.shape[0] - 1):
            if not self._settle_group(f):
                self.n_contests = -1
                return 0
        self._open_contests(row)
        if self.n_contests == 0:
            return 0
        self._set_cells()
        collect_reached(&self.reached, &self.nodes[0], &self.roots[0], self.n_trees, &self.node_cuts[0],
                        &self.merged_low[0], &self.merged_high[0], &self.row_low[0], &self.row_high[0])
        lay_out(&self.arena, &self.reached)
        if self.group_starts.shape[0] > 1:
            set_entries(&self.arena, &self.reached)
            self.has_entries = True
            self._free_unseen_members()
        for f in range(self.n_trees):
            self.order[f] = f
        return 0

    cdef void _set_cells(self) noexcept nogil:
        """Cells of the box. A member of a group has one for 0, and the next for 1 where some threshold lies between."""
        cdef int32_t f, first, last, zero
        for f in range(self.n_features):
            first, last = self.threshold_starts[f], self.threshold_starts[f + 1]
            if first == last:
                continue
            if self.group_of[f] < 0:
                self.row_low[f] = _cell(self.thresholds, first, last, self.lower[f])
                self.row_high[f] = _cell(self.thresholds, first, last, self.upper[f])
                continue
            zero = _cell(self.thresholds, first, last, 0.0)
            self.merged_low[f] = zero
            self.merged_high[f] = _cell(self.thresholds, first, last, 1.0)
            self.row_low[f] = zero + (zero < self.merged_high[f] and self.lower[f] == 1.0)
            self.row_high[f] = zero + (zero < self.merged_high[f] and self.upper[f] == 1.0)

    cdef int _advance(self, int64_t max_steps) except -1 nogil:
        cdef int64_t stop = self.n_steps + max_steps
        if self.n_contests < 0:
            return 3
        while True:
            if not self.is_running:
                self.contest += 1
                if self.contest >= self.n_contests:
                    self.contest = self.n_contests
                    return 1
                self._begin_contest()
            if self._search(stop):
                return 2
            if self.is_running:
                return 0

    # One-hot groups.

    cdef bint _settle_group(self, int32_t group) noexcept nogil:
        """Restrict the members of a group to 0 and 1; False if the box holds no point with this group one-hot."""
        cdef int32_t place, f, n_candidates = 0, n_forced = 0, only = -1
        cdef bint can_be_zero, can_be_one
        for place in range(self.group_starts[group], self.group_starts[group + 1]):
            f = self.members[place]
            can_be_zero = self.lower[f] <= 0.0 <= self.upper[f]
            can_be_one = self.lower[f] <= 1.0 <= self.upper[f]
            if not can_be_zero and not can_be_one:
                return False
            self.lower[f] = not can_be_zero
            self.upper[f] = can_be_one
            if self.upper[f] == 1.0:
                n_candidates += 1
                if n_forced == 0:
                    only = f
            if self.lower[f] == 1.0:
                n_forced += 1
                only = f
        if n_candidates == 0 or n_forced > 1:
            return False
        self.is_free[group] = False
        self.is_settled[group] = n_forced == 1 or n_candidates == 1
        if self.is_settled[group]:
            for place in range(self.group_starts[group], self.group_starts[group + 1]):
                f = self.members[place]
                self.lower[f] = self.upper[f] = f == only
        return True

    cdef void _free_unseen_members(self) noexcept nogil:
        """Find groups with a member that may be 1 without any tree that is reached noticing."""
        cdef int32_t group, place, f
        for group in range(<int32_t> self.group_starts.shape[0] - 1):
            for place in range(self.group_starts[group], self.group_starts[group + 1]):
                f = self.members[place]
                if (self.lower[f] < self.upper[f]
                        and self.arena.feature_start[f] == self.arena.feature_start[f + 1]):
                    self.is_free[group] = True

    cdef bint _follow_group(self, int32_t f) noexcept nogil:
        """Draw the conclusions from one member of a group becoming 0 or 1; False if none can be 1 any more."""
        cdef int32_t group = self.group_of[f], place, other, n_open = 0, only = -1
        if self.is_settled[group]:
            return True
        if self.low[f] > self.merged_low[f]:
            for place in range(self.group_starts[group], self.group_starts[group + 1]):
                other = self.members[place]
                if other != f and self.low[other] < self.high[other]:
                    self._narrow(Cut(other, self.merged_low[other], True))
            return True
        for place in range(self.group_starts[group], self.group_starts[group + 1]):
            other = self.members[place]
            if self.low[other] > self.merged_low[other]:
                return True
            if self.low[other] < self.high[other]:
                n_open += 1
                only = other
        if self.is_free[group]:
            return True
        if n_open == 1:
            self._narrow(Cut(only, self.merged_low[only], False))
        return n_open > 0

    cdef int _contest_groups(self) except -1 nogil:
        """Candidates for cuts where the chosen leaves want two members of a group to be 1, or none.

        Returns whether there is such a group.
        """
        cdef int32_t group, place, f, n_ones, n_open
        cdef bint is_broken = False
        cdef bint wants_one, wants_zero
        for group in range(<int32_t> self.group_starts.shape[0] - 1):
            if self.is_settled[group]:
                continue
            n_ones = n_open = 0
            for place in range(self.group_starts[group], self.group_starts[group + 1]):
                f = self.members[place]
                wants_one = self.low[f] > self.merged_low[f]
                wants_zero = self.high[f] == self.merged_low[f]
                if self.meeting.parts[f].time == self.meeting.time:
                    wants_one |= self.meeting.parts[f].low > self.merged_low[f]
                    wants_zero |= self.meeting.parts[f].high == self.merged_low[f]
                n_ones += wants_one
                n_open += not wants_zero
            if n_ones == 1 or (n_ones == 0 and (n_open > 0 or self.is_free[group])):
                continue
            is_broken = True
            for place in range(self.group_starts[group], self.group_starts[group + 1]):
                f = self.members[place]
                if self.low[f] < self.high[f] and self.meeting.parts[f].time == self.meeting.time:
                    if n_ones == 0 or self.meeting.parts[f].low > self.merged_low[f]:
                        propose(&self.meeting, f, self.merged_low[f])
        return is_broken

    # Contests.

    cdef int _open_contests(self, Py_ssize_t row) except -1 nogil:
        """All contests that the sum of the best leads does not decide, the most promising first."""
        reserve(<void**> &self.contests, &self.contest_capacity, 2 * <size_t> self.n_labels, sizeof(Contest))
        self.n_contests = list_contests(&self.is_member[self.answers[row], 0], self.n_labels, self.contests)
        bound_contests(self.contests, self.n_contests, &self.nodes[0], &self.roots[0], self.n_trees,
                       &self.scores[0, 0], self.n_labels, &self.lower[0], &self.upper[0], &self.waiting[0])
        self.n_contests = sort_open(self.contests, self.n_contests, self._least(False), self._least(True))
        return 0

    cdef int64_t _least(self, bint is_strict) noexcept nogil:
        """The smallest bound that leaves a contest open."""
        return -self.slack if self.error else is_strict

    cdef int _begin_contest(self) except -1 nogil:
        cdef int32_t f
        cdef Contest* contest = &self.contests[self.contest]
        rank_leaves(&self.arena, &self.reached, &self.scores[0, 0], self.n_labels, contest.ahead, contest.behind)
        self.has_masks = False
        for f in range(self.n_features):
            self.low[f] = self.row_low[f]
            self.high[f] = self.row_high[f]
        self.least = self._least(contest.is_strict)
        self.n_branches = self.n_narrowed = 0
        self.is_running = True
        return 0

    # The search.

    cdef int _search(self, int64_t stop) except -1 nogil:
        """Go on with the contest at hand; returns 2 for a witness, 0 when it is over or steps ran out."""
        cdef int verdict
        while self.n_steps < stop:
            self.n_steps += 1
            verdict = self._choose_leaves() if self.arena.bound >= self.least else 0
            if verdict == 2:
                return 2
            if verdict == 1 and self._branch():
                continue
            while True:
                if self.n_branches == 0:
                    self.is_running = False
                    return 0
                if self._turn_back():
                    break
        return 0

    cdef bint _turn_back(self) noexcept nogil:
        """Take the other side of the last cut; False if nothing lies there."""
        cdef Branch branch
        self.n_branches -= 1
        branch = self.branches[self.n_branches]
        undo_cuts(&self.arena, branch.n_lost, branch.n_replaced, branch.bound)
        while self.n_narrowed > branch.n_narrowed:
            self.n_narrowed -= 1
            self.low[self.narrowed[self.n_narrowed].feature] = self.narrowed[self.n_narrowed].low
            self.high[self.narrowed[self.n_narrowed].feature] = self.narrowed[self.n_narrowed].high
        return self._take(branch.other)

    cdef bint _take(self, Cut cut) noexcept nogil:
        """Cut the box; False if no admissible point is left."""
        self._narrow(cut)
        return self.group_of[cut.feature] < 0 or self._follow_group(cut.feature)

    cdef void _narrow(self, Cut cut) noexcept nogil:
        cdef int32_t f = cut.feature
        self.narrowed[self.n_narrowed] = Narrowed(f, self.low[f], self.high[f])
        self.n_narrowed += 1
        if cut.is_left:
            self.high[f] = cut.cut
        else:
            self.low[f] = cut.cut + 1
        cut_leaves(&self.arena, &self.reached, f, cut.cut, cut.is_left)

    cdef int32_t _first_meeting(self, int32_t tree) noexcept nogil:
        """The best leaf of a tree that meets those chosen so far; there is always one."""
        cdef int32_t word, start = self.arena.word_start[tree], place = -1
        cdef uint64_t left
        for word in range(start, self.arena.word_start[tree + 1]):
            left = self.arena.words[word]
            while left:
                place = self.reached.tree_start[tree] + 64 * (word - start) + ms_first_bit(left)
                if meets(&self.meeting, &self.reached, self.arena.ranked[place].leaf):
                    return place
                left &= left - 1
        return place

    cdef int _propose_between_best(self, int32_t tree) except -1 nogil:
        """Candidates for cuts between the best leaves of a tree, none of which meets, and those chosen so far."""
        cdef int32_t word, start = self.arena.word_start[tree], place
        cdef uint64_t left
        cdef int64_t best = self.arena.ranked[self.arena.best[tree]].lead
        for word in range(start, self.arena.word_start[tree + 1]):
            left = self.arena.words[word]
            while left:
                place = self.reached.tree_start[tree] + 64 * (word - start) + ms_first_bit(left)
                if self.arena.ranked[place].lead < best or self.meeting.n_cuts >= MAX_CANDIDATES:
                    return 0
                propose_between(&self.meeting, &self.reached, self.arena.ranked[place].leaf)
                left &= left - 1
        return 0

    cdef int _choose_leaves(self) except -1 nogil:
        """Choose a leaf of each tree that meets the others, as good as possible, the trees in turn.

        Returns 2 if the choice is a witness, 1 if there are candidates for cuts, 0 if the box holds no witness.
        """
        cdef int32_t i, tree, place, worst = -1
        cdef int64_t lead = 0, loss, largest_loss = 0
        begin_meeting(&self.meeting)
        for i in range(self.n_trees):
            tree = self.order[i]
            place = self._first_meeting(tree)
            loss = self.arena.ranked[self.arena.best[tree]].lead - self.arena.ranked[place].lead
            if loss > 0 and self.meeting.n_cuts < MAX_CANDIDATES:
                self._propose_between_best(tree)
            if loss > largest_loss:
                largest_loss = loss
                worst = i
            self.choice[tree] = place
            lead += self.arena.ranked[place].lead
            join_meeting(&self.meeting, &self.reached, self.arena.ranked[place].leaf, &self.low[0], &self.high[0])
        if worst > 0:
            # A tree that came too late chooses first next time.
            tree = self.order[worst]
            for i in range(worst, 0, -1):
                self.order[i] = self.order[i - 1]
            self.order[0] = tree
        if lead > self.slack or (self.error == 0 and lead >= self.least):
            return 1 if self._contest_groups() else 2
        if self.error == 0 or self.arena.bound > self.slack:
            return 1
        return self._choose_exactly()

    cdef int _choose_exactly(self) except -1 nogil:
        """The same where rounding could matter: exact leads decide."""
        cdef int32_t tree, leaf
        if not self._ask_referee():
            return 0
        begin_meeting(&self.meeting)
        for tree in range(self.n_trees):
            leaf = self.arena.ranked[self.choice[tree]].leaf
            if meets(&self.meeting, &self.reached, leaf):
                join_meeting(&self.meeting, &self.reached, leaf, &self.low[0], &self.high[0])
            else:
                propose_between(&self.meeting, &self.reached, leaf)
        return 1 if self.meeting.n_cuts or self._contest_groups() else 2

    cdef int _ask_referee(self) except -1 with gil:
        """Let the referee choose the best leaf of each tree; False if even these have too small a lead."""
        cdef int32_t tree, place
        cdef Contest contest = self.contests[self.contest]
        cdef int64_t best
        places = []
        for tree in range(self.n_trees):
            best = self.arena.ranked[self.arena.best[tree]].lead
            # Two leads can change places only if they differ by no more than their errors.
            places.append([
                place for place in range(self.reached.tree_start[tree], self.reached.tree_start[tree + 1])
                if self._is_left(tree, place) and best - self.arena.ranked[place].lead <= 4 * self.error
            ])
        leaves = [[self.reached.leaf[self.arena.ranked[place].leaf] for place in tree_places] for tree_places in places]
        chosen = self.referee(contest.ahead, contest.behind, contest.is_strict, leaves)
        if chosen is None:
            return 0
        for tree in range(self.n_trees):
            self.choice[tree] = places[tree][leaves[tree].index(chosen[tree])]
        return 1

    cdef bint _is_left(self, int32_t tree, int32_t place) noexcept nogil:
        cdef int32_t bit = place - self.reached.tree_start[tree]
        return self.arena.words[self.arena.word_start[tree] + (bit >> 6)] >> (bit & 63) & 1

    cdef int _branch(self) except -1 nogil:
        """Cut at the best of the candidates; 0 if the box holds no witness on either side of one of them."""
        cdef int32_t i
        cdef int64_t left, right, best_left = 0, best_right = 0
        cdef double score, best_score = -1.0, unit = 1.0
        cdef Cut cut, best
        cdef Part* part
        cdef bint is_forced = False
        if not self.has_masks:
            # Many searches end before the first cut.
            if not self.has_entries:
                set_entries(&self.arena, &self.reached)
                self.has_entries = True
            make_masks(&self.arena, &self.reached, &self.row_low[0], &self.row_high[0])
            self.has_masks = True
        unit = 1.0 + <double> (self.arena.bound - self.least) / 64.0
        reserve(<void**> &self.narrowed, &self.narrowed_capacity,
                self.n_narrowed + (self.meeting.n_cuts + 1) * (2 + self.members.shape[0]), sizeof(Narrowed))
        for i in range(self.meeting.n_cuts):
            cut = self.meeting.cuts[i]
            if not self.low[cut.feature] <= cut.cut < self.high[cut.feature]:
                continue
            left = bound_after(&self.arena, &self.reached, cut.feature, cut.cut, True)
            right = bound_after(&self.arena, &self.reached, cut.feature, cut.cut, False)
            if left < self.least and right < self.least:
                return 0
            if left < self.least or right < self.least:
                cut.is_left = right < self.least
                is_forced = True
                if not self._take(cut):
                    return 0
                continue
            score = (<double> (self.arena.bound - left) + unit) * (<double> (self.arena.bound - right) + unit)
            if score > best_score:
                best_score = score
                best = cut
                best_left, best_right = left, right
        if is_forced:
            return 1
        part = &self.meeting.parts[best.feature]
        # Of two equal sides the one where the chosen leaves meet.
        best.is_left = best_left > best_right or (
            best_left == best_right and not (part.time == self.meeting.time and part.low > best.cut))
        reserve(<void**> &self.branches, &self.branch_capacity, self.n_branches + 1, sizeof(Branch))
        self.branches[self.n_branches] = Branch(
            Cut(best.feature, best.cut, not best.is_left), self.arena.n_lost, self.arena.n_replaced, self.n_narrowed,
            self.arena.bound)
        self.n_branches += 1
        return self._take(best)
