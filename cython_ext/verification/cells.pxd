# A chapter of forest_search.pyx: the box that remains after cuts, as cells of each feature, with its one-hot groups,
# and the intersection of leaves that were chosen one after another.
#
# This is a header for the same reason as leaf_sets.pxd: its functions are inlined into the search.
#
# Cells of a feature lie between its thresholds and are numbered from 0. A member of a group has one cell for 0, and the
# next one for 1 where some threshold lies between.

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free

from common.buffer cimport reserve
from common.node cimport is_missing
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
    int32_t n_groups
    int32_t n_members
    const int32_t* members      # of all groups
    const int32_t* group_starts
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
    # By group: whether a member that no tree tests may be 1, and whether it is decided which member is 1.
    uint8_t* is_free
    uint8_t* is_decided
    SavedCells* saved
    size_t saved_capacity
    size_t n_saved


cdef inline int reserve_cell_box(CellBox* box, int32_t n_features, bint has_missing, const int32_t* members,
                              const int32_t* group_starts, int32_t n_groups) except -1 nogil:
    """Allocate the buffers whose size depends on the forest alone."""
    cdef int32_t group, place, f
    cdef size_t n = max(n_features, 1) * (1 + <size_t> has_missing)
    box.has_missing = has_missing
    box.n_features, box.n_groups = n_features, n_groups
    box.members, box.group_starts = members, group_starts
    box.n_members = group_starts[n_groups]
    box.cells = <int32_t*> calloc(8 * n, sizeof(int32_t))
    box.lower = <double*> calloc(3 * n, sizeof(double))
    box.is_free = <uint8_t*> calloc(2 * (<size_t> n_groups + 1), sizeof(uint8_t))
    if box.cells == NULL or box.lower == NULL or box.is_free == NULL:
        with gil:
            raise MemoryError()
    box.group_of, box.merged_low, box.merged_high = box.cells, box.cells + n, box.cells + 2 * n
    box.row_low, box.row_high = box.cells + 3 * n, box.cells + 4 * n
    box.low, box.high = box.cells + 5 * n, box.cells + 6 * n
    box.values = box.cells + 7 * n
    box.upper = box.lower + n
    box.table = box.lower + 2 * n if has_missing else NULL
    box.is_decided = box.is_free + n_groups + 1
    for f in range(<int32_t> n):
        box.group_of[f] = -1
    for group in range(n_groups):
        for place in range(group_starts[group], group_starts[group + 1]):
            box.group_of[members[place]] = group
    return 0


cdef inline void free_cell_box(CellBox* box) noexcept nogil:
    free(box.cells)
    free(box.lower)
    free(box.is_free)
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


# One-hot groups.


cdef inline bint restrict_group(CellBox* box, int32_t group) noexcept nogil:
    """Restrict the members of a group to 0 and 1; False if the box holds no point with this group one-hot."""
    cdef int32_t place, f, n_candidates = 0, n_forced = 0, only = -1
    cdef bint can_be_zero, can_be_one
    for place in range(box.group_starts[group], box.group_starts[group + 1]):
        f = box.members[place]
        can_be_zero = box.lower[f] <= 0.0 <= box.upper[f]
        can_be_one = box.lower[f] <= 1.0 <= box.upper[f]
        if not can_be_zero and not can_be_one:
            return False
        box.lower[f] = not can_be_zero
        box.upper[f] = can_be_one
        if box.upper[f] == 1.0:
            n_candidates += 1
            if n_forced == 0:
                only = f
        if box.lower[f] == 1.0:
            n_forced += 1
            only = f
    if n_candidates == 0 or n_forced > 1:
        return False
    box.is_free[group] = False
    box.is_decided[group] = n_forced == 1 or n_candidates == 1
    if box.is_decided[group]:
        for place in range(box.group_starts[group], box.group_starts[group + 1]):
            f = box.members[place]
            box.lower[f] = box.upper[f] = f == only
    return True


cdef inline void mark_unseen_members(CellBox* box, const LeafSets* sets) noexcept nogil:
    """Mark the groups with a member that may be 1 and that no tree tests inside the box."""
    cdef int32_t group, place, f
    for group in range(box.n_groups):
        for place in range(box.group_starts[group], box.group_starts[group + 1]):
            f = box.members[place]
            if box.lower[f] < box.upper[f] and sets.feature_start[f] == sets.feature_start[f + 1]:
                box.is_free[group] = True


cdef inline bint _propagate_group(CellBox* box, LeafSets* sets, Reached* reached, int32_t f) noexcept nogil:
    """Restrict the other members after one member of a group became 0 or 1; False if no member can be 1 any more."""
    cdef int32_t group = box.group_of[f], place, other, n_open = 0, only = -1
    if box.is_decided[group]:
        return True
    if box.low[f] > box.merged_low[f]:
        for place in range(box.group_starts[group], box.group_starts[group + 1]):
            other = box.members[place]
            if other != f and box.low[other] < box.high[other]:
                narrow(box, sets, reached, CellCut(other, box.merged_low[other], True))
        return True
    for place in range(box.group_starts[group], box.group_starts[group + 1]):
        other = box.members[place]
        if box.low[other] > box.merged_low[other]:
            return True
        if box.low[other] < box.high[other]:
            n_open += 1
            only = other
    if box.is_free[group]:
        return True
    if n_open == 1:
        narrow(box, sets, reached, CellCut(only, box.merged_low[only], False))
    return n_open > 0


cdef inline int propose_group_cuts(CellBox* box, Intersection* intersection) except -1 nogil:
    """Propose cuts where the chosen leaves require two members of a group to be 1, or none.

    Returns whether there is such a group.
    """
    cdef int32_t group, place, f, n_ones, n_open
    cdef bint is_broken = False
    cdef bint must_be_one, must_be_zero
    for group in range(box.n_groups):
        if box.is_decided[group]:
            continue
        n_ones = n_open = 0
        for place in range(box.group_starts[group], box.group_starts[group + 1]):
            f = box.members[place]
            must_be_one = box.low[f] > box.merged_low[f]
            must_be_zero = box.high[f] == box.merged_low[f]
            if intersection.ranges[f].stamp == intersection.stamp:
                must_be_one |= intersection.ranges[f].low > box.merged_low[f]
                must_be_zero |= intersection.ranges[f].high == box.merged_low[f]
            n_ones += must_be_one
            n_open += not must_be_zero
        if n_ones == 1 or (n_ones == 0 and (n_open > 0 or box.is_free[group])):
            continue
        is_broken = True
        for place in range(box.group_starts[group], box.group_starts[group + 1]):
            f = box.members[place]
            if box.low[f] < box.high[f] and intersection.ranges[f].stamp == intersection.stamp:
                if n_ones == 0 or intersection.ranges[f].low > box.merged_low[f]:
                    propose(intersection, f, box.merged_low[f])
    return is_broken
