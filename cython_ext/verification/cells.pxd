# A chapter of forest_search.pyx: the box that remains after cuts, as cells of each feature, with its table groups,
# and the intersection of leaves that were chosen one after another.
#
# This is a header for the same reason as leaf_sets.pxd: its functions are inlined into the search.
#
# Cells of a feature lie between its thresholds and are numbered from 0. A member of a group has one cell for 0, and the
# next one for 1 where some threshold lies between.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free

from common.buffer cimport reserve
from common.node cimport is_missing
from common.table cimport Tables, can_be, fill_options, has_options, keep_options
from verification.leaf_sets cimport ALL_CELLS, NO_CELL, Constraint, LeafSets, Reached, cut_leaves


# The intersection of the chosen leaves, and candidates for cuts that separate other leaves from it.

cdef struct CellCut:
    # One side of a threshold.
    int32_t feature
    int32_t cut
    bint is_left

cdef struct CommonRange:
    # Cells of one feature in the intersection; valid if the stamp is that of the intersection.
    int64_t stamp
    int32_t low
    int32_t high
    bint is_missing         # samples without a value are in the intersection too
    int64_t cut_stamp
    int32_t first_cut
    int32_t last_cut

cdef struct Intersection:
    int64_t stamp
    CommonRange* ranges     # by feature
    CellCut* cuts           # candidates
    size_t cut_capacity
    int32_t n_cuts
    int32_t n_features      # of samples, without those that tell which ones are missing
    bint has_missing


cdef inline int reserve_intersection(Intersection* intersection, int32_t n_features,
                                     bint has_missing) except -1 nogil:
    """Allocate the buffers whose size depends on the forest alone."""
    intersection.n_features, intersection.has_missing = n_features, has_missing
    intersection.ranges = <CommonRange*> calloc(n_features * (1 + has_missing) + 1, sizeof(CommonRange))
    if intersection.ranges == NULL:
        with gil:
            raise MemoryError()
    return 0


cdef inline void free_intersection(Intersection* intersection) noexcept nogil:
    free(intersection.ranges)
    free(intersection.cuts)


cdef inline void begin_intersection(Intersection* intersection) noexcept nogil:
    """Start without leaves and cuts."""
    intersection.stamp += 1
    intersection.n_cuts = 0


cdef inline bint intersects(Intersection* intersection, Reached* reached, int32_t leaf) noexcept nogil:
    """Whether a leaf has a point in common with those chosen so far."""
    cdef int32_t d
    cdef Constraint* constraint
    cdef CommonRange* known
    for d in range(reached.constraint_start[leaf], reached.constraint_start[leaf + 1]):
        constraint = &reached.constraints[d]
        known = &intersection.ranges[constraint.feature]
        if known.stamp == intersection.stamp and (constraint.low > known.high or constraint.high < known.low):
            if not (constraint.is_missing and known.is_missing):
                return False
    return True


cdef inline void intersect_with(Intersection* intersection, Reached* reached, int32_t leaf, const int32_t* low,
                              const int32_t* high) noexcept nogil:
    """Narrow the intersection, inside the box low..high, to one more leaf."""
    cdef int32_t d, f
    cdef Constraint* constraint
    cdef CommonRange* known
    for d in range(reached.constraint_start[leaf], reached.constraint_start[leaf + 1]):
        constraint = &reached.constraints[d]
        f = constraint.feature
        known = &intersection.ranges[f]
        if known.stamp != intersection.stamp:
            known.stamp = intersection.stamp
            known.low = max(low[f], constraint.low)
            known.high = min(high[f], constraint.high)
            # Only leaves of boxes with missing values have such constraints.
            known.is_missing = constraint.is_missing and high[intersection.n_features + f] == 1
        else:
            known.low = max(known.low, constraint.low)
            known.high = min(known.high, constraint.high)
            known.is_missing &= constraint.is_missing
            if known.is_missing and known.low > known.high:
                # Samples without a value are all that is left; no leaf has a value in common with them.
                known.low, known.high = ALL_CELLS, NO_CELL


cdef inline int propose(Intersection* intersection, int32_t feature, int32_t cut) except -1 nogil:
    """Add a cut to the candidates; one that was just added is not added again."""
    cdef CommonRange* known = &intersection.ranges[feature]
    if known.cut_stamp == intersection.stamp:
        if known.first_cut == cut or known.last_cut == cut:
            return 0
    else:
        known.cut_stamp = intersection.stamp
        known.first_cut = cut
    known.last_cut = cut
    reserve(<void**> &intersection.cuts, &intersection.cut_capacity, intersection.n_cuts + 1, sizeof(CellCut))
    intersection.cuts[intersection.n_cuts] = CellCut(feature, cut, True)
    intersection.n_cuts += 1
    return 0


cdef inline int propose_between(Intersection* intersection, Reached* reached, int32_t leaf, const int32_t* low,
                                const int32_t* high) except -1 nogil:
    """Candidates for cuts of the box low..high between the intersection and a leaf that does not intersect it."""
    cdef int32_t d, f
    cdef Constraint* constraint
    cdef CommonRange* known
    for d in range(reached.constraint_start[leaf], reached.constraint_start[leaf + 1]):
        constraint = &reached.constraints[d]
        known = &intersection.ranges[constraint.feature]
        if known.stamp != intersection.stamp:
            continue
        if intersection.has_missing and (constraint.low > known.high or constraint.high < known.low):
            f = intersection.n_features + constraint.feature
            if constraint.is_missing and known.is_missing:
                continue
            if low[f] < high[f]:
                propose(intersection, f, 0)
                continue
        if constraint.low > known.high:
            propose(intersection, constraint.feature, known.high)
            propose(intersection, constraint.feature, constraint.low - 1)
        elif constraint.high < known.low:
            propose(intersection, constraint.feature, constraint.high)
            propose(intersection, constraint.feature, known.low - 1)
    return 0


cdef struct SavedCells:
    # Cells of a feature as they were before a cut.
    int32_t feature
    int32_t low
    int32_t high

cdef struct CellBox:
    int32_t n_features
    bint has_missing            # features are or may be missing, and there are features that tell which
    Tables tables               # table groups
    # By feature.
    int32_t* cells              # buffer of the seven arrays of cells and of group_of
    int32_t* group_of
    int32_t* merged_low         # of members of groups: the cell of 0
    int32_t* merged_high        # and the one that 1 would be in by its thresholds
    int32_t* row_low            # of the whole box
    int32_t* row_high
    int32_t* low                # of what is left
    int32_t* high
    int32_t* values             # of features that may be missing, two numbers for each, see leaf_sets.pxd
    double* lower               # bounds of the whole box; NaN if the feature is or may be missing
    double* upper
    double* table               # bounds of values of features that may be missing, two numbers for each; or NULL
    # By group: the options that the whole box holds, and whether no member can be both 0 and 1 there.
    uint64_t* options
    uint64_t* remaining         # space for a set of options
    uint8_t* is_decided
    SavedCells* saved
    size_t saved_capacity
    size_t n_saved


cdef inline int reserve_cell_box(CellBox* box, int32_t n_features, bint has_missing,
                                 const Tables* tables) except -1 nogil:
    """Allocate the buffers whose size depends on the forest alone."""
    cdef int32_t group, place, f
    cdef size_t n = max(n_features, 1) * (1 + <size_t> has_missing)
    box.has_missing = has_missing
    box.n_features, box.tables = n_features, tables[0]
    box.cells = <int32_t*> calloc(8 * n, sizeof(int32_t))
    box.lower = <double*> calloc(3 * n, sizeof(double))
    box.is_decided = <uint8_t*> calloc(<size_t> tables.n_groups + 1, sizeof(uint8_t))
    box.options = <uint64_t*> calloc((<size_t> tables.n_groups + 1) * (tables.n_words + 1), sizeof(uint64_t))
    if box.cells == NULL or box.lower == NULL or box.is_decided == NULL or box.options == NULL:
        with gil:
            raise MemoryError()
    box.group_of, box.merged_low, box.merged_high = box.cells, box.cells + n, box.cells + 2 * n
    box.row_low, box.row_high = box.cells + 3 * n, box.cells + 4 * n
    box.low, box.high = box.cells + 5 * n, box.cells + 6 * n
    box.values = box.cells + 7 * n
    box.upper = box.lower + n
    box.table = box.lower + 2 * n if has_missing else NULL
    box.remaining = box.options + <size_t> tables.n_groups * tables.n_words
    for f in range(<int32_t> n):
        box.group_of[f] = -1
    for group in range(tables.n_groups):
        for place in range(tables.group_starts[group], tables.group_starts[group + 1]):
            box.group_of[tables.members[place]] = group
    return 0


cdef inline void free_cell_box(CellBox* box) noexcept nogil:
    free(box.cells)
    free(box.lower)
    free(box.options)
    free(box.is_decided)
    free(box.saved)


cdef inline int32_t _cell(const double* thresholds, int32_t n_thresholds, double value) noexcept nogil:
    """Number of thresholds of a feature that are below a value."""
    cdef int32_t first = 0, last = n_thresholds, middle
    while first < last:
        middle = (first + last) // 2
        if thresholds[middle] < value:
            first = middle + 1
        else:
            last = middle
    return first


cdef inline bint _set_missing_cells(CellBox* box, int32_t f, const double* own, int32_t n_thresholds) noexcept nogil:
    """Find the cells of a feature that is or may be missing; False for other features."""
    cdef int32_t presence = box.n_features + f
    box.row_low[presence] = box.row_high[presence] = 0
    if not is_missing(box.lower[f]):
        return False
    box.row_high[presence] = 1
    if is_missing(box.table[2 * f]):
        box.row_low[f], box.row_high[f] = ALL_CELLS, NO_CELL
        box.row_low[presence] = 1
    else:
        box.row_low[f] = _cell(own, n_thresholds, box.table[2 * f])
        box.row_high[f] = _cell(own, n_thresholds, box.table[2 * f + 1])
    return True


cdef inline void open_cells(CellBox* box) noexcept nogil:
    """Give features that are or may be missing the cells with which a walk starts; see leaf_sets.pxd."""
    cdef int32_t f
    reset_cells(box)
    for f in range(box.n_features):
        if box.row_high[box.n_features + f] == 1:
            box.values[2 * f], box.values[2 * f + 1] = box.row_low[f], box.row_high[f]
            box.low[f], box.high[f] = NO_CELL, ALL_CELLS


cdef inline void set_cells(CellBox* box, const double* thresholds, const int32_t* starts) noexcept nogil:
    """Find the cells of the box."""
    cdef int32_t f, n_thresholds, zero
    cdef const double* own
    for f in range(box.n_features):
        n_thresholds = starts[f + 1] - starts[f]
        if n_thresholds == 0:
            continue
        own = thresholds + starts[f]
        if box.has_missing:
            if _set_missing_cells(box, f, own, n_thresholds):
                continue
        if box.group_of[f] < 0:
            box.row_low[f] = _cell(own, n_thresholds, box.lower[f])
            box.row_high[f] = _cell(own, n_thresholds, box.upper[f])
            continue
        zero = _cell(own, n_thresholds, 0.0)
        box.merged_low[f] = zero
        box.merged_high[f] = _cell(own, n_thresholds, 1.0)
        box.row_low[f] = zero + (zero < box.merged_high[f] and box.lower[f] == 1.0)
        box.row_high[f] = zero + (zero < box.merged_high[f] and box.upper[f] == 1.0)


cdef inline void reset_cells(CellBox* box) noexcept nogil:
    """Restore the whole box."""
    cdef int32_t f
    for f in range(box.n_features * (1 + box.has_missing)):
        box.low[f] = box.row_low[f]
        box.high[f] = box.row_high[f]
    box.n_saved = 0


# Cuts.


cdef inline void narrow(CellBox* box, LeafSets* sets, Reached* reached, CellCut cut) noexcept nogil:
    cdef int32_t f = cut.feature
    box.saved[box.n_saved] = SavedCells(f, box.low[f], box.high[f])
    box.n_saved += 1
    if cut.is_left:
        box.high[f] = cut.cut
    else:
        box.low[f] = cut.cut + 1
    cut_leaves(sets, reached, f, cut.cut, cut.is_left)


cdef inline bint apply_cut(CellBox* box, LeafSets* sets, Reached* reached, CellCut cut) noexcept nogil:
    """Cut the box; False if no admissible point remains."""
    narrow(box, sets, reached, cut)
    return box.group_of[cut.feature] < 0 or _propagate_group(box, sets, reached, cut.feature)


cdef inline void undo_narrowing(CellBox* box, size_t n_saved) noexcept nogil:
    """Restore the cells as they were when so many ranges had been saved."""
    while box.n_saved > n_saved:
        box.n_saved -= 1
        box.low[box.saved[box.n_saved].feature] = box.saved[box.n_saved].low
        box.high[box.saved[box.n_saved].feature] = box.saved[box.n_saved].high


# Table groups.


cdef inline bint restrict_group(CellBox* box, int32_t group, const uint64_t* allowed) noexcept nogil:
    """Restrict the members of a group to their values in the options of the box; False if it holds no option."""
    cdef const Tables* tables = &box.tables
    cdef uint64_t* options = box.options + <size_t> group * tables.n_words
    cdef int32_t place, f
    if not fill_options(tables, group, allowed, box.lower, box.upper, options):
        return False
    box.is_decided[group] = True
    for place in range(tables.group_starts[group], tables.group_starts[group + 1]):
        f = tables.members[place]
        box.lower[f] = not can_be(tables, place, False, options)
        box.upper[f] = can_be(tables, place, True, options)
        if box.lower[f] < box.upper[f]:
            box.is_decided[group] = False
    return True


cdef inline void _start_remaining(CellBox* box, int32_t group) noexcept nogil:
    """Let all options of the whole box remain."""
    cdef int32_t i
    for i in range(box.tables.n_words):
        box.remaining[i] = box.options[<size_t> group * box.tables.n_words + i]


cdef inline bint _is_tested(const CellBox* box, int32_t f) noexcept nogil:
    """Whether a threshold lies between 0 and 1, the values of a member of a group."""
    return box.merged_low[f] < box.merged_high[f]


cdef inline void _keep_in_cells(CellBox* box, int32_t place, int32_t low, int32_t high) noexcept nogil:
    """Keep the remaining options whose member at a place lies in the cells low..high."""
    cdef int32_t f = box.tables.members[place]
    if low > box.merged_low[f]:
        keep_options(&box.tables, place, True, box.remaining)
    elif high <= box.merged_low[f]:
        keep_options(&box.tables, place, False, box.remaining)


cdef inline bint _propagate_group(CellBox* box, LeafSets* sets, Reached* reached, int32_t f) noexcept nogil:
    """Restrict the other members after one member of a group became 0 or 1; False if no option remains."""
    cdef int32_t group = box.group_of[f], place, other
    cdef const Tables* tables = &box.tables
    if box.is_decided[group]:
        return True
    _start_remaining(box, group)
    for place in range(tables.group_starts[group], tables.group_starts[group + 1]):
        other = tables.members[place]
        if _is_tested(box, other):
            _keep_in_cells(box, place, box.low[other], box.high[other])
    if not has_options(box.remaining, tables.n_words):
        return False
    for place in range(tables.group_starts[group], tables.group_starts[group + 1]):
        other = tables.members[place]
        if box.low[other] < box.high[other]:
            if not can_be(tables, place, True, box.remaining):
                narrow(box, sets, reached, CellCut(other, box.merged_low[other], True))
            elif not can_be(tables, place, False, box.remaining):
                narrow(box, sets, reached, CellCut(other, box.merged_low[other], False))
    return True


cdef inline int propose_group_cuts(CellBox* box, Intersection* intersection) except -1 nogil:
    """Propose cuts where no option of a group lies in the intersection of the chosen leaves.

    Returns whether there is such a group.
    """
    cdef int32_t group, place, f
    cdef const Tables* tables = &box.tables
    cdef CommonRange* known
    cdef bint is_broken = False
    for group in range(tables.n_groups):
        if box.is_decided[group]:
            continue
        _start_remaining(box, group)
        for place in range(tables.group_starts[group], tables.group_starts[group + 1]):
            f = tables.members[place]
            if not _is_tested(box, f):
                continue
            _keep_in_cells(box, place, box.low[f], box.high[f])
            known = &intersection.ranges[f]
            if known.stamp == intersection.stamp:
                _keep_in_cells(box, place, known.low, known.high)
        if has_options(box.remaining, tables.n_words):
            continue
        is_broken = True
        for place in range(tables.group_starts[group], tables.group_starts[group + 1]):
            f = tables.members[place]
            known = &intersection.ranges[f]
            if box.low[f] < box.high[f] and known.stamp == intersection.stamp:
                if known.low > box.merged_low[f] or known.high <= box.merged_low[f]:
                    propose(intersection, f, box.merged_low[f])
    return is_broken
