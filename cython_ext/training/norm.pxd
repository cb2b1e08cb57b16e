# A chapter of evolution.pyx: a limit of the total change in the norms l0, l1 and l2.
#
# The tests above a node leave an interval of values of each column. What a sample must pay to be in the node is the sum
# of the costs of its distances from these intervals, in l2 of their squares; it reaches the node if it can pay that. To
# go to the side of a test on which its value does not lie it pays for the distance from the threshold, instead of what
# it has paid in this column before. So the budget that is left gives each sample a radius of its own at each node.
#
# Costs are whole numbers, in which the budget has 40 bits, and sums of them are exact whatever their order. Each cost is
# rounded down, so that a sample reaches at least the leaves that it can reach: a sample that counts as stable is stable.
# The ends of boxes of ranks (tree.pxd) are those of samples that have paid nothing yet; they are rounded outwards.

from libc.math cimport INFINITY, nextafter, sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from common.buffer cimport reserve
from training.missing cimport Region, codes_at, is_copy, missing_rank
from training.scratch cimport Event, PathInterval, Scratch, reserve_events
from training.tree cimport LOWEST_RANK, RankCut, Samples, TrainNode


cdef enum Side:
    # What a sample does at a split, as a rank for SIDES_CUT.
    ONLY_LEFT
    BOTH_FROM_LEFT      # it goes left, and reaches both sides
    BOTH_FROM_RIGHT
    ONLY_RIGHT


cdef struct Sides:
    # The samples of a list at a split: ranks by sample, and how the split cuts them.
    const int32_t* codes
    RankCut cut


cdef inline bint has_norm(const Samples* samples) noexcept nogil:
    return samples.costs != NULL


cdef inline int64_t cost_of(const Samples* samples, int32_t feature, double size) noexcept nogil:
    """Cost of a change of this size, rounded down; one more than the budget for all larger costs."""
    cdef double cost = samples.costs[feature]
    if samples.unit == 0:
        return 0
    if samples.power == 0:
        cost *= samples.unit
    else:
        cost *= size
        if samples.power == 2:
            cost *= cost
        # At most three roundings, each far below one unit.
        cost = cost * samples.unit - 1
    if not cost < samples.budget + 1:
        return samples.budget + 1
    return <int64_t> cost if cost > 0 else 0


cdef inline double root_of(const Samples* samples, int64_t rest) noexcept nogil:
    """At least the distance that can be paid; it is divided by the cost of a feature."""
    if samples.unit == 0:
        return INFINITY
    if samples.power == 0:
        return rest / samples.unit
    if samples.power == 1:
        return (rest + 2) / samples.unit * (1 + 1e-15)
    return sqrt((rest + 2) / samples.unit) * (1 + 1e-15)


cdef inline double lowest_reached(const Samples* samples, int32_t feature, double value, double root) noexcept nogil:
    """The smallest threshold at which a sample reaches the left side, for the root of its rest; not above it."""
    if samples.power == 0:
        return -INFINITY if samples.unit == 0 or samples.costs[feature] <= root else value
    return nextafter(value - root / samples.costs[feature] * (1 + 1e-15), -INFINITY)


cdef inline double highest_reached(const Samples* samples, int32_t feature, double value, double root) noexcept nogil:
    """The smallest threshold at which a sample no longer reaches the right side; not below it."""
    if samples.power == 0:
        return INFINITY if samples.unit == 0 or samples.costs[feature] <= root else value
    return nextafter(value + root / samples.costs[feature] * (1 + 1e-15), INFINITY)


cdef inline int32_t column_of(const Samples* samples, int32_t feature) noexcept nogil:
    """The first copy of a feature."""
    if is_copy(samples, feature) and samples.places[feature] != LOWEST_RANK:
        return samples.twins[feature]
    return feature


cdef inline double value_at(const Samples* samples, int32_t feature, int32_t sample) noexcept nogil:
    return samples.values[samples.value_starts[feature] + samples.codes[<size_t> feature * samples.n_samples + sample]]


cdef inline int _add_chain(const Samples* samples, const TrainNode* nodes, int32_t node, int32_t skipped,
                           Scratch* scratch) except -1 nogil:
    cdef int32_t parent = nodes[node].parent, column, place
    cdef PathInterval* interval
    while parent >= 0:
        if parent != skipped:
            column = column_of(samples, nodes[parent].feature)
            place = find_interval(scratch, column)
            if place < 0:
                place = scratch.n_intervals
                reserve(<void**> &scratch.intervals, &scratch.intervals_capacity, place + 1, sizeof(PathInterval))
                scratch.intervals[place] = PathInterval(column, -INFINITY, INFINITY)
                scratch.n_intervals += 1
            interval = &scratch.intervals[place]
            if nodes[parent].left == node:
                interval.high = min(interval.high, nodes[parent].threshold)
            else:
                interval.low = max(interval.low, nodes[parent].threshold)
        node = parent
        parent = nodes[node].parent
    return 0


cdef inline int32_t find_interval(const Scratch* scratch, int32_t column) noexcept nogil:
    """The place of a column among the intervals of the present node, -1 if no test above is about it."""
    cdef int32_t place
    for place in range(scratch.n_intervals):
        if scratch.intervals[place].column == column:
            return place
    return -1


cdef inline int list_intervals(const Samples* samples, const TrainNode* nodes, int32_t node, const TrainNode* above,
                               int32_t above_node, int32_t skipped, Scratch* scratch) except -1 nogil:
    """Set the intervals that the tests above a node leave.

    The path goes on above `above_node` of another array, if that is not NULL. The test of node `skipped` of the first
    array does not count.
    """
    scratch.n_intervals = 0
    _add_chain(samples, nodes, node, skipped, scratch)
    if above != NULL:
        _add_chain(samples, above, above_node, -1, scratch)
    return 0


cdef inline int list_present_intervals(const Samples* samples, Scratch* scratch) except -1 nogil:
    """The same for the node that was collected, or for the leaf of a template below it."""
    scratch.n_intervals = 0
    if scratch.template != NULL:
        _add_chain(samples, scratch.template, scratch.template_node, -1, scratch)
    if scratch.n_path > 0:
        _add_chain(samples, scratch.walked_tree.nodes, scratch.path[scratch.n_path], -1, scratch)
    return 0


cdef inline int64_t cost_in(const Samples* samples, const PathInterval* interval, int32_t sample) noexcept nogil:
    """What a sample pays in one column; a missing value stays, and costs nothing."""
    cdef int32_t code = samples.codes[<size_t> interval.column * samples.n_samples + sample]
    cdef double value = samples.values[samples.value_starts[interval.column] + code]
    if interval.low < value <= interval.high:
        return 0
    if is_copy(samples, interval.column) and code == missing_rank(samples, interval.column):
        return 0
    return cost_of(samples, interval.column, value - interval.high if value > interval.high else interval.low - value)


cdef inline int64_t cost_at(const Samples* samples, const Scratch* scratch, int32_t sample) noexcept nogil:
    """What a sample pays to be in the present node."""
    cdef int64_t total = 0
    cdef int32_t place
    for place in range(scratch.n_intervals):
        total += cost_in(samples, &scratch.intervals[place], sample)
    return total


cdef inline int _find_sides_in_norm(const Samples* samples, const TrainNode* split, const int32_t* entries, int32_t n,
                                    Scratch* scratch, Sides* sides) except -1 nogil:
    """The same as `find_sides`, with the intervals of the present node."""
    cdef const int32_t* codes = sides.codes
    cdef int32_t feature = split.feature, place = find_interval(scratch, column_of(samples, split.feature))
    cdef int32_t position, sample, code
    cdef int64_t total, paid
    cdef double value
    cdef bint is_left, to_left, to_right
    reserve(<void**> &scratch.narrowed, &scratch.narrowed_capacity, samples.n_samples, sizeof(int32_t))
    for position in range(n):
        sample = entries[position] >> 1
        code = codes[sample]
        is_left = code <= split.cut.left
        to_left = code <= split.cut.reach_left
        to_right = code > split.cut.reach_right
        if to_left and to_right:
            total = cost_at(samples, scratch, sample)
            if total > 0:
                paid = cost_in(samples, &scratch.intervals[place], sample) if place >= 0 else 0
                value = value_at(samples, feature, sample)
                if is_left:
                    to_right = total - paid + max(
                        paid, cost_of(samples, feature, split.threshold - value)) <= samples.budget
                else:
                    to_left = total - paid + max(
                        paid, cost_of(samples, feature, value - split.threshold)) <= samples.budget
        if to_left and to_right:
            scratch.narrowed[sample] = BOTH_FROM_LEFT if is_left else BOTH_FROM_RIGHT
        else:
            scratch.narrowed[sample] = ONLY_LEFT if to_left else ONLY_RIGHT
    sides.codes = scratch.narrowed
    sides.cut = RankCut(BOTH_FROM_LEFT, BOTH_FROM_RIGHT, ONLY_LEFT)
    return 0


cdef inline int find_sides(const Samples* samples, const TrainNode* nodes, int32_t node, const TrainNode* above,
                           int32_t above_node, const int32_t* entries, int32_t n, Scratch* scratch,
                           Sides* sides) except -1 nogil:
    """Which sides of a split the samples of a list reach; the path above it is that of `list_intervals`."""
    sides.codes = codes_at(samples, &nodes[node], entries, n, scratch)
    sides.cut = nodes[node].cut
    if has_norm(samples):
        list_intervals(samples, nodes, node, above, above_node, -1, scratch)
        if scratch.n_intervals > 0:
            _find_sides_in_norm(samples, &nodes[node], entries, n, scratch, sides)
    return 0


# Events of the sweep. Samples that have paid nothing have the same radii, so that their events have the order of their
# values. The others, which do not fall into the node, are sorted.

cdef inline Event* sort_events(Event* events, Event* spare, int32_t n) noexcept nogil:
    """Sort by place, keeping the order of equal ones; returns the array that holds the result."""
    cdef int32_t width = 16, start, middle, stop, left, right, position
    cdef Event event
    cdef Event* swapped
    start = 0
    while start < n:
        stop = min(start + width, n)
        for position in range(start + 1, stop):
            event = events[position]
            left = position
            while left > start and events[left - 1].at > event.at:
                events[left] = events[left - 1]
                left -= 1
            events[left] = event
        start = stop
    while width < n:
        start = 0
        while start < n:
            middle, stop = min(start + width, n), min(start + 2 * width, n)
            left, right = start, middle
            if middle == stop or events[middle - 1].at <= events[middle].at:
                memcpy(spare + start, events + start, (stop - start) * sizeof(Event))
                start = stop
                continue
            for position in range(start, stop):
                if left < middle and (right >= stop or events[left].at <= events[right].at):
                    spare[position] = events[left]
                    left += 1
                else:
                    spare[position] = events[right]
                    right += 1
            start = stop
        swapped = events
        events = spare
        spare = swapped
        width *= 2
    return events


cdef inline int list_payers(const Samples* samples, Scratch* scratch) except -1 nogil:
    """Put the listed samples that pay to be in the present node last, and find what they have left.

    Those with most left come first: of samples with the same value, their events are in order then.
    """
    cdef int32_t n = scratch.n_entries, position, entry, n_free = 0, n_payers = 0
    cdef int64_t total
    cdef Event* events
    list_present_intervals(samples, scratch)
    scratch.n_free = n
    if scratch.n_intervals == 0:
        return 0
    reserve_events(scratch, n)
    for position in range(n):
        entry = scratch.entries[position]
        total = 0 if entry & 1 else cost_at(samples, scratch, entry >> 1)
        if total > 0:
            scratch.events[n_payers] = Event(<double> total, entry)
            n_payers += 1
        else:
            scratch.entries[n_free] = entry
            n_free += 1
    events = sort_events(scratch.events, scratch.spare_events, n_payers)
    reserve(<void**> &scratch.rests, &scratch.rests_capacity, n_payers, sizeof(int64_t))
    reserve(<void**> &scratch.roots, &scratch.roots_capacity, n_payers, sizeof(double))
    for position in range(n_payers):
        scratch.entries[n_free + position] = <int32_t> events[position].key
        scratch.rests[position] = samples.budget - <int64_t> events[position].at
        scratch.roots[position] = root_of(samples, scratch.rests[position])
    scratch.n_free = n_free
    return 0


cdef inline int add_payers(const Samples* samples, int32_t feature, const Region* region, int32_t n_runs,
                           Scratch* scratch) except -1 nogil:
    """Add the samples that pay to the events of those that do not, which are listed as runs.

    `region` is that of a copy of a column with missing values, or NULL.
    """
    cdef int32_t n_free = scratch.n_free, n_payers = scratch.n_entries - n_free
    cdef int32_t position, sample, code, turn, run, payer
    cdef int32_t place = find_interval(scratch, column_of(samples, feature))
    cdef int64_t paid, first = samples.value_starts[feature]
    cdef double root, at, start = -INFINITY
    cdef Event* events
    cdef double* ends
    cdef const double* run_ends
    cdef int32_t* keys
    cdef int32_t* sums
    reserve_events(scratch, n_runs + n_payers)
    if region != NULL and region.low != -INFINITY:
        start = nextafter(region.low, INFINITY)
    for turn in range(2):
        for payer in range(n_payers):
            position = payer if turn == 0 else n_payers - 1 - payer
            sample = scratch.entries[n_free + position] >> 1
            code = samples.codes[<size_t> feature * samples.n_samples + sample]
            root = scratch.roots[position]
            if place >= 0:
                paid = cost_in(samples, &scratch.intervals[place], sample)
                if paid > 0:
                    root = root_of(samples, scratch.rests[position] + paid)
            at = samples.lower_ends[first + code] if turn == 0 else samples.upper_ends[first + code]
            if region == NULL or code != missing_rank(samples, feature):
                if turn == 0:
                    at = max(at, lowest_reached(samples, feature, samples.values[first + code], root), start)
                else:
                    at = min(at, highest_reached(samples, feature, samples.values[first + code], root))
                    if region != NULL:
                        at = min(at, region.high)
            scratch.events[payer] = Event(at, scratch.key_of[n_free + position])
        events = sort_events(scratch.events, scratch.spare_events, n_payers)
        ends, keys, sums, run_ends = scratch.paid_ends, scratch.paid_keys, scratch.paid_sums, scratch.lows
        if turn == 1:
            ends, keys, sums = (ends + scratch.paid_capacity, keys + scratch.paid_capacity,
                                sums + scratch.paid_capacity)
            run_ends = scratch.highs
        run, payer = 0, 0
        for position in range(n_runs + n_payers):
            if run < n_runs and (payer == n_payers or run_ends[run] <= events[payer].at):
                ends[position], keys[position] = run_ends[run], scratch.run_keys[run]
                sums[position] = scratch.run_sums[run]
                run += 1
            else:
                ends[position], keys[position] = events[payer].at, <int32_t> events[payer].key
                sums[position] = scratch.key_weight[keys[position]]
                payer += 1
        if turn == 0:
            scratch.low_ends, scratch.low_keys, scratch.low_sums = ends, keys, sums
        else:
            scratch.high_ends, scratch.high_keys, scratch.high_sums = ends, keys, sums
    scratch.n_sides = n_runs + n_payers
    return 0
