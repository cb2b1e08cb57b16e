"""Which values are equal and how they are ordered: ranks within columns, hashes of rows.

A column of whole numbers in a narrow range (pixels, indicators) is counted, in time linear in the number of values; the
others are sorted. Telling apart rows of equal hash is left to the caller.
"""

import numpy as np

from libc.math cimport floor
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy


# Columns are copied in batches of at least MIN_COLUMNS columns and about BATCH_VALUES values: reading a single column
# of a matrix in row order is slow, and there may be a million columns of few values.
MIN_COLUMNS = 16
BATCH_VALUES = 1 << 16


def rank_values(matrix):
    """Ranks of the values of each column of a matrix.

    Returns
    -------
    codes : int32 array, shape (n_columns, n_rows)
    values : float64 array
        The distinct values of all columns, increasing within each.
    starts : int64 array, shape (n_columns + 1,)
        Where the values of each column begin.
    """
    n_rows, n_columns = matrix.shape
    codes = np.empty((n_columns, n_rows), dtype=np.int32)
    lengths = np.zeros(n_columns, dtype=np.int64)
    buffer = np.empty(4 * n_rows + 1024, dtype=np.int32)
    values = []
    batch_size = max(MIN_COLUMNS, BATCH_VALUES // max(n_rows, 1))
    for start in range(0, n_columns if n_rows > 0 else 0, batch_size):
        columns = np.ascontiguousarray(matrix[:, start : start + batch_size].T)
        counted = np.empty(len(columns), dtype=np.uint8)
        find_narrow(columns, len(buffer), counted)
        # Stable, so that the same values give the same bytes on every machine.
        order = np.argsort(columns[counted == 0], axis=1, kind="stable")
        distinct = np.empty(columns.size)
        n_distinct = rank_columns(columns, counted, order, buffer, codes[start:], distinct, lengths[start:])
        values.append(distinct[:n_distinct].copy())
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return codes, np.concatenate(values) if values else np.zeros(0), starts


def rank_boxes(matrix, lower, upper):
    """Ranks of the values of each column together with the bounds of their boxes.

    Where the bounds differ between equal values, these have several ranks. Bounds must increase with the values, and
    with the ranks of equal values; None if they do not.

    Returns
    -------
    codes, values, starts : as by `rank_values`, but values may repeat
    lower_ends, upper_ends : float64 arrays
        Bounds of the ranks, in the same places as the values.
    """
    codes, values, starts = rank_values(matrix)
    parts, lengths = [], []
    for column in range(len(codes)):
        own = values[starts[column] : starts[column + 1]]
        low, high, ranks = lower[:, column], upper[:, column], codes[column]
        first = np.empty(len(own), dtype=np.intp)
        first[ranks[::-1]] = np.arange(len(ranks) - 1, -1, -1)
        lower_ends, upper_ends = low[first], high[first]
        if not (np.array_equal(lower_ends[ranks], low) and np.array_equal(upper_ends[ranks], high)):
            order = np.lexsort((high, low, ranks))
            triples = np.stack([own[ranks], low, high])[:, order]
            is_new = np.ones(len(order), dtype=bool)
            is_new[1:] = (triples[:, 1:] != triples[:, :-1]).any(axis=0)
            codes[column, order] = np.cumsum(is_new) - 1
            own, lower_ends, upper_ends = triples[:, is_new]
        if (np.diff(lower_ends) < 0).any() or (np.diff(upper_ends) < 0).any():
            return None
        parts.append((own, lower_ends, upper_ends))
        lengths.append(len(own))
    joined = [np.concatenate(each) if parts else np.zeros(0) for each in zip(*parts)] if parts else [np.zeros(0)] * 3
    return codes, joined[0], np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), joined[1], joined[2]


def find_narrow(const double[:, ::1] columns, Py_ssize_t n_places, unsigned char[::1] narrow):
    """Mark the columns that hold whole numbers only, in a range shorter than n_places."""
    cdef Py_ssize_t column, row
    cdef double smallest, largest, value
    with nogil:
        for column in range(columns.shape[0]):
            narrow[column] = 1
            smallest = columns[column, 0]
            largest = smallest
            for row in range(columns.shape[1]):
                value = columns[column, row]
                if value != floor(value):
                    narrow[column] = 0
                    break
                smallest = min(smallest, value)
                largest = max(largest, value)
            # Written so that a difference that is not finite is refused too.
            if not largest - smallest < n_places:
                narrow[column] = 0


cdef int32_t _count(const double[::1] column, int32_t[::1] buffer, int32_t[::1] ranks,
                    double[::1] distinct) noexcept nogil:
    """Ranks and distinct values of a narrow column; returns how many of these there are."""
    cdef Py_ssize_t row, place, n_places
    cdef double smallest = column[0], largest = column[0]
    cdef int32_t n_distinct = 0
    for row in range(column.shape[0]):
        smallest = min(smallest, column[row])
        largest = max(largest, column[row])
    n_places = <Py_ssize_t> (largest - smallest) + 1
    for place in range(n_places):
        buffer[place] = -1
    for row in range(column.shape[0]):
        buffer[<Py_ssize_t> (column[row] - smallest)] = 0
    for place in range(n_places):
        if buffer[place] == 0:
            buffer[place] = n_distinct
            # A sum with zero is never -0.0.
            distinct[n_distinct] = smallest + place + 0.0
            n_distinct += 1
    for row in range(column.shape[0]):
        ranks[row] = buffer[<Py_ssize_t> (column[row] - smallest)]
    return n_distinct


cdef int32_t _follow(const double[::1] column, const int64_t[::1] order, int32_t[::1] ranks,
                     double[::1] distinct) noexcept nogil:
    """Ranks and distinct values of a column whose order is known; returns how many of these there are."""
    cdef Py_ssize_t place
    cdef int32_t n_distinct = 0
    cdef double value
    for place in range(column.shape[0]):
        value = column[order[place]] + 0.0
        if n_distinct == 0 or value != distinct[n_distinct - 1]:
            distinct[n_distinct] = value
            n_distinct += 1
        ranks[order[place]] = n_distinct - 1
    return n_distinct


def rank_columns(const double[:, ::1] columns, const unsigned char[::1] counted, const int64_t[:, ::1] order,
                 int32_t[::1] buffer, int32_t[:, ::1] ranks, double[::1] distinct, int64_t[::1] lengths):
    """Rank the values of some columns.

    Parameters
    ----------
    columns : float64 array, shape (n_columns, n_rows)
    counted : uint8 array
        Whether a column is narrow, see `find_narrow`.
    order : int64 array
        For each of the other columns, the order of its values.
    buffer : int32 array
        Scratch, as long as the longest range.
    ranks : int32 array, shape (at least n_columns, n_rows)
        Output.
    distinct : float64 array of the size of the columns
        Output: the distinct values of one column after the other.
    lengths : int64 array
        Output: how many distinct values each column has.

    Returns
    -------
    int
        Number of distinct values of all columns.
    """
    cdef Py_ssize_t column, n_sorted = 0
    cdef int64_t n_distinct = 0
    with nogil:
        for column in range(columns.shape[0]):
            if counted[column]:
                lengths[column] = _count(columns[column], buffer, ranks[column], distinct[n_distinct:])
            else:
                lengths[column] = _follow(columns[column], order[n_sorted], ranks[column], distinct[n_distinct:])
                n_sorted += 1
            n_distinct += lengths[column]
    return n_distinct


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
