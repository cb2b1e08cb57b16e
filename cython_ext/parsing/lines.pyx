"""Complete lines of a buffer, and integer codes for spans of label text. What a new label means is left to the caller.

Reading rows of numbers is left to csv_rows.pyx and libsvm_rows.pyx.
"""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memchr

from parsing.lines cimport Lines, find_byte, find_line_end


def next_line(const unsigned char[::1] buffer, Py_ssize_t start, Py_ssize_t stop, bint at_end):
    """End of the line at `start` and start of the one behind it; (-1, start) if the line is not complete."""
    cdef Lines lines = Lines(&buffer[0], stop, at_end, start - 1, start - 1)
    cdef Py_ssize_t next_start = start
    cdef Py_ssize_t end
    cdef const void* found
    # A CR counts only before the LF; to look for it in the whole buffer would take long for each of many lines.
    lines.next_lf = find_byte(&lines, start, c'\n')
    found = memchr(lines.text + start, c'\r', lines.next_lf - start)
    lines.next_cr = stop if found == NULL else <const unsigned char*> found - lines.text
    end = find_line_end(&lines, start, &next_start)
    return end, next_start


def encode_labels(const unsigned char[::1] buffer, const int64_t[:, ::1] spans, dict codes, add, int32_t[::1] y):
    """Write the code of each label.

    Parameters
    ----------
    buffer, spans : text, and for each row the start and stop of its label in it
    codes : code of each label text (bytes) seen so far
    add : called as add(text, row) for a text that is not in `codes`, returns its code
    y : receives the codes
    """
    cdef Py_ssize_t row
    cdef const char* start
    cdef bytes text
    cdef object code
    for row in range(spans.shape[0]):
        start = <const char*> &buffer[spans[row, 0]]
        text = start[:spans[row, 1] - spans[row, 0]]
        code = codes.get(text)
        if code is None:
            code = add(text, row)
        y[row] = code
