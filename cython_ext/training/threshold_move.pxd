# A chapter of evolution.pyx: the best test for an inner node whose subtrees stay as they are, by the sweep of
# sweep.pxd.

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from training.criteria cimport GINI, Criterion, Split, Weights, is_better, score_of
from training.events cimport is_few, list_events, next_event, range_of, threshold_between
from training.norm cimport has_norm
from training.norm_move cimport find_move_in_norm
from training.scratch cimport FEW_SWEPT, Scratch, reserve_cells, reserve_lists
from training.subtree_replacement cimport merge_leaves
from training.sweep cimport (
    COARSE_THRESHOLDS, FEW_FEATURES, MOST_FINALISTS, count_finalists, enter_finalist, part_size, take_part,
)
from training.tree cimport MIXED, NONE, Samples, TrainNode, Tree, merge_predictions, weight_of

cdef enum:
    MAX_THRESHOLDS = 1 << 30


cdef inline void _fill_own(const Samples* samples, const TrainNode* nodes, int32_t root, const Scratch* scratch,
                           int32_t* own) noexcept nogil:
    """Write the prediction of the leaf below `root` into which each listed sample of the node falls."""
    cdef int32_t position, entry, node, code
    for position in range(scratch.n_entries):
        entry = scratch.entries[position]
        if entry & 1:
            node = root
            while nodes[node].feature >= 0:
                code = samples.codes[<size_t> nodes[node].feature * samples.n_samples + (entry >> 1)]
                node = nodes[node].left if code <= nodes[node].cut.left else nodes[node].right
            own[entry >> 1] = nodes[node].prediction


cdef inline int _sweep_moves(const Samples* samples, Scratch* scratch, const int32_t* features, int32_t n_features,
                             int64_t start_correct, int64_t start_stable, int64_t start_robust,
                             const Weights* weights, int32_t min_leaf, int32_t n_thresholds, Split* finalists,
                             int32_t n_finalists) except -1 nogil:
    """The best tests for the listed samples and their keys, each of another feature, best first.

    The counts are those at a threshold below all values. Looks at about `n_thresholds` thresholds of each feature.
    """
    cdef int32_t item, feature, left_size, n_own = 0, low, mid, high, key, n_runs, change, stride
    cdef int64_t correct, stable, robust
    cdef double event, event_after, value_range
    cdef const double* lows = scratch.lows
    cdef const double* mids = scratch.mids
    cdef const double* highs = scratch.highs
    cdef const int32_t* run_keys = scratch.run_keys
    cdef const int32_t* run_counts = scratch.run_counts
    cdef const int32_t* run_sums
    cdef const int32_t* key_category = scratch.key_category
    cdef Criterion by_score = Criterion(True, 0, GINI)
    cdef Split candidate, best_split
    cdef Split* best = &best_split
    candidate.gain = 0
    for item in range(n_finalists):
        finalists[item].feature = -1
    for key in range(scratch.n_keys):
        if scratch.key_category[key] & 32:
            n_own += scratch.key_counts[key]
    for item in range(n_features):
        feature = features[item]
        n_runs = list_events(samples, feature, min_leaf, scratch)
        if n_runs == 0:
            continue
        best.feature = -1
        stride = n_runs // n_thresholds
        value_range = range_of(samples, feature)
        run_sums = scratch.run_sums
        correct, stable, robust = start_correct, start_stable, start_robust
        left_size = 0
        low, mid, high = 0, 0, 0
        while True:
            event = next_event(scratch.lows, scratch.mids, scratch.highs, low, mid, high, n_runs, n_runs)
            if stride > 1:
                event = max(event, mids[min(mid + stride, n_runs - 1)])
            while low < n_runs and lows[low] <= event:
                key = key_category[run_keys[low]]
                change = (((key >> 1) & 1) - ((key >> 2) & 1)) * run_sums[low]
                stable += change
                robust += ((key >> 4) & 1) * change
                low += 1
            while mid < n_runs and mids[mid] <= event:
                key = key_category[run_keys[mid]]
                if key & 32:
                    change = (((key >> 3) & 1) - ((key >> 4) & 1)) * run_sums[mid]
                    correct += change
                    robust += ((key >> 1) & 1) * change
                    left_size += run_counts[mid]
                mid += 1
            while high < n_runs and highs[high] <= event:
                key = key_category[run_keys[high]]
                change = ((key & 1) - ((key >> 1) & 1)) * run_sums[high]
                stable += change
                robust += ((key >> 3) & 1) * change
                high += 1
            if n_own - left_size < min_leaf or high == n_runs:
                break
            if left_size < min_leaf:
                continue
            candidate.score = score_of(weights, correct, stable, robust)
            if best.feature >= 0 and candidate.score < best.score:
                continue
            event_after = next_event(scratch.lows, scratch.mids, scratch.highs, low, mid, high, n_runs, n_runs)
            candidate.feature = feature
            candidate.width = (event_after - event) / value_range
            if is_better(&by_score, &candidate, best):
                candidate.threshold = threshold_between(event, event_after)
                best[0] = candidate
        if best.feature >= 0:
            enter_finalist(samples, &by_score, best, finalists, n_finalists)
    return 0



cdef inline int find_threshold_move(const Samples* samples, const Tree* tree, int32_t node, Scratch* scratch,
                          const int32_t* features, int32_t n_features, const Weights* weights, int32_t min_leaf,
                          Split* best) except -1 nogil:
    """The best test for an inner node that was collected, with the subtrees below it left as they are.

    Exact as long as the subtrees keep their leaves: where a leaf loses all its samples, or its prediction changes, the
    score of the resulting tree is computed when the test is moved. With few samples every threshold of every feature is
    looked at; with many samples, all thresholds of the present feature and of those that are best on a part of the
    samples.
    """
    cdef int32_t n = scratch.n_entries, position, entry, sample, before, joint, after, key, n_promising = 1, n_finalists
    cdef int64_t start_correct = tree.n_correct, start_stable = tree.n_stable, start_robust = tree.n_robust
    cdef int32_t label, weight, number, cell, n_cells = 64 * samples.n_weights
    cdef int32_t* numbers
    cdef bint is_correct, is_dense
    cdef int32_t* entries = scratch.entries
    cdef int32_t* key_of = scratch.key_of
    cdef int32_t[MOST_FINALISTS + 1] promising
    cdef Split[MOST_FINALISTS] finalists
    best.feature = -1
    if n == 0:
        return 0
    _fill_own(samples, tree.nodes, tree.nodes[node].left, scratch, scratch.own_left)
    _fill_own(samples, tree.nodes, tree.nodes[node].right, scratch, scratch.own_right)
    if has_norm(samples):
        return find_move_in_norm(samples, tree, node, scratch, features, n_features, weights, min_leaf, best)
    for position in range(n):
        sample = scratch.entries[position] >> 1
        scratch.left_merged[sample] = NONE
        scratch.right_merged[sample] = NONE
    reserve_lists(scratch, n)
    for position in range(n):
        scratch.lists[position] = scratch.entries[position]
    merge_leaves(samples, tree.nodes, tree.nodes[node].left, 0, n, scratch.left_merged, scratch)
    for position in range(n):
        scratch.lists[position] = scratch.entries[position]
    merge_leaves(samples, tree.nodes, tree.nodes[node].right, 0, n, scratch.right_merged, scratch)
    # At a threshold below all values, all samples are on the right. The bits of a key: the box is stable on the left
    # only, on both sides, on the right only; the sample is correct on the left, on the right; it falls into this node.
    scratch.n_keys = 0
    is_dense = is_few(samples, n_cells, scratch)
    reserve_cells(scratch, n_cells if is_dense else 1)
    numbers = scratch.cells
    for cell in range(n_cells if is_dense else 0):
        numbers[cell] = -1
    for position in range(n):
        entry = scratch.entries[position]
        sample = entry >> 1
        label = samples.labels[sample]
        weight = weight_of(samples, sample)
        is_correct = tree.own[sample] == label
        start_stable -= weight * (tree.joint[sample] != MIXED)
        start_robust -= weight * (is_correct and tree.joint[sample] != MIXED)
        before = merge_predictions(scratch.outside[sample], scratch.left_merged[sample])
        after = merge_predictions(scratch.outside[sample], scratch.right_merged[sample])
        joint = merge_predictions(before, scratch.right_merged[sample])
        key = (before != MIXED) | ((joint != MIXED) << 1) | ((after != MIXED) << 2)
        if entry & 1:
            start_correct -= weight * is_correct
            is_correct = scratch.own_right[sample] == label
            start_correct += weight * is_correct
            key |= ((scratch.own_left[sample] == label) << 3) | (is_correct << 4) | 32
        else:
            key |= (is_correct << 3) | (is_correct << 4)
        cell = key if samples.weights == NULL else key * samples.n_weights + samples.weight_numbers[sample]
        number = numbers[cell] if is_dense else -1
        if number < 0:
            number = scratch.n_keys
            if is_dense:
                numbers[cell] = number
            scratch.key_category[number] = key
            scratch.key_weight[number] = weight
            scratch.key_counts[number] = 0
            scratch.n_keys += 1
        scratch.key_of[position] = number
        scratch.key_counts[number] += 1
        start_stable += weight * (after != MIXED)
        start_robust += weight * (is_correct and after != MIXED)
    if n <= FEW_SWEPT or n_features <= FEW_FEATURES:
        return _sweep_moves(samples, scratch, features, n_features, start_correct, start_stable, start_robust, weights,
                            min_leaf, MAX_THRESHOLDS, best, 1)
    # The scores on the part differ from true ones by a constant and a factor, which do not matter.
    memset(scratch.key_counts, 0, scratch.n_keys * sizeof(int32_t))
    scratch.n_entries = part_size(n, n_features)
    take_part(entries, n, scratch.n_entries, scratch.part)
    take_part(key_of, n, scratch.n_entries, scratch.part_keys)
    for position in range(scratch.n_entries):
        scratch.key_counts[scratch.part_keys[position]] += 1
    scratch.entries, scratch.key_of = scratch.part, scratch.part_keys
    try:
        n_finalists = count_finalists(n, n_features, scratch.n_entries)
        _sweep_moves(samples, scratch, features, n_features, 0, 0, 0, weights, 1, COARSE_THRESHOLDS, finalists,
                     n_finalists)
    finally:
        scratch.entries, scratch.key_of = entries, key_of
        scratch.n_entries = n
    memset(scratch.key_counts, 0, scratch.n_keys * sizeof(int32_t))
    for position in range(n):
        scratch.key_counts[key_of[position]] += 1
    promising[0] = tree.nodes[node].feature
    for position in range(n_finalists):
        if finalists[position].feature >= 0 and finalists[position].feature != promising[0]:
            promising[n_promising] = finalists[position].feature
            n_promising += 1
    return _sweep_moves(samples, scratch, promising, n_promising, start_correct, start_stable, start_robust, weights,
                        min_leaf, MAX_THRESHOLDS, best, 1)
