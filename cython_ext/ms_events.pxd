# The samples of a node in the order of a feature, as runs of samples that behave alike.
#
# Between two neighbouring events (a sample's value x, or an end of its box) all thresholds are equivalent on the training
# data. Going upwards, a sample passes its three events in this order:
#
#     threshold   ----------- low ----------- x ----------- high ----------->
#     the box     right only   |          both sides         |   left only
#     the sample  on the right ............... | on the left ...............
#
# The three lists of events have the same order, so one order by x and three cursors are enough.

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from ms_box cimport lower_bound, upper_bound
from ms_samples cimport Samples
from ms_tree cimport MIXED, NONE, Tree
from ms_workspace cimport Workspace, reserve_cells


cdef inline double threshold_between(double low, double high) noexcept nogil:
    """The middle of [low, high), in float64: low <= k < high."""
    cdef double middle = low + (high - low) / 2
    return middle if low <= middle < high else low


cdef inline double range_of(const Samples* samples, int32_t feature) noexcept nogil:
    return (samples.values[samples.value_starts[feature + 1] - 1] - samples.values[samples.value_starts[feature]])


# Categories of a listed sample: what the leaves outside the node answer for it.
cdef enum:
    FREE = 0            # it reaches none of them
    LOST = 1            # different answers: unstable whatever happens here
    FIRST_ANSWER = 2    # from here on one category for each answer


cdef enum:
    MOST_KEY_CELLS = 65536


cdef inline int assign_keys(const Samples* samples, const Tree* tree, Workspace* space, int32_t n_categories) except -1 nogil:
    """Number the combinations of category, label and membership that occur among the listed samples.

    With very many labels each sample gets a number of its own.
    """
    cdef int32_t m = samples.n_labels, position, entry, label, answer, category, n_keys = 0
    cdef int64_t n_cells = <int64_t> n_categories * 2 * m, cell
    cdef bint is_dense = n_cells <= MOST_KEY_CELLS
    if is_dense:
        reserve_cells(space, n_cells)
        for cell in range(n_cells):
            space.cells[cell] = -1
    for position in range(space.n_entries):
        entry = space.entries[position]
        label = samples.labels[entry >> 1]
        answer = space.outside[entry >> 1]
        category = FREE if answer == NONE else LOST if answer == MIXED else FIRST_ANSWER + answer
        cell = (<int64_t> category * m + label) * 2 + (entry & 1)
        if is_dense and space.cells[cell] >= 0:
            space.key_of[position] = space.cells[cell]
            continue
        if is_dense:
            space.cells[cell] = n_keys
        space.key_of[position] = n_keys
        space.key_category[n_keys] = category
        space.key_label[n_keys] = label
        space.key_own[n_keys] = entry & 1
        n_keys += 1
    space.n_keys = n_keys
    return 0


cdef inline int32_t list_events(const Samples* samples, int32_t feature, Workspace* space) except -1 nogil:
    """Bring the listed samples into the order of a feature; return the number of runs, 0 if all have the same value.

    Samples with the same value and the same key (space.key_of) behave alike in the sweep and form a run: run_keys and
    run_counts say how many of which key, lows, mids, highs where its three events are. A feature with few distinct values
    (pixels) is counted, any other one sorted by radix.
    """
    cdef int32_t n = space.n_entries, n_keys = space.n_keys, position, code, smallest, largest, shift, digit, total, count
    cdef int32_t n_runs = 0, key_number
    cdef const int32_t* codes = samples.codes + <size_t> feature * samples.n_samples
    cdef const double* values = samples.values + samples.value_starts[feature]
    cdef uint64_t key
    cdef uint64_t* source = space.keys
    cdef uint64_t* target = space.spare_keys
    cdef int32_t[256] counters
    cdef int32_t* cells
    cdef double value, low, high
    cdef double down = samples.radius_down[feature], up = samples.radius_up[feature]
    cdef double minimum = samples.minimum[feature], maximum = samples.maximum[feature]
    cdef int64_t n_cells = (samples.value_starts[feature + 1] - samples.value_starts[feature]) * n_keys
    if n_cells <= 2 * <int64_t> n:
        reserve_cells(space, n_cells)
        cells = space.cells
        memset(cells, 0, n_cells * sizeof(int32_t))
        for position in range(n):
            cells[codes[space.entries[position] >> 1] * n_keys + space.key_of[position]] += 1
        for code in range(<int32_t> (n_cells // n_keys)):
            value = values[code]
            low = lower_bound(value, down, minimum)
            high = upper_bound(value, up, maximum)
            for key_number in range(n_keys):
                if cells[code * n_keys + key_number] > 0:
                    space.run_keys[n_runs] = key_number
                    space.run_counts[n_runs] = cells[code * n_keys + key_number]
                    space.lows[n_runs] = low
                    space.mids[n_runs] = value
                    space.highs[n_runs] = high
                    n_runs += 1
        return n_runs if space.mids[0] < space.mids[n_runs - 1] else 0
    smallest = codes[space.entries[0] >> 1]
    largest = smallest
    for position in range(n):
        code = codes[space.entries[position] >> 1]
        source[position] = (<uint64_t> code << 32) | <uint64_t> space.key_of[position]
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
    for position in range(n):
        value = values[source[position] >> 32]
        space.run_keys[position] = <int32_t> <uint32_t> source[position]
        space.run_counts[position] = 1
        space.lows[position] = lower_bound(value, down, minimum)
        space.mids[position] = value
        space.highs[position] = upper_bound(value, up, maximum)
    return n
