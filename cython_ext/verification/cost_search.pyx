"""The nearest point at which a forest keeps conditions on its scores: a complete search that can be paused.

A condition says that one label scores more than another one, or at least as much; a point must keep all of them. Values
are replaced by cells between thresholds (leaf_sets.pxd), and each cell of a feature has a cost: how far the value of the
row must move to get there. Costs grow with the distance from the row's own cell, its home. The cost of a point is the
sum of the costs of its cells, or the largest of them.

The search divides boxes of cells. In each box:

- The nearest point of the box has the home cell of each feature, or the cell next to it. No point of the box costs less.
  If it costs more than the limit, nothing is left to search; if it keeps the conditions, it is a candidate.
- Bounding: each tree takes the leaf that helps a condition most, among the leaves that the rest of the limit can pay.
  For sums the rest is also shared: with a price p for each unit of cost, a tree pays p times the cost of its leaf, where
  the cost of each feature is divided by the number of trees that use it. No point of the box has a larger margin than
  the sum of what the trees then have, plus p times the rest. Every price gives a bound; a good one is searched.
- Cutting: if the bound decides nothing, some best leaf does not hold the nearest point. A cut between the two removes
  the leaf on one side and makes the other side more expensive.

A table group (common/table.pxd) that is not one-hot costs what its option costs. Its members have costs besides whose
sum, or largest, does not exceed that of any option; bounds use these, and the nearest point has the cheapest option.

Costs are numbers that do not exceed the exact costs, and every rounding here is on the safe side, so that nothing is left
out. The caller checks candidates with exact costs and scores, and lowers the limit. Where the cost of the nearest point
of a box is within rounding of the limit, the function `is_affordable` decides, which knows exact costs.
"""

import numpy as np

cimport cython
from libc.math cimport INFINITY, ceil, floor
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free

from common.buffer cimport reserve
from common.node cimport Node
from common.status cimport ABSENT, CANDIDATE, UNDECIDED
from common.table cimport Tables, can_be, has_option, has_options, keep_options, make_tables
from verification.leaf_sets cimport (
    ALL_CELLS, NO_CELL, Constraint, Reached, collect_reached, free_reached, reserve_reached,
)


cdef enum:
    # Prices that are tried together: none, half, the same and twice the price of the box above.
    N_PRICES = 4
    # Rounds of trying prices, in the whole box and in parts of it.
    ROUNDS_AT_ROOT = 48
    ROUNDS = 3

cdef double MOST = 1.0e18       # no penalty is larger, so that sums do not overflow
cdef double ROUNDING = 1.1102230246251565e-16

cdef struct Condition:
    int32_t ahead
    int32_t behind
    int64_t least               # the smallest margin that keeps it, as far as rounded scores tell

cdef struct SavedCells:
    # Cells of a feature as they were before a cut.
    int32_t feature
    int32_t low
    int32_t high

cdef struct Branch:
    # The other side of a cut, and the state before it.
    int32_t feature
    int32_t low
    int32_t high
    size_t n_saved
    int32_t level
    double cost

cdef enum Visit:
    VISIT_FAILED = -1
    HOPELESS
    PROMISING
    IS_CANDIDATE


@cython.final
cdef class CostSearch:
    """One search at a time in the boxes of one forest; each thread needs its own.

    Parameters
    ----------
    nodes, roots : the trees, without contradictory branches
    max_depth : of the trees
    threshold_starts : where the thresholds of each feature begin, and the end; feature f has one cell more than
        thresholds, and its cells begin at threshold_starts[f] + f
    node_cuts : for each split the number of its threshold among those of its feature
    scores : shape (n_leaves, n_labels)
    slack : how far a margin may be from the exact one
    members, group_starts, codes, n_options, ones : groups, see common/table.pxd
    is_table : for each group whether its options are searched; else it is one-hot
    zero_cells, one_cells : for each feature the cells of 0 and 1; a member of a group has the cell of 0 and the next one
    is_sum : the cost of a point is the sum of the costs of its cells, else the largest of them
    is_exact : costs and their sums are exact
    is_affordable : function of the cells of a point, see above
    """

    cdef const Node[::1] nodes
    cdef const int32_t[::1] roots
    cdef const int32_t[::1] threshold_starts
    cdef const int32_t[::1] node_cuts
    cdef const int64_t[:, ::1] scores
    cdef const int32_t[::1] members
    cdef const int32_t[::1] group_starts
    cdef const int32_t[::1] codes, n_options
    cdef const uint64_t[:, ::1] ones
    cdef const uint8_t[::1] is_table
    cdef Tables tables
    cdef bint has_tables
    cdef uint64_t[:, ::1] row_options   # by group: options of the row within the limit
    cdef uint64_t[::1] options          # of one group in the present box
    cdef int32_t[::1] option_starts
    cdef const double[::1] option_costs
    cdef int64_t slack
    cdef bint is_sum, is_exact
    cdef object is_affordable
    cdef int32_t n_features, n_labels, n_trees, n_groups
    # By feature.
    cdef int32_t[::1] group_of, merged_low, merged_high, values
    cdef int32_t[::1] low, high, home
    cdef readonly int32_t[::1] point
    cdef double[::1] least_cost, share
    cdef int32_t[::1] n_users, last_user
    # By cell.
    cdef const double[::1] costs
    cdef const uint8_t[::1] is_free
    # By threshold.
    cdef double[::1] gains
    cdef int32_t[::1] active
    cdef int32_t n_active
    cdef double limit, cost, point_cost, rest, safety
    cdef Reached reached
    cdef int32_t[::1] nearest
    cdef Condition* conditions
    cdef size_t condition_capacity
    cdef int32_t n_conditions
    cdef double* prices         # by condition, of the present box
    cdef size_t price_capacity
    cdef int32_t worst          # the condition that decides where to cut
    # Leaves that remain in the boxes on the path, one list for each level; by leaf of the list its share of the cost.
    cdef int32_t* remaining
    cdef size_t remaining_capacity
    cdef double* shares
    cdef size_t share_capacity
    cdef int32_t* tree_starts   # n_trees + 1 for each level
    cdef size_t tree_start_capacity
    cdef int32_t level
    cdef Branch* branches
    cdef size_t branch_capacity, n_branches
    cdef SavedCells* saved
    cdef size_t saved_capacity, n_saved
    cdef bint is_pending, is_over, is_root
    cdef readonly int64_t n_steps

    def __cinit__(self, const Node[::1] nodes, const int32_t[::1] roots, Py_ssize_t max_depth,
                  const int32_t[::1] threshold_starts, const int32_t[::1] node_cuts, const int64_t[:, ::1] scores,
                  int64_t slack, const int32_t[::1] members, const int32_t[::1] group_starts,
                  const int32_t[::1] codes, const int32_t[::1] n_options, const uint64_t[:, ::1] ones,
                  const uint8_t[::1] is_table, const int32_t[::1] zero_cells, const int32_t[::1] one_cells,
                  bint is_sum, bint is_exact, is_affordable):
        cdef int32_t group, place, f
        self.nodes, self.roots, self.node_cuts, self.scores = nodes, roots, node_cuts, scores
        self.threshold_starts, self.slack = threshold_starts, slack
        self.is_sum, self.is_exact = is_sum, is_exact
        self.members, self.group_starts, self.is_affordable = members, group_starts, is_affordable
        # Views that keep the arrays of the tables alive.
        self.codes, self.n_options, self.ones, self.is_table = codes, n_options, ones, is_table
        self.tables = make_tables(members, group_starts, codes, n_options, ones)
        self.has_tables = bool(np.any(is_table))
        self.row_options = np.zeros((n_options.shape[0], max(ones.shape[1], 1)), dtype=np.uint64)
        self.options = np.zeros(max(ones.shape[1], 1), dtype=np.uint64)
        self.option_starts = np.concatenate([[0], np.cumsum(n_options)]).astype(np.int32)
        self.n_features = <int32_t> threshold_starts.shape[0] - 1
        self.n_labels, self.n_trees = <int32_t> scores.shape[1], <int32_t> roots.shape[0]
        self.n_groups = <int32_t> group_starts.shape[0] - 1
        (self.group_of, self.merged_low, self.merged_high, self.low, self.high, self.home, self.point, self.n_users,
         self.last_user, self.active) = np.zeros((10, self.n_features), dtype=np.int32)
        self.values = np.zeros(2 * self.n_features, dtype=np.int32)
        self.least_cost, self.share = np.zeros((2, self.n_features))
        self.gains = np.zeros(threshold_starts[self.n_features] + 1)
        self.nearest = np.zeros(self.n_trees, dtype=np.int32)
        # Terms of a sum of costs: of all features, or of the tests on a path.
        self.safety = 4.0 * (max(self.n_features, max_depth) + 16) * ROUNDING
        reserve_reached(&self.reached, self.n_trees, self.n_features, <int32_t> max_depth)
        for f in range(self.n_features):
            self.group_of[f] = -1
        for group in range(self.n_groups):
            for place in range(group_starts[group], group_starts[group + 1]):
                f = members[place]
                self.group_of[f] = group
                self.merged_low[f], self.merged_high[f] = zero_cells[f], one_cells[f]

    def __dealloc__(self):
        free_reached(&self.reached)
        free(self.conditions)
        free(self.prices)
        free(self.remaining)
        free(self.shares)
        free(self.tree_starts)
        free(self.branches)
        free(self.saved)

    def set_row(self, const double[::1] costs, const int32_t[::1] home, const uint8_t[::1] is_free,
                const double[::1] option_costs, double limit):
        """Collect the leaves in reach of a row.

        Parameters
        ----------
        costs : by cell, infinite for cells that are not allowed; the allowed cells of a feature are consecutive
        home : the cell of each feature, -1 if its value is missing
        is_free : for each group whether a member may be 1 that no threshold tells from 0
        option_costs : by option of the first group, then of the second one, and so on; infinite for options that are
            not allowed; read for table groups only
        limit : largest cost of points, not less than the exact limit
        """
        cdef int32_t f, cell, group
        self.costs, self.is_free, self.limit, self.option_costs = costs, is_free, limit, option_costs
        self.n_saved = 0
        for f in range(self.n_features):
            if home[f] < 0:
                self.low[f], self.high[f] = NO_CELL, ALL_CELLS
                self.values[2 * f], self.values[2 * f + 1] = ALL_CELLS, NO_CELL
                continue
            self.home[f] = self.low[f] = self.high[f] = home[f]
            cell = self.threshold_starts[f] + f
            while self.low[f] > 0 and costs[cell + self.low[f] - 1] <= limit and costs[cell + self.low[f] - 1] < INFINITY:
                self.low[f] -= 1
            while (self.high[f] < self.threshold_starts[f + 1] - self.threshold_starts[f]
                   and costs[cell + self.high[f] + 1] <= limit and costs[cell + self.high[f] + 1] < INFINITY):
                self.high[f] += 1
        for group in range(self.n_groups if self.has_tables else 0):
            if self.is_table[group]:
                self._start_table(group)
        with nogil:
            collect_reached(&self.reached, &self.nodes[0], &self.roots[0], self.n_trees, &self.node_cuts[0],
                            &self.merged_low[0], &self.merged_high[0], &self.low[0], &self.high[0], &self.values[0],
                            self.n_features)
        for f in range(self.n_features):
            self.last_user[f] = -1
            if home[f] < 0:
                self.low[f] = self.high[f] = self.home[f] = 0
            self.point[f] = self.home[f]
        self._list_active()

    cdef int _start_table(self, int32_t group) except -1:
        """List the options of a group that the limit can pay, and close the cells of members that no such option has."""
        cdef int32_t option
        cdef double cost
        for option in range(self.row_options.shape[1]):
            self.row_options[group, option] = 0
        for option in range(self.n_options[group]):
            cost = self.option_costs[self.option_starts[group] + option]
            if cost <= self.limit and cost < INFINITY:
                self.row_options[group, option >> 6] |= (<uint64_t> 1) << (option & 63)
        if self._list_options(group):
            self._close_members(group, False)
        return 0

    cdef bint _list_options(self, int32_t group) noexcept nogil:
        """Write the options of a table group that lie in the present box; returns whether there are some."""
        cdef int32_t i, place, f
        for i in range(self.tables.n_words):
            self.options[i] = self.row_options[group, i]
        for place in range(self.group_starts[group], self.group_starts[group + 1]):
            f = self.members[place]
            if self.low[f] == self.high[f] and self.merged_low[f] < self.merged_high[f]:
                keep_options(&self.tables, place, self.low[f] > self.merged_low[f], &self.options[0])
        return has_options(&self.options[0], self.tables.n_words)

    cdef int _close_members(self, int32_t group, bint is_saved) except -1 nogil:
        """Narrow the members of a table group to values that one of the listed options has."""
        cdef int32_t place, f, cell
        for place in range(self.group_starts[group], self.group_starts[group + 1]):
            f = self.members[place]
            if self.low[f] == self.high[f]:
                continue
            if not can_be(&self.tables, place, True, &self.options[0]):
                cell = self.low[f]
            elif not can_be(&self.tables, place, False, &self.options[0]):
                cell = self.high[f]
            else:
                continue
            if is_saved:
                self._narrow(f, cell, cell)
            else:
                self.low[f] = self.high[f] = cell
        return 0

    cdef void _list_active(self):
        """List the features that some leaf is about."""
        cdef int32_t f, i
        for i in range(self.reached.n_constraints):
            self.last_user[self.reached.constraints[i].feature] = 0
        self.n_active = 0
        for f in range(self.n_features):
            if self.last_user[f] == 0 or self.group_of[f] >= 0:
                self.active[self.n_active] = f
                self.n_active += 1

    def begin(self, const int32_t[:, ::1] conditions):
        """Start a search in the box of the row.

        Parameters
        ----------
        conditions : label ahead, label behind, and whether equal scores do not suffice
        """
        cdef int32_t i, tree
        # Cuts of another search that was given up.
        while self.n_saved > 0:
            self._undo_one()
        self.n_conditions = <int32_t> conditions.shape[0]
        reserve(<void**> &self.conditions, &self.condition_capacity, self.n_conditions + 1, sizeof(Condition))
        reserve(<void**> &self.prices, &self.price_capacity, self.n_conditions + 1, sizeof(double))
        for i in range(self.n_conditions):
            self.conditions[i] = Condition(
                conditions[i, 0], conditions[i, 1], -self.slack if self.slack else conditions[i, 2])
            self.prices[i] = 0.0
        self.n_branches, self.n_steps, self.level = 0, 0, 0
        self.is_pending = self.is_root = True
        self.is_over = False
        reserve(<void**> &self.remaining, &self.remaining_capacity, self.reached.n_leaves + 1, sizeof(int32_t))
        reserve(<void**> &self.shares, &self.share_capacity, self.reached.n_leaves + 1, sizeof(double))
        reserve(<void**> &self.tree_starts, &self.tree_start_capacity, self.n_trees + 1, sizeof(int32_t))
        for i in range(self.reached.n_leaves):
            self.remaining[i] = i
        for tree in range(self.n_trees + 1):
            self.tree_starts[tree] = self.reached.tree_start[tree]

    def lower_limit(self, double limit):
        """Continue with a smaller limit."""
        self.limit = limit

    def advance(self, int64_t max_steps):
        """Continue for at most so many boxes; returns a SearchStatus.

        After CANDIDATE, `point` holds the cells of the nearest point of a box, which keeps all conditions as far as
        rounded scores tell; the caller goes on with `discard` or `divide`.
        """
        cdef int found
        with nogil:
            found = self._advance(max_steps)
        return found

    def discard(self):
        """The search needs nothing more from the box of the candidate."""
        self._backtrack()

    def divide(self, int32_t condition):
        """The candidate does not keep a condition exactly; search the rest of its box."""
        self.worst = condition
        if not self._cut():
            self._backtrack()

    def leaves(self, int32_t[::1] leaves):
        """Write the leaf of each tree, in the model's numbering, for the candidate."""
        cdef int32_t tree
        for tree in range(self.n_trees):
            leaves[tree] = self.reached.leaf[self.nearest[tree]]

    def least_open_cost(self):
        """A lower bound of the costs of all points that have not been searched."""
        cdef double least = INFINITY
        cdef size_t i
        if self.is_over:
            return least
        for i in range(self.n_branches):
            least = min(least, self.branches[i].cost)
        return min(least, self.cost) if not self.is_root else 0.0

    cdef int _advance(self, int64_t max_steps) except -1 nogil:
        cdef int64_t stop = self.n_steps + max_steps
        cdef Visit found
        while not self.is_over:
            if self.n_steps >= stop:
                return UNDECIDED
            self.n_steps += 1
            found = self._visit()
            if found == IS_CANDIDATE:
                return CANDIDATE
            if found == HOPELESS or not self._cut():
                self._backtrack()
        return ABSENT

    # Boxes.

    cdef void _undo_one(self) noexcept nogil:
        self.n_saved -= 1
        self.low[self.saved[self.n_saved].feature] = self.saved[self.n_saved].low
        self.high[self.saved[self.n_saved].feature] = self.saved[self.n_saved].high

    cdef int _narrow(self, int32_t f, int32_t low, int32_t high) except -1 nogil:
        reserve(<void**> &self.saved, &self.saved_capacity, self.n_saved + 1, sizeof(SavedCells))
        self.saved[self.n_saved] = SavedCells(f, self.low[f], self.high[f])
        self.n_saved += 1
        self.low[f], self.high[f] = low, high
        return 0

    cdef bint _restrict(self, int32_t f, int32_t low, int32_t high) except -1 nogil:
        """Narrow a feature, and with it the other members of its group; False if no admissible point remains."""
        cdef int32_t group = self.group_of[f], place, other, n_open = 0, only = -1
        self._narrow(f, low, high)
        if group < 0:
            return True
        if self.is_table[group]:
            if not self._list_options(group):
                return False
            self._close_members(group, True)
            return True
        if low > self.merged_low[f]:
            for place in range(self.group_starts[group], self.group_starts[group + 1]):
                other = self.members[place]
                if other != f and self.low[other] > self.merged_low[other]:
                    return False
                if other != f and self.low[other] < self.high[other]:
                    self._narrow(other, self.low[other], self.low[other])
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
            self._narrow(only, self.high[only], self.high[only])
        return n_open > 0

    cdef int _backtrack(self) except -1 nogil:
        """Go to the other side of the last cut that has one."""
        cdef Branch branch
        while self.n_branches > 0:
            self.n_branches -= 1
            branch = self.branches[self.n_branches]
            while self.n_saved > branch.n_saved:
                self._undo_one()
            self.level = branch.level
            self.cost = branch.cost
            if self._restrict(branch.feature, branch.low, branch.high):
                return 0
        self.is_over = True
        return 0

    cdef void _set_point(self) noexcept nogil:
        """Find the nearest point of the box and its cost."""
        cdef int32_t i, f, group, place, open_member
        cdef bint has_one
        cdef double cost, total = 0.0, own = 0.0
        for i in range(self.n_active):
            f = self.active[i]
            self.point[f] = min(max(self.home[f], self.low[f]), self.high[f])
            cost = self.costs[self.threshold_starts[f] + f + self.point[f]]
            self.least_cost[f] = cost
            total = total + cost if self.is_sum else max(total, cost)
            if self.has_tables and (self.group_of[f] < 0 or not self.is_table[self.group_of[f]]):
                own = own + cost if self.is_sum else max(own, cost)
        self.cost = total
        self.point_cost = own if self.has_tables else total
        for group in range(self.n_groups):
            if self.is_table[group]:
                self._choose_option(group)
                continue
            has_one = self.is_free[group]
            open_member = -1
            for place in range(self.group_starts[group], self.group_starts[group + 1]):
                f = self.members[place]
                has_one |= self.point[f] > self.merged_low[f]
                if open_member < 0 and self.high[f] > self.merged_low[f]:
                    open_member = f
            if not has_one and open_member >= 0:
                # Every point of the box has another member at 1, and all of them cost the same.
                self.point[open_member] = self.high[open_member]
                cost = self.costs[self.threshold_starts[open_member] + open_member + self.point[open_member]]
                self.point_cost = self.point_cost + cost if self.is_sum else max(self.point_cost, cost)

    cdef void _choose_option(self, int32_t group) noexcept nogil:
        """Give the nearest point the cheapest option of a table group in the box, of several the first one."""
        cdef int32_t option, place, f, chosen = -1
        cdef const double* costs = &self.option_costs[self.option_starts[group]]
        cdef double cost
        self._list_options(group)
        for option in range(self.n_options[group]):
            if has_option(&self.options[0], option) and (chosen < 0 or costs[option] < costs[chosen]):
                chosen = option
        for place in range(self.group_starts[group], self.group_starts[group + 1]):
            f = self.members[place]
            if self.merged_low[f] < self.merged_high[f]:
                self.point[f] = self.merged_low[f] + has_option(
                    self.tables.ones + <size_t> place * self.tables.n_words, chosen)
        cost = costs[chosen]
        self.point_cost = self.point_cost + cost if self.is_sum else max(self.point_cost, cost)

    cdef int _ask(self) except -1 with gil:
        return self.is_affordable(self.point)

    # Bounds.

    cdef inline double _cost_of(self, const Constraint* constraint) noexcept nogil:
        """The cost of the nearest cell of the box that a constraint admits."""
        cdef int32_t f = constraint.feature
        cdef int32_t low = max(self.low[f], constraint.low), high = min(self.high[f], constraint.high)
        return self.costs[self.threshold_starts[f] + f + min(max(self.home[f], low), high)]

    cdef int _keep_leaves(self) except -1 nogil:
        """List the leaves of the box that the rest of the limit can pay, on a level of their own."""
        cdef int32_t tree, i, leaf, d, f, n_kept
        cdef int32_t* starts
        cdef int32_t* own
        cdef Constraint* constraint
        cdef double extra, cost
        cdef bint is_kept, is_near
        cdef size_t width = self.n_trees + 1
        reserve(<void**> &self.tree_starts, &self.tree_start_capacity, width * (self.level + 2), sizeof(int32_t))
        starts = self.tree_starts + width * self.level
        own = starts + width
        n_kept = starts[self.n_trees]
        reserve(<void**> &self.remaining, &self.remaining_capacity, 2 * <size_t> n_kept - starts[0] + 1,
                sizeof(int32_t))
        reserve(<void**> &self.shares, &self.share_capacity, 2 * <size_t> n_kept - starts[0] + 1, sizeof(double))
        for i in range(self.n_active):
            self.n_users[self.active[i]] = 0
            self.last_user[self.active[i]] = -1
        for tree in range(self.n_trees):
            own[tree] = n_kept
            self.nearest[tree] = -1
            for i in range(starts[tree], starts[tree + 1]):
                leaf = self.remaining[i]
                is_kept = is_near = True
                extra = 0.0
                for d in range(self.reached.constraint_start[leaf], self.reached.constraint_start[leaf + 1]):
                    constraint = &self.reached.constraints[d]
                    f = constraint.feature
                    if constraint.low > self.high[f] or constraint.high < self.low[f]:
                        is_kept = False
                        break
                    is_near = is_near and constraint.low <= self.point[f] <= constraint.high
                    cost = self._cost_of(constraint)
                    if self.is_sum:
                        extra += cost - self.least_cost[f]
                    elif cost > self.limit:
                        is_kept = False
                        break
                if not is_kept or (extra > self.rest and not is_near):
                    continue
                if is_near:
                    self.nearest[tree] = leaf
                self.remaining[n_kept] = leaf
                n_kept += 1
                if not self.is_sum:
                    continue
                for d in range(self.reached.constraint_start[leaf], self.reached.constraint_start[leaf + 1]):
                    constraint = &self.reached.constraints[d]
                    f = constraint.feature
                    if self.last_user[f] != tree and self._cost_of(constraint) > self.least_cost[f]:
                        self.last_user[f] = tree
                        self.n_users[f] += 1
            if self.nearest[tree] < 0:
                with gil:
                    raise AssertionError("no leaf of a tree holds the nearest point of a box")
        own[self.n_trees] = n_kept
        self.level += 1
        for i in range(self.n_active):
            f = self.active[i]
            self.share[f] = (1.0 - self.safety) / self.n_users[f] if self.n_users[f] else 0.0
        for i in range(own[0], n_kept):
            leaf = self.remaining[i]
            extra = 0.0
            if self.is_sum:
                for d in range(self.reached.constraint_start[leaf], self.reached.constraint_start[leaf + 1]):
                    constraint = &self.reached.constraints[d]
                    f = constraint.feature
                    extra += (self._cost_of(constraint) - self.least_cost[f]) * self.share[f]
            self.shares[i] = extra * (1.0 - self.safety)
        return 0

    cdef inline int64_t _margin(self, const Condition* condition, int32_t leaf) noexcept nogil:
        cdef int32_t number = self.reached.leaf[leaf]
        return self.scores[number, condition.ahead] - self.scores[number, condition.behind]

    cdef inline int64_t _penalty(self, double price, double share) noexcept nogil:
        return <int64_t> floor(min(price * share, MOST))

    cdef int64_t _bound(self, int32_t number) noexcept nogil:
        """A bound of the margin of a condition in the box, with a good price, which is kept."""
        cdef Condition* condition = &self.conditions[number]
        cdef int32_t* starts = self.tree_starts + <size_t> (self.n_trees + 1) * self.level
        cdef int64_t bounds[N_PRICES]
        cdef int64_t best[N_PRICES]
        cdef double prices[N_PRICES]
        cdef int64_t margin, value, bound = INT64_MAX
        cdef int32_t tree, i, p, n_prices, chosen, rounds
        cdef double payment, price = self.prices[number]
        cdef bint has_price = self.is_sum and self.limit < INFINITY
        if self.is_root and has_price:
            price = 0.0
        for rounds in range(ROUNDS_AT_ROOT if self.is_root else ROUNDS):
            prices[0], prices[1], prices[2], prices[3] = 0.0, 0.5 * price, price, 2.0 * price
            n_prices = N_PRICES if price > 0.0 else 1
            for p in range(n_prices):
                bounds[p] = 0
            for tree in range(self.n_trees):
                for i in range(starts[tree], starts[tree + 1]):
                    margin = self._margin(condition, self.remaining[i])
                    for p in range(n_prices):
                        value = margin - (self._penalty(prices[p], self.shares[i]) if p else 0)
                        if i == starts[tree] or value > best[p]:
                            best[p] = value
                for p in range(n_prices):
                    bounds[p] += best[p]
            chosen = 0
            for p in range(1, n_prices):
                payment = prices[p] * self.rest * (1.0 + self.safety)
                if payment > MOST:
                    bounds[p] = INT64_MAX
                else:
                    bounds[p] += <int64_t> ceil(payment) + 1
                if bounds[p] < bounds[chosen]:
                    chosen = p
            bound = min(bound, bounds[chosen])
            if bound < condition.least or not has_price:
                break
            if n_prices == 1:
                # The first guess: all that is too much, for the whole rest.
                price = 2.0 * (<double> (bounds[0] - condition.least) + 1.0) / max(self.rest, 1e-300)
                if price * self.rest > MOST or price <= 0.0:
                    break
                continue
            if chosen == 2:
                break
            price = prices[chosen] if chosen else 0.25 * price
        self.prices[number] = price
        return bound

    cdef Visit _visit(self) except VISIT_FAILED nogil:
        """Bound the present box."""
        cdef int32_t i, tree
        cdef int64_t bound, tightest = INT64_MAX, margin
        cdef bint is_kept = True
        self._set_point()
        if self.point_cost * (1.0 - self.safety) > self.limit or (self.is_exact and self.point_cost > self.limit):
            return HOPELESS
        if not self.is_exact and self.point_cost * (1.0 + 1e-12) >= self.limit and not self._ask():
            return HOPELESS
        self.rest = self.limit
        if self.is_sum and self.limit < INFINITY:
            self.rest = self.limit - self.cost + 8.0 * (self.limit + self.cost) * self.safety
        self._keep_leaves()
        self.worst = 0
        for i in range(self.n_conditions):
            bound = self._bound(i)
            if bound < self.conditions[i].least:
                self.is_root = False
                return HOPELESS
            margin = 0
            for tree in range(self.n_trees):
                margin += self._margin(&self.conditions[i], self.nearest[tree])
            if margin < self.conditions[i].least:
                is_kept = False
                if bound - self.conditions[i].least < tightest:
                    tightest = bound - self.conditions[i].least
                    self.worst = i
        self.is_root = False
        return IS_CANDIDATE if is_kept else PROMISING

    # Cuts.

    cdef bint _cut(self) except -1 nogil:
        """Cut the box between its nearest point and leaves that do not hold it; False if every leaf holds it."""
        cdef int32_t best_feature = -1, best_cut = 0
        self._choose_cut(self.prices[self.worst], False, &best_feature, &best_cut)
        if best_feature < 0:
            self._choose_cut(0.0, False, &best_feature, &best_cut)
        if best_feature < 0:
            self._choose_cut(0.0, True, &best_feature, &best_cut)
        if best_feature < 0:
            return False
        return self._branch(best_feature, best_cut)

    cdef int _choose_cut(self, double price, bint is_any, int32_t* best_feature, int32_t* best_cut) except -1 nogil:
        """The cut between the nearest point and the leaves that trees would gain most by.

        Parameters
        ----------
        is_any : leaves need not be better than those of the nearest point
        best_feature, best_cut : receive the cut; left as they are if there is none
        """
        cdef Condition* condition = &self.conditions[self.worst]
        cdef int32_t* starts = self.tree_starts + <size_t> (self.n_trees + 1) * self.level
        cdef int32_t tree, i, d, f, leaf, cut, n_broken
        cdef int64_t value, best, near
        cdef double gain, largest = 0.0
        cdef Constraint* constraint
        for i in range(self.n_active):
            f = self.active[i]
            for cut in range(self.low[f], self.high[f]):
                self.gains[self.threshold_starts[f] + cut] = 0.0
        for tree in range(self.n_trees):
            leaf = self.nearest[tree]
            best = near = self._margin(condition, leaf)
            for i in range(starts[tree], starts[tree + 1]):
                value = self._margin(condition, self.remaining[i]) - self._penalty(price, self.shares[i])
                if value > best or (is_any and leaf == self.nearest[tree] and self.remaining[i] != leaf):
                    best = value
                    leaf = self.remaining[i]
            if leaf == self.nearest[tree]:
                continue
            n_broken = 0
            for d in range(self.reached.constraint_start[leaf], self.reached.constraint_start[leaf + 1]):
                constraint = &self.reached.constraints[d]
                f = constraint.feature
                n_broken += constraint.low > self.point[f] or constraint.high < self.point[f]
            gain = (1.0 if is_any else <double> (best - near)) / max(n_broken, 1)
            for d in range(self.reached.constraint_start[leaf], self.reached.constraint_start[leaf + 1]):
                constraint = &self.reached.constraints[d]
                f = constraint.feature
                if constraint.low > self.point[f]:
                    cut = constraint.low - 1
                elif constraint.high < self.point[f]:
                    cut = constraint.high
                else:
                    continue
                if self.group_of[f] >= 0:
                    cut = self.merged_low[f]
                self.gains[self.threshold_starts[f] + cut] += gain
                if self.gains[self.threshold_starts[f] + cut] > largest:
                    largest = self.gains[self.threshold_starts[f] + cut]
                    best_feature[0], best_cut[0] = f, cut
        return 0

    cdef bint _branch(self, int32_t f, int32_t cut) except -1 nogil:
        """Keep the side of the nearest point for later, and go to the other one; False if nothing is left to go to."""
        cdef bint is_left = self.point[f] <= cut
        reserve(<void**> &self.branches, &self.branch_capacity, self.n_branches + 1, sizeof(Branch))
        self.branches[self.n_branches] = Branch(
            f, self.low[f] if is_left else cut + 1, cut if is_left else self.high[f], self.n_saved, self.level,
            self.cost)
        self.n_branches += 1
        return self._restrict(f, cut + 1 if is_left else self.low[f], self.high[f] if is_left else cut)
