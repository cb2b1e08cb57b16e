"""Sums of products of signs, as interactions of features need them: many pairs of columns, over some thousand rows.

A column of signs is two rows of bits, in words of 64: which signs are negative, and which are there at all (a missing
value has none). The product of two signs is negative if one of them is, so that a sum of products is the number of rows
where both are there, less twice the number of those where they differ.
"""

from libc.stdint cimport int64_t, uint64_t


cdef inline int64_t _count(uint64_t word) noexcept nogil:
    """Number of ones."""
    word = word - ((word >> 1) & <uint64_t> 0x5555555555555555)
    word = (word & <uint64_t> 0x3333333333333333) + ((word >> 2) & <uint64_t> 0x3333333333333333)
    word = (word + (word >> 4)) & <uint64_t> 0x0F0F0F0F0F0F0F0F
    return <int64_t> ((word * <uint64_t> 0x0101010101010101) >> 56)


def sum_products(const uint64_t[:, ::1] left_negative, const uint64_t[:, ::1] left_present,
                 const uint64_t[:, ::1] right_negative, const uint64_t[:, ::1] right_present,
                 const uint64_t[::1] members, int64_t[:, ::1] sums):
    """Write the sums of the products of each column on the left with each one on the right, over some rows.

    Parameters
    ----------
    left_negative, left_present, right_negative, right_present : columns, shape (n_columns, n_words)
    members : the rows that count
    """
    cdef Py_ssize_t left, right, word, n_words = members.shape[0]
    cdef uint64_t both
    cdef int64_t total
    with nogil:
        for left in range(left_negative.shape[0]):
            for right in range(right_negative.shape[0]):
                total = 0
                for word in range(n_words):
                    both = left_present[left, word] & right_present[right, word] & members[word]
                    total += _count(both) - 2 * _count((left_negative[left, word] ^ right_negative[right, word]) & both)
                sums[left, right] = total
