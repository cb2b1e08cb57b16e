# A chapter of evolution.pyx: the best test for an inner node in the norms l0, l1 and l2; see threshold_move.pxd.
#
# Without the test, a sample pays something to be in each leaf below the node. What is left of its budget, the slack of
# the leaf, is what it can pay for the test; of leaves with the same prediction the largest slack counts. So on each side
# there is a threshold at which a sample reaches the first prediction, and one at which it reaches a second one. A test of
# a column that other tests on the way to a leaf are about too replaces what is paid there, and the slack is larger. All
# columns without such tests have the same slacks.

from libc.math cimport INFINITY, nextafter
from libc.stdint cimport int32_t, int64_t, uint8_t

from common.buffer cimport reserve
from training.criteria cimport GINI, Criterion, Split, Weights, is_better, score_of
from training.events cimport range_of, threshold_between
from training.missing cimport Region, codes_at, is_copy, missing_rank, present_region
from training.norm cimport (
    Sides, _find_sides_in_norm, column_of, cost_at, cost_in, find_interval, highest_reached, list_intervals,
    lowest_reached, root_of, sort_events,
)
from training.scratch cimport Event, PendingNode, Scratch, reserve_events, reserve_lists, reserve_pending
from training.sweep cimport FEW_FEATURES, FINALISTS, enter_finalist, take_part
from training.tree cimport MIXED, NONE, Samples, Tree, merge_predictions, weight_of

cdef enum:
    # With more samples at a node, and many features, a part of the samples tells which features are promising.
    MOST_MOVED = 512
    # A key of an event: what changes in the numbers of correct, stable and robust samples (by -1, 0 or 1), and whether
    # the sample goes to the left from here on, as the digits of a number below 64.
    KEYS = 64


cdef struct Slacks:
    # Of the samples of a node, by sample: the prediction that they reach first on a side, and the slacks of this one and
    # of the next one; -1 if there is none.
    int32_t* prediction
    int64_t* first
    int64_t* second
    double* first_root
    double* second_root


cdef inline Slacks slacks_of(const Samples* samples, Scratch* scratch, bint is_left) noexcept nogil:
    cdef size_t n = samples.n_samples
    cdef Slacks slacks
    slacks.prediction, slacks.first, slacks.first_root = scratch.left_merged, scratch.slacks, scratch.slack_roots
    if not is_left:
        slacks.prediction = scratch.right_merged
        slacks.first += 2 * n
        slacks.first_root += 2 * n
    slacks.second, slacks.second_root = slacks.first + n, slacks.first_root + n
    return slacks


cdef inline int _find_slacks(const Samples* samples, const Tree* tree, int32_t node, bint is_left, int32_t column,
                             Scratch* scratch) except -1 nogil:
    """Set the slacks of one side of a node that was collected, for tests of a column; -1 for one without tests."""
    cdef Slacks slacks = slacks_of(samples, scratch, is_left)
    cdef int32_t top = 1, below, position, entry, sample, code, n_left, n_right, place, prediction
    cdef int32_t n = scratch.n_entries, length = 0
    cdef int64_t slack
    cdef size_t left, right
    cdef Sides sides
    cdef PendingNode pending
    reserve_lists(scratch, n)
    reserve_pending(scratch, 1)
    for position in range(n):
        entry = scratch.entries[position]
        sample = entry >> 1
        slacks.prediction[sample], slacks.first[sample], slacks.second[sample] = NONE, -1, -1
        # Others are unstable whatever happens here.
        if scratch.outside[sample] != MIXED:
            scratch.lists[length] = entry
            length += 1
    below = tree.nodes[node].left if is_left else tree.nodes[node].right
    scratch.pending_nodes[0] = PendingNode(below, -1, False, 0, 0, length)
    while top > 0:
        top -= 1
        pending = scratch.pending_nodes[top]
        below = pending.node
        list_intervals(samples, tree.nodes, below, NULL, -1, node, scratch)
        if tree.nodes[below].feature < 0:
            place = find_interval(scratch, column) if column >= 0 else -1
            prediction = tree.nodes[below].prediction
            for position in range(pending.length):
                sample = scratch.lists[pending.start + position] >> 1
                slack = samples.budget - cost_at(samples, scratch, sample)
                if place >= 0:
                    slack += cost_in(samples, &scratch.intervals[place], sample)
                if slacks.prediction[sample] == prediction:
                    slacks.first[sample] = max(slacks.first[sample], slack)
                elif slack > slacks.first[sample]:
                    slacks.second[sample] = slacks.first[sample]
                    slacks.first[sample] = slack
                    slacks.prediction[sample] = prediction
                else:
                    slacks.second[sample] = max(slacks.second[sample], slack)
            continue
        sides.codes = codes_at(samples, &tree.nodes[below], scratch.lists + pending.start, pending.length, scratch)
        sides.cut = tree.nodes[below].cut
        if scratch.n_intervals > 0:
            _find_sides_in_norm(samples, &tree.nodes[below], scratch.lists + pending.start, pending.length, scratch,
                                &sides)
        left = pending.start + pending.length
        right = left + pending.length
        reserve_lists(scratch, right + pending.length)
        reserve_pending(scratch, top + 2)
        n_left, n_right = 0, 0
        for position in range(pending.length):
            entry = scratch.lists[pending.start + position]
            code = sides.codes[entry >> 1]
            if code <= sides.cut.reach_left:
                scratch.lists[left + n_left] = entry
                n_left += 1
            if code > sides.cut.reach_right:
                scratch.lists[right + n_right] = entry
                n_right += 1
        for position in range(n_right):
            scratch.lists[left + n_left + position] = scratch.lists[right + position]
        if n_left > 0:
            scratch.pending_nodes[top] = PendingNode(tree.nodes[below].left, -1, False, 0, left, n_left)
            top += 1
        if n_right > 0:
            scratch.pending_nodes[top] = PendingNode(tree.nodes[below].right, -1, True, 0, left + n_left, n_right)
            top += 1
    for position in range(n):
        sample = scratch.entries[position] >> 1
        slacks.first_root[sample] = root_of(samples, slacks.first[sample]) if slacks.first[sample] >= 0 else 0
        slacks.second_root[sample] = root_of(samples, slacks.second[sample]) if slacks.second[sample] >= 0 else 0
    return 0


cdef inline bint _is_tested(const Samples* samples, const Tree* tree, int32_t node, int32_t column) noexcept nogil:
    """Whether a test above or below a node is about a column."""
    cdef int32_t step = tree.nodes[node].parent, n_open = 2
    while step >= 0:
        if column_of(samples, tree.nodes[step].feature) == column:
            return True
        step = tree.nodes[step].parent
    # The tree lies in pre-order.
    step = node + 1
    while n_open > 0:
        if tree.nodes[step].feature >= 0:
            if column_of(samples, tree.nodes[step].feature) == column:
                return True
            n_open += 1
        else:
            n_open -= 1
        step += 1
    return False


cdef inline int32_t _list_moves(const Samples* samples, const Tree* tree, int32_t feature, Scratch* scratch,
                                int64_t[3]* counts) except -1 nogil:
    """List the thresholds of a feature at which samples change, sorted; add the samples at the lowest one to counts.

    The result is the number of events; scratch.events holds them.
    """
    cdef Slacks left = slacks_of(samples, scratch, True), right = slacks_of(samples, scratch, False)
    cdef int32_t position, entry, sample, code, label, weight, n = 0, n_points, point, other, seen, side
    cdef int64_t first = samples.value_starts[feature]
    cdef bint is_own, has_region = is_copy(samples, feature), is_missing = False
    cdef bint is_correct, is_stable, is_left, was_correct, was_stable, was_left
    cdef double value, low, high, start = -INFINITY, at
    # The events of a sample: it reaches the first and the second prediction on the left, leaves those on the right, and
    # goes to the left itself.
    cdef double[4] ends
    cdef double[5] points
    cdef Region region
    cdef Event* events
    if has_region:
        region = present_region(samples, feature, scratch)
        if region.low != -INFINITY:
            start = nextafter(region.low, INFINITY)
    reserve_events(scratch, 5 * <size_t> scratch.n_entries)
    events = scratch.events
    for position in range(scratch.n_entries):
        entry = scratch.entries[position]
        sample = entry >> 1
        is_own = entry & 1
        if not is_own and scratch.outside[sample] == MIXED:
            counts[0][0] += weight_of(samples, sample) * (tree.own[sample] == samples.labels[sample])
            continue
        label = samples.labels[sample]
        weight = weight_of(samples, sample)
        code = samples.codes[<size_t> feature * samples.n_samples + sample]
        value = samples.values[first + code]
        low, high = samples.lower_ends[first + code], samples.upper_ends[first + code]
        if has_region:
            is_missing = code == missing_rank(samples, feature)
            if not is_missing:
                low, high = max(low, start), min(high, region.high)
                value = min(max(value, start), region.high)
        ends[0] = ends[1] = INFINITY
        ends[2] = ends[3] = -INFINITY
        if left.first[sample] >= 0:
            ends[0] = low
            if not is_missing:
                ends[0] = max(low, lowest_reached(samples, feature, value, left.first_root[sample]))
        if left.second[sample] >= 0:
            ends[1] = low
            if not is_missing:
                ends[1] = max(low, lowest_reached(samples, feature, value, left.second_root[sample]))
        if right.first[sample] >= 0:
            ends[2] = high
            if not is_missing:
                ends[2] = min(high, highest_reached(samples, feature, value, right.first_root[sample]))
        if right.second[sample] >= 0:
            ends[3] = high
            if not is_missing:
                ends[3] = min(high, highest_reached(samples, feature, value, right.second_root[sample]))
        points[0] = value
        n_points = 1 if is_own else 0
        for side in range(4):
            at = ends[side]
            if at == INFINITY or at == -INFINITY:
                continue
            point = n_points
            while point > 0 and points[point - 1] > at:
                points[point] = points[point - 1]
                point -= 1
            points[point] = at
            n_points += 1
        was_correct, was_stable, was_left = False, False, False
        for point in range(-1, n_points):
            at = -INFINITY if point < 0 else points[point]
            is_left = at >= value
            if is_own:
                is_correct = (scratch.own_left[sample] if is_left else scratch.own_right[sample]) == label
            else:
                is_correct = tree.own[sample] == label
                is_left = False
            seen = scratch.outside[sample]
            if at >= ends[0]:
                seen = merge_predictions(seen, MIXED if at >= ends[1] else left.prediction[sample])
            if at < ends[2]:
                seen = merge_predictions(seen, MIXED if at < ends[3] else right.prediction[sample])
            is_stable = seen != MIXED
            if point < 0:
                counts[0][0] += weight * is_correct
                counts[0][1] += weight * is_stable
                counts[0][2] += weight * (is_correct and is_stable)
            elif is_correct != was_correct or is_stable != was_stable or is_left != was_left:
                other = 1 + is_correct - was_correct
                other = 3 * other + 1 + is_stable - was_stable
                other = 3 * other + 1 + (is_correct and is_stable) - (was_correct and was_stable)
                other = 2 * other + (is_left != was_left)
                events[n] = Event(at, <int64_t> sample * KEYS + other)
                n += 1
            was_correct, was_stable, was_left = is_correct, is_stable, is_left
    if sort_events(events, scratch.spare_events, n) != events:
        scratch.events, scratch.spare_events = scratch.spare_events, scratch.events
    return n


cdef inline int _sweep_in_norm(const Samples* samples, const Tree* tree, Scratch* scratch, const int32_t* features,
                               int32_t n_features, const uint8_t* is_tested, int32_t node, const int64_t* start,
                               const Weights* weights, int32_t min_leaf, Split* finalists,
                               int32_t n_finalists) except -1 nogil:
    """The best tests for the listed samples, each of another feature, best first; `start` are the counts of others."""
    cdef int32_t item, feature, n_events, event, n_left, n_own = 0, position, change, turn
    cdef int64_t[3] counts
    cdef int64_t weight
    cdef double at, after
    cdef Criterion by_score = Criterion(True, 0, GINI)
    cdef Split candidate, best
    candidate.gain = 0
    for item in range(n_finalists):
        finalists[item].feature = -1
    for position in range(scratch.n_entries):
        n_own += scratch.entries[position] & 1
    if n_own < 2 * min_leaf:
        return 0
    # Columns without tests have the same slacks; then each column with tests has its own.
    for turn in range(2):
        if turn == 0:
            _find_slacks(samples, tree, node, True, -1, scratch)
            _find_slacks(samples, tree, node, False, -1, scratch)
        for item in range(n_features):
            feature = features[item]
            if is_tested[feature] != turn:
                continue
            if turn == 1:
                _find_slacks(samples, tree, node, True, column_of(samples, feature), scratch)
                _find_slacks(samples, tree, node, False, column_of(samples, feature), scratch)
            counts = [start[0], start[1], start[2]]
            n_events = _list_moves(samples, tree, feature, scratch, &counts)
            best.feature = -1
            n_left, event = 0, 0
            while event < n_events:
                at = scratch.events[event].at
                while event < n_events and scratch.events[event].at == at:
                    change = <int32_t> (scratch.events[event].key % KEYS)
                    weight = weight_of(samples, <int32_t> (scratch.events[event].key // KEYS))
                    n_left += change & 1
                    change //= 2
                    counts[2] += weight * (change % 3 - 1)
                    counts[1] += weight * (change // 3 % 3 - 1)
                    counts[0] += weight * (change // 9 - 1)
                    event += 1
                if event == n_events or n_own - n_left < min_leaf:
                    break
                if n_left < min_leaf:
                    continue
                candidate.score = score_of(weights, counts[0], counts[1], counts[2])
                if best.feature >= 0 and candidate.score < best.score:
                    continue
                after = scratch.events[event].at
                candidate.feature = feature
                candidate.width = (after - at) / range_of(samples, feature)
                if is_better(&by_score, &candidate, &best):
                    candidate.threshold = threshold_between(at, after)
                    best = candidate
            if best.feature >= 0:
                enter_finalist(samples, &by_score, &best, finalists, n_finalists)
    return 0


cdef inline int find_move_in_norm(const Samples* samples, const Tree* tree, int32_t node, Scratch* scratch,
                                  const int32_t* features, int32_t n_features, const Weights* weights,
                                  int32_t min_leaf, Split* best) except -1 nogil:
    """The same as `find_threshold_move`; own_left and own_right are set."""
    cdef int32_t n = scratch.n_entries, position, sample, item, n_promising = 1
    cdef int32_t* entries = scratch.entries
    cdef int64_t[3] start
    cdef int64_t weight
    cdef int32_t[FINALISTS + 1] promising
    cdef Split[FINALISTS] finalists
    cdef bint is_correct, is_stable
    start = [tree.n_correct, tree.n_stable, tree.n_robust]
    reserve(<void**> &scratch.slacks, &scratch.slacks_capacity, 4 * <size_t> samples.n_samples, sizeof(int64_t))
    reserve(<void**> &scratch.slack_roots, &scratch.slack_roots_capacity, 4 * <size_t> samples.n_samples,
            sizeof(double))
    reserve(<void**> &scratch.is_tested, &scratch.is_tested_capacity, samples.n_features, sizeof(uint8_t))
    for item in range(n_features):
        scratch.is_tested[features[item]] = _is_tested(samples, tree, node, column_of(samples, features[item]))
    scratch.is_tested[tree.nodes[node].feature] = _is_tested(samples, tree, node,
                                                             column_of(samples, tree.nodes[node].feature))
    for position in range(n):
        sample = scratch.entries[position] >> 1
        weight = weight_of(samples, sample)
        is_correct = tree.own[sample] == samples.labels[sample]
        is_stable = tree.joint[sample] != MIXED
        start[0] -= weight * is_correct
        start[1] -= weight * is_stable
        start[2] -= weight * (is_correct and is_stable)
    if n <= MOST_MOVED or n_features <= FEW_FEATURES:
        return _sweep_in_norm(samples, tree, scratch, features, n_features, scratch.is_tested, node, start, weights,
                              min_leaf, best, 1)
    # The scores on the part differ from true ones by a constant and a factor, which do not matter.
    scratch.n_entries = MOST_MOVED
    take_part(entries, n, MOST_MOVED, scratch.part)
    scratch.entries = scratch.part
    try:
        _sweep_in_norm(samples, tree, scratch, features, n_features, scratch.is_tested, node, start, weights, 1,
                       finalists, FINALISTS)
    finally:
        scratch.entries = entries
        scratch.n_entries = n
    promising[0] = tree.nodes[node].feature
    for position in range(FINALISTS):
        if finalists[position].feature >= 0 and finalists[position].feature != promising[0]:
            promising[n_promising] = finalists[position].feature
            n_promising += 1
    return _sweep_in_norm(samples, tree, scratch, promising, n_promising, scratch.is_tested, node, start, weights,
                          min_leaf, best, 1)
