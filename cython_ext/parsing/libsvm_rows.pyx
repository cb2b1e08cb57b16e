"""Lines of LIBSVM text to compressed sparse rows, and those to a dense array.

Reads well-formed lines only and stops at the first other one: metasilvae.formats.libsvm_files finds out what is wrong
with it, and whether indices count from 0 or 1.
"""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memchr

from parsing.lines cimport ROWS_FULL, ROWS_MALFORMED, ROWS_USED_UP, Lines, RowsStatus, find_line_end
from parsing.number_text cimport read_number

# How parse_lines ended.
USED_UP, FULL, MALFORMED = ROWS_USED_UP, ROWS_FULL, ROWS_MALFORMED

cdef enum:
    MOST_FEATURES = 2147483646

LARGEST_INDEX = MOST_FEATURES


cdef inline const unsigned char* skip_blanks(const unsigned char* position) noexcept nogil:
    while position[0] == c' ' or position[0] == c'\t':
        position += 1
    return position


cdef inline bint ends_word(const unsigned char* position, const unsigned char* end) noexcept nogil:
    return position == end or position[0] == c' ' or position[0] == c'\t'


cdef inline Py_ssize_t parse_line(const unsigned char* text, Py_ssize_t start, Py_ssize_t stop, int32_t* indices,
                                  double* values, int64_t* span) noexcept nogil:
    """Read `label index:value ...`; return the number of entries, -1 if the line is malformed."""
    cdef const unsigned char* position = text + start
    cdef const unsigned char* end = text + stop
    cdef int64_t index
    cdef int64_t previous = -1
    cdef Py_ssize_t n_entries = 0
    span[0] = start
    while not ends_word(position, end):
        if position[0] == c':' or position[0] == c',':
            return -1
        position += 1
    span[1] = position - text
    while True:
        position = skip_blanks(position)
        if position == end:
            return n_entries
        if not c'0' <= position[0] <= c'9':
            return -1
        index = 0
        while c'0' <= position[0] <= c'9':
            index = index * 10 + (position[0] - c'0')
            if index > MOST_FEATURES:
                return -1
            position += 1
        if position[0] != c':' or index <= previous:
            return -1
        position = read_number(position + 1, &values[n_entries])
        if position == NULL or not ends_word(position, end):
            return -1
        indices[n_entries] = <int32_t> index
        previous = index
        n_entries += 1


def parse_lines(const unsigned char[::1] buffer, Py_ssize_t start, Py_ssize_t stop, bint at_end, int64_t line,
                int32_t[::1] indices, double[::1] values, int64_t[::1] row_sizes, int64_t[:, ::1] label_spans,
                int64_t[::1] line_of_row):
    """Read lines until the text, the output or the well-formed lines end.

    Parameters
    ----------
    buffer, start, stop : the text; the byte at `stop` exists and is a line feed
    at_end : the file ends at `stop`; else an incomplete last line is left alone
    line : number of the line at `start`
    indices, values : outputs for (stop - start) // 4 + 1 entries, more than the text can hold
    row_sizes, label_spans, line_of_row : outputs for as many rows as they are long

    Returns
    -------
    start, line, n_rows, n_entries, status : where to continue (for MALFORMED: the malformed line), how reading ended
    """
    cdef Py_ssize_t n_rows = 0
    cdef Py_ssize_t n_entries = 0
    cdef Py_ssize_t max_rows = min(row_sizes.shape[0], label_spans.shape[0], line_of_row.shape[0])
    cdef Py_ssize_t line_end, first, size
    cdef const void* comment
    cdef Py_ssize_t next_start = start
    cdef RowsStatus status = ROWS_USED_UP
    cdef Lines lines = Lines(&buffer[0], stop, at_end, start - 1, start - 1)
    if min(indices.shape[0], values.shape[0]) < (stop - start) // 4 + 1:
        raise ValueError("the outputs for the entries are too short")
    with nogil:
        while True:
            line_end = find_line_end(&lines, start, &next_start)
            if line_end < 0:
                break
            comment = memchr(lines.text + start, c'#', line_end - start)
            if comment != NULL:
                line_end = <const unsigned char*> comment - lines.text
            first = skip_blanks(lines.text + start) - lines.text
            if first < line_end:
                if n_rows == max_rows:
                    status = ROWS_FULL
                    break
                size = parse_line(lines.text, first, line_end, &indices[0] + n_entries, &values[0] + n_entries,
                                  &label_spans[n_rows, 0])
                if size < 0:
                    status = ROWS_MALFORMED
                    break
                row_sizes[n_rows] = size
                line_of_row[n_rows] = line
                n_entries += size
                n_rows += 1
            line += 1
            start = next_start
    return start, line, n_rows, n_entries, <int> status


def scatter(const int32_t[::1] indices, const double[::1] values, const int64_t[::1] row_sizes, int32_t base,
            double[:, ::1] X):
    """Write the entries of each row into an array of zeros; `base` is the index of the first column."""
    cdef Py_ssize_t row, i
    cdef Py_ssize_t entry = 0
    with nogil:
        for row in range(row_sizes.shape[0]):
            for i in range(row_sizes[row]):
                X[row, indices[entry] - base] = values[entry]
                entry += 1
