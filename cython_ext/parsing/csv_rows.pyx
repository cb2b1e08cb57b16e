"""Rows of delimited text to float64 values and spans of labels.

Reads well-formed rows only and stops at the first other one: metasilvae.formats.csv_layout finds out what is wrong with
it, and which delimiter, columns and header the file has.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr

from parsing.lines cimport ROWS_FULL, ROWS_MALFORMED, ROWS_USED_UP, Lines, RowsStatus, find_line_end
from parsing.number_text cimport read_number


cdef enum ColumnRole:
    ROLE_VALUE      # a number
    ROLE_LABEL
    ROLE_NOTE       # ignored

# The same for Python: how parse_rows ended, what a column holds.
USED_UP, FULL, MALFORMED = ROWS_USED_UP, ROWS_FULL, ROWS_MALFORMED
VALUE, LABEL, NOTE = ROLE_VALUE, ROLE_LABEL, ROLE_NOTE


cdef inline const unsigned char* skip_blanks(const unsigned char* position, int delimiter) noexcept nogil:
    while position[0] == c' ' or (position[0] == c'\t' and delimiter != c'\t'):
        position += 1
    return position


cdef inline bint is_blank(const unsigned char* position, const unsigned char* stop) noexcept nogil:
    while position < stop and (position[0] == c' ' or position[0] == c'\t'):
        position += 1
    return position == stop


cdef inline const unsigned char* find_label_end(const unsigned char* position, const unsigned char* stop,
                                                int delimiter) noexcept nogil:
    """Position behind a non-empty label (with its quotes, without blanks behind it), NULL if there is none."""
    cdef const unsigned char* start = position
    if position[0] != c'"':
        while position < stop and position[0] != delimiter:
            position += 1
        while position > start and is_blank(position - 1, position):
            position -= 1
        return NULL if position == start else position
    position += 1
    while True:
        position = <const unsigned char*> memchr(position, c'"', stop - position)
        if position == NULL:
            return NULL
        if position[1] != c'"':
            return position + 1
        position += 2


cdef inline bint parse_row(const unsigned char* text, Py_ssize_t start, Py_ssize_t stop, int delimiter,
                           const uint8_t* roles, Py_ssize_t n_columns, double* values, int64_t* span) noexcept nogil:
    """Read one row; false if it is malformed. The byte at `stop` ends any number or run of blanks."""
    cdef const unsigned char* position = text + start
    cdef const unsigned char* end = text + stop
    cdef const unsigned char* label_end
    cdef Py_ssize_t column
    cdef bint quoted
    for column in range(n_columns):
        position = skip_blanks(position, delimiter)
        if roles[column] == ROLE_NOTE and position[0] != c'"':
            while position < end and position[0] != delimiter:
                position += 1
        elif roles[column] != ROLE_VALUE:
            label_end = find_label_end(position, end, delimiter)
            if label_end == NULL:
                return False
            if roles[column] != ROLE_NOTE:
                span[0] = position - text
                span[1] = label_end - text
            position = label_end
        else:
            quoted = position[0] == c'"'
            if quoted:
                position = skip_blanks(position + 1, 0)
            position = read_number(position, values)
            if position == NULL:
                return False
            values += 1
            if quoted:
                position = skip_blanks(position, 0)
                if position[0] != c'"':
                    return False
                position += 1
        if position[0] == delimiter and position < end and column < n_columns - 1:
            position += 1
            continue
        position = skip_blanks(position, delimiter)
        if column == n_columns - 1:
            return position == end
        if position == end or position[0] != delimiter:
            return False
        position += 1
    return False


def parse_rows(const unsigned char[::1] buffer, Py_ssize_t start, Py_ssize_t stop, bint at_end, int delimiter,
               const uint8_t[::1] roles, int64_t line, double[:, ::1] X, int64_t[:, ::1] label_spans,
               int64_t[::1] line_of_row):
    """Read rows until the text, the output or the well-formed rows end.

    Parameters
    ----------
    buffer, start, stop : the text; the byte at `stop` exists and is a line feed
    at_end : the file ends at `stop`; else an incomplete last line is left alone
    delimiter : byte between cells
    roles : VALUE (X.shape[1] times), LABEL (at most once) or NOTE for each column
    line : number of the line at `start`
    X, label_spans, line_of_row : outputs for X.shape[0] rows; without a label the spans are left alone

    Returns
    -------
    start, line, n_rows, status : where to continue (for MALFORMED: the malformed line) and how reading ended
    """
    cdef Py_ssize_t n_rows = 0
    cdef Py_ssize_t max_rows = min(X.shape[0], label_spans.shape[0], line_of_row.shape[0])
    cdef Py_ssize_t n_columns = roles.shape[0]
    cdef Py_ssize_t line_end
    cdef Py_ssize_t next_start = start
    cdef RowsStatus status = ROWS_USED_UP
    cdef Lines lines = Lines(&buffer[0], stop, at_end, start - 1, start - 1)
    with nogil:
        while True:
            line_end = find_line_end(&lines, start, &next_start)
            if line_end < 0:
                break
            if not is_blank(lines.text + start, lines.text + line_end):
                if n_rows == max_rows:
                    status = ROWS_FULL
                    break
                if not parse_row(lines.text, start, line_end, delimiter, &roles[0], n_columns, &X[n_rows, 0],
                                 &label_spans[n_rows, 0]):
                    status = ROWS_MALFORMED
                    break
                line_of_row[n_rows] = line
                n_rows += 1
            line += 1
            start = next_start
    return start, line, n_rows, <int> status
