# A chapter of evolution.pyx: the samples of a node in the order of a feature, as runs of samples that behave alike.
#
# Between two neighbouring events (a sample's value x, or an end of its box) all thresholds are equivalent on the
# training data. Going upwards, a sample passes its three events in this order:
#
#     threshold   ----------- low ----------- x ----------- high ----------->
#     the box     right only   |          both sides         |   left only
#     the sample  on the right ............... | on the left ...............
#
# The three lists of events have the same order, so three cursors over one list sorted by x suffice. In the norms l0, l1
# and l2 the samples that do not fall into the node have radii of their own, and the lists are three; see norm.pxd.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from training.missing cimport Region, codes_at, find_codes, fit_events, is_copy, present_region
from training.norm cimport add_payers, has_norm
from training.scratch cimport Scratch, reserve_cells
from training.tree cimport HIGHEST_RANK, LOWEST_RANK, MIXED, NONE, Samples, TrainNode, Tree, weight_of


cdef inline double threshold_between(double low, double high) noexcept nogil:
    """The middle of [low, high), in float64: low <= k < high."""
    cdef double middle = low + (high - low) / 2
    return middle if low <= middle < high else low


cdef inline double range_of(const Samples* samples, int32_t feature) noexcept nogil:
    cdef int64_t first = samples.value_starts[feature], last = samples.value_starts[feature + 1] - 1
    if is_copy(samples, feature):
        first += samples.places[feature] == LOWEST_RANK
        last -= samples.places[feature] == HIGHEST_RANK
        if samples.values[first] == samples.values[last]:
            return 1.0
    return samples.values[last] - samples.values[first]


# Categories of a listed sample: the common prediction of the leaves outside the node that its box reaches.
cdef enum:
    FREE = 0            # it reaches none
    LOST = 1            # they differ: the sample is unstable whatever happens in this node
    FIRST_PREDICTION = 2    # from here on one category for each prediction


cdef enum:
    MOST_KEY_CELLS = 65536
    FEW_SORTED = 40     # samples: so few are sorted by insertion


cdef inline bint is_few(const Samples* samples, int64_t n_cells, const Scratch* scratch) noexcept nogil:
    """Whether keys are numbered by a table of so many cells; with several weights, only if it is small."""
    return n_cells <= MOST_KEY_CELLS and (samples.n_weights == 1 or n_cells <= 4 * <int64_t> scratch.n_entries + 256)


cdef inline int assign_keys(const Samples* samples, const Tree* tree, Scratch* scratch,
                            int32_t n_categories) except -1 nogil:
    """Number the combinations of category, label, membership and weight that occur among the listed samples.

    With very many labels or weights each sample has a number of its own. In a norm, key_counts are those of the samples
    that pay nothing.
    """
    cdef int32_t m = samples.n_labels, position, entry, label, prediction, category, n_keys = 0
    cdef int64_t n_cells = <int64_t> n_categories * 2 * m * samples.n_weights, cell
    cdef bint is_dense = is_few(samples, n_cells, scratch)
    if is_dense:
        reserve_cells(scratch, n_cells)
        for cell in range(n_cells):
            scratch.cells[cell] = -1
    for position in range(scratch.n_entries):
        entry = scratch.entries[position]
        label = samples.labels[entry >> 1]
        prediction = scratch.outside[entry >> 1]
        category = FREE if prediction == NONE else LOST if prediction == MIXED else FIRST_PREDICTION + prediction
        cell = (<int64_t> category * m + label) * 2 + (entry & 1)
        if samples.weights != NULL:
            cell = cell * samples.n_weights + samples.weight_numbers[entry >> 1]
        if is_dense and scratch.cells[cell] >= 0:
            scratch.key_of[position] = scratch.cells[cell]
            scratch.key_counts[scratch.cells[cell]] += 1
            continue
        if is_dense:
            scratch.cells[cell] = n_keys
        scratch.key_of[position] = n_keys
        scratch.key_counts[n_keys] = 1
        scratch.key_category[n_keys] = category
        scratch.key_label[n_keys] = label
        scratch.key_own[n_keys] = entry & 1
        scratch.key_weight[n_keys] = weight_of(samples, entry >> 1)
        n_keys += 1
    scratch.n_keys = n_keys
    if has_norm(samples):
        for position in range(scratch.n_free, scratch.n_entries):
            scratch.key_counts[scratch.key_of[position]] -= 1
    return 0


cdef inline int32_t list_events(const Samples* samples, int32_t feature, int32_t min_leaf,
                                Scratch* scratch) except -1 nogil:
    """Bring the listed samples into the order of a feature, see `_order_events`, with their boxes at the present node.

    In a norm these are the samples that pay nothing; the others are added to the first and to the last events. Returns 0
    if all samples have the same value, and possibly if no threshold leaves `min_leaf` samples on both sides.
    """
    cdef TrainNode here
    cdef Region region
    cdef int32_t n_runs, n_entries = scratch.n_entries
    cdef bint has_region = is_copy(samples, feature), has_payers = has_norm(samples) and scratch.n_free < n_entries
    if has_payers:
        scratch.n_entries = scratch.n_free
    if not has_region:
        if samples.byte_starts[feature] >= 0:
            n_runs = _order_few_values(samples, feature, samples.bytes + samples.byte_starts[feature], min_leaf, scratch)
        else:
            n_runs = _order_events(samples, feature, samples.codes + <size_t> feature * samples.n_samples, scratch)
    else:
        region = present_region(samples, feature, scratch)
        here.feature = feature
        find_codes(samples, feature, &region, &here)
        n_runs = _order_events(samples, feature,
                               codes_at(samples, &here, scratch.entries, scratch.n_entries, scratch), scratch)
        fit_events(samples, feature, &region, n_runs, scratch)
    scratch.n_entries = n_entries
    _weigh_runs(samples, n_runs, scratch)
    scratch.n_sides = n_runs
    scratch.low_ends, scratch.low_keys, scratch.low_sums = scratch.lows, scratch.run_keys, scratch.run_sums
    scratch.high_ends, scratch.high_keys, scratch.high_sums = scratch.highs, scratch.run_keys, scratch.run_sums
    if has_payers and n_runs > 0:
        add_payers(samples, feature, &region if has_region else NULL, n_runs, scratch)
    return n_runs


cdef inline void _weigh_runs(const Samples* samples, int32_t n_runs, Scratch* scratch) noexcept nogil:
    """Set run_sums."""
    cdef int32_t run
    if samples.weights == NULL:
        return
    scratch.run_sums = scratch.run_weights
    for run in range(n_runs):
        scratch.run_sums[run] = scratch.run_counts[run] * scratch.key_weight[scratch.run_keys[run]]


cdef inline void _sort_few(uint64_t* items, int32_t n) noexcept nogil:
    cdef int32_t position, place
    cdef uint64_t item
    for position in range(1, n):
        item = items[position]
        place = position
        while place > 0 and items[place - 1] > item:
            items[place] = items[place - 1]
            place -= 1
        items[place] = item


cdef inline uint64_t* sort_keys(Scratch* scratch, int32_t n, int32_t largest) noexcept nogil:
    """Sort the first n of scratch.keys by their ranks, the upper 32 bits, of which `largest` is the largest."""
    cdef uint64_t* source = scratch.keys
    cdef uint64_t* target = scratch.spare_keys
    cdef uint64_t key
    cdef int32_t[256] counters
    cdef int32_t position, digit, count, total, shift = 32
    if n <= FEW_SORTED:
        _sort_few(source, n)
        return source
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
    scratch.keys = source
    scratch.spare_keys = target
    return source


cdef inline int32_t _order_few_values(const Samples* samples, int32_t feature, const uint8_t* codes, int32_t min_leaf,
                                      Scratch* scratch) except -1 nogil:
    """What `_order_events` does, for a feature with at most 256 ranks; 0 also if fewer than min_leaf are above the lowest.

    The lowest rank is often that of most samples (the background of images). Samples that have it are what the others
    leave, a run for each key, and only the others are counted or sorted.
    """
    cdef int32_t n_keys = scratch.n_keys, n_above = 0, n_runs = 0, position, code, key_number, place, total, count
    cdef int32_t n_values = <int32_t> (samples.value_starts[feature + 1] - samples.value_starts[feature])
    cdef const double* values = samples.values + samples.value_starts[feature]
    cdef const double* lower_ends = samples.lower_ends + samples.value_starts[feature]
    cdef const double* upper_ends = samples.upper_ends + samples.value_starts[feature]
    cdef const int32_t* entries = scratch.entries
    cdef const int32_t* key_of = scratch.key_of
    cdef int32_t* run_keys = scratch.run_keys
    cdef int32_t* run_counts = scratch.run_counts
    cdef double* lows = scratch.lows
    cdef double* mids = scratch.mids
    cdef double* highs = scratch.highs
    cdef uint64_t* above = scratch.keys
    cdef int32_t* cells
    cdef int32_t[256] places
    cdef int64_t n_cells = <int64_t> n_values * n_keys
    cdef bint is_counted
    if n_values == 1:
        return 0
    for position in range(scratch.n_entries):
        code = codes[entries[position] >> 1]
        above[n_above] = (<uint64_t> code << 32) | <uint64_t> key_of[position]
        n_above += code > 0
    if n_above < max(min_leaf, 1):
        return 0
    is_counted = n_cells <= 2 * <int64_t> n_above
    reserve_cells(scratch, n_cells if is_counted else n_keys)
    cells = scratch.cells
    memcpy(cells, scratch.key_counts, n_keys * sizeof(int32_t))
    if is_counted:
        memset(cells + n_keys, 0, (n_cells - n_keys) * sizeof(int32_t))
        for position in range(n_above):
            key_number = <int32_t> <uint32_t> above[position]
            cells[key_number] -= 1
            cells[(above[position] >> 32) * n_keys + key_number] += 1
        for code in range(n_values):
            for key_number in range(n_keys):
                count = cells[code * n_keys + key_number]
                run_keys[n_runs] = key_number
                run_counts[n_runs] = count
                lows[n_runs] = lower_ends[code]
                mids[n_runs] = values[code]
                highs[n_runs] = upper_ends[code]
                n_runs += count > 0
        return n_runs if mids[0] < mids[n_runs - 1] else 0
    for position in range(n_above):
        cells[<uint32_t> above[position]] -= 1
    for key_number in range(n_keys):
        run_keys[n_runs] = key_number
        run_counts[n_runs] = cells[key_number]
        lows[n_runs] = lower_ends[0]
        mids[n_runs] = values[0]
        highs[n_runs] = upper_ends[0]
        n_runs += cells[key_number] > 0
    if n_above <= FEW_SORTED:
        _sort_few(above, n_above)
        for position in range(n_above):
            code = <int32_t> (above[position] >> 32)
            run_keys[n_runs] = <int32_t> <uint32_t> above[position]
            run_counts[n_runs] = 1
            lows[n_runs] = lower_ends[code]
            mids[n_runs] = values[code]
            highs[n_runs] = upper_ends[code]
            n_runs += 1
        return n_runs if mids[0] < mids[n_runs - 1] else 0
    memset(places, 0, n_values * sizeof(int32_t))
    for position in range(n_above):
        places[above[position] >> 32] += 1
    total = n_runs
    for code in range(1, n_values):
        count = places[code]
        places[code] = total
        total += count
    for position in range(n_above):
        code = <int32_t> (above[position] >> 32)
        place = places[code]
        places[code] += 1
        run_keys[place] = <int32_t> <uint32_t> above[position]
        run_counts[place] = 1
        lows[place] = lower_ends[code]
        mids[place] = values[code]
        highs[place] = upper_ends[code]
    return total if mids[0] < mids[total - 1] else 0


cdef inline int32_t _order_events(const Samples* samples, int32_t feature, const int32_t* codes,
                                  Scratch* scratch) except -1 nogil:
    """Bring the listed samples into the order of a feature; return the number of runs, 0 if all have the same value.

    Samples with the same value and the same key (scratch.key_of) behave alike in the sweep and form a run: run_keys and
    run_counts tell how many samples of which key, and lows, mids and highs where its three events are. A feature with
    few distinct values is counted, any other one sorted by radix.
    """
    cdef int32_t n = scratch.n_entries, n_keys = scratch.n_keys, position, code, smallest, largest
    cdef int32_t n_runs = 0, key_number
    cdef const double* values = samples.values + samples.value_starts[feature]
    cdef uint64_t* source = scratch.keys
    cdef int32_t* cells
    cdef const double* lower_ends = samples.lower_ends + samples.value_starts[feature]
    cdef const double* upper_ends = samples.upper_ends + samples.value_starts[feature]
    cdef int64_t n_cells = (samples.value_starts[feature + 1] - samples.value_starts[feature]) * n_keys
    if n_cells <= 2 * <int64_t> n:
        reserve_cells(scratch, n_cells)
        cells = scratch.cells
        memset(cells, 0, n_cells * sizeof(int32_t))
        # The lowest value is mostly that of the background: it is not counted one by one, but is what the others leave.
        for key_number in range(n_keys):
            cells[key_number] = scratch.key_counts[key_number]
        for position in range(n):
            code = codes[scratch.entries[position] >> 1]
            if code > 0:
                cells[code * n_keys + scratch.key_of[position]] += 1
        for code in range(1, <int32_t> (n_cells // n_keys)):
            for key_number in range(n_keys):
                cells[key_number] -= cells[code * n_keys + key_number]
        for code in range(<int32_t> (n_cells // n_keys)):
            for key_number in range(n_keys):
                if cells[code * n_keys + key_number] > 0:
                    scratch.run_keys[n_runs] = key_number
                    scratch.run_counts[n_runs] = cells[code * n_keys + key_number]
                    scratch.lows[n_runs] = lower_ends[code]
                    scratch.mids[n_runs] = values[code]
                    scratch.highs[n_runs] = upper_ends[code]
                    n_runs += 1
        return n_runs if scratch.mids[0] < scratch.mids[n_runs - 1] else 0
    smallest = codes[scratch.entries[0] >> 1]
    largest = smallest
    for position in range(n):
        code = codes[scratch.entries[position] >> 1]
        source[position] = (<uint64_t> code << 32) | <uint64_t> scratch.key_of[position]
        if code < smallest:
            smallest = code
        elif code > largest:
            largest = code
    if smallest == largest:
        return 0
    source = sort_keys(scratch, n, largest)
    for position in range(n):
        code = <int32_t> (source[position] >> 32)
        scratch.run_keys[position] = <int32_t> <uint32_t> source[position]
        scratch.run_counts[position] = 1
        scratch.lows[position] = lower_ends[code]
        scratch.mids[position] = values[code]
        scratch.highs[position] = upper_ends[code]
    return n


cdef inline double next_event(const double* lows, const double* mids, const double* highs, int32_t low, int32_t mid,
                              int32_t high, int32_t n_runs, int32_t n_sides) noexcept nogil:
    """The smallest event at or after three cursors, of which `high` has not reached the end."""
    cdef double event = highs[high]
    if mid < n_runs and mids[mid] < event:
        event = mids[mid]
    if low < n_sides and lows[low] < event:
        event = lows[low]
    return event
