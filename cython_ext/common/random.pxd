# Random numbers that depend on their seed only. A state is one word, so every offspring can have its own.

from libc.stdint cimport int32_t, uint64_t


cdef inline uint64_t scramble(uint64_t word) noexcept nogil:
    """The finishing steps of splitmix64: every bit of the result depends on every bit of the word."""
    word = (word ^ (word >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9
    word = (word ^ (word >> 27)) * <uint64_t> 0x94D049BB133111EB
    return word ^ (word >> 31)


cdef inline uint64_t next_word(uint64_t* state) noexcept nogil:
    state[0] += <uint64_t> 0x9E3779B97F4A7C15
    return scramble(state[0])


cdef inline double next_fraction(uint64_t* state) noexcept nogil:
    """A number in [0, 1)."""
    return <double> (next_word(state) >> 11) * (1.0 / 9007199254740992.0)


cdef inline int32_t next_below(uint64_t* state, int32_t bound) noexcept nogil:
    """A whole number in [0, bound)."""
    return <int32_t> (next_fraction(state) * bound)
