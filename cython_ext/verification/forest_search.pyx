"""Whether some point of a box gets another answer from a forest: a complete search, depth first, that can be paused.

The answer of a forest is the set of labels with the largest score. It differs from a set A with a member a if and only
if some label outside A scores at least as much as a, or some other member of A more or less than a. So there is a list
of contests, each the question whether one label can be ahead of another (or level with it). For each contest:

- bounding (ms_bounding.pxd): the sum of the best leads of all trees; no point of the box has a larger lead. Soundness
  of STABLE rests on this alone.
- cutting (ms_space.pxd): where best leaves of two trees have no point in common, they differ in some feature, and a cut
  between them takes one of them away on either side. The cut that lowers the bounds most is taken, the side with the
  higher bound first. When all best leaves have a point in common, the bound is attained: a witness.

Scores are whole numbers: exact, or within `error` of the exact ones. Where rounding could matter, the `referee` is
asked, a Python function that knows the exact scores. Leaves budgets, clocks and threads to
metasilvae.forest_verification.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free

from common.box cimport lower_bound, upper_bound
from common.buffer cimport reserve
from common.descent cimport descend_together
from common.node cimport Node, reaches_left, reaches_right
from common.status cimport ABSENT, FOUND, INADMISSIBLE, UNDECIDED
from verification.cells cimport (
    Cut, Meeting, Narrowed, Part, Space, begin_meeting, contest_groups, free_meeting, free_space, free_unseen_members,
    join_meeting, meets, open_space, propose_between, reserve_meeting, reserve_space, set_cells, settle_group, take, widen,
)
from verification.leaf_sets cimport (
    Arena, Reached, bound_after, collect_reached, free_arena, free_reached, lay_out, make_masks, ms_first_bit, rank_leaves,
    reserve_arena, reserve_reached, set_entries, undo_cuts,
)


# Contests of two labels: can one be ahead of the other (or level with it) somewhere in a box?

cdef struct Contest:
    int32_t ahead
    int32_t behind
    bint is_strict          # ahead, not level
    int64_t best            # of the leads in the tree at hand
    int64_t bound           # the sum of the best leads


cdef inline int32_t list_contests(const uint8_t* is_expected, int32_t n_labels, Contest* contests) noexcept nogil:
    """The contests of which one can be won if and only if an answer other than the expected one is possible.

    Parameters
    ----------
    is_expected : for each label whether it belongs to the expected answer
    contests : room for 2 * n_labels

    Returns their number.
    """
    cdef int32_t label, one = 0, n_contests = 0
    while not is_expected[one]:
        one += 1
    for label in range(n_labels):
        if label == one:
            continue
        contests[n_contests] = Contest(label, one, is_expected[label], 0, 0)
        n_contests += 1
        if is_expected[label]:
            contests[n_contests] = Contest(one, label, True, 0, 0)
            n_contests += 1
    return n_contests


cdef inline void bound_contests(Contest* contests, int32_t n_contests, const Node* nodes, const int32_t* starts,
                                int32_t n_trees, const int64_t* scores, int32_t n_labels, const double* lower,
                                const double* upper, int32_t* waiting) noexcept nogil:
    """Add up the best leads of all trees in a box.

    Parameters
    ----------
    starts : for each tree the root, or where `ms_descent.descend_together` ended
    lower, upper : bounds of the box, by feature
    waiting : room for one node at each depth
    """
    cdef int32_t tree, node, feature, i, top
    cdef const int64_t* leaf_scores
    cdef int64_t lead
    cdef bint is_first
    for tree in range(n_trees):
        node = starts[tree]
        top = 0
        is_first = True
        while True:
            feature = nodes[node].feature
            if feature >= 0:
                if reaches_left(lower[feature], nodes[node].threshold):
                    if reaches_right(upper[feature], nodes[node].threshold):
                        waiting[top] = nodes[node].right
                        top += 1
                    node = nodes[node].left
                else:
                    node = nodes[node].right
                continue
            leaf_scores = &scores[<size_t> nodes[node].leaf * n_labels]
            for i in range(n_contests):
                lead = leaf_scores[contests[i].ahead] - leaf_scores[contests[i].behind]
                if is_first or lead > contests[i].best:
                    contests[i].best = lead
            is_first = False
            if top == 0:
                break
            top -= 1
            node = waiting[top]
        for i in range(n_contests):
            contests[i].bound += contests[i].best


cdef inline int32_t sort_open(Contest* contests, int32_t n_contests, int64_t least, int64_t least_strict) noexcept nogil:
    """Keep the contests whose bound does not decide them, the highest bound first; returns their number."""
    cdef int32_t i, place, n_open = 0
    cdef Contest contest
    for i in range(n_contests):
        contest = contests[i]
        if contest.bound < (least_strict if contest.is_strict else least):
            continue
        place = n_open
        while place > 0 and contests[place - 1].bound < contest.bound:
            contests[place] = contests[place - 1]
            place -= 1
        contests[place] = contest
        n_open += 1
    return n_open


# Which of the leaves that are left meet those that other trees have chosen, and where cuts would keep them apart.

# Cuts that are compared before one is taken.
cdef enum:
    MAX_CANDIDATES = 32


cdef inline bint is_left(const Arena* arena, const Reached* reached, int32_t tree, int32_t place) noexcept nogil:
    """Whether a ranked leaf of a tree is left in the box."""
    cdef int32_t bit = place - reached.tree_start[tree]
    return arena.words[arena.word_start[tree] + (bit >> 6)] >> (bit & 63) & 1


cdef inline int32_t first_meeting(Arena* arena, Reached* reached, Meeting* meeting, int32_t tree) noexcept nogil:
    """The best leaf of a tree that meets those chosen so far; there is always one."""
    cdef int32_t word, start = arena.word_start[tree], place = -1
    cdef uint64_t left
    for word in range(start, arena.word_start[tree + 1]):
        left = arena.words[word]
        while left:
            place = reached.tree_start[tree] + 64 * (word - start) + ms_first_bit(left)
            if meets(meeting, reached, arena.ranked[place].leaf):
                return place
            left &= left - 1
    return place


cdef inline int propose_between_best(Arena* arena, Reached* reached, Meeting* meeting, int32_t tree) except -1 nogil:
    """Candidates for cuts between the best leaves of a tree, none of which meets, and those chosen so far."""
    cdef int32_t word, start = arena.word_start[tree], place
    cdef uint64_t left
    cdef int64_t best = arena.ranked[arena.best[tree]].lead
    for word in range(start, arena.word_start[tree + 1]):
        left = arena.words[word]
        while left:
            place = reached.tree_start[tree] + 64 * (word - start) + ms_first_bit(left)
            if arena.ranked[place].lead < best or meeting.n_cuts >= MAX_CANDIDATES:
                return 0
            propose_between(meeting, reached, arena.ranked[place].leaf)
            left &= left - 1
    return 0


cdef enum Choice:
    # What the leaves chosen for the trees say about the box that is left.
    CHOICE_FAILED = -1
    HOPELESS            # the box holds no witness
    CUTTABLE            # there are candidates for cuts
    WITNESS             # the chosen leaves have a point in common that is a witness

cdef struct Branch:
    # The other side of a cut, and the state before it.
    Cut other
    size_t n_lost
    size_t n_replaced
    size_t n_narrowed
    int64_t bound


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
    # Held for the space, which points into them.
    cdef const int32_t[::1] members
    cdef const int32_t[::1] group_starts
    cdef const double[:, ::1] low_center, high_center
    cdef const double[::1] radius_down, radius_up, minimum, maximum
    cdef const int32_t[::1] answers
    cdef const uint8_t[:, ::1] is_member
    cdef object referee
    cdef int32_t n_features, n_labels, n_trees
    # By tree.
    cdef int32_t[::1] choice, order, starts
    # Nodes, by depth.
    cdef int32_t[::1] waiting
    cdef Space space
    cdef Reached reached
    cdef Arena arena
    cdef Meeting meeting
    cdef Contest* contests
    cdef size_t contest_capacity
    cdef int32_t n_contests, contest
    cdef bint is_running, has_entries, has_masks
    cdef Branch* branches
    cdef size_t branch_capacity, n_branches
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
        self.choice, self.starts = np.zeros((2, self.n_trees), dtype=np.int32)
        self.order = np.arange(self.n_trees, dtype=np.int32)
        self.waiting = np.zeros(max_depth + 1, dtype=np.int32)
        self.slack = 2 * error * self.n_trees
        reserve_space(&self.space, self.n_features, &members[0] if members.shape[0] else NULL, &group_starts[0],
                      <int32_t> group_starts.shape[0] - 1)
        reserve_reached(&self.reached, self.n_trees, self.n_features, <int32_t> max_depth)
        reserve_arena(&self.arena, self.n_trees, self.n_features)
        reserve_meeting(&self.meeting, self.n_features)

    def __dealloc__(self):
        free_space(&self.space)
        free_reached(&self.reached)
        free_arena(&self.arena)
        free_meeting(&self.meeting)
        free(self.contests)
        free(self.branches)

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
                if found[row] == FOUND:
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
            self.space.lower[f] = lower_bound(self.low_center[row, f], self.radius_down[f], self.minimum[f])
            self.space.upper[f] = upper_bound(self.high_center[row, f], self.radius_up[f], self.maximum[f])
        self.n_steps = 0
        self.contest = -1
        self.n_contests = 0
        self.is_running = self.has_entries = False
        for f in range(self.space.n_groups):
            if not settle_group(&self.space, f):
                self.n_contests = -1
                return 0
        self._open_contests(row)
        if self.n_contests == 0:
            return 0
        set_cells(&self.space, &self.thresholds[0] if self.thresholds.shape[0] else NULL, &self.threshold_starts[0])
        collect_reached(&self.reached, &self.nodes[0], &self.roots[0], self.n_trees, &self.node_cuts[0],
                        self.space.merged_low, self.space.merged_high, self.space.row_low, self.space.row_high)
        lay_out(&self.arena, &self.reached)
        if self.space.n_groups > 0:
            set_entries(&self.arena, &self.reached)
            self.has_entries = True
            free_unseen_members(&self.space, &self.arena)
        for f in range(self.n_trees):
            self.order[f] = f
        return 0

    cdef int _advance(self, int64_t max_steps) except -1 nogil:
        cdef int64_t stop = self.n_steps + max_steps
        if self.n_contests < 0:
            return INADMISSIBLE
        while True:
            if not self.is_running:
                self.contest += 1
                if self.contest >= self.n_contests:
                    self.contest = self.n_contests
                    return ABSENT
                self._begin_contest()
            if self._search(stop):
                return FOUND
            if self.is_running:
                return UNDECIDED

    # Contests.

    cdef int _open_contests(self, Py_ssize_t row) except -1 nogil:
        """All contests that the sum of the best leads does not decide, the most promising first."""
        reserve(<void**> &self.contests, &self.contest_capacity, 2 * <size_t> self.n_labels, sizeof(Contest))
        self.n_contests = list_contests(&self.is_member[self.answers[row], 0], self.n_labels, self.contests)
        descend_together(&self.nodes[0], &self.roots[0], self.n_trees, self.space.lower, self.space.upper,
                         &self.starts[0])
        bound_contests(self.contests, self.n_contests, &self.nodes[0], &self.starts[0], self.n_trees,
                       &self.scores[0, 0], self.n_labels, self.space.lower, self.space.upper, &self.waiting[0])
        self.n_contests = sort_open(self.contests, self.n_contests, self._least(False), self._least(True))
        return 0

    cdef int64_t _least(self, bint is_strict) noexcept nogil:
        """The smallest bound that leaves a contest open."""
        return -self.slack if self.error else is_strict

    cdef int _begin_contest(self) except -1 nogil:
        cdef Contest* contest = &self.contests[self.contest]
        rank_leaves(&self.arena, &self.reached, &self.scores[0, 0], self.n_labels, contest.ahead, contest.behind)
        self.has_masks = False
        open_space(&self.space)
        self.least = self._least(contest.is_strict)
        self.n_branches = 0
        self.is_running = True
        return 0

    # The search.

    cdef bint _search(self, int64_t stop) except -1 nogil:
        """Go on with the contest at hand; returns whether there is a witness; not running: the contest is over."""
        cdef Choice choice
        while self.n_steps < stop:
            self.n_steps += 1
            choice = self._choose_leaves() if self.arena.bound >= self.least else HOPELESS
            if choice == WITNESS:
                return True
            if choice == CUTTABLE and self._branch():
                continue
            while True:
                if self.n_branches == 0:
                    self.is_running = False
                    return False
                if self._turn_back():
                    break
        return False

    cdef bint _turn_back(self) noexcept nogil:
        """Take the other side of the last cut; False if nothing lies there."""
        cdef Branch branch
        self.n_branches -= 1
        branch = self.branches[self.n_branches]
        undo_cuts(&self.arena, branch.n_lost, branch.n_replaced, branch.bound)
        widen(&self.space, branch.n_narrowed)
        return take(&self.space, &self.arena, &self.reached, branch.other)

    cdef Choice _choose_leaves(self) except CHOICE_FAILED nogil:
        """Choose a leaf of each tree that meets the others, as good as possible, the trees in turn."""
        cdef int32_t i, tree, place, worst = -1
        cdef int64_t lead = 0, loss, largest_loss = 0
        begin_meeting(&self.meeting)
        for i in range(self.n_trees):
            tree = self.order[i]
            place = first_meeting(&self.arena, &self.reached, &self.meeting, tree)
            loss = self.arena.ranked[self.arena.best[tree]].lead - self.arena.ranked[place].lead
            if loss > 0 and self.meeting.n_cuts < MAX_CANDIDATES:
                propose_between_best(&self.arena, &self.reached, &self.meeting, tree)
            if loss > largest_loss:
                largest_loss = loss
                worst = i
            self.choice[tree] = place
            lead += self.arena.ranked[place].lead
            join_meeting(&self.meeting, &self.reached, self.arena.ranked[place].leaf, self.space.low, self.space.high)
        if worst > 0:
            # A tree that came too late chooses first next time.
            tree = self.order[worst]
            for i in range(worst, 0, -1):
                self.order[i] = self.order[i - 1]
            self.order[0] = tree
        if lead > self.slack or (self.error == 0 and lead >= self.least):
            return CUTTABLE if contest_groups(&self.space, &self.meeting) else WITNESS
        if self.error == 0 or self.arena.bound > self.slack:
            return CUTTABLE
        return self._choose_exactly()

    cdef Choice _choose_exactly(self) except CHOICE_FAILED nogil:
        """The same where rounding could matter: exact leads decide."""
        cdef int32_t tree, leaf
        if not self._ask_referee():
            return HOPELESS
        begin_meeting(&self.meeting)
        for tree in range(self.n_trees):
            leaf = self.arena.ranked[self.choice[tree]].leaf
            if meets(&self.meeting, &self.reached, leaf):
                join_meeting(&self.meeting, &self.reached, leaf, self.space.low, self.space.high)
            else:
                propose_between(&self.meeting, &self.reached, leaf)
        return CUTTABLE if self.meeting.n_cuts or contest_groups(&self.space, &self.meeting) else WITNESS

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
                if is_left(&self.arena, &self.reached, tree, place)
                and best - self.arena.ranked[place].lead <= 4 * self.error
            ])
        leaves = [[self.reached.leaf[self.arena.ranked[place].leaf] for place in tree_places] for tree_places in places]
        chosen = self.referee(contest.ahead, contest.behind, contest.is_strict, leaves)
        if chosen is None:
            return 0
        for tree in range(self.n_trees):
            self.choice[tree] = places[tree][leaves[tree].index(chosen[tree])]
        return 1

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
            make_masks(&self.arena, &self.reached, self.space.row_low, self.space.row_high)
            self.has_masks = True
        unit = 1.0 + <double> (self.arena.bound - self.least) / 64.0
        reserve(<void**> &self.space.narrowed, &self.space.narrowed_capacity,
                self.space.n_narrowed + (self.meeting.n_cuts + 1) * (2 + self.space.n_members), sizeof(Narrowed))
        for i in range(self.meeting.n_cuts):
            cut = self.meeting.cuts[i]
            if not self.space.low[cut.feature] <= cut.cut < self.space.high[cut.feature]:
                continue
            left = bound_after(&self.arena, &self.reached, cut.feature, cut.cut, True)
            right = bound_after(&self.arena, &self.reached, cut.feature, cut.cut, False)
            if left < self.least and right < self.least:
                return 0
            if left < self.least or right < self.least:
                cut.is_left = right < self.least
                is_forced = True
                if not take(&self.space, &self.arena, &self.reached, cut):
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
            Cut(best.feature, best.cut, not best.is_left), self.arena.n_lost, self.arena.n_replaced,
            self.space.n_narrowed, self.arena.bound)
        self.n_branches += 1
        return take(&self.space, &self.arena, &self.reached, best)
