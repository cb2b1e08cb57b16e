# The common part of leaves that were chosen one after another, and cuts that keep other leaves apart from it.

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from ms_reached cimport Demand, Reached
from ms_room cimport reserve

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
