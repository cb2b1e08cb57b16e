# A chapter of evolution.pyx: the best split of a leaf. One sweep over each feature scores the tree with every possible
# split.
#
# The chapters of the trainer are headers so that one unit is compiled: helpers of a few instructions (criteria, merging
# predictions, buffers) are inlined into loops over samples across chapters. Measured on breast-cancer: with calls in
# the place of inlining a training takes 23 % more instructions.
#
# Everything that depends on the threshold is kept in counters that an event changes (see events.pxd). The score of the whole
# candidate tree follows from the counters.

from libc.math cimport INFINITY, log
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from common.random cimport scramble
from training.criteria cimport (
    EXPONENTIAL, GINI, Criterion, Impurity, Split, Weights, blend, exponential_loss, gain_of, impurity_of, is_better, mass_change,
    mass_of, score_of,
)
from training.events cimport (
    FIRST_PREDICTION, FREE, assign_keys, list_events, next_event, range_of, sort_keys, threshold_between,
)
from training.missing cimport is_copy
from training.norm cimport has_norm, list_payers
from training.scratch cimport FEW_SWEPT, MANY_SWEPT, Scratch, reserve_gains, reserve_tables
from training.tree cimport MIXED, Samples, Tree, known_tie, weight_of

# With many samples, a part of the samples and of the thresholds tells which features are promising. These are then looked
# at with all samples. Chosen by cross-validation on training rows: quality does not depend on it, the time does.
cdef enum:
    LEAST_PART = 1024           # samples
    PART_VALUES = 1 << 19       # samples times features
    COARSE_THRESHOLDS = 128     # of each feature, on the part
    MOST_THRESHOLDS = 4096      # of a feature, on all samples
    FINALISTS = 3               # features
    MOST_FINALISTS = 8          # if they are few of all features
    FEW_FEATURES = 8            # so many are all looked at with all samples
    MOST_EXACT = 1 << 26        # the squares of larger counts are rounded


cdef inline int32_t part_size(int32_t n, int32_t n_features) noexcept nogil:
    """Number of samples of the part: fewer if there are many features to look at."""
    return min(n, max(<int32_t> LEAST_PART, min(<int32_t> MANY_SWEPT, PART_VALUES // n_features)))


cdef inline int32_t count_finalists(int32_t n, int32_t n_features, int32_t part) noexcept nogil:
    """Number of features that are looked at with all n samples; at most a sixteenth of the work on the part, or FINALISTS."""
    return max(<int32_t> FINALISTS, min(<int32_t> MOST_FINALISTS, <int32_t> (<int64_t> part * n_features // (16 * n))))


cdef inline void take_part(const int32_t* entries, int32_t n, int32_t size, int32_t* part) noexcept nogil:
    """Take `size` of n entries: one of each of as many equal stretches, always the same one.

    Equal distances would not do: where classes alternate from row to row, they could all be of one class.
    """
    cdef int32_t position
    cdef int64_t first, end = 0
    for position in range(size):
        first, end = end, (position + 1) * <int64_t> n // size
        part[position] = entries[first + <int64_t> (scramble(<uint64_t> position) % <uint64_t> (end - first))]


cdef inline void enter_finalist(const Samples* samples, const Criterion* criterion, const Split* candidate,
                                Split* finalists, int32_t n_finalists) noexcept nogil:
    """Put a split in its place among the best ones of other features, if it is good enough."""
    cdef int32_t place = n_finalists, other
    if is_copy(samples, candidate.feature):
        # Both copies of a column are mostly equally good; the better one is enough.
        for other in range(n_finalists):
            if finalists[other].feature == samples.twins[candidate.feature]:
                if not is_better(criterion, candidate, &finalists[other]):
                    return
                for place in range(other, n_finalists - 1):
                    finalists[place] = finalists[place + 1]
                finalists[n_finalists - 1].feature = -1
                break
        place = n_finalists
    while place > 0 and is_better(criterion, candidate, &finalists[place - 1]):
        if place < n_finalists:
            finalists[place] = finalists[place - 1]
        place -= 1
    if place < n_finalists:
        finalists[place] = candidate[0]


cdef struct Leaf:
    # The listed samples of the leaf that is to be split. Weighted, as all counts here, except for numbers of rows. The
    # first six tables are counts of classes, in the order that `gain_of` expects; the next ones count samples that are
    # stable for all that the sweep decides if both sides predict their class ("sure"), by their class and by the sides
    # that their boxes reach; the others count all listed samples, by the predictions outside and by these sides.
    int32_t* own_total
    int32_t* reach_total
    int32_t* own_left
    int32_t* own_right
    int32_t* reach_left
    int32_t* reach_right
    int32_t* sure_left
    int32_t* sure_both
    int32_t* sure_right
    int32_t* only_left
    int32_t* both
    int32_t* only_right
    int32_t* category_total
    int32_t* sure_total
    int32_t n_labels
    int32_t n_categories
    int32_t n_own
    int32_t own_rows
    int32_t n_reached
    # The counts of the tree without these samples; the sweep adds them again.
    int64_t correct
    int64_t stable
    int64_t robust
    double own_mass
    double reach_mass
    double unit
    double before           # the blended impurity, or the loss, of the leaf


cdef struct SweepState:
    # What lies left and right of the present threshold, besides the tables of the leaf.
    int32_t low             # numbers of events passed
    int32_t mid
    int32_t high
    int32_t left_rows
    int32_t left_size
    int32_t left_reach
    int32_t right_reach
    double left_mass
    double right_mass
    double reach_left_mass
    double reach_right_mass
    # The largest class on each side, how many are as large, and the first of them that was found; right_max is -1 where
    # this is to be computed again.
    int32_t left_max
    int32_t left_ties
    int32_t left_label
    int32_t right_max
    int32_t right_ties
    int32_t right_label


cdef inline int _count_leaf(const Samples* samples, const Tree* tree, Scratch* scratch, Leaf* leaf) except -1 nogil:
    """Count the listed samples; the tables of sides are not yet set."""
    cdef int32_t m = samples.n_labels, n_categories = FIRST_PREDICTION + m + tree.n_ties
    cdef int32_t position, entry, sample, label, weight
    reserve_tables(scratch, 10 * <size_t> m + 4 * <size_t> n_categories)
    leaf.n_labels, leaf.n_categories = m, n_categories
    leaf.own_total = scratch.tables
    leaf.reach_total = leaf.own_total + m
    leaf.own_left = leaf.reach_total + m
    leaf.own_right = leaf.own_left + m
    leaf.reach_left = leaf.own_right + m
    leaf.reach_right = leaf.reach_left + m
    leaf.sure_left = leaf.reach_right + m
    leaf.sure_both = leaf.sure_left + m
    leaf.sure_right = leaf.sure_both + m
    leaf.only_left = leaf.sure_right + m
    leaf.both = leaf.only_left + n_categories
    leaf.only_right = leaf.both + n_categories
    leaf.category_total = leaf.only_right + n_categories
    leaf.sure_total = leaf.category_total + n_categories
    memset(leaf.own_total, 0, 2 * m * sizeof(int32_t))
    memset(leaf.category_total, 0, (n_categories + m) * sizeof(int32_t))
    leaf.n_own, leaf.own_rows, leaf.n_reached = 0, 0, 0
    leaf.correct, leaf.stable, leaf.robust = tree.n_correct, tree.n_stable, tree.n_robust
    for position in range(scratch.n_entries):
        entry = scratch.entries[position]
        sample = entry >> 1
        label = samples.labels[sample]
        weight = weight_of(samples, sample)
        leaf.reach_total[label] += weight
        leaf.n_reached += weight
        if entry & 1:
            leaf.own_total[label] += weight
            leaf.n_own += weight
            leaf.own_rows += 1
            leaf.correct -= weight * (tree.own[sample] == label)
        leaf.stable -= weight * (tree.joint[sample] != MIXED)
        leaf.robust -= weight * (tree.joint[sample] != MIXED and tree.own[sample] == label)
    return 0


cdef inline void _measure_leaf(const Criterion* criterion, const Scratch* scratch, Leaf* leaf) noexcept nogil:
    """Count the samples by their keys, and compute what a split is compared with."""
    cdef int32_t m = leaf.n_labels, position, key, label, category
    for position in range(scratch.n_entries):
        key = scratch.key_of[position]
        label = scratch.key_label[key]
        category = scratch.key_category[key]
        leaf.category_total[category] += scratch.key_weight[key]
        if category == FREE or category == FIRST_PREDICTION + label:
            leaf.sure_total[label] += scratch.key_weight[key]
    leaf.unit = 1.0 / log(m) if m > 1 else 1.0
    leaf.own_mass = 0
    leaf.reach_mass = 0
    for label in range(m):
        leaf.own_mass += mass_of(criterion.impurity, leaf.own_total[label])
        leaf.reach_mass += mass_of(criterion.impurity, leaf.reach_total[label])
    if criterion.impurity == EXPONENTIAL:
        leaf.before = exponential_loss(
            criterion.reach, leaf.own_total, leaf.reach_total, leaf.n_own, leaf.n_reached, m)
    else:
        leaf.before = blend(criterion, impurity_of(criterion.impurity, leaf.n_own, leaf.own_mass, leaf.unit),
                            impurity_of(criterion.impurity, leaf.n_reached, leaf.reach_mass, leaf.unit))


cdef inline SweepState _begin(Leaf* leaf) noexcept nogil:
    """A threshold below all values: all samples and boxes lie on the right only."""
    cdef int32_t m = leaf.n_labels
    cdef SweepState cut
    memset(leaf.own_left, 0, m * sizeof(int32_t))
    memset(leaf.reach_left, 0, m * sizeof(int32_t))
    memset(leaf.sure_left, 0, 2 * m * sizeof(int32_t))
    memset(leaf.only_left, 0, 2 * leaf.n_categories * sizeof(int32_t))
    memcpy(leaf.own_right, leaf.own_total, m * sizeof(int32_t))
    memcpy(leaf.reach_right, leaf.reach_total, m * sizeof(int32_t))
    memcpy(leaf.sure_right, leaf.sure_total, m * sizeof(int32_t))
    memcpy(leaf.only_right, leaf.category_total, leaf.n_categories * sizeof(int32_t))
    memset(&cut, 0, sizeof(SweepState))
    cut.right_reach = leaf.n_reached
    cut.right_mass, cut.reach_right_mass = leaf.own_mass, leaf.reach_mass
    cut.right_max = -1
    return cut


cdef inline void _pass_events(const Scratch* scratch, Impurity impurity, bint has_reach, int32_t n_runs, double event,
                              Leaf* leaf, SweepState* cut) noexcept nogil:
    """Move the threshold to an event: boxes begin to reach left, samples fall left, boxes no longer reach right."""
    cdef int32_t key, count, label, category
    while cut.low < scratch.n_sides and scratch.low_ends[cut.low] <= event:
        key = scratch.low_keys[cut.low]
        count = scratch.low_sums[cut.low]
        label = scratch.key_label[key]
        category = scratch.key_category[key]
        leaf.only_right[category] -= count
        leaf.both[category] += count
        if category == FREE or category == FIRST_PREDICTION + label:
            leaf.sure_right[label] -= count
            leaf.sure_both[label] += count
        if has_reach:
            cut.reach_left_mass += mass_change(impurity, leaf.reach_left[label], count)
        leaf.reach_left[label] += count
        cut.left_reach += count
        cut.low += 1
    while cut.mid < n_runs and scratch.mids[cut.mid] <= event:
        key = scratch.run_keys[cut.mid]
        if scratch.key_own[key]:
            count = scratch.run_sums[cut.mid]
            cut.left_rows += scratch.run_counts[cut.mid]
            label = scratch.key_label[key]
            cut.left_mass += mass_change(impurity, leaf.own_left[label], count)
            cut.right_mass += mass_change(impurity, leaf.own_right[label], -count)
            if leaf.own_right[label] == cut.right_max:
                cut.right_ties -= 1
                if cut.right_ties <= 1:
                    cut.right_max = -1
            leaf.own_left[label] += count
            leaf.own_right[label] -= count
            cut.left_size += count
            if leaf.own_left[label] > cut.left_max:
                cut.left_max = leaf.own_left[label]
                cut.left_label = label
                cut.left_ties = 1
            elif leaf.own_left[label] == cut.left_max:
                cut.left_ties += 1
        cut.mid += 1
    while cut.high < scratch.n_sides and scratch.high_ends[cut.high] <= event:
        key = scratch.high_keys[cut.high]
        count = scratch.high_sums[cut.high]
        label = scratch.key_label[key]
        category = scratch.key_category[key]
        leaf.both[category] -= count
        leaf.only_left[category] += count
        if category == FREE or category == FIRST_PREDICTION + label:
            leaf.sure_both[label] -= count
            leaf.sure_left[label] += count
        if has_reach:
            cut.reach_right_mass += mass_change(impurity, leaf.reach_right[label], -count)
        leaf.reach_right[label] -= count
        cut.right_reach -= count
        cut.high += 1


cdef inline double _score_at(const Tree* tree, const Weights* weights, const Leaf* leaf,
                             SweepState* cut) noexcept nogil:
    """Score of the whole tree with the leaf split at the present threshold."""
    cdef int32_t label, left_prediction, right_prediction
    cdef int64_t correct = leaf.correct, stable = leaf.stable, robust = leaf.robust
    cdef bint same
    if cut.right_max < 0:
        cut.right_ties = 0
        for label in range(leaf.n_labels):
            if leaf.own_right[label] > cut.right_max:
                cut.right_max = leaf.own_right[label]
                cut.right_label = label
                cut.right_ties = 1
            elif leaf.own_right[label] == cut.right_max:
                cut.right_ties += 1
    # No leaf outside predicts a tie that is new to the tree, so such a tie has no category.
    left_prediction = cut.left_label if cut.left_ties == 1 else known_tie(tree, leaf.own_left, cut.left_max)
    right_prediction = cut.right_label if cut.right_ties == 1 else known_tie(tree, leaf.own_right, cut.right_max)
    same = left_prediction == right_prediction
    if left_prediction < 0 and right_prediction < 0:
        same = cut.left_ties == cut.right_ties
        label = 0
        while same and label < leaf.n_labels:
            same = (leaf.own_left[label] == cut.left_max) == (leaf.own_right[label] == cut.right_max)
            label += 1
    stable += leaf.only_left[FREE] + leaf.only_right[FREE]
    if left_prediction >= 0:
        stable += leaf.only_left[FIRST_PREDICTION + left_prediction]
    if right_prediction >= 0:
        stable += leaf.only_right[FIRST_PREDICTION + right_prediction]
    if cut.left_ties == 1:
        correct += cut.left_max
        robust += leaf.sure_left[cut.left_label]
    if cut.right_ties == 1:
        correct += cut.right_max
        robust += leaf.sure_right[cut.right_label]
    if same:
        stable += leaf.both[FREE]
        if left_prediction >= 0:
            stable += leaf.both[FIRST_PREDICTION + left_prediction]
        if cut.left_ties == 1:
            robust += leaf.sure_both[cut.left_label]
    return score_of(weights, correct, stable, robust)


cdef inline double _best_own_gain(const Samples* samples, int32_t feature, const Criterion* criterion, int32_t min_leaf,
                                  const int32_t* own, const Leaf* leaf, Scratch* scratch) noexcept nogil:
    """The largest gain of a split by a feature, if boxes do not count in it; minus infinity if there is no split.

    Threshold after threshold from above, so that samples of the lowest value, mostly that of the background, are what the
    others leave. Counts are exact in float64: the sweep finds the same gain.
    """
    cdef int32_t m = leaf.n_labels, n_above = 0, largest = 0, position, code, label, weight, right_size = 0
    cdef int32_t right_rows = 0
    cdef bint is_byte = samples.byte_starts[feature] >= 0
    cdef const uint8_t* byte_codes = samples.bytes + samples.byte_starts[feature] if is_byte else NULL
    cdef const int32_t* codes = samples.codes + <size_t> feature * samples.n_samples
    cdef uint64_t* above = scratch.keys
    cdef double left_mass = leaf.own_mass, right_mass = 0, gain, best = -INFINITY
    for position in range(leaf.own_rows):
        code = byte_codes[own[position]] if is_byte else codes[own[position]]
        above[n_above] = (<uint64_t> code << 32) | <uint64_t> own[position]
        n_above += code > 0
        largest = max(largest, code)
    if n_above < min_leaf:
        return best
    above = sort_keys(scratch, n_above, largest)
    memcpy(leaf.own_left, leaf.own_total, m * sizeof(int32_t))
    memset(leaf.own_right, 0, m * sizeof(int32_t))
    for position in range(n_above - 1, -1, -1):
        label = samples.labels[<int32_t> above[position]]
        weight = weight_of(samples, <int32_t> above[position])
        left_mass += mass_change(criterion.impurity, leaf.own_left[label], -weight)
        right_mass += mass_change(criterion.impurity, leaf.own_right[label], weight)
        leaf.own_left[label] -= weight
        leaf.own_right[label] += weight
        right_size += weight
        right_rows += 1
        if right_rows < min_leaf or (position > 0 and above[position - 1] >> 32 == above[position] >> 32):
            continue
        if leaf.own_rows - right_rows < min_leaf:
            break
        gain = gain_of(criterion, leaf.before, leaf.unit, leaf.own_total, m, leaf.n_own - right_size, right_size, 0, 0,
                       0, left_mass, right_mass, 0, 0)
        if gain > best:
            best = gain
    return best


cdef inline double _find_own_gains(const Samples* samples, const int32_t* features, int32_t n_features,
                                   const Criterion* criterion, int32_t min_leaf, const Leaf* leaf,
                                   Scratch* scratch) noexcept nogil:
    """Set scratch.gains to the largest gain by each feature; return the largest of all."""
    cdef int32_t* own = scratch.run_counts
    cdef int32_t position, n_own = 0, item
    cdef double most = -INFINITY
    for position in range(scratch.n_entries):
        own[n_own] = scratch.entries[position] >> 1
        n_own += scratch.entries[position] & 1
    for item in range(n_features):
        scratch.gains[item] = _best_own_gain(samples, features[item], criterion, min_leaf, own, leaf, scratch)
        most = max(most, scratch.gains[item])
    return most


cdef inline int sweep_features(const Samples* samples, const Tree* tree, Scratch* scratch, const int32_t* features,
                               int32_t n_features, const Criterion* criterion, const Weights* weights, int32_t min_leaf,
                               int32_t n_thresholds, Split* finalists, int32_t n_finalists) except -1 nogil:
    """The best splits of the listed samples, each of another feature, best first.

    Looks at about `n_thresholds` thresholds of each feature, at equal distances in the order of the samples. `score` is
    that of the whole tree with the leaf split in two, if all samples of the leaf are listed.
    """
    cdef int32_t item, feature, n_runs, stride
    cdef double event, event_after, value_range, most_gain = -INFINITY
    # Masses of reach sets are left out where they have no weight.
    cdef bint has_reach = criterion.reach != 0 and criterion.impurity != EXPONENTIAL
    cdef Leaf leaf
    cdef SweepState cut
    cdef Split candidate, best
    for item in range(n_finalists):
        finalists[item].feature = -1
    if scratch.n_entries == 0:
        return 0
    _count_leaf(samples, tree, scratch, &leaf)
    if leaf.own_rows < 2 * min_leaf:
        return 0
    if has_norm(samples):
        list_payers(samples, scratch)
    assign_keys(samples, tree, scratch, leaf.n_categories)
    _measure_leaf(criterion, scratch, &leaf)
    # Where boxes do not count in the gain, and all thresholds are looked at, samples alone tell the features of the
    # largest gain; only these are swept, for the best of equal gains.
    if (n_finalists == 1 and n_features > 1 and criterion.reach == 0 and criterion.impurity == GINI
            and not criterion.by_score and samples.twins == NULL and leaf.n_own < MOST_EXACT
            and scratch.n_entries < 2 * n_thresholds):
        reserve_gains(scratch, n_features)
        most_gain = _find_own_gains(samples, features, n_features, criterion, min_leaf, &leaf, scratch)
        if most_gain == -INFINITY:
            return 0
    for item in range(n_features):
        if most_gain > -INFINITY and scratch.gains[item] < most_gain:
            continue
        feature = features[item]
        n_runs = list_events(samples, feature, min_leaf, scratch)
        if n_runs == 0:
            continue
        best.feature = -1
        stride = n_runs // n_thresholds
        value_range = range_of(samples, feature)
        cut = _begin(&leaf)
        while True:
            event = next_event(scratch.low_ends, scratch.mids, scratch.high_ends, cut.low, cut.mid, cut.high, n_runs,
                               scratch.n_sides)
            if stride > 1:
                event = max(event, scratch.mids[min(cut.mid + stride, n_runs - 1)])
            _pass_events(scratch, criterion.impurity, has_reach, n_runs, event, &leaf, &cut)
            if leaf.own_rows - cut.left_rows < min_leaf or cut.high == scratch.n_sides:
                break
            if cut.left_rows < min_leaf:
                continue
            # What decides comes first; most thresholds are not the best so far, and need nothing else. The gain stands
            # here twice: in a function that is not inlined it takes 3 % more instructions.
            if not criterion.by_score:
                candidate.gain = gain_of(criterion, leaf.before, leaf.unit, leaf.own_total, leaf.n_labels, cut.left_size,
                                         leaf.n_own - cut.left_size, cut.left_reach, cut.right_reach, leaf.n_reached,
                                         cut.left_mass, cut.right_mass, cut.reach_left_mass, cut.reach_right_mass)
                if best.feature >= 0 and candidate.gain < best.gain:
                    continue
            candidate.score = _score_at(tree, weights, &leaf, &cut)
            if criterion.by_score:
                if best.feature >= 0 and candidate.score < best.score:
                    continue
                candidate.gain = gain_of(criterion, leaf.before, leaf.unit, leaf.own_total, leaf.n_labels, cut.left_size,
                                         leaf.n_own - cut.left_size, cut.left_reach, cut.right_reach, leaf.n_reached,
                                         cut.left_mass, cut.right_mass, cut.reach_left_mass, cut.reach_right_mass)
            event_after = next_event(scratch.low_ends, scratch.mids, scratch.high_ends, cut.low, cut.mid, cut.high,
                                     n_runs, scratch.n_sides)
            candidate.feature = feature
            candidate.width = (event_after - event) / value_range
            if is_better(criterion, &candidate, &best):
                candidate.threshold = threshold_between(event, event_after)
                best = candidate
        if best.feature >= 0:
            enter_finalist(samples, criterion, &best, finalists, n_finalists)
    return 0


cdef inline int find_split(const Samples* samples, const Tree* tree, Scratch* scratch, const int32_t* features,
                           int32_t n_features, const Criterion* criterion, const Weights* weights, int32_t min_leaf,
                           Split* best) except -1 nogil:
    """The best split of the leaf that was collected, over the given features.

    Exact: `score` is that of the whole tree with the leaf split in two. With few samples every threshold of every
    feature is looked at; with many samples, MOST_THRESHOLDS of each feature that is among the best on a part of the
    samples.
    """
    cdef int32_t n = scratch.n_entries, position, least, n_finalists
    cdef int32_t* entries = scratch.entries
    cdef int32_t[MOST_FINALISTS] promising
    cdef Split[MOST_FINALISTS] finalists
    if n <= FEW_SWEPT or n_features <= FEW_FEATURES:
        return sweep_features(samples, tree, scratch, features, n_features, criterion, weights, min_leaf,
                              MOST_THRESHOLDS, best, 1)
    scratch.entries = scratch.part
    scratch.n_entries = part_size(n, n_features)
    take_part(entries, n, scratch.n_entries, scratch.part)
    n_finalists = count_finalists(n, n_features, scratch.n_entries)
    least = <int32_t> (<int64_t> min_leaf * scratch.n_entries // n)
    try:
        sweep_features(samples, tree, scratch, features, n_features, criterion, weights, max(least, 1),
                       COARSE_THRESHOLDS, finalists, n_finalists)
    finally:
        scratch.entries = entries
        scratch.n_entries = n
    n_features = 0
    for position in range(n_finalists):
        if finalists[position].feature >= 0:
            promising[n_features] = finalists[position].feature
            n_features += 1
    return sweep_features(samples, tree, scratch, promising, n_features, criterion, weights, min_leaf, MOST_THRESHOLDS,
                          best, 1)
