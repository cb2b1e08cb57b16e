# A chapter of evolution.pyx: the best split of a leaf. One sweep over each feature scores the tree with every possible
# split.
#
# The chapters of the trainer are headers so that one unit is compiled: helpers of a few instructions (criteria, merging
# predictions, buffers) are inlined into loops over samples across chapters. Measured on breast-cancer: with calls in
# the place of inlining a training takes 23 % more instructions.
#
# Everything that depends on the threshold is kept in counters that an event changes (see events.pxd). The score of the whole
# candidate tree follows from the counters.

from libc.math cimport log
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy, memset

from common.random cimport scramble
from training.criteria cimport (
    EXPONENTIAL, Criterion, Impurity, Split, Weights, blend, exponential_loss, gain_of, impurity_of, is_better, mass_change,
    mass_of, score_of,
)
from training.events cimport (
    FIRST_PREDICTION, FREE, assign_keys, list_events, next_event, range_of, threshold_between,
)
from training.missing cimport is_copy
from training.norm cimport has_norm, list_payers
from training.scratch cimport FEW_SWEPT, MANY_SWEPT, Scratch, reserve_tables
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


cdef inline int sweep_features(const Samples* samples, const Tree* tree, Scratch* scratch, const int32_t* features,
                               int32_t n_features, const Criterion* criterion, const Weights* weights, int32_t min_leaf,
                               int32_t n_thresholds, Split* finalists, int32_t n_finalists) except -1 nogil:
    """The best splits of the listed samples, each of another feature, best first.

    Looks at about `n_thresholds` thresholds of each feature, at equal distances in the order of the samples. `score` is
    that of the whole tree with the leaf split in two, if all samples of the leaf are listed.
    """
    cdef int32_t m = samples.n_labels, n = scratch.n_entries
    cdef int32_t n_categories = FIRST_PREDICTION + m + tree.n_ties
    cdef int32_t position, entry, sample, label, item, feature, n_runs, key, count, weight
    # Weighted, as all counts here, except for numbers of rows.
    cdef int32_t n_reached = 0
    cdef int32_t own_rows = 0, left_rows
    cdef int32_t low, mid, high, category
    cdef int32_t* own_total
    cdef int32_t* reach_total
    cdef int32_t* own_left
    cdef int32_t* own_right
    cdef int32_t* reach_left
    cdef int32_t* reach_right
    cdef int32_t* sure_left
    cdef int32_t* sure_both
    cdef int32_t* sure_right
    cdef int32_t* only_left
    cdef int32_t* both
    cdef int32_t* only_right
    cdef int32_t* category_total
    cdef int32_t* sure_total
    cdef int32_t left_size, n_own = 0, left_reach, right_reach
    cdef int32_t left_max, left_ties, left_label, right_max, right_ties, right_label, left_prediction, right_prediction
    cdef int64_t base_correct = tree.n_correct, base_stable = tree.n_stable, base_robust = tree.n_robust
    cdef int64_t correct, stable, robust
    cdef bint same
    cdef double event, event_after, before, value_range
    cdef double left_mass, right_mass, reach_left_mass, reach_right_mass, total_mass, reach_total_mass
    # Masses of reach sets are left out where they have no weight.
    cdef bint has_reach = criterion.reach != 0 and criterion.impurity != EXPONENTIAL
    cdef const int32_t* key_label = scratch.key_label
    cdef const int32_t* key_category = scratch.key_category
    cdef const int32_t* key_own = scratch.key_own
    cdef double unit = 1.0 / log(m) if m > 1 else 1.0
    cdef Impurity impurity = criterion.impurity
    cdef Split candidate, best_split
    cdef Split* best = &best_split
    cdef int32_t stride, n_sides
    cdef const double* lows
    cdef const double* mids
    cdef const double* highs
    cdef const int32_t* low_keys
    cdef const int32_t* low_sums
    cdef const int32_t* run_keys
    cdef const int32_t* run_sums
    cdef const int32_t* run_counts
    cdef const int32_t* high_keys
    cdef const int32_t* high_sums
    for item in range(n_finalists):
        finalists[item].feature = -1
    if n == 0:
        return 0
    reserve_tables(scratch, 10 * <size_t> m + 4 * <size_t> n_categories)
    own_total = scratch.tables
    reach_total = own_total + m
    own_left = reach_total + m
    own_right = own_left + m
    reach_left = own_right + m
    reach_right = reach_left + m
    sure_left = reach_right + m
    sure_both = sure_left + m
    sure_right = sure_both + m
    only_left = sure_right + m
    both = only_left + n_categories
    only_right = both + n_categories
    category_total = only_right + n_categories
    sure_total = category_total + n_categories
    memset(own_total, 0, 2 * m * sizeof(int32_t))
    memset(category_total, 0, (n_categories + m) * sizeof(int32_t))
    for position in range(n):
        entry = scratch.entries[position]
        sample = entry >> 1
        label = samples.labels[sample]
        weight = weight_of(samples, sample)
        reach_total[label] += weight
        n_reached += weight
        if entry & 1:
            own_total[label] += weight
            n_own += weight
            own_rows += 1
        # Subtract the listed samples from the counts; the sweep adds them again.
        if entry & 1:
            base_correct -= weight * (tree.own[sample] == label)
        base_stable -= weight * (tree.joint[sample] != MIXED)
        base_robust -= weight * (tree.joint[sample] != MIXED and tree.own[sample] == label)
    if own_rows < 2 * min_leaf:
        return 0
    if has_norm(samples):
        list_payers(samples, scratch)
    assign_keys(samples, tree, scratch, n_categories)
    for position in range(n):
        key = scratch.key_of[position]
        label = key_label[key]
        category = key_category[key]
        category_total[category] += scratch.key_weight[key]
        if category == FREE or category == FIRST_PREDICTION + label:
            sure_total[label] += scratch.key_weight[key]
    total_mass = 0
    reach_total_mass = 0
    for label in range(m):
        total_mass += mass_of(impurity, own_total[label])
        reach_total_mass += mass_of(impurity, reach_total[label])
    if impurity == EXPONENTIAL:
        before = exponential_loss(criterion.reach, own_total, reach_total, n_own, n_reached, m)
    else:
        before = blend(criterion, impurity_of(impurity, n_own, total_mass, unit),
                       impurity_of(impurity, n_reached, reach_total_mass, unit))
    for item in range(n_features):
        feature = features[item]
        n_runs = list_events(samples, feature, min_leaf, scratch)
        if n_runs == 0:
            continue
        lows, low_keys, low_sums = scratch.low_ends, scratch.low_keys, scratch.low_sums
        highs, high_keys, high_sums = scratch.high_ends, scratch.high_keys, scratch.high_sums
        mids, run_keys, run_sums, run_counts = scratch.mids, scratch.run_keys, scratch.run_sums, scratch.run_counts
        n_sides = scratch.n_sides
        best.feature = -1
        stride = n_runs // n_thresholds
        value_range = range_of(samples, feature)
        memset(own_left, 0, m * sizeof(int32_t))
        memset(reach_left, 0, m * sizeof(int32_t))
        memset(sure_left, 0, 2 * m * sizeof(int32_t))
        memset(only_left, 0, 2 * n_categories * sizeof(int32_t))
        for label in range(m):
            own_right[label] = own_total[label]
            reach_right[label] = reach_total[label]
            sure_right[label] = sure_total[label]
        # At first all boxes lie on the right only.
        memcpy(only_right, category_total, n_categories * sizeof(int32_t))
        left_mass, reach_left_mass = 0, 0
        right_mass, reach_right_mass = total_mass, reach_total_mass
        left_size, left_reach, right_reach = 0, 0, n_reached
        left_rows = 0
        left_max, left_ties, left_label = 0, 0, 0
        right_max, right_ties, right_label = -1, 0, 0
        low, mid, high = 0, 0, 0
        while True:
            event = next_event(lows, mids, highs, low, mid, high, n_runs, n_sides)
            if stride > 1:
                event = max(event, mids[min(mid + stride, n_runs - 1)])
            while low < n_sides and lows[low] <= event:
                key = low_keys[low]
                count = low_sums[low]
                label = key_label[key]
                category = key_category[key]
                only_right[category] -= count
                both[category] += count
                if category == FREE or category == FIRST_PREDICTION + label:
                    sure_right[label] -= count
                    sure_both[label] += count
                if has_reach:
                    reach_left_mass += mass_change(impurity, reach_left[label], count)
                reach_left[label] += count
                left_reach += count
                low += 1
            while mid < n_runs and mids[mid] <= event:
                key = run_keys[mid]
                if key_own[key]:
                    count = run_sums[mid]
                    left_rows += run_counts[mid]
                    label = key_label[key]
                    left_mass += mass_change(impurity, own_left[label], count)
                    right_mass += mass_change(impurity, own_right[label], -count)
                    if own_right[label] == right_max:
                        right_ties -= 1
                        if right_ties <= 1:
                            right_max = -1      # to be computed again, with its label
                    own_left[label] += count
                    own_right[label] -= count
                    left_size += count
                    if own_left[label] > left_max:
                        left_max = own_left[label]
                        left_label = label
                        left_ties = 1
                    elif own_left[label] == left_max:
                        left_ties += 1
                mid += 1
            while high < n_sides and highs[high] <= event:
                key = high_keys[high]
                count = high_sums[high]
                label = key_label[key]
                category = key_category[key]
                both[category] -= count
                only_left[category] += count
                if category == FREE or category == FIRST_PREDICTION + label:
                    sure_both[label] -= count
                    sure_left[label] += count
                if has_reach:
                    reach_right_mass += mass_change(impurity, reach_right[label], -count)
                reach_right[label] -= count
                right_reach -= count
                high += 1
            if own_rows - left_rows < min_leaf or high == n_sides:
                break
            if left_rows < min_leaf:
                continue
            # What decides comes first; most thresholds are not the best so far, and need nothing else.
            if not criterion.by_score:
                candidate.gain = gain_of(
                    criterion, before, unit, own_total, m, left_size, n_own - left_size, left_reach, right_reach,
                    n_reached, left_mass, right_mass, reach_left_mass, reach_right_mass)
                if best.feature >= 0 and candidate.gain < best.gain:
                    continue
            if right_max < 0:
                right_ties = 0
                for label in range(m):
                    if own_right[label] > right_max:
                        right_max = own_right[label]
                        right_label = label
                        right_ties = 1
                    elif own_right[label] == right_max:
                        right_ties += 1
            # No leaf outside predicts a tie that is new to the tree, so such a tie has no category.
            left_prediction = left_label if left_ties == 1 else known_tie(tree, own_left, left_max)
            right_prediction = right_label if right_ties == 1 else known_tie(tree, own_right, right_max)
            same = left_prediction == right_prediction
            if left_prediction < 0 and right_prediction < 0:
                same = left_ties == right_ties
                label = 0
                while same and label < m:
                    same = (own_left[label] == left_max) == (own_right[label] == right_max)
                    label += 1
            correct = base_correct
            stable = base_stable + only_left[FREE] + only_right[FREE]
            robust = base_robust
            if left_prediction >= 0:
                stable += only_left[FIRST_PREDICTION + left_prediction]
            if right_prediction >= 0:
                stable += only_right[FIRST_PREDICTION + right_prediction]
            if left_ties == 1:
                correct += left_max
                robust += sure_left[left_label]
            if right_ties == 1:
                correct += right_max
                robust += sure_right[right_label]
            if same:
                stable += both[FREE]
                if left_prediction >= 0:
                    stable += both[FIRST_PREDICTION + left_prediction]
                if left_ties == 1:
                    robust += sure_both[left_label]
            candidate.score = score_of(weights, correct, stable, robust)
            if criterion.by_score:
                if best.feature >= 0 and candidate.score < best.score:
                    continue
                candidate.gain = gain_of(
                    criterion, before, unit, own_total, m, left_size, n_own - left_size, left_reach, right_reach,
                    n_reached, left_mass, right_mass, reach_left_mass, reach_right_mass)
            event_after = next_event(lows, mids, highs, low, mid, high, n_runs, n_sides)
            candidate.feature = feature
            candidate.width = (event_after - event) / value_range
            if is_better(criterion, &candidate, best):
                candidate.threshold = threshold_between(event, event_after)
                best[0] = candidate
        if best.feature >= 0:
            enter_finalist(samples, criterion, best, finalists, n_finalists)
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
