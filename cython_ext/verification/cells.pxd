# The part of a box that a search has left: cells of each feature, narrowed by cuts and widened again; one-hot groups.
#
# Cells of a feature lie between its thresholds and are numbered from 0. A member of a group has one cell for 0, and the
# next one for 1 where some threshold lies between.

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free

from common.buffer cimport reserve
from verification.leaf_sets cimport Arena, Demand, Reached, cut_leaves


# The common part of leaves that were chosen one after another, and cuts that keep other leaves apart from it.

cdef struct Cut:
    # One side of a threshold.
    int32_t feature
    int32_t cut
    bint is_left

cdef struct Part:
    # What is known of one feature, as far as the time is that of the meeting.
    int64_t time
    int32_t low
    int32_t high
    int64_t cut_time
    int32_t first_cut
    int32_t last_cut

cdef struct Meeting:
    int64_t time
    Part* parts             # by feature
    Cut* cuts               # candidates
    size_t cut_capacity
    int32_t n_cuts


cdef inline int reserve_meeting(Meeting* meeting, int32_t n_features) except -1 nogil:
    """Make the room whose size depends on the forest alone."""
    meeting.parts = <Part*> calloc(n_features + 1, sizeof(Part))
    if meeting.parts == NULL:
        with gil:
            raise MemoryError()
    return 0


cdef inline void free_meeting(Meeting* meeting) noexcept nogil:
    free(meeting.parts)
    free(meeting.cuts)


cdef inline void begin_meeting(Meeting* meeting) noexcept nogil:
    """Forget the leaves and the cuts."""
    meeting.time += 1
    meeting.n_cuts = 0


cdef inline bint meets(Meeting* meeting, Reached* reached, int32_t leaf) noexcept nogil:
    """Whether a leaf has a point in common with those chosen so far."""
    cdef int32_t d
    cdef Demand* demand
    cdef Part* part
    for d in range(reached.demand_start[leaf], reached.demand_start[leaf + 1]):
        demand = &reached.demands[d]
        part = &meeting.parts[demand.feature]
        if part.time == meeting.time and (demand.low > part.high or demand.high < part.low):
            return False
    return True


cdef inline void join_meeting(Meeting* meeting, Reached* reached, int32_t leaf, const int32_t* low,
                              const int32_t* high) noexcept nogil:
    """Narrow the common part, inside the box low..high, to one more leaf."""
    cdef int32_t d, f
    cdef Demand* demand
    cdef Part* part
    for d in range(reached.demand_start[leaf], reached.demand_start[leaf + 1]):
        demand = &reached.demands[d]
        f = demand.feature
        part = &meeting.parts[f]
        if part.time != meeting.time:
            part.time = meeting.time
            part.low = max(low[f], demand.low)
            part.high = min(high[f], demand.high)
        else:
            part.low = max(part.low, demand.low)
            part.high = min(part.high, demand.high)


cdef inline int propose(Meeting* meeting, int32_t feature, int32_t cut) except -1 nogil:
    """Add a cut to the candidates; one that was just added is not added again."""
    cdef Part* part = &meeting.parts[feature]
    if part.cut_time == meeting.time:
        if part.first_cut == cut or part.last_cut == cut:
            return 0
    else:
        part.cut_time = meeting.time
        part.first_cut = cut
    part.last_cut = cut
    reserve(<void**> &meeting.cuts, &meeting.cut_capacity, meeting.n_cuts + 1, sizeof(Cut))
    meeting.cuts[meeting.n_cuts] = Cut(feature, cut, True)
    meeting.n_cuts += 1
    return 0


cdef inline int propose_between(Meeting* meeting, Reached* reached, int32_t leaf) except -1 nogil:
    """Candidates for cuts between a leaf that does not meet the others and their common part."""
    cdef int32_t d
    cdef Demand* demand
    cdef Part* part
    for d in range(reached.demand_start[leaf], reached.demand_start[leaf + 1]):
        demand = &reached.demands[d]
        part = &meeting.parts[demand.feature]
        if part.time != meeting.time:
            continue
        if demand.low > part.high:
            propose(meeting, demand.feature, part.high)
            propose(meeting, demand.feature, demand.low - 1)
        elif demand.high < part.low:
            propose(meeting, demand.feature, demand.high)
            propose(meeting, demand.feature, part.low - 1)
    return 0


cdef struct Narrowed:
    # Cells of a feature as they were before a cut.
    int32_t feature
    int32_t low
    int32_t high

cdef struct Space:
    int32_t n_features
    int32_t n_groups
    int32_t n_members
    const int32_t* members      # of all groups
    const int32_t* group_starts
    # By feature.
    int32_t* cells              # room for the six arrays of cells and for group_of
    int32_t* group_of
    int32_t* merged_low         # of members of groups: the cell of 0
    int32_t* merged_high        # and the one that 1 would be in by its thresholds
    int32_t* row_low            # of the whole box
    int32_t* row_high
    int32_t* low                # of what is left
    int32_t* high
    double* lower               # bounds of the whole box
    double* upper
    # By group: whether a member that no tree looks at may be 1, and whether it is known which one is.
    uint8_t* is_free
    uint8_t* is_settled
    Narrowed* narrowed
    size_t narrowed_capacity
    size_t n_narrowed


cdef inline int reserve_space(Space* space, int32_t n_features, const int32_t* members,
                              const int32_t* group_starts, int32_t n_groups) except -1 nogil:
    """Make the room whose size depends on the forest alone."""
    cdef int32_t group, place, f
    cdef size_t n = max(n_features, 1)
    space.n_features, space.n_groups = n_features, n_groups
    space.members, space.group_starts = members, group_starts
    space.n_members = group_starts[n_groups]
    space.cells = <int32_t*> calloc(7 * n, sizeof(int32_t))
    space.lower = <double*> calloc(2 * n, sizeof(double))
    space.is_free = <uint8_t*> calloc(2 * (<size_t> n_groups + 1), sizeof(uint8_t))
    if space.cells == NULL or space.lower == NULL or space.is_free == NULL:
        with gil:
            raise MemoryError()
    space.group_of, space.merged_low, space.merged_high = space.cells, space.cells + n, space.cells + 2 * n
    space.row_low, space.row_high = space.cells + 3 * n, space.cells + 4 * n
    space.low, space.high = space.cells + 5 * n, space.cells + 6 * n
    space.upper = space.lower + n
    space.is_settled = space.is_free + n_groups + 1
    for f in range(n_features):
        space.group_of[f] = -1
    for group in range(n_groups):
        for place in range(group_starts[group], group_starts[group + 1]):
            space.group_of[members[place]] = group
    return 0


cdef inline void free_space(Space* space) noexcept nogil:
    free(space.cells)
    free(space.lower)
    free(space.is_free)
    free(space.narrowed)


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


cdef inline void set_cells(Space* space, const double* thresholds, const int32_t* starts) noexcept nogil:
    """Find the cells of the box."""
    cdef int32_t f, n_thresholds, zero
    cdef const double* own
    for f in range(space.n_features):
        n_thresholds = starts[f + 1] - starts[f]
        if n_thresholds == 0:
            continue
        own = thresholds + starts[f]
        if space.group_of[f] < 0:
            space.row_low[f] = _cell(own, n_thresholds, space.lower[f])
            space.row_high[f] = _cell(own, n_thresholds, space.upper[f])
            continue
        zero = _cell(own, n_thresholds, 0.0)
        space.merged_low[f] = zero
        space.merged_high[f] = _cell(own, n_thresholds, 1.0)
        space.row_low[f] = zero + (zero < space.merged_high[f] and space.lower[f] == 1.0)
        space.row_high[f] = zero + (zero < space.merged_high[f] and space.upper[f] == 1.0)


cdef inline void open_space(Space* space) noexcept nogil:
    """Put back the whole box."""
    cdef int32_t f
    for f in range(space.n_features):
        space.low[f] = space.row_low[f]
        space.high[f] = space.row_high[f]
    space.n_narrowed = 0


# Cuts.


cdef inline void narrow(Space* space, Arena* arena, Reached* reached, Cut cut) noexcept nogil:
    cdef int32_t f = cut.feature
    space.narrowed[space.n_narrowed] = Narrowed(f, space.low[f], space.high[f])
    space.n_narrowed += 1
    if cut.is_left:
        space.high[f] = cut.cut
    else:
        space.low[f] = cut.cut + 1
    cut_leaves(arena, reached, f, cut.cut, cut.is_left)


cdef inline bint take(Space* space, Arena* arena, Reached* reached, Cut cut) noexcept nogil:
    """Cut the box; False if no admissible point is left."""
    narrow(space, arena, reached, cut)
    return space.group_of[cut.feature] < 0 or _follow_group(space, arena, reached, cut.feature)


cdef inline void widen(Space* space, size_t n_narrowed) noexcept nogil:
    """Go back to the cells that were there when so many had been narrowed."""
    while space.n_narrowed > n_narrowed:
        space.n_narrowed -= 1
        space.low[space.narrowed[space.n_narrowed].feature] = space.narrowed[space.n_narrowed].low
        space.high[space.narrowed[space.n_narrowed].feature] = space.narrowed[space.n_narrowed].high


# One-hot groups.


cdef inline bint settle_group(Space* space, int32_t group) noexcept nogil:
    """Restrict the members of a group to 0 and 1; False if the box holds no point with this group one-hot."""
    cdef int32_t place, f, n_candidates = 0, n_forced = 0, only = -1
    cdef bint can_be_zero, can_be_one
    for place in range(space.group_starts[group], space.group_starts[group + 1]):
        f = space.members[place]
        can_be_zero = space.lower[f] <= 0.0 <= space.upper[f]
        can_be_one = space.lower[f] <= 1.0 <= space.upper[f]
        if not can_be_zero and not can_be_one:
            return False
        space.lower[f] = not can_be_zero
        space.upper[f] = can_be_one
        if space.upper[f] == 1.0:
            n_candidates += 1
            if n_forced == 0:
                only = f
        if space.lower[f] == 1.0:
            n_forced += 1
            only = f
    if n_candidates == 0 or n_forced > 1:
        return False
    space.is_free[group] = False
    space.is_settled[group] = n_forced == 1 or n_candidates == 1
    if space.is_settled[group]:
        for place in range(space.group_starts[group], space.group_starts[group + 1]):
            f = space.members[place]
            space.lower[f] = space.upper[f] = f == only
    return True


cdef inline void free_unseen_members(Space* space, const Arena* arena) noexcept nogil:
    """Find groups with a member that may be 1 without any tree that is reached noticing."""
    cdef int32_t group, place, f
    for group in range(space.n_groups):
        for place in range(space.group_starts[group], space.group_starts[group + 1]):
            f = space.members[place]
            if space.lower[f] < space.upper[f] and arena.feature_start[f] == arena.feature_start[f + 1]:
                space.is_free[group] = True


cdef inline bint _follow_group(Space* space, Arena* arena, Reached* reached, int32_t f) noexcept nogil:
    """Draw the conclusions from one member of a group becoming 0 or 1; False if none can be 1 any more."""
    cdef int32_t group = space.group_of[f], place, other, n_open = 0, only = -1
    if space.is_settled[group]:
        return True
    if space.low[f] > space.merged_low[f]:
        for place in range(space.group_starts[group], space.group_starts[group + 1]):
            other = space.members[place]
            if other != f and space.low[other] < space.high[other]:
                narrow(space, arena, reached, Cut(other, space.merged_low[other], True))
        return True
    for place in range(space.group_starts[group], space.group_starts[group + 1]):
        other = space.members[place]
        if space.low[other] > space.merged_low[other]:
            return True
        if space.low[other] < space.high[other]:
            n_open += 1
            only = other
    if space.is_free[group]:
        return True
    if n_open == 1:
        narrow(space, arena, reached, Cut(only, space.merged_low[only], False))
    return n_open > 0


cdef inline int contest_groups(Space* space, Meeting* meeting) except -1 nogil:
    """Candidates for cuts where the chosen leaves want two members of a group to be 1, or none.

    Returns whether there is such a group.
    """
    cdef int32_t group, place, f, n_ones, n_open
    cdef bint is_broken = False
    cdef bint wants_one, wants_zero
    for group in range(space.n_groups):
        if space.is_settled[group]:
            continue
        n_ones = n_open = 0
        for place in range(space.group_starts[group], space.group_starts[group + 1]):
            f = space.members[place]
            wants_one = space.low[f] > space.merged_low[f]
            wants_zero = space.high[f] == space.merged_low[f]
            if meeting.parts[f].time == meeting.time:
                wants_one |= meeting.parts[f].low > space.merged_low[f]
                wants_zero |= meeting.parts[f].high == space.merged_low[f]
            n_ones += wants_one
            n_open += not wants_zero
        if n_ones == 1 or (n_ones == 0 and (n_open > 0 or space.is_free[group])):
            continue
        is_broken = True
        for place in range(space.group_starts[group], space.group_starts[group + 1]):
            f = space.members[place]
            if space.low[f] < space.high[f] and meeting.parts[f].time == meeting.time:
                if n_ones == 0 or meeting.parts[f].low > space.merged_low[f]:
                    propose(meeting, f, space.merged_low[f])
    return is_broken
