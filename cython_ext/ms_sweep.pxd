# The best split of a leaf: the score of the tree with every possible split, in one sweep over each feature.
#
# Whatever depends on the threshold is kept in counters that one event changes (see ms_events.pxd); the score of the whole
# candidate tree follows from them.

from libc.math cimport log
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from ms_criterion cimport (
    Criterion, Impurity, Test, Weights, blend, impurity_of, is_better, mass_change, mass_of, score_of,
)
from ms_events cimport FIRST_ANSWER, FREE, assign_keys, list_events, range_of, threshold_between
from ms_samples cimport Samples
from ms_tree cimport MIXED, Tree, known_tie
from ms_workspace cimport Workspace, reserve_tables


cdef inline int find_split(const Samples* samples, const Tree* tree, Workspace* space, const int32_t* features,
                           int32_t n_features, const Criterion* criterion, const Weights* weights, int32_t min_leaf,
                           Test* best) except -1 nogil:
    """The best split of the leaf that was collected, over the given features.

    Exact: `score` is that of the whole tree with the leaf split in two.
    """
    cdef int32_t m = samples.n_labels, n = space.n_entries
    cdef int32_t n_categories = FIRST_ANSWER + m + tree.n_ties
    cdef int32_t position, entry, sample, label, item, feature, n_runs, run, key, count
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
    cdef int32_t left_size, right_size, n_own = 0, left_reach, right_reach
    cdef int32_t left_max, left_ties, left_label, right_max, right_ties, right_label, left_answer, right_answer
    cdef int64_t base_correct = tree.n_correct, base_stable = tree.n_stable, base_robust = tree.n_robust
    cdef int64_t correct, stable, robust
    cdef bint same
    cdef double event, next_event, before
    cdef double left_mass, right_mass, reach_left_mass, reach_right_mass, total_mass, reach_total_mass
    cdef double unit = 1.0 / log(m) if m > 1 else 1.0
    cdef Impurity impurity = criterion.impurity
    cdef Test candidate
    best.feature = -1
    if n == 0:
        return 0
    reserve_tables(space, 9 * <size_t> m + 3 * <size_t> n_categories)
    own_total = space.tables
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
    memset(own_total, 0, 2 * m * sizeof(int32_t))
    for position in range(n):
        entry = space.entries[position]
        sample = entry >> 1
        label = samples.labels[sample]
        reach_total[label] += 1
        if entry & 1:
            own_total[label] += 1
            n_own += 1
        # Take the listed samples out of the tallies; the sweep puts them back.
        if entry & 1:
            base_correct -= tree.own[sample] == label
        base_stable -= tree.joint[sample] != MIXED
        base_robust -= tree.joint[sample] != MIXED and tree.own[sample] == label
    if n_own < 2 * min_leaf:
        return 0
    assign_keys(samples, tree, space, n_categories)
    total_mass = 0
    reach_total_mass = 0
    for label in range(m):
        total_mass += mass_of(impurity, own_total[label])
        reach_total_mass += mass_of(impurity, reach_total[label])
    before = blend(criterion, impurity_of(impurity, n_own, total_mass, unit),
                   impurity_of(impurity, n, reach_total_mass, unit))
    for item in range(n_features):
        feature = features[item]
        n_runs = list_events(samples, feature, space)
        if n_runs == 0:
            continue
        memset(own_left, 0, m * sizeof(int32_t))
        memset(reach_left, 0, m * sizeof(int32_t))
        memset(sure_left, 0, 3 * m * sizeof(int32_t))
        memset(only_left, 0, 3 * n_categories * sizeof(int32_t))
        for label in range(m):
            own_right[label] = own_total[label]
            reach_right[label] = reach_total[label]
        for run in range(n_runs):
            key = space.run_keys[run]
            label = space.key_label[key]
            category = space.key_category[key]
            only_right[category] += space.run_counts[run]
            if category == FREE or category == FIRST_ANSWER + label:
                sure_right[label] += space.run_counts[run]
        left_mass, reach_left_mass = 0, 0
        right_mass, reach_right_mass = total_mass, reach_total_mass
        left_size, right_size, left_reach, right_reach = 0, n_own, 0, n
        left_max, left_ties, left_label = 0, 0, 0
        right_max, right_ties, right_label = -1, 0, 0
        low, mid, high = 0, 0, 0
        while True:
            event = space.highs[high]
            if mid < n_runs and space.mids[mid] < event:
                event = space.mids[mid]
            if low < n_runs and space.lows[low] < event:
                event = space.lows[low]
            while low < n_runs and space.lows[low] <= event:
                key = space.run_keys[low]
                count = space.run_counts[low]
                label = space.key_label[key]
                category = space.key_category[key]
                only_right[category] -= count
                both[category] += count
                if category == FREE or category == FIRST_ANSWER + label:
                    sure_right[label] -= count
                    sure_both[label] += count
                reach_left_mass += mass_change(impurity, reach_left[label], count)
                reach_left[label] += count
                left_reach += count
                low += 1
            while mid < n_runs and space.mids[mid] <= event:
                key = space.run_keys[mid]
                count = space.run_counts[mid]
                mid += 1
                if not space.key_own[key]:
                    continue
                label = space.key_label[key]
                left_mass += mass_change(impurity, own_left[label], count)
                right_mass += mass_change(impurity, own_right[label], -count)
                if own_right[label] == right_max:
                    right_ties -= 1
                    if right_ties <= 1:
                        right_max = -1      # to be found again, with its label
                own_left[label] += count
                own_right[label] -= count
                left_size += count
                right_size -= count
                if own_left[label] > left_max:
                    left_max = own_left[label]
                    left_label = label
                    left_ties = 1
                elif own_left[label] == left_max:
                    left_ties += 1
            while high < n_runs and space.highs[high] <= event:
                key = space.run_keys[high]
                count = space.run_counts[high]
                label = space.key_label[key]
                category = space.key_category[key]
                both[category] -= count
                only_left[category] += count
                if category == FREE or category == FIRST_ANSWER + label:
                    sure_both[label] -= count
                    sure_left[label] += count
                reach_right_mass += mass_change(impurity, reach_right[label], -count)
                reach_right[label] -= count
                right_reach -= count
                high += 1
            if right_size < min_leaf or high == n_runs:
                break
            if left_size < min_leaf:
                continue
            next_event = space.highs[high]
            if mid < n_runs and space.mids[mid] < next_event:
                next_event = space.mids[mid]
            if low < n_runs and space.lows[low] < next_event:
                next_event = space.lows[low]
            if right_max < 0:
                right_ties = 0
                for label in range(m):
                    if own_right[label] > right_max:
                        right_max = own_right[label]
                        right_label = label
                        right_ties = 1
                    elif own_right[label] == right_max:
                        right_ties += 1
            # A tie that the tree has not seen is nobody's answer outside, so it stands for no category.
            left_answer = left_label if left_ties == 1 else known_tie(tree, own_left, left_max)
            right_answer = right_label if right_ties == 1 else known_tie(tree, own_right, right_max)
            same = left_answer == right_answer
            if left_answer < 0 and right_answer < 0:
                same = left_ties == right_ties
                label = 0
                while same and label < m:
                    same = (own_left[label] == left_max) == (own_right[label] == right_max)
                    label += 1
            correct = base_correct
            stable = base_stable + only_left[FREE] + only_right[FREE]
            robust = base_robust
            if left_answer >= 0:
                stable += only_left[FIRST_ANSWER + left_answer]
            if right_answer >= 0:
                stable += only_right[FIRST_ANSWER + right_answer]
            if left_ties == 1:
                correct += left_max
                robust += sure_left[left_label]
            if right_ties == 1:
                correct += right_max
                robust += sure_right[right_label]
            if same:
                stable += both[FREE]
                if left_answer >= 0:
                    stable += both[FIRST_ANSWER + left_answer]
                if left_ties == 1:
                    robust += sure_both[left_label]
            candidate.score = score_of(weights, correct, stable, robust)
            if criterion.by_score and best.feature >= 0 and candidate.score < best.score:
                continue
            candidate.gain = before - blend(
                criterion,
                impurity_of(impurity, left_size, left_mass, unit) + impurity_of(impurity, right_size, right_mass, unit),
                impurity_of(impurity, left_reach, reach_left_mass, unit)
                + impurity_of(impurity, right_reach, reach_right_mass, unit),
            )
            candidate.feature = feature
            candidate.width = (next_event - event) / range_of(samples, feature)
            if is_better(criterion, &candidate, best):
                candidate.threshold = threshold_between(event, next_event)
                best[0] = candidate
    return 0
