"""A 64-bit hash of each row of values, for finding equal rows. Telling apart rows of equal hash is left to the caller."""

from libc.stdint cimport uint64_t
from libc.string cimport memcpy


def hash_rows(const double[:, ::1] X, uint64_t[::1] hashes):
    """Write the hash of each row; rows that compare equal (0.0 and -0.0 do) get equal hashes."""
    cdef Py_ssize_t row, feature
    cdef uint64_t state, bits
    cdef double value
    with nogil:
        for row in range(X.shape[0]):
            state = <uint64_t> 0x9E3779B97F4A7C15
            for feature in range(X.shape[1]):
                value = X[row, feature] + 0.0
                memcpy(&bits, &value, sizeof(bits))
                state = (state ^ bits) * <uint64_t> 0xFF51AFD7ED558CCD
                state ^= state >> 32
            hashes[row] = state
