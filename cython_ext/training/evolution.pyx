"""Trees in training and the genetic operators on them, without the GIL.

A `TrainingSet` holds the samples in the form that the sweeps need; an `Individual` is a tree together with its
predictions for every sample, kept up to date by every change; a `Reproduction` makes one generation from another. The
order of generations, limits of time and all reporting are left to metasilvae.training.

The chapters of this kernel are headers of the same folder, in the order in which they build on each other: tree,
scratch, missing, norm, criteria, events, sweep, subtree_replacement, norm_move, threshold_move, growth, mutation. All
of them are compiled into this unit; the reason is given in sweep.pxd.
"""

from fractions import Fraction

import numpy as np

from metasilvae._core.common.values import rank_boxes, rank_values

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from common.random cimport next_below, next_fraction, scramble
from training.criteria cimport ENTROPY, EXPONENTIAL, GINI, Criterion, Split, Weights
from training.growth cimport (
    Growth, TreeLimits, begin_growth, extend_growth, fitness_of, free_growth, graft, grow_leaf, grow_subtree,
    make_leaf, move_threshold, prune, reset_tree, score_if_pruned,
)
from training.missing cimport LARGEST_VALUE, MISSING_VALUE
from training.missing cimport IS_MISSING as IS_MISSING_THRESHOLD
from training.mutation cimport (
    GROW, GROW_OR_PRUNE, MAX_BLENDS, MIXED_MOVES, NO_MUTATION, ROULETTE, TOURNAMENT, UNIFORM, ReproductionOptions,
    mixed_mutation, paper_mutation, select_parent, trim,
)
from training.scratch cimport Scratch, forget_levels, free_scratch, new_scratch
from training.subtree_replacement cimport collect, replace
from training.sweep cimport find_split
from training.threshold_move cimport find_threshold_move
from training.tree cimport (
    HIGHEST_RANK, LOWEST_RANK, Samples, TrainNode, Tree, copy_tree, free_tree, new_tree, rank_cut, set_ties,
)

# The operators by the names that users give them, in the order in which help lists them. Options and the command line
# read these tables.
SELECTIONS = {"tournament": TOURNAMENT, "roulette-wheel": ROULETTE, "uniform": UNIFORM}
MUTATIONS = {"mixed": MIXED_MOVES, "grow-or-prune": GROW_OR_PRUNE, "grow": GROW, "none": NO_MUTATION}
IMPURITIES = {"gini": GINI, "entropy": ENTROPY, "exponential": EXPONENTIAL}
# The threshold of a test whether a value is missing, and the largest value of columns with missing values.
IS_MISSING = IS_MISSING_THRESHOLD
MOST_VALUE = LARGEST_VALUE
# The largest sum of weights: counts are numbers of 32 bits.
MOST_WEIGHT = 2**30
MOST_BLENDS = MAX_BLENDS
# Of a limit of the total change: the bits of the budget, or one more.
BUDGET_BITS = 40
# Ends of boxes are found for parts of so many values, because several arrays of this length are needed at a time.
MOST_VALUES_AT_ONCE = 1 << 21


def _double(matrix, doubled, double low, double high):
    """A matrix with some columns twice, missing values as `low` in the first copy and as `high` in the second.

    A row is added in which these columns are missing, so that there is a rank for missing values.
    """
    n, d = matrix.shape
    more = np.empty((n + 1, d + len(doubled)))
    more[:n, :d] = matrix
    more[n, :d] = matrix[0] if n else 0.0
    more[:, d:] = more[:, doubled]
    more[n, doubled] = more[n, d:] = np.nan
    for columns, missing in ((doubled, low), (np.arange(d, d + len(doubled)), high)):
        part = more[:, columns]
        more[:, columns] = np.where(np.isnan(part), missing, np.clip(part, -LARGEST_VALUE, LARGEST_VALUE))
    return more


def _as_bytes(codes, value_starts):
    """Ranks of the features with few values as bytes, one feature after the other, and where each feature starts."""
    n_features, n_samples = codes.shape
    starts = np.full(n_features, -1, dtype=np.int64)
    chosen = np.flatnonzero(np.diff(value_starts) <= 256)
    # One byte more, so that there is a first one.
    ranks = np.zeros(len(chosen) * n_samples + 1, dtype=np.uint8)
    for place, feature in enumerate(chosen):
        starts[feature] = place * n_samples
        ranks[place * n_samples : (place + 1) * n_samples] = codes[feature]
    return ranks, starts


def make_budget(int power, double epsilon):
    """Units of a cost of 1, and the budget in units: the largest whole number that epsilon pays; see norm.pxd."""
    if power == 0:
        # Half a feature has a cost, too.
        return (2.0, int(2 * min(epsilon, 2.0 ** BUDGET_BITS)))
    if epsilon == 0:
        return (1.0, 0)
    if np.isinf(epsilon):
        return (0.0, 2 ** BUDGET_BITS)
    exact = Fraction(epsilon) ** power
    shift = BUDGET_BITS - (exact.numerator.bit_length() - exact.denominator.bit_length())
    if shift < -1000:
        return (0.0, 2 ** BUDGET_BITS)
    shift = min(shift, 1000)
    return 2.0 ** shift, int(exact * Fraction(2) ** shift)


def _divide_features(value_starts):
    """First and last feature, exclusively, of parts that hold at most MOST_VALUES_AT_ONCE values or one feature."""
    n_features, first = len(value_starts) - 1, 0
    while first < n_features:
        most = value_starts[first] + MOST_VALUES_AT_ONCE
        last = max(first + 1, int(np.searchsorted(value_starts, most, side="right")) - 1)
        yield first, last
        first = last


cdef class TrainingSet:
    """Samples in ranks, with the ends of their boxes.

    Parameters
    ----------
    X : float64 array, C-contiguous, shape (n_samples, n_features)
    y : int32 array, shape (n_samples,)
    n_labels : int
    radius_down, radius_up, minimum, maximum : float64 arrays, shape (n_features,)
        The box of a sample goes from max(x - radius_down, minimum) to min(x + radius_up, maximum).
    doubled : int32 array
        Columns of X whose values are (NaN) or may become missing; the others have no NaN. Their values are at most
        MOST_VALUE in size.
    droppable : bool array, shape (n_features,), or None
        Columns whose values an attacker may drop; they must be among `doubled`.
    weights : int32 array, shape (n_samples,), or None
        Weights from 1 on, of at most MOST_WEIGHT in all; None if all are 1.
    limit : tuple or None
        A limit of the total change within the boxes: 0, 1 or 2 for the norms l0, l1 and l2, epsilon, and the costs of the
        columns of X, a float64 array. No value may become missing then.

    Attributes
    ----------
    origins : int32 array
        The column of X that each feature of a tree in training is a copy of. The first ones are the columns themselves,
        with missing values to the left; then come copies of the doubled columns, with missing values to the right.
    has_wider_boxes : bool
        Whether some sample lies outside the limits of its box, which is widened then.
    """

    cdef Samples samples
    cdef readonly object codes, labels, values, value_starts, origins
    cdef readonly bint has_wider_boxes
    cdef object _ends, _doubled, _copies, _weights, _bytes, _costs

    def __init__(self, const double[:, ::1] X, const int32_t[::1] y, int32_t n_labels, radius_down, radius_up, minimum,
                 maximum, doubled=(), droppable=None, weights=None, limit=None):
        self._set_weights(weights)
        self._set_columns(X.shape[1], doubled, droppable)
        matrix = np.asarray(X)
        if len(self._doubled):
            matrix = _double(matrix, self._doubled, -MISSING_VALUE, MISSING_VALUE)
        self.codes, self.values, self.value_starts = rank_values(matrix)
        self.labels = np.array(y, dtype=np.int32)
        self._finish(n_labels, *self._find_ends(radius_down, radius_up, minimum, maximum), limit)

    @staticmethod
    def of_boxes(const double[:, ::1] X, const int32_t[::1] y, int32_t n_labels, lower, upper, doubled=(),
                 droppable=None, weights=None, limit=None):
        """Samples each with its own box, given by two arrays of the shape of X.

        In every feature, larger values must have larger or equal ends; None if this is not so.
        """
        cdef TrainingSet made = TrainingSet.__new__(TrainingSet)
        made._set_weights(weights)
        made._set_columns(X.shape[1], doubled, droppable)
        matrices = [np.asarray(each) for each in (X, lower, upper)]
        if len(made._doubled):
            missing = (-MISSING_VALUE, MISSING_VALUE), (-np.inf, MISSING_VALUE), (-MISSING_VALUE, np.inf)
            matrices = [_double(each, made._doubled, *ends) for each, ends in zip(matrices, missing)]
        ranked = rank_boxes(*matrices)
        if ranked is None:
            return None
        made.codes, made.values, made.value_starts, lower_ends, upper_ends = ranked
        made.labels = np.array(y, dtype=np.int32)
        made._finish(n_labels, np.array(lower_ends), np.array(upper_ends), limit)
        return made

    def _set_weights(self, weights):
        self._weights = None
        if weights is not None:
            weights = np.array(weights, dtype=np.int32)
            distinct, numbers = np.unique(weights, return_inverse=True)
            if distinct[0] < 1 or weights.sum(dtype=np.int64) > MOST_WEIGHT:
                raise ValueError("weights must be from 1 on, and their sum at most MOST_WEIGHT")
            self._weights = [weights, numbers.reshape(-1).astype(np.int32), len(distinct)]

    def _set_columns(self, int32_t n_columns, doubled, droppable):
        self._doubled = np.array(doubled, dtype=np.int32)
        self.origins = np.concatenate([np.arange(n_columns, dtype=np.int32), self._doubled])
        self._copies = None
        if len(self._doubled):
            twins = np.full(len(self.origins), -1, dtype=np.int32)
            twins[self._doubled] = np.arange(n_columns, len(twins))
            twins[n_columns:] = self._doubled
            places = np.zeros(len(twins), dtype=np.uint8)
            places[self._doubled] = LOWEST_RANK
            places[n_columns:] = HIGHEST_RANK
            may_drop = np.zeros(n_columns, dtype=bool) if droppable is None else np.asarray(droppable, dtype=bool)
            self._copies = [twins, places, may_drop[self.origins].astype(np.uint8)]

    def copies_of(self, columns):
        """The features of trees in training that are copies of some columns, increasing."""
        return np.flatnonzero(np.isin(self.origins, columns)).astype(np.int32)

    def with_boxes(self, radius_down, radius_up, minimum, maximum, limit=None):
        """The same samples with other boxes and another limit; the ranks are shared."""
        cdef TrainingSet other = TrainingSet.__new__(TrainingSet)
        other.codes, other.values, other.value_starts = self.codes, self.values, self.value_starts
        other.labels = self.labels
        other.origins, other._doubled, other._copies = self.origins, self._doubled, self._copies
        other._weights, other._bytes = self._weights, self._bytes
        other._finish(self.samples.n_labels, *self._find_ends(radius_down, radius_up, minimum, maximum), limit)
        return other

    def _find_ends(self, radius_down, radius_up, minimum, maximum):
        """Ends of the boxes of all ranks, by the same operations as in common/box.pxd."""
        bounds = [np.asarray(each, dtype=np.float64)[self.origins] for each in (radius_down, radius_up, minimum, maximum)]
        lower, upper = np.empty_like(self.values), np.empty_like(self.values)
        for first, last in _divide_features(self.value_starts):
            part = slice(self.value_starts[first], self.value_starts[last])
            found = self._find_ends_of(first, last, self.values[part], *(each[first:last] for each in bounds))
            lower[part], upper[part] = found
        return lower, upper

    def _find_ends_of(self, first, last, values, *bounds):
        """The same for the values of some features that follow each other."""
        lengths = np.diff(self.value_starts[first : last + 1])
        down, up, low, high = (np.repeat(each, lengths) for each in bounds)
        with np.errstate(over="ignore"):
            lower, upper = values - down, values + up
        lower, upper = np.where(lower > low, lower, low), np.where(upper < high, upper, high)
        if len(self._doubled):
            is_doubled = np.repeat(np.isin(self.origins[first:last], self._doubled), lengths)
            for ends in (lower, upper):
                ends[is_doubled] = np.clip(ends[is_doubled], -LARGEST_VALUE, LARGEST_VALUE)
            # Infinite ends on one side, so that ends increase with ranks.
            is_missing = is_doubled & (values == -MISSING_VALUE)
            lower[is_missing], upper[is_missing] = -np.inf, -MISSING_VALUE
            is_missing = is_doubled & (values == MISSING_VALUE)
            lower[is_missing], upper[is_missing] = MISSING_VALUE, np.inf
        return lower, upper

    def _limit_ends(self, int32_t power, double epsilon, costs):
        """Cut the boxes to what can be paid if nothing else changes, rounded outwards; missing values stay."""
        lengths = np.diff(self.value_starts)
        if power == 0:
            radius = np.where(costs <= epsilon, np.inf, 0.0)
        else:
            with np.errstate(over="ignore"):
                radius = epsilon / costs * (1 + 1e-15)
        radius = np.repeat(radius, lengths)
        with np.errstate(over="ignore"):
            ends = [self.values - radius, self.values + radius]
        for own, end, far in zip(self._ends, ends, (-np.inf, np.inf)):
            is_cut = np.isfinite(end) & (np.abs(self.values) != MISSING_VALUE)
            with np.errstate(over="ignore"):
                end = np.where(radius[is_cut] > 0, np.nextafter(end[is_cut], far), self.values[is_cut])
            own[is_cut] = np.maximum(own[is_cut], end) if far < 0 else np.minimum(own[is_cut], end)

    def _set_limit(self, limit):
        self._costs = None
        if limit is None:
            return
        power, epsilon, costs = limit
        costs = np.ascontiguousarray(np.asarray(costs, dtype=np.float64)[self.origins])
        self._limit_ends(power, epsilon, costs)
        self._costs = costs
        cdef double[::1] view = costs
        self.samples.costs = &view[0]
        self.samples.power = power
        self.samples.unit, self.samples.budget = make_budget(power, epsilon)

    def _finish(self, int32_t n_labels, lower_ends, upper_ends, limit):
        # Lists of nodes hold the samples whose box reaches the node, so each box holds its own sample, also where a limit
        # leaves that out; then a sample that counts as stable is stable.
        self._ends = [np.minimum(lower_ends, self.values), np.maximum(upper_ends, self.values)]
        self.has_wider_boxes = bool((self._ends[0] < lower_ends).any() or (self._ends[1] > upper_ends).any())
        self._set_limit(limit)
        cdef int32_t[:, ::1] codes_view = self.codes
        cdef int32_t[::1] labels_view = self.labels
        cdef double[::1] values_view = self.values
        cdef int64_t[::1] starts_view = self.value_starts
        cdef double[::1] part_view
        cdef int32_t[::1] twins_view
        cdef uint8_t[::1] flags_view
        cdef int64_t[::1] bytes_view
        if len(self._doubled) and self.codes.shape[1] > len(self.labels):
            self.codes = np.ascontiguousarray(self.codes[:, :-1])
            codes_view = self.codes
        self.samples.n_samples = <int32_t> codes_view.shape[1]
        self.samples.n_features = <int32_t> codes_view.shape[0]
        self.samples.n_labels = n_labels
        self.samples.codes = &codes_view[0, 0]
        if self._bytes is None:
            self._bytes = _as_bytes(self.codes, self.value_starts)
        flags_view = self._bytes[0]
        self.samples.bytes = &flags_view[0]
        bytes_view = self._bytes[1]
        self.samples.byte_starts = &bytes_view[0]
        self.samples.labels = &labels_view[0]
        self.samples.values = &values_view[0]
        self.samples.value_starts = &starts_view[0]
        part_view = self._ends[0]
        self.samples.lower_ends = &part_view[0]
        part_view = self._ends[1]
        self.samples.upper_ends = &part_view[0]
        self.samples.n_weights = 1
        self.samples.samples_per_weight = 1.0
        if self._weights is not None:
            twins_view = self._weights[0]
            self.samples.weights = &twins_view[0]
            twins_view = self._weights[1]
            self.samples.weight_numbers = &twins_view[0]
            self.samples.n_weights = self._weights[2]
            self.samples.samples_per_weight = len(self.labels) / <double> self._weights[0].sum(dtype=np.int64)
        if self._copies is not None:
            twins_view = self._copies[0]
            self.samples.twins = &twins_view[0]
            flags_view = self._copies[1]
            self.samples.places = &flags_view[0]
            flags_view = self._copies[2]
            self.samples.droppable = &flags_view[0]

    @property
    def n_samples(self):
        return self.samples.n_samples

    @property
    def n_features(self):
        return self.samples.n_features

    @property
    def n_labels(self):
        return self.samples.n_labels


cdef class Objective:
    """Weights of the score, limits of the trees, and the features that may be tested."""

    cdef Weights weights
    cdef TreeLimits limits
    cdef readonly object features
    cdef const int32_t* features_pointer
    cdef int32_t n_features

    def __init__(self, double correct, double stable, double robust, features, int32_t min_leaf=1,
                 int32_t max_leaves=2**30, int32_t max_depth=2**30, double leaf_penalty=0.0):
        self.weights = Weights(correct, stable, robust)
        self.limits = TreeLimits(min_leaf, max_leaves, max_depth, leaf_penalty, 0)
        self.features = np.array(features, dtype=np.int32)
        cdef int32_t[::1] view = self.features
        self.n_features = <int32_t> view.shape[0]
        self.features_pointer = &view[0]

    def stop(self):
        """End long work early, in all threads; the trees stay valid."""
        self.limits.stop = 1


cdef class Workspace:
    """Memory for one thread to work in."""

    cdef Scratch* scratch
    cdef int32_t* features

    def __cinit__(self, TrainingSet samples):
        self.scratch = new_scratch(samples.samples.n_samples, samples.samples.n_labels)
        self.features = <int32_t*> malloc(max(samples.samples.n_features, 1) * sizeof(int32_t))
        if self.scratch == NULL or self.features == NULL:
            raise MemoryError("not enough memory for the trainer")

    def __dealloc__(self):
        free_scratch(self.scratch)
        free(self.features)


cdef class Individual:
    """A tree and its predictions for every training sample."""

    cdef Tree* tree
    cdef readonly TrainingSet samples

    def __cinit__(self, TrainingSet samples):
        self.samples = samples
        self.tree = new_tree(samples.samples.n_samples, samples.samples.n_labels)
        if self.tree == NULL:
            raise MemoryError("not enough memory for a tree")
        reset_tree(&samples.samples, self.tree)

    def __dealloc__(self):
        free_tree(self.tree)

    def become_leaf(self, Workspace workspace):
        """Become a single leaf that holds every sample."""
        with nogil:
            forget_levels(workspace.scratch)
            make_leaf(&self.samples.samples, self.tree, workspace.scratch)
        return self

    def become(self, Individual other):
        """Become a copy of another individual."""
        with nogil:
            copy_tree(other.tree, self.tree)
        return self

    def take_nodes(self, const int32_t[::1] feature, const double[::1] threshold, const int32_t[::1] left,
                   const int32_t[::1] right, Objective objective, Workspace workspace, const uint64_t[::1] ties=None):
        """Become the tree with the given nodes, as far as training samples separate its branches.

        With `ties`, sets of tied labels get the numbers that they had in the tree whose `tests` returned them.
        """
        cdef Py_ssize_t n_nodes = feature.shape[0], node
        cdef TrainNode* template = <TrainNode*> malloc(max(n_nodes, 1) * sizeof(TrainNode))
        if template == NULL:
            raise MemoryError("not enough memory for a tree")
        try:
            memset(template, 0, n_nodes * sizeof(TrainNode))
            for node in range(n_nodes):
                template[node].feature = feature[node]
                if feature[node] >= 0:
                    template[node].threshold = threshold[node]
                    template[node].left = left[node]
                    template[node].right = right[node]
                    template[node].cut = rank_cut(&self.samples.samples, feature[node], threshold[node])
            with nogil:
                forget_levels(workspace.scratch)
                make_leaf(&self.samples.samples, self.tree, workspace.scratch)
                collect(&self.samples.samples, self.tree, 0, workspace.scratch)
                if ties is not None:
                    set_ties(self.tree, &ties[0] if ties.shape[0] > 0 else NULL, <int32_t> ties.shape[0])
                replace(&self.samples.samples, self.tree, 0, template, 0, <int32_t> n_nodes, objective.limits.min_leaf,
                        objective.limits.max_depth, workspace.scratch)
        finally:
            free(template)
        return self

    def tests(self):
        """Feature (-1 in a leaf) and threshold of every node, in pre-order, and the numbered sets of tied labels."""
        cdef int32_t node
        feature = np.empty(self.tree.n_nodes, dtype=np.int32)
        threshold = np.zeros(self.tree.n_nodes)
        ties = np.empty(self.tree.n_ties * self.tree.n_words, dtype=np.uint64)
        cdef int32_t[::1] feature_view = feature
        cdef double[::1] threshold_view = threshold
        cdef uint64_t[::1] ties_view = ties
        for node in range(self.tree.n_nodes):
            feature_view[node] = self.tree.nodes[node].feature
            if feature_view[node] >= 0:
                threshold_view[node] = self.tree.nodes[node].threshold
        if ties.size:
            memcpy(&ties_view[0], self.tree.ties, ties.size * sizeof(uint64_t))
        return feature, threshold, ties

    @property
    def n_nodes(self):
        return self.tree.n_nodes

    @property
    def n_leaves(self):
        return self.tree.n_leaves

    @property
    def counts(self):
        """Numbers of correct, stable and robust training samples; sums of their weights if they have some."""
        return self.tree.n_correct, self.tree.n_stable, self.tree.n_robust

    def fitness(self, Objective objective):
        return fitness_of(self.tree, &objective.weights, &objective.limits)

    def nodes(self):
        """Feature (-1 in a leaf), threshold, left, right and class counts of every node, in pre-order."""
        cdef int32_t node, label, n_nodes = self.tree.n_nodes, m = self.tree.n_labels
        cdef const TrainNode* source
        feature = np.empty(n_nodes, dtype=np.int32)
        threshold = np.zeros(n_nodes)
        left = np.full(n_nodes, -1, dtype=np.int32)
        right = np.full(n_nodes, -1, dtype=np.int32)
        counts = np.empty((n_nodes, m), dtype=np.int64)
        cdef int32_t[::1] feature_view = feature, left_view = left, right_view = right
        cdef double[::1] threshold_view = threshold
        cdef int64_t[:, ::1] counts_view = counts
        for node in range(n_nodes):
            source = &self.tree.nodes[node]
            feature_view[node] = source.feature
            if source.feature >= 0:
                threshold_view[node] = source.threshold
                left_view[node] = source.left
                right_view[node] = source.right
            for label in range(m):
                counts_view[node, label] = self.tree.counts[<size_t> node * m + label]
        return feature, threshold, left, right, counts

    # Single operations, for tests and for growing the initial population.

    def best_split(self, int32_t node, Objective objective, Workspace workspace, bint by_score=True, double reach=0.0,
                   str impurity="gini"):
        """Feature, threshold, score, gain of the best split of a leaf, or None."""
        cdef Criterion criterion = Criterion(by_score, reach, IMPURITIES[impurity])
        cdef Split found
        forget_levels(workspace.scratch)
        collect(&self.samples.samples, self.tree, node, workspace.scratch)
        find_split(&self.samples.samples, self.tree, workspace.scratch, objective.features_pointer,
                   objective.n_features, &criterion, &objective.weights, objective.limits.min_leaf, &found)
        return None if found.feature < 0 else (found.feature, found.threshold, found.score, found.gain)

    def best_threshold_move(self, int32_t node, Objective objective, Workspace workspace):
        """Feature, threshold, score of the best test for an inner node with its subtrees as they are, or None."""
        cdef Split found
        forget_levels(workspace.scratch)
        collect(&self.samples.samples, self.tree, node, workspace.scratch)
        find_threshold_move(&self.samples.samples, self.tree, node, workspace.scratch, objective.features_pointer,
                            objective.n_features, &objective.weights, objective.limits.min_leaf, &found)
        return None if found.feature < 0 else (found.feature, found.threshold, found.score)

    def grow(self, int32_t node, Objective objective, Workspace workspace, bint by_score=True, double reach=0.0,
             str impurity="gini", int32_t n_splits=1):
        """Split a leaf, or replace it by a subtree of up to n_splits splits; returns the number of splits made."""
        cdef Criterion criterion = Criterion(by_score, reach, IMPURITIES[impurity])
        cdef int32_t made
        with nogil:
            forget_levels(workspace.scratch)
            if n_splits == 1:
                made = grow_leaf(&self.samples.samples, self.tree, node, objective.features_pointer,
                                 objective.n_features, &criterion, &objective.weights, &objective.limits,
                                 workspace.scratch)
            else:
                made = grow_subtree(&self.samples.samples, self.tree, node, n_splits, objective.features_pointer,
                                    objective.n_features, &criterion, &objective.weights, &objective.limits,
                                    workspace.scratch)
        return made

    def prune(self, int32_t node, Workspace workspace):
        with nogil:
            forget_levels(workspace.scratch)
            prune(&self.samples.samples, self.tree, node, workspace.scratch)

    def score_if_pruned(self, int32_t node, Objective objective, Workspace workspace):
        forget_levels(workspace.scratch)
        collect(&self.samples.samples, self.tree, node, workspace.scratch)
        return score_if_pruned(&self.samples.samples, self.tree, node, &objective.weights, workspace.scratch)

    def move_threshold(self, int32_t node, Objective objective, Workspace workspace):
        cdef bint moved
        with nogil:
            forget_levels(workspace.scratch)
            moved = move_threshold(&self.samples.samples, self.tree, node, objective.features_pointer,
                                   objective.n_features, &objective.weights, &objective.limits, workspace.scratch)
        return bool(moved)

    def graft(self, int32_t node, Individual donor, int32_t donor_node, Objective objective, Workspace workspace):
        with nogil:
            forget_levels(workspace.scratch)
            graft(&self.samples.samples, self.tree, node, donor.tree, donor_node, &objective.limits, workspace.scratch)

    def improve_locally(self, Objective objective, Workspace workspace):
        """Local search: give every inner node its best test in turn, then prune what is not worth its leaves."""
        cdef int32_t node = 0
        cdef Samples* samples = &self.samples.samples
        with nogil:
            forget_levels(workspace.scratch)
            while node < self.tree.n_nodes and not objective.limits.stop:
                if self.tree.nodes[node].feature >= 0:
                    move_threshold(samples, self.tree, node, objective.features_pointer, objective.n_features,
                              &objective.weights, &objective.limits, workspace.scratch)
                node += 1
            trim(samples, self.tree, 0, self.tree.n_nodes, &objective.weights, &objective.limits, workspace.scratch)

    def deepen(self, int32_t n_splits, Objective objective, Workspace workspace, double reach=0.0,
               str impurity="gini"):
        """Grow a subtree of up to n_splits splits at every leaf, and prune what is not worth its leaf penalties."""
        cdef Criterion criterion = Criterion(False, reach, IMPURITIES[impurity])
        cdef Samples* samples = &self.samples.samples
        cdef int32_t node = self.tree.n_nodes - 1, made
        with nogil:
            forget_levels(workspace.scratch)
            # Backwards, so that the numbers of the nodes that follow do not change.
            while node >= 0 and not objective.limits.stop:
                if self.tree.nodes[node].feature < 0:
                    made = grow_subtree(samples, self.tree, node, n_splits, objective.features_pointer,
                                        objective.n_features, &criterion, &objective.weights, &objective.limits,
                                        workspace.scratch)
                    trim(samples, self.tree, node, node + 2 * made, &objective.weights, &objective.limits,
                         workspace.scratch)
                node -= 1
        return self

    def trim(self, Objective objective, Workspace workspace):
        """Prune every inner node that is not worth its leaf penalties, the lowest ones first."""
        with nogil:
            forget_levels(workspace.scratch)
            trim(&self.samples.samples, self.tree, 0, self.tree.n_nodes, &objective.weights, &objective.limits,
                 workspace.scratch)


cdef class GreedyGrowth:
    """Growth of a tree from a single leaf, best split first, that can be continued; for one thread at a time.

    Trees of any number of splits up to the present one can be taken from it.
    """

    cdef Growth growth
    cdef Criterion criterion
    cdef Individual leaf
    cdef Objective objective

    def __init__(self, TrainingSet samples, Objective objective, Workspace workspace, double reach=0.0,
                 str impurity="gini"):
        self.criterion = Criterion(False, reach, IMPURITIES[impurity])
        self.objective = objective
        self.leaf = Individual(samples).become_leaf(workspace)
        with nogil:
            forget_levels(workspace.scratch)
            collect(&samples.samples, self.leaf.tree, 0, workspace.scratch)
            begin_growth(&samples.samples, self.leaf.tree, &self.growth, objective.features_pointer,
                         objective.n_features, &self.criterion, &objective.weights, &objective.limits,
                         workspace.scratch)

    def __dealloc__(self):
        free_growth(&self.growth)

    @property
    def n_splits(self):
        return self.growth.n_nodes // 2

    def extend(self, int32_t n_splits, Workspace workspace):
        """Continue up to so many splits in total, or until no split lowers the impurity."""
        cdef Samples* samples = &self.leaf.samples.samples
        with nogil:
            forget_levels(workspace.scratch)
            collect(samples, self.leaf.tree, 0, workspace.scratch)
            extend_growth(samples, self.leaf.tree, &self.growth, min(n_splits, self.objective.limits.max_leaves - 1),
                          self.objective.features_pointer, self.objective.n_features, &self.criterion,
                          &self.objective.weights, &self.objective.limits, workspace.scratch)

    def take(self, int32_t n_splits, Workspace workspace):
        """The tree of the first n_splits splits."""
        cdef int32_t n_nodes = 2 * min(n_splits, self.growth.n_nodes // 2) + 1, node
        cdef Individual tree = Individual(self.leaf.samples)
        cdef TrainNode* template = <TrainNode*> malloc(n_nodes * sizeof(TrainNode))
        cdef Samples* samples = &self.leaf.samples.samples
        if template == NULL:
            raise MemoryError("not enough memory for a tree")
        try:
            memcpy(template, self.growth.template, n_nodes * sizeof(TrainNode))
            for node in range(n_nodes):
                if template[node].feature >= 0 and template[node].left >= n_nodes:
                    template[node].feature = -1
            with nogil:
                forget_levels(workspace.scratch)
                make_leaf(samples, tree.tree, workspace.scratch)
                collect(samples, tree.tree, 0, workspace.scratch)
                replace(samples, tree.tree, 0, template, 0, n_nodes, self.objective.limits.min_leaf,
                        self.objective.limits.max_depth, workspace.scratch)
        finally:
            free(template)
        return tree


cdef class Reproduction:
    """How one generation gives rise to the next."""

    cdef ReproductionOptions options

    def __init__(self, *, str selection="tournament", int32_t tournament_size=3, double crossover_probability=1.0,
                 double mutation_probability=1.0, str mutation="mixed", double aggressiveness=1.0,
                 bint split_by_score=True, str impurity="gini", double grow_weight=1.0, double regrow_weight=1.0,
                 double prune_weight=1.0, double move_weight=1.0, int32_t max_burst=4, int32_t prune_tries=4,
                 double sweep_budget=1e6, double by_score_probability=0.3, blends=(("gini", 0.0),)):
        cdef Py_ssize_t position
        self.options.selection = SELECTIONS[selection]
        self.options.tournament_size = tournament_size
        self.options.crossover_probability = crossover_probability
        self.options.mutation_probability = mutation_probability
        self.options.mutation = MUTATIONS[mutation]
        self.options.aggressiveness = aggressiveness
        self.options.split_by_score = split_by_score
        self.options.impurity = IMPURITIES[impurity]
        self.options.grow_weight = grow_weight
        self.options.regrow_weight = regrow_weight
        self.options.prune_weight = prune_weight
        self.options.move_weight = move_weight
        self.options.max_burst = max_burst
        self.options.prune_tries = prune_tries
        self.options.sweep_budget = sweep_budget
        self.options.by_score_probability = by_score_probability
        if not 1 <= len(blends) <= MAX_BLENDS:
            raise ValueError(f"from 1 to {MAX_BLENDS} blends were expected, {len(blends)} are given")
        for position, (name, blend) in enumerate(blends):
            self.options.impurities[position] = IMPURITIES[name]
            self.options.blends[position] = blend
        self.options.n_blends = <int32_t> len(blends)

    def select(self, const double[::1] fitness, uint64_t seed, int32_t[::1] chosen):
        """Draw parents for given fitness into `chosen`."""
        cdef uint64_t random = scramble(seed)
        cdef Py_ssize_t draw
        for draw in range(chosen.shape[0]):
            chosen[draw] = select_parent(&self.options, &fitness[0], <int32_t> fitness.shape[0], &random)

    def reproduce(self, list parents, const double[::1] fitness, list offspring, Objective objective,
                  Workspace workspace, uint64_t seed, uint64_t generation, Py_ssize_t start, Py_ssize_t stop):
        """Make the offspring start..stop-1 of a generation; each depends only on its own number and the parents."""
        cdef Py_ssize_t n_parents = len(parents), position
        cdef Tree** old = <Tree**> malloc(max(n_parents, 1) * sizeof(Tree*))
        cdef Tree** new = <Tree**> malloc(max(stop - start, 1) * sizeof(Tree*))
        cdef TrainingSet samples = (<Individual> parents[0]).samples
        cdef uint64_t random
        if old == NULL or new == NULL:
            free(old)
            free(new)
            raise MemoryError("not enough memory for a generation")
        try:
            for position in range(n_parents):
                old[position] = (<Individual> parents[position]).tree
            for position in range(stop - start):
                new[position] = (<Individual> offspring[start + position]).tree
            with nogil:
                for position in range(stop - start):
                    random = scramble(scramble(seed) ^ scramble(
                        (generation << 24) + <uint64_t> (start + position) + <uint64_t> 0x9E3779B97F4A7C15))
                    self._reproduce_one(&samples.samples, old, <int32_t> n_parents, &fitness[0], new[position],
                                        objective, workspace, &random)
        finally:
            free(old)
            free(new)

    cdef int _reproduce_one(self, const Samples* samples, Tree** parents, int32_t n_parents, const double* fitness,
                        Tree* child, Objective objective, Workspace workspace, uint64_t* random) except -1 nogil:
        cdef ReproductionOptions* options = &self.options
        cdef Tree* donor
        cdef Tree* parent = parents[select_parent(options, fitness, n_parents, random)]
        copy_tree(parent, child)
        forget_levels(workspace.scratch)
        if next_fraction(random) < options.crossover_probability:
            donor = parents[select_parent(options, fitness, n_parents, random)]
            graft(samples, child, next_below(random, child.n_nodes), donor, next_below(random, donor.n_nodes),
                  &objective.limits, workspace.scratch)
            if child.n_leaves > objective.limits.max_leaves:
                copy_tree(parent, child)
                forget_levels(workspace.scratch)
        if options.mutation != NO_MUTATION and next_fraction(random) < options.mutation_probability:
            if options.mutation == MIXED_MOVES:
                mixed_mutation(samples, child, options, objective.features_pointer, objective.n_features,
                               &objective.weights, &objective.limits, workspace.scratch, workspace.features, random)
            else:
                paper_mutation(samples, child, options, objective.features_pointer, objective.n_features,
                               &objective.weights, &objective.limits, workspace.scratch, workspace.features, random)
        return 0
