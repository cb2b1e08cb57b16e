"""Ranks of values among the distinct values of their column, for columns of whole numbers in a narrow range.

Counting takes time linear in the number of values; columns of other kinds are left to a sort of the caller.
"""

from libc.math cimport floor
from libc.stdint cimport int32_t


def rank_whole_numbers(const double[::1] column, int32_t[::1] room, int32_t[::1] ranks):
    """Write the rank of each value of a column.

    Parameters
    ----------
    column : float64 array, not empty
    room : int32 array
        Scratch; the values must lie in a range shorter than this.
    ranks : int32 array of the length of the column
        Output; undefined if this column cannot be ranked here.

    Returns
    -------
    (smallest value, number of values from the smallest to the largest), or None for a column of another kind. The first
    so many numbers in room then are 1 where that value occurs, 0 elsewhere.
    """
    cdef Py_ssize_t row, place, n_rows = column.shape[0]
    cdef Py_ssize_t n_places
    cdef double smallest = column[0], largest = column[0], value
    cdef bint is_whole = True
    cdef int32_t rank = 0
    with nogil:
        for row in range(n_rows):
            value = column[row]
            if value != floor(value):
                is_whole = False
                break
            smallest = min(smallest, value)
            largest = max(largest, value)
    # Written so that a difference that is not finite is refused too.
    if not is_whole or not largest - smallest < room.shape[0]:
        return None
    n_places = <Py_ssize_t> (largest - smallest) + 1
    with nogil:
        for place in range(n_places):
            room[place] = -1
        for row in range(n_rows):
            room[<Py_ssize_t> (column[row] - smallest)] = 0
        for place in range(n_places):
            if room[place] == 0:
                room[place] = rank
                rank += 1
        for row in range(n_rows):
            ranks[row] = room[<Py_ssize_t> (column[row] - smallest)]
        for place in range(n_places):
            room[place] = room[place] >= 0
    return smallest, n_places
