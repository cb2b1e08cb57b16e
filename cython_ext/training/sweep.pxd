# A chapter of evolution.pyx: the best split of a leaf. One sweep over each feature scores the tree with every possible
# split.
#
# The chapters of the trainer are headers so that one unit is compiled: helpers of a few instructions (criteria, merging
# predictions, buffers) are inlined into loops over samples across chapters. Measured on breast-cancer: with calls in
# the place of inlining a training takes 23 % more instructions.
#
# Everything that depends on the threshold is kept in counters that an event changes (see below). The score of the whole
# candidate tree follows from the counters.

from libc.math cimport log, sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from training.tree cimport HIGHEST_RANK, LOWEST_RANK, MIXED, NONE, Samples, TrainNode, Tree, known_tie, weight_of
from training.missing cimport Region, codes_at, find_codes, fit_events, is_copy, present_region
from training.norm cimport add_payers, has_norm, list_payers
from training.scratch cimport FEW_SWEPT, MANY_SWEPT, Scratch, reserve_cells, reserve_tables


# What a split is worth: the score of the whole tree, the decrease of impurity, the width of the interval of thresholds.

cdef enum Impurity:
    GINI
    ENTROPY
    EXPONENTIAL         # exponential loss with the best value of each leaf, see worst_side_loss

cdef struct Weights:
    # The score of a tree is correct * its correct samples + stable * its stable samples + robust * its robust samples.
    double correct
    double stable
    double robust

cdef struct Criterion:
    bint by_score       # the score of the whole tree decides, impurity breaks ties; else the other way round
    double reach        # weight of the impurity of reach sets against that of the samples themselves
    Impurity impurity

cdef struct Split:
    int32_t feature     # < 0: none found
    double threshold
    double score        # of the whole tree with this split
    double gain         # decrease of the blended impurity, in samples
    double width        # of the interval of equivalent thresholds, as a fraction of the feature's range


cdef inline double score_of(const Weights* weights, int64_t correct, int64_t stable, int64_t robust) noexcept nogil:
    return weights.correct * correct + weights.stable * stable + weights.robust * robust


cdef inline bint is_better(const Criterion* criterion, const Split* a, const Split* b) noexcept nogil:
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


cdef inline double mass_of(Impurity impurity, double count) noexcept nogil:
    """What a class of this size subtracts from the impurity of a node; see impurity_of."""
    if impurity == ENTROPY:
        return count * log(count) if count > 0 else 0.0
    return count * count


cdef inline double mass_change(Impurity impurity, int32_t size, int32_t more) noexcept nogil:
    """Change of mass_of when a class of this size gets `more` samples."""
    if impurity == ENTROPY:
        return mass_of(impurity, size + more) - mass_of(impurity, size)
    return <double> more * (2.0 * size + more)


cdef inline double impurity_of(Impurity impurity, double total, double mass, double unit) noexcept nogil:
    """Impurity of a node times its number of samples; `unit` scales entropy to the base of the number of labels."""
    if total <= 0:
        return 0.0
    if impurity == ENTROPY:
        return (total * log(total) - mass) * unit
    return total - mass / total


cdef inline double blend(const Criterion* criterion, double own, double reach) noexcept nogil:
    return (1 - criterion.reach) * own + criterion.reach * reach


# Exponential loss. A leaf whose samples weigh `p` for a class and `q` against it has the loss 2 sqrt(p q) with its best
# value, 0.5 log(p / q). A sample counts with weight 1 - reach where it lies, and with weight reach on the worst side that
# its box reaches: the one with the lower value if the sample is of the class, the other one if not. Several classes: the
# sum over one against all.

cdef inline double leaf_loss(double p, double q) noexcept nogil:
    return 2 * sqrt(p * q)


cdef inline double exponential_loss(double reach, const int32_t* own, const int32_t* reached, int32_t n_own,
                                    int32_t n_reached, int32_t m) noexcept nogil:
    """Loss of a leaf that is not split."""
    cdef double total = (1 - reach) * n_own + reach * n_reached, loss = 0, p
    cdef int32_t label
    for label in range(m - (m == 2)):
        p = (1 - reach) * own[label] + reach * reached[label]
        loss += leaf_loss(p, total - p)
    return loss


cdef inline double worst_side_loss(double reach, const int32_t* tables, int32_t m, int32_t left_size, int32_t right_size,
                                   int32_t left_reach, int32_t right_reach, int32_t n_reached) noexcept nogil:
    """Loss of the two sides of a split; that of the leaf as it is where no order of the two values is consistent.

    `tables` are class counts: of the samples and of the reach set of the leaf, of the samples on the left and on the
    right, of the reach sets on the left and on the right.
    """
    cdef const int32_t* own_total = tables
    cdef const int32_t* reach_total = tables + m
    cdef const int32_t* own_left = tables + 2 * m
    cdef const int32_t* own_right = tables + 3 * m
    cdef const int32_t* reach_left = tables + 4 * m
    cdef const int32_t* reach_right = tables + 5 * m
    cdef double own_weight = 1 - reach, loss = 0, least, p_left, q_left, p_right, q_right, p, found
    cdef int32_t label, n_own = left_size + right_size
    for label in range(m - (m == 2)):
        p = own_weight * own_total[label] + reach * reach_total[label]
        least = leaf_loss(p, own_weight * n_own + reach * n_reached - p)
        # The left value is the lower one: samples of the class that reach both sides count on the left, others right.
        p_left = own_weight * own_left[label] + reach * reach_left[label]
        q_left = own_weight * (left_size - own_left[label]) + reach * (
            n_reached - right_reach - reach_total[label] + reach_right[label])
        p_right = own_weight * own_right[label] + reach * (reach_total[label] - reach_left[label])
        q_right = own_weight * (right_size - own_right[label]) + reach * (right_reach - reach_right[label])
        if p_left * q_right <= p_right * q_left:
            found = leaf_loss(p_left, q_left) + leaf_loss(p_right, q_right)
            if found < least:
                least = found
        # The other way round.
        p_left = own_weight * own_left[label] + reach * (reach_total[label] - reach_right[label])
        q_left = own_weight * (left_size - own_left[label]) + reach * (left_reach - reach_left[label])
        p_right = own_weight * own_right[label] + reach * reach_right[label]
        q_right = own_weight * (right_size - own_right[label]) + reach * (
            n_reached - left_reach - reach_total[label] + reach_left[label])
        if p_left * q_right >= p_right * q_left:
            found = leaf_loss(p_left, q_left) + leaf_loss(p_right, q_right)
            if found < least:
                least = found
        loss += least
    return loss


cdef inline double gain_of(const Criterion* criterion, double before, double unit, const int32_t* tables, int32_t m,
                           int32_t left_size, int32_t right_size, int32_t left_reach, int32_t right_reach,
                           int32_t n_reached, double left_mass, double right_mass, double reach_left_mass,
                           double reach_right_mass) noexcept nogil:
    """Decrease of the blended impurity, or of the loss, by a split; `before` is that of the leaf."""
    cdef Impurity impurity = criterion.impurity
    if impurity == EXPONENTIAL:
        return before - worst_side_loss(
            criterion.reach, tables, m, left_size, right_size, left_reach, right_reach, n_reached)
    return before - blend(
        criterion,
        impurity_of(impurity, left_size, left_mass, unit) + impurity_of(impurity, right_size, right_mass, unit),
        impurity_of(impurity, left_reach, reach_left_mass, unit)
        + impurity_of(impurity, right_reach, reach_right_mass, unit),
    )


# Events: the samples of a node in the order of a feature, as runs of samples that behave alike.
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
    cdef uint64_t item
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
        for position in range(1, n_above):
            item = above[position]
            place = position
            while place > 0 and above[place - 1] > item:
                above[place] = above[place - 1]
                place -= 1
            above[place] = item
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
    cdef int32_t n = scratch.n_entries, n_keys = scratch.n_keys, position, code, smallest, largest, shift, digit
    cdef int32_t total, count
    cdef int32_t n_runs = 0, key_number
    cdef const double* values = samples.values + samples.value_starts[feature]
    cdef uint64_t key
    cdef uint64_t* source = scratch.keys
    cdef uint64_t* target = scratch.spare_keys
    cdef int32_t[256] counters
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
    if n <= FEW_SORTED:
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
    scratch.keys = source
    scratch.spare_keys = target
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


# With many samples, a part of the samples and of the thresholds tells which features are promising. These are then looked
# at with all samples. Chosen by cross-validation on training rows: quality does not depend on it, the time does.
cdef enum:
    LEAST_PART = 2048           # samples
    PART_VALUES = 1 << 19       # samples times features
    COARSE_THRESHOLDS = 128     # of each feature, on the part
    MOST_THRESHOLDS = 4096      # of a feature, on all samples
    FINALISTS = 3               # features
    FEW_FEATURES = 8            # so many are all looked at with all samples


cdef inline int32_t part_size(int32_t n, int32_t n_features) noexcept nogil:
    """Number of samples of the part: fewer if there are many features to look at."""
    return min(n, max(<int32_t> LEAST_PART, min(<int32_t> MANY_SWEPT, PART_VALUES // n_features)))


cdef inline void take_part(const int32_t* entries, int32_t n, int32_t size, int32_t* part) noexcept nogil:
    """Take `size` of n entries, at equal distances."""
    cdef int32_t position
    for position in range(size):
        part[position] = entries[<int64_t> position * n // size]


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
    cdef int32_t n = scratch.n_entries, position, least
    cdef int32_t* entries = scratch.entries
    cdef int32_t[FINALISTS] promising
    cdef Split[FINALISTS] finalists
    if n <= FEW_SWEPT or n_features <= FEW_FEATURES:
        return sweep_features(samples, tree, scratch, features, n_features, criterion, weights, min_leaf,
                              MOST_THRESHOLDS, best, 1)
    scratch.entries = scratch.part
    scratch.n_entries = part_size(n, n_features)
    take_part(entries, n, scratch.n_entries, scratch.part)
    least = <int32_t> (<int64_t> min_leaf * scratch.n_entries // n)
    try:
        sweep_features(samples, tree, scratch, features, n_features, criterion, weights, max(least, 1),
                       COARSE_THRESHOLDS, finalists, FINALISTS)
    finally:
        scratch.entries = entries
        scratch.n_entries = n
    n_features = 0
    for position in range(FINALISTS):
        if finalists[position].feature >= 0:
            promising[n_features] = finalists[position].feature
            n_features += 1
    return sweep_features(samples, tree, scratch, promising, n_features, criterion, weights, min_leaf, MOST_THRESHOLDS,
                          best, 1)
