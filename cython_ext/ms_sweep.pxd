# The value of every possible test at a node, in one sweep over each feature.
#
# Between two neighbouring events (a sample's value x, or an end of its box) all thresholds are equivalent on the
# training data. Going upwards, a sample passes its three events in this order:
#
#     threshold   ----------- low ----------- x ----------- high ----------->
#     the box     right only   |          both sides         |   left only
#     the sample  on the right ............... | on the left ...............
#
# The three lists of events have the same order, so one order by x and three cursors are enough. Whatever depends on the
# threshold is kept in counters that one event changes; the score of the whole candidate tree follows from them.

from libc.math cimport log
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from ms_box cimport lower_bound, upper_bound
from ms_samples cimport Samples
from ms_surgery cimport Workspace, merge_leaves, reserve_arena, reserve_tables
from ms_tree cimport MIXED, NONE, TrainNode, Tree, known_answer, merge_answer

cdef enum Impurity:
    GINI
    ENTROPY

cdef struct Weights:
    # The score of a tree is correct * its correct samples + stable * its stable samples + robust * its robust samples.
    double correct
    double stable
    double robust

cdef struct Criterion:
    bint by_score       # the score of the whole tree decides, impurity breaks ties; else the other way round
    double reach        # share of the impurity of reach sets in the blend with that of the samples themselves
    Impurity impurity

cdef struct Test:
    int32_t feature     # < 0: none found
    double threshold
    double score        # of the whole tree with this test
    double gain         # decrease of the blended impurity, in samples
    double width        # of the interval of equivalent thresholds, as a share of the feature's range


cdef inline double score_of(const Weights* weights, int64_t correct, int64_t stable, int64_t robust) noexcept nogil:
    return weights.correct * correct + weights.stable * stable + weights.robust * robust


cdef inline bint is_better(const Criterion* criterion, const Test* a, const Test* b) noexcept nogil:
    if b.feature < 0:
        return True
    if criterion.by_score:
        if a.score != b.score:
            return a.score > b.score
        if a.gain != b.gain:
            return a.gain > b.gain
    else:
        if a.gain != b.gain:
            return a.gain > b.gain
        if a.score != b.score:
            return a.score > b.score
    return a.width > b.width


cdef inline double threshold_between(double low, double high) noexcept nogil:
    """The middle of [low, high), in float64: low <= k < high."""
    cdef double middle = low + (high - low) / 2
    return middle if low <= middle < high else low


cdef inline int32_t place_of(uint64_t key) noexcept nogil:
    """Position in the list: the low half of a key; the high half is the rank of the value."""
    return <int32_t> <uint32_t> key


cdef inline int32_t sort_entries(const Samples* samples, int32_t feature, Workspace* space) noexcept nogil:
    """Order the listed samples by a feature and write their events; 0 if the feature is the same for all.

    Afterwards the low 32 bits of keys[r] are the position in the list of the sample with rank r, and lows, mids, highs its
    events.
    """
    cdef int32_t n = space.n_entries, position, code, smallest, largest, shift, digit, total, count
    cdef const int32_t* codes = samples.codes + <size_t> feature * samples.n_samples
    cdef const double* values = samples.values + samples.value_starts[feature]
    cdef uint64_t key
    cdef uint64_t* source = space.keys
    cdef uint64_t* target = space.spare_keys
    cdef int32_t[256] counters
    cdef double value, down, up, low_limit, high_limit
    smallest = codes[space.entries[0] >> 1]
    largest = smallest
    for position in range(n):
        code = codes[space.entries[position] >> 1]
        source[position] = (<uint64_t> code << 32) | <uint64_t> position
        if code < smallest:
            smallest = code
        elif code > largest:
            largest = code
    if smallest == largest:
        return 0
    if n <= 40:
        for position in range(1, n):
            key = source[position]
            count = position
            while count > 0 and source[count - 1] > key:
                source[count] = source[count - 1]
                count -= 1
            source[count] = key
    else:
        shift = 32
        while (largest >> (shift - 32)) > 0:
            memset(counters, 0, sizeof(counters))
            for position in range(n):
                counters[(source[position] >> shift) & 255] += 1
            total = 0
            for digit in range(256):
                count = counters[digit]
                counters[digit] = total
                total += count
            for position in range(n):
                key = source[position]
                digit = <int32_t> ((key >> shift) & 255)
                target[counters[digit]] = key
                counters[digit] += 1
            source, target = target, source
            shift += 8
    space.keys = source
    space.spare_keys = target
    down, up = samples.radius_down[feature], samples.radius_up[feature]
    low_limit, high_limit = samples.minimum[feature], samples.maximum[feature]
    for position in range(n):
        value = values[source[position] >> 32]
        space.lows[position] = lower_bound(value, down, low_limit)
        space.mids[position] = value
        space.highs[position] = upper_bound(value, up, high_limit)
    return 1


cdef inline double _range_of(const Samples* samples, int32_t feature) noexcept nogil:
    return (samples.values[samples.value_starts[feature + 1] - 1] - samples.values[samples.value_starts[feature]])


cdef inline double _mass(Impurity impurity, double count) noexcept nogil:
    """What a class of this size takes off the impurity of a node; see impurity_of."""
    if impurity == GINI:
        return count * count
    return count * log(count) if count > 0 else 0.0


cdef inline double impurity_of(Impurity impurity, double total, double mass, double unit) noexcept nogil:
    """Impurity of a node times its number of samples; `unit` scales entropy to the base of the number of labels."""
    if total <= 0:
        return 0.0
    if impurity == GINI:
        return total - mass / total
    return (total * log(total) - mass) * unit


cdef inline double blend(const Criterion* criterion, double own, double reach) noexcept nogil:
    return (1 - criterion.reach) * own + criterion.reach * reach


# Categories of a listed sample: what the leaves outside the node answer for it.
cdef enum:
    FREE = 0            # it reaches none of them
    LOST = 1            # different answers: unstable whatever happens here
    FIRST_ANSWER = 2    # from here on one category for each answer


cdef inline int find_split(const Samples* samples, const Tree* tree, Workspace* space, const int32_t* features,
                           int32_t n_features, const Criterion* criterion, const Weights* weights, int32_t min_leaf,
                           Test* best) except -1 nogil:
    """The best split of the leaf that was collected, over the given features.

    Exact: `score` is that of the whole tree with the leaf split in two.
    """
    cdef int32_t m = samples.n_labels, n = space.n_entries
    cdef int32_t n_categories = FIRST_ANSWER + m + tree.n_ties
    cdef int32_t position, entry, sample, label, answer, item, feature, rank
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
    cdef bint same, is_sure, ties_changed
    cdef double event, next_event, width, own_gain, reach_gain, before
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
        answer = space.outside[sample]
        space.category[position] = (FREE if answer == NONE else LOST if answer == MIXED else FIRST_ANSWER + answer)
        # Take the listed samples out of the tallies; the sweep puts them back.
        if entry & 1:
            base_correct -= tree.own[sample] == label
        base_stable -= tree.joint[sample] != MIXED
        base_robust -= tree.joint[sample] != MIXED and tree.own[sample] == label
    if n_own < 2 * min_leaf:
        return 0
    total_mass = 0
    reach_total_mass = 0
    for label in range(m):
        total_mass += _mass(impurity, own_total[label])
        reach_total_mass += _mass(impurity, reach_total[label])
    before = blend(criterion, impurity_of(impurity, n_own, total_mass, unit),
                   impurity_of(impurity, n, reach_total_mass, unit))
    for item in range(n_features):
        feature = features[item]
        if not sort_entries(samples, feature, space):
            continue
        memset(own_left, 0, m * sizeof(int32_t))
        memset(reach_left, 0, m * sizeof(int32_t))
        memset(sure_left, 0, 3 * m * sizeof(int32_t))
        memset(only_left, 0, 3 * n_categories * sizeof(int32_t))
        for label in range(m):
            own_right[label] = own_total[label]
            reach_right[label] = reach_total[label]
        for position in range(n):
            only_right[space.category[position]] += 1
            label = samples.labels[space.entries[position] >> 1]
            category = space.category[position]
            if category == FREE or category == FIRST_ANSWER + label:
                sure_right[label] += 1
        left_mass, reach_left_mass = 0, 0
        right_mass, reach_right_mass = total_mass, reach_total_mass
        left_size, right_size, left_reach, right_reach = 0, n_own, 0, n
        left_max, left_ties, left_label = 0, 0, 0
        right_max, right_ties, right_label = -1, 0, 0
        low, mid, high = 0, 0, 0
        while True:
            event = space.highs[high]
            if mid < n and space.mids[mid] < event:
                event = space.mids[mid]
            if low < n and space.lows[low] < event:
                event = space.lows[low]
            while low < n and space.lows[low] <= event:
                position = place_of(space.keys[low])
                label = samples.labels[space.entries[position] >> 1]
                category = space.category[position]
                only_right[category] -= 1
                both[category] += 1
                if category == FREE or category == FIRST_ANSWER + label:
                    sure_right[label] -= 1
                    sure_both[label] += 1
                if impurity == GINI:
                    reach_left_mass += 2 * reach_left[label] + 1
                else:
                    reach_left_mass += _mass(impurity, reach_left[label] + 1) - _mass(impurity, reach_left[label])
                reach_left[label] += 1
                left_reach += 1
                low += 1
            while mid < n and space.mids[mid] <= event:
                entry = space.entries[place_of(space.keys[mid])]
                mid += 1
                if not entry & 1:
                    continue
                label = samples.labels[entry >> 1]
                if impurity == GINI:
                    left_mass += 2 * own_left[label] + 1
                    right_mass -= 2 * own_right[label] - 1
                else:
                    left_mass += _mass(impurity, own_left[label] + 1) - _mass(impurity, own_left[label])
                    right_mass += _mass(impurity, own_right[label] - 1) - _mass(impurity, own_right[label])
                own_left[label] += 1
                own_right[label] -= 1
                left_size += 1
                right_size -= 1
                if own_left[label] > left_max:
                    left_max = own_left[label]
                    left_label = label
                    left_ties = 1
                elif own_left[label] == left_max:
                    left_ties += 1
                if own_right[label] + 1 == right_max:
                    right_max = -1      # to be found again
            while high < n and space.highs[high] <= event:
                position = place_of(space.keys[high])
                label = samples.labels[space.entries[position] >> 1]
                category = space.category[position]
                both[category] -= 1
                only_left[category] += 1
                if category == FREE or category == FIRST_ANSWER + label:
                    sure_both[label] -= 1
                    sure_left[label] += 1
                if impurity == GINI:
                    reach_right_mass -= 2 * reach_right[label] - 1
                else:
                    reach_right_mass += _mass(impurity, reach_right[label] - 1) - _mass(impurity, reach_right[label])
                reach_right[label] -= 1
                right_reach -= 1
                high += 1
            if right_size < min_leaf or high == n:
                break
            if left_size < min_leaf:
                continue
            next_event = space.highs[high]
            if mid < n and space.mids[mid] < next_event:
                next_event = space.mids[mid]
            if low < n and space.lows[low] < next_event:
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
            left_answer = left_label if left_ties == 1 else known_answer(tree, own_left)
            right_answer = right_label if right_ties == 1 else known_answer(tree, own_right)
            same = left_answer == right_answer
            if left_answer < 0 and right_answer < 0:
                same = left_ties == right_ties
                for label in range(m):
                    if (own_left[label] == left_max) != (own_right[label] == right_max):
                        same = False
                        break
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
            candidate.width = (next_event - event) / _range_of(samples, feature)
            if is_better(criterion, &candidate, best):
                candidate.threshold = threshold_between(event, next_event)
                best[0] = candidate
    return 0


cdef inline void _fill_own(const Samples* samples, const TrainNode* nodes, int32_t root, const Workspace* space,
                           int32_t* own) noexcept nogil:
    """Answer of the leaf below `root` into which each listed sample of the node falls."""
    cdef int32_t position, entry, node, code
    for position in range(space.n_entries):
        entry = space.entries[position]
        if entry & 1:
            node = root
            while nodes[node].feature >= 0:
                code = samples.codes[<size_t> nodes[node].feature * samples.n_samples + (entry >> 1)]
                node = nodes[node].left if code <= nodes[node].cut.left else nodes[node].right
            own[entry >> 1] = nodes[node].answer


cdef inline int find_test(const Samples* samples, const Tree* tree, int32_t node, Workspace* space,
                          const int32_t* features, int32_t n_features, const Weights* weights, int32_t min_leaf,
                          Test* best) except -1 nogil:
    """The best test for an inner node that was collected, with the subtrees below it left as they are.

    Exact as long as the subtrees keep their samples: where a leaf loses all of them, or its answer changes, the tree that
    results is another one, and its own evaluation counts.
    """
    cdef int32_t n = space.n_entries, position, entry, sample, item, feature, left_size, n_own = 0
    cdef int32_t low, mid, high, before, after
    cdef int64_t correct, stable, robust
    cdef int64_t start_correct = tree.n_correct, start_stable = tree.n_stable, start_robust = tree.n_robust
    cdef int32_t label
    cdef bint is_correct, now_correct
    cdef double event, next_event
    cdef Criterion by_score
    cdef Test candidate
    by_score.by_score = True
    by_score.reach = 0
    by_score.impurity = GINI
    best.feature = -1
    candidate.gain = 0
    if n == 0:
        return 0
    for position in range(n):
        sample = space.entries[position] >> 1
        space.aside[sample] = NONE
        space.across[sample] = NONE
    reserve_arena(space, n)
    for position in range(n):
        space.arena[position] = space.entries[position]
    merge_leaves(samples, tree.nodes, tree.nodes[node].left, 0, n, space.aside, space)
    for position in range(n):
        space.arena[position] = space.entries[position]
    merge_leaves(samples, tree.nodes, tree.nodes[node].right, 0, n, space.across, space)
    _fill_own(samples, tree.nodes, tree.nodes[node].left, space, space.own_left)
    _fill_own(samples, tree.nodes, tree.nodes[node].right, space, space.own_right)
    # At a threshold below everything all samples are on the right.
    for position in range(n):
        entry = space.entries[position]
        sample = entry >> 1
        label = samples.labels[sample]
        is_correct = tree.own[sample] == label
        start_stable -= tree.joint[sample] != MIXED
        start_robust -= is_correct and tree.joint[sample] != MIXED
        if entry & 1:
            n_own += 1
            start_correct -= is_correct
            is_correct = space.own_right[sample] == label
            start_correct += is_correct
        # Three results of the box, as bits: left only, both sides, right only.
        after = merge_answer(space.outside[sample], space.across[sample])
        before = merge_answer(space.outside[sample], space.aside[sample])
        space.category[position] = (
            (before != MIXED) | ((merge_answer(before, space.across[sample]) != MIXED) << 1) | ((after != MIXED) << 2)
        )
        start_stable += after != MIXED
        start_robust += is_correct and after != MIXED
    for item in range(n_features):
        feature = features[item]
        if not sort_entries(samples, feature, space):
            continue
        correct, stable, robust = start_correct, start_stable, start_robust
        left_size = 0
        low, mid, high = 0, 0, 0
        while True:
            event = space.highs[high]
            if mid < n and space.mids[mid] < event:
                event = space.mids[mid]
            if low < n and space.lows[low] < event:
                event = space.lows[low]
            while low < n and space.lows[low] <= event:
                position = place_of(space.keys[low])
                entry = space.entries[position]
                sample = entry >> 1
                before = (space.category[position] >> 2) & 1
                after = (space.category[position] >> 1) & 1
                stable += after - before
                if (space.own_right[sample] if entry & 1 else tree.own[sample]) == samples.labels[sample]:
                    robust += after - before
                low += 1
            while mid < n and space.mids[mid] <= event:
                position = place_of(space.keys[mid])
                entry = space.entries[position]
                if entry & 1:
                    sample = entry >> 1
                    is_correct = space.own_right[sample] == samples.labels[sample]
                    now_correct = space.own_left[sample] == samples.labels[sample]
                    correct += <int32_t> now_correct - <int32_t> is_correct
                    if (space.category[position] >> 1) & 1:
                        robust += <int32_t> now_correct - <int32_t> is_correct
                    left_size += 1
                mid += 1
            while high < n and space.highs[high] <= event:
                position = place_of(space.keys[high])
                entry = space.entries[position]
                sample = entry >> 1
                before = (space.category[position] >> 1) & 1
                after = space.category[position] & 1
                stable += after - before
                if (space.own_left[sample] if entry & 1 else tree.own[sample]) == samples.labels[sample]:
                    robust += after - before
                high += 1
            if n_own - left_size < min_leaf or high == n:
                break
            if left_size < min_leaf:
                continue
            candidate.score = score_of(weights, correct, stable, robust)
            if best.feature >= 0 and candidate.score < best.score:
                continue
            next_event = space.highs[high]
            if mid < n and space.mids[mid] < next_event:
                next_event = space.mids[mid]
            if low < n and space.lows[low] < next_event:
                next_event = space.lows[low]
            candidate.feature = feature
            candidate.width = (next_event - event) / _range_of(samples, feature)
            if is_better(&by_score, &candidate, best):
                candidate.threshold = threshold_between(event, next_event)
                best[0] = candidate
    return 0
