"""Records of delimited text to spans of cells, and cells to codes and numbers.

A record is a line, or several lines if quoted cells contain line breaks (RFC 4180). What a cell means (a number, a
category, a missing value) is left to metasilvae.formats.tables, and so is the description of malformed records.
"""

from libc.math cimport NAN
from libc.stdint cimport int32_t, int64_t

from parsing.lines cimport ROWS_FULL, ROWS_MALFORMED, ROWS_USED_UP, RowsStatus
from parsing.number_text cimport read_number

# The same for Python: how split_records ended.
USED_UP, FULL, MALFORMED = ROWS_USED_UP, ROWS_FULL, ROWS_MALFORMED

cdef enum CellEnd:
    AT_DELIMITER
    AT_LINE_END
    AT_STOP             # the buffered text ends within or behind the cell
    IN_QUOTES           # the buffered text ends inside quotes
    AT_OTHER            # something else follows a closing quote


cdef inline bint is_line_end(unsigned char byte) noexcept nogil:
    return byte == c'\n' or byte == c'\r'


cdef inline bint is_blank(unsigned char byte, int delimiter) noexcept nogil:
    return byte == c' ' or (byte == c'\t' and delimiter != c'\t')


cdef inline CellEnd end_at(const unsigned char* text, Py_ssize_t position, Py_ssize_t stop,
                           int delimiter) noexcept nogil:
    if position >= stop:
        return AT_STOP
    if text[position] == delimiter:
        return AT_DELIMITER
    return AT_LINE_END if is_line_end(text[position]) else AT_OTHER


cdef inline CellEnd find_cell(const unsigned char* text, Py_ssize_t* position, Py_ssize_t stop, int delimiter,
                              int64_t* span, int64_t* n_lines) noexcept nogil:
    """Write the span of the cell at `position`, with its quotes and without blanks around it; move behind it.

    `n_lines` counts the line breaks inside quotes.
    """
    cdef Py_ssize_t at = position[0], start
    while at < stop and is_blank(text[at], delimiter):
        at += 1
    start = at
    if at < stop and text[at] == c'"':
        at += 1
        while True:
            while at < stop and text[at] != c'"':
                if text[at] == c'\n' or (text[at] == c'\r' and not (at + 1 < stop and text[at + 1] == c'\n')):
                    n_lines[0] += 1
                at += 1
            if at >= stop:
                position[0] = stop
                return IN_QUOTES
            if at + 1 < stop and text[at + 1] == c'"':
                at += 2
                continue
            at += 1
            break
        span[0] = start
        span[1] = at
        while at < stop and is_blank(text[at], delimiter):
            at += 1
    else:
        while at < stop and text[at] != delimiter and not is_line_end(text[at]):
            at += 1
        span[0] = start
        span[1] = at
        while span[1] > start and is_blank(text[span[1] - 1], delimiter):
            span[1] -= 1
    position[0] = at
    return end_at(text, at, stop, delimiter)


def split_records(const unsigned char[::1] buffer, Py_ssize_t start, Py_ssize_t stop, bint at_end, int delimiter,
                  int64_t line, int64_t[:, :, ::1] spans, int64_t[::1] line_of_row):
    """Find the cells of records until the text, the output or the well-formed records end. Blank lines are skipped.

    Parameters
    ----------
    buffer, start, stop : the text; the byte at `stop` exists and is a line feed
    at_end : the file ends at `stop`; else an incomplete last record is left alone
    delimiter : byte between cells
    line : number of the line at `start`
    spans : output, shape (n_rows, n_columns, 2): start and stop of each cell, with its quotes
    line_of_row : output: line on which each record starts

    Returns
    -------
    start, line, n_rows, status, end : where to continue (for MALFORMED: the malformed record, and the position up to
        which it was read) and how reading ended
    """
    cdef Py_ssize_t n_rows = 0, max_rows = min(spans.shape[0], line_of_row.shape[0])
    cdef Py_ssize_t n_columns = spans.shape[1], column, first
    cdef Py_ssize_t position = start
    cdef const unsigned char* text = &buffer[0]
    cdef int64_t n_lines
    cdef int64_t spare[2]
    cdef int64_t* span
    cdef CellEnd end
    cdef RowsStatus status = ROWS_USED_UP
    with nogil:
        while start < stop:
            first = start
            while first < stop and (text[first] == c' ' or text[first] == c'\t'):
                first += 1
            if first == stop and not at_end:
                break
            position = start
            n_lines = 0
            if first == stop or is_line_end(text[first]):
                position = first        # a blank line
                end = AT_LINE_END if first < stop else AT_STOP
                column = n_columns
            else:
                if n_rows == max_rows:
                    status = ROWS_FULL
                    break
                column = 0
                while True:
                    span = &spans[n_rows, column, 0] if column < n_columns else spare
                    span[0] = position
                    end = find_cell(text, &position, stop, delimiter, span, &n_lines)
                    column += 1
                    if end != AT_DELIMITER:
                        break
                    position += 1
            if (end == AT_STOP or end == IN_QUOTES) and not at_end:
                break
            if end == AT_LINE_END and text[position] == c'\r' and position + 1 == stop and not at_end:
                break       # the LF of a CR LF may follow
            if end == AT_OTHER or end == IN_QUOTES or column != n_columns:
                status = ROWS_MALFORMED
                break
            if first < stop and not is_line_end(text[first]):
                line_of_row[n_rows] = line
                n_rows += 1
            line += n_lines + 1
            if end == AT_STOP:
                start = stop
            elif text[position] == c'\r' and position + 1 < stop and text[position + 1] == c'\n':
                start = position + 2
            else:
                start = position + 1
    return start, line, n_rows, <int> status, position


def encode_cells(const unsigned char[::1] buffer, const int64_t[:, :] spans, dict codes, add, bint numbers_first,
                 int32_t[::1] found, double[::1] values):
    """Write the code of each cell, or its value.

    Parameters
    ----------
    buffer, spans : text, and for each row the start and stop of its cell in it
    codes : code of each cell text (bytes) seen so far
    add : called as add(text, row) for a text that is not in `codes`, returns its code
    numbers_first : a cell that is a number gets the code -1 and its value; else every cell gets a code
    found, values : outputs; a value is NaN where the code is not -1
    """
    cdef Py_ssize_t row
    cdef const unsigned char* start
    cdef const unsigned char* stop
    cdef Py_ssize_t length
    cdef double value
    cdef bytes text
    cdef object code
    for row in range(spans.shape[0]):
        length = spans[row, 1] - spans[row, 0]
        start = &buffer[spans[row, 0]]
        values[row] = NAN
        if numbers_first and length > 0:
            if start[0] == c'"':
                stop = read_number(start + 1, &value)
                stop = NULL if stop == NULL else stop + 1       # behind the closing quote
            else:
                stop = read_number(start, &value)
            if stop != NULL and stop == start + length:
                values[row] = value
                found[row] = -1
                continue
        text = (<const char*> start)[:length]
        code = codes.get(text)
        if code is None:
            code = add(text, row)
        found[row] = code
