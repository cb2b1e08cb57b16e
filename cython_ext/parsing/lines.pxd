# Lines of a buffer of text, and how reading rows from it ended. A line ends with LF, CR LF or CR; the last one of a
# file may end with the file.

from libc.string cimport memchr


cdef enum RowsStatus:
    # How reading rows ended.
    ROWS_USED_UP            # the buffered text has no further complete line
    ROWS_FULL               # the output has no place for further rows
    ROWS_MALFORMED          # a row is malformed

cdef struct Lines:
    const unsigned char* text
    Py_ssize_t stop         # end of the buffered text; the byte there is readable
    bint at_end             # the text ends there, else it continues in the next buffer
    Py_ssize_t next_lf      # nearest LF and CR not before the current line, so that a file with only one kind of
    Py_ssize_t next_cr      # line end is not searched for the other kind again and again


cdef inline Py_ssize_t find_byte(Lines* lines, Py_ssize_t start, int byte) noexcept nogil:
    """Position of the next such byte, or the end of the text."""
    cdef const void* found = memchr(lines.text + start, byte, lines.stop - start)
    return lines.stop if found == NULL else <const unsigned char*> found - lines.text


cdef inline Py_ssize_t find_line_end(Lines* lines, Py_ssize_t start, Py_ssize_t* next_start) noexcept nogil:
    """End of the line at `start` without its line end, and the start of the next line; -1 if the line
    continues behind the buffered text or there is no line.
    """
    cdef Py_ssize_t end
    if lines.next_lf < start:
        lines.next_lf = find_byte(lines, start, c'\n')
    if lines.next_cr < start:
        lines.next_cr = find_byte(lines, start, c'\r')
    end = min(lines.next_lf, lines.next_cr)
    if end == lines.stop:
        if not lines.at_end or start == lines.stop:
            return -1
        next_start[0] = end
    elif lines.next_lf == end:
        next_start[0] = end + 1
    elif end + 1 == lines.stop:
        if not lines.at_end:
            return -1       # the LF of a CR LF may follow
        next_start[0] = end + 1
    else:
        next_start[0] = end + 2 if lines.text[end + 1] == c'\n' else end + 1
    return end
