# A chapter of evolution.pyx: features with missing values.
#
# A column in which values are or may become missing stands twice among the features: once with the missing value as the
# lowest rank, so that it goes left at every threshold, once as the highest rank, so that it goes right. A split of a copy
# is a threshold with a direction, and the sweep tries both directions as it tries all features. The box of a missing
# value is the missing rank alone.
#
# The tests above a node leave an interval of values of a column, its region, and tell whether missing values arrive. Two
# things depend on it:
#
# - A test that all values of the region pass on one side, and missing values on the other, tests whether the value is
#   missing. It is written as a test of the second copy with the threshold IS_MISSING. Without this a box could pass each
#   test on a path to a leaf that none of its points reaches.
# - A value that may be dropped is an interval and the missing rank. Where missing values arrive, a box also reaches the
#   side of the missing value; a sample whose interval has no value in the region is there as a missing value only, and
#   has the missing rank.

from libc.float cimport DBL_MAX  # noqa: the constants below are made of it
from libc.math cimport INFINITY, nextafter
from libc.stdint cimport int32_t, int64_t

from common.buffer cimport reserve
from training.scratch cimport Scratch
from training.tree cimport (
    HIGHEST_RANK, LOWER_END, LOWEST_RANK, UPPER_END, RankCut, Samples, TrainNode, Tree, last_left_rank, rank_cut,
)

cdef extern from *:
    """
    #define MISSING_VALUE DBL_MAX
    #define IS_MISSING (DBL_MAX / 2)
    #define LARGEST_VALUE (DBL_MAX / 4)
    """
    const double MISSING_VALUE      # of the highest rank; that of the lowest rank is its negative
    const double IS_MISSING         # a threshold between all values and the missing one
    const double LARGEST_VALUE      # of columns with missing values, and of the ends of boxes there


cdef struct Region:
    # Where the values of a column lie at a node: low < x <= high, and whether missing values arrive.
    double low
    double high
    bint may_miss


cdef inline bint is_copy(const Samples* samples, int32_t feature) noexcept nogil:
    """Whether the feature is a copy of a column with missing values."""
    return samples.twins != NULL and samples.twins[feature] >= 0


cdef inline int32_t missing_rank(const Samples* samples, int32_t feature) noexcept nogil:
    if samples.places[feature] == LOWEST_RANK:
        return 0
    return <int32_t> (samples.value_starts[feature + 1] - samples.value_starts[feature]) - 1


cdef inline Region whole_region() noexcept nogil:
    return Region(-INFINITY, INFINITY, True)


cdef inline void narrow_region(const Samples* samples, int32_t feature, const TrainNode* nodes, int32_t node,
                               Region* region) noexcept nogil:
    """Narrow the region of a column by the tests above a node."""
    cdef int32_t parent = nodes[node].parent
    while parent >= 0:
        narrow_by(samples, feature, &nodes[parent], nodes[parent].left == node, region)
        node = parent
        parent = nodes[node].parent


cdef inline void narrow_by(const Samples* samples, int32_t feature, const TrainNode* split, bint is_left,
                           Region* region) noexcept nogil:
    """Narrow the region of a column to one side of a split."""
    if split.feature != feature and split.feature != samples.twins[feature]:
        return
    if is_left:
        region.high = min(region.high, split.threshold)
    else:
        region.low = max(region.low, split.threshold)
    if (samples.places[split.feature] == LOWEST_RANK) != is_left:
        region.may_miss = False


cdef inline Region present_region(const Samples* samples, int32_t feature, const Scratch* scratch) noexcept nogil:
    """The region of a column at the node that was collected, or at the leaf of a template below it."""
    cdef Region region = whole_region()
    if scratch.template != NULL:
        narrow_region(samples, feature, scratch.template, scratch.template_node, &region)
    if scratch.n_path > 0:
        narrow_region(samples, feature, scratch.walked_tree.nodes, scratch.path[scratch.n_path], &region)
    return region


cdef inline void find_codes(const Samples* samples, int32_t feature, const Region* region,
                            TrainNode* split) noexcept nogil:
    """Set which ranks stand for a missing value in a region: boxes that have no value there."""
    split.is_narrowed = False
    if not (samples.droppable[feature] and region.may_miss) or (
            region.low == -INFINITY and region.high == INFINITY):
        return
    split.is_narrowed = True
    if region.low < region.high:
        split.low_code = last_left_rank(samples, feature, region.low, UPPER_END)
        split.high_code = last_left_rank(samples, feature, region.high, LOWER_END)
    else:
        split.low_code, split.high_code = 0, -1


cdef inline void find_cut(const Samples* samples, const Region* region, TrainNode* split) noexcept nogil:
    """Set the ranks of a split of a copy in a region, from its feature and threshold."""
    cdef int32_t n_ranks = <int32_t> (
        samples.value_starts[split.feature + 1] - samples.value_starts[split.feature])
    split.cut = rank_cut(samples, split.feature, split.threshold)
    find_codes(samples, split.feature, region, split)
    if not region.may_miss:
        return
    # A test whether the value is missing: no box of a value reaches the other side.
    if samples.places[split.feature] == LOWEST_RANK:
        if split.threshold <= region.low:
            split.cut = RankCut(0, 0, 0)
        if samples.droppable[split.feature]:
            split.cut.reach_left = n_ranks - 1
    else:
        if split.threshold >= region.high:
            split.cut = RankCut(n_ranks - 2, n_ranks - 2, n_ranks - 2)
        if samples.droppable[split.feature]:
            split.cut.reach_right = -1


cdef inline const int32_t* codes_at(const Samples* samples, const TrainNode* split, const int32_t* entries, int32_t n,
                                    Scratch* scratch) except NULL nogil:
    """Ranks of the samples of a list, by sample, in the feature of a split."""
    cdef const int32_t* codes = samples.codes + <size_t> split.feature * samples.n_samples
    cdef int32_t position, sample, missing
    if not split.is_narrowed:
        return codes
    reserve(<void**> &scratch.narrowed, &scratch.narrowed_capacity, samples.n_samples, sizeof(int32_t))
    missing = missing_rank(samples, split.feature)
    for position in range(n):
        sample = entries[position] >> 1
        scratch.narrowed[sample] = (
            codes[sample] if split.low_code < codes[sample] <= split.high_code else missing)
    return scratch.narrowed


cdef inline void fit_events(const Samples* samples, int32_t feature, const Region* region, int32_t n_runs,
                            Scratch* scratch) noexcept nogil:
    """Cut the boxes of the listed runs to the region, and extend those of values that may be dropped."""
    cdef bint is_lowest = samples.places[feature] == LOWEST_RANK
    cdef bint may_drop = samples.droppable[feature] and region.may_miss
    cdef double missing = -MISSING_VALUE if is_lowest else MISSING_VALUE
    cdef double start = region.low if region.low == -INFINITY else nextafter(region.low, INFINITY)
    cdef int32_t run
    for run in range(n_runs):
        if scratch.mids[run] != missing:
            scratch.lows[run] = max(scratch.lows[run], start)
            scratch.mids[run] = min(max(scratch.mids[run], start), region.high)
            scratch.highs[run] = min(scratch.highs[run], region.high)
        if may_drop:
            if is_lowest:
                scratch.lows[run] = -INFINITY
            else:
                scratch.highs[run] = INFINITY


cdef inline bint may_be_missing(const Samples* samples, int32_t feature, const Region* region, const int32_t* entries,
                                int32_t n) noexcept nogil:
    """Whether some sample of a list is or may become missing in a region."""
    cdef const int32_t* codes = samples.codes + <size_t> feature * samples.n_samples
    cdef int32_t position, missing = missing_rank(samples, feature)
    if not region.may_miss:
        return False
    if samples.droppable[feature]:
        return n > 0
    for position in range(n):
        if codes[entries[position] >> 1] == missing:
            return True
    return False


cdef inline bint settle_split(const Samples* samples, const int32_t* entries, int32_t n, int32_t own_left,
                              int32_t own_right, const Region* region, TrainNode* split) noexcept nogil:
    """Choose the copy and the ranks of a split for the samples of a list; return whether its sides change places.

    Where no sample is or may become missing, missing values go to the side with more samples. A test whether the value
    is missing becomes one of the second copy.
    """
    cdef bint is_lowest = samples.places[split.feature] == LOWEST_RANK
    cdef bint swaps = False
    if not may_be_missing(samples, split.feature, region, entries, n):
        if is_lowest != (own_left >= own_right):
            split.feature = samples.twins[split.feature]
    elif is_lowest and split.threshold <= max(region.low, -LARGEST_VALUE):
        split.feature, split.threshold = samples.twins[split.feature], IS_MISSING
        swaps = True
    elif not is_lowest and split.threshold >= min(region.high, LARGEST_VALUE):
        split.threshold = IS_MISSING
    find_cut(samples, region, split)
    return swaps
