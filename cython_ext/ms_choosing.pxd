# Which of the leaves that are left meet those that other trees have chosen, and where cuts would keep them apart.

from libc.stdint cimport int32_t, int64_t, uint64_t

from ms_bounding cimport Arena, ms_first_bit
from ms_meeting cimport Meeting, meets, propose_between
from ms_reached cimport Reached

# Cuts that are compared before one is taken.
cdef enum:
    MAX_CANDIDATES = 32


cdef inline bint is_left(const Arena* arena, const Reached* reached, int32_t tree, int32_t place) noexcept nogil:
    """Whether a ranked leaf of a tree is left in the box."""
    cdef int32_t bit = place - reached.tree_start[tree]
    return arena.words[arena.word_start[tree] + (bit >> 6)] >> (bit & 63) & 1


cdef inline int32_t first_meeting(Arena* arena, Reached* reached, Meeting* meeting, int32_t tree) noexcept nogil:
    """The best leaf of a tree that meets those chosen so far; there is always one."""
    cdef int32_t word, start = arena.word_start[tree], place = -1
    cdef uint64_t left
    for word in range(start, arena.word_start[tree + 1]):
        left = arena.words[word]
        while left:
            place = reached.tree_start[tree] + 64 * (word - start) + ms_first_bit(left)
            if meets(meeting, reached, arena.ranked[place].leaf):
                return place
            left &= left - 1
    return place


cdef inline int propose_between_best(Arena* arena, Reached* reached, Meeting* meeting, int32_t tree) except -1 nogil:
    """Candidates for cuts between the best leaves of a tree, none of which meets, and those chosen so far."""
    cdef int32_t word, start = arena.word_start[tree], place
    cdef uint64_t left
    cdef int64_t best = arena.ranked[arena.best[tree]].lead
    for word in range(start, arena.word_start[tree + 1]):
        left = arena.words[word]
        while left:
            place = reached.tree_start[tree] + 64 * (word - start) + ms_first_bit(left)
            if arena.ranked[place].lead < best or meeting.n_cuts >= MAX_CANDIDATES:
                return 0
            propose_between(meeting, reached, arena.ranked[place].leaf)
            left &= left - 1
    return 0
