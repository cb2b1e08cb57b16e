"""Single numbers from text, and rows of float64 as CSV and LIBSVM text with the shortest decimals that read back.

Labels are written as they are; metasilvae.formats checks whether a format can hold them.
"""

from libc.math cimport floor, isfinite, signbit
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy, strlen

from parsing.number_text cimport read_number


cdef extern from "Python.h":
    char* PyOS_double_to_string(double value, char kind, int precision, int flags, int* type) except NULL
    void PyMem_Free(void* pointer)


cdef enum:
    LONGEST_NUMBER = 25     # -1.2345678901234567e-308 and a separator
    LONGEST_INDEX = 21

LONGEST_CELL = LONGEST_NUMBER
LONGEST_ENTRY = LONGEST_NUMBER + LONGEST_INDEX


def parse_number(bytes token):
    """Value of a token that is a plain finite decimal number as a whole, else None."""
    cdef double value = 0.0
    cdef const unsigned char* start = token
    cdef const unsigned char* stop = read_number(start, &value)
    if stop == NULL or stop != start + len(token):
        return None
    return value


cdef char* put_whole(char* target, uint64_t number) noexcept nogil:
    cdef char digits[20]
    cdef int n = 0
    while True:
        digits[n] = <char> (c'0' + <int> (number % 10))
        number //= 10
        n += 1
        if number == 0:
            break
    while n > 0:
        n -= 1
        target[0] = digits[n]
        target += 1
    return target


cdef char* put_number(char* target, double value) except NULL:
    """Write a finite value; whole numbers get no fraction."""
    cdef char* text
    cdef size_t length
    if -1e15 < value < 1e15 and value == floor(value):
        if signbit(value):
            target[0] = c'-'
            target += 1
            value = -value
        return put_whole(target, <uint64_t> value)
    if not isfinite(value):
        raise ValueError("not a finite number")
    text = PyOS_double_to_string(value, c'r', 0, 0, NULL)
    length = strlen(text)
    memcpy(target, text, length)
    PyMem_Free(text)
    return target + length


cdef char* put_label(char* target, bytes label) except NULL:
    memcpy(target, <const char*> label, len(label))
    return target + len(label)


def write_csv_rows(const double[:, ::1] X, const int32_t[::1] y, list labels, unsigned char[::1] text):
    """Write `label,value,value...` lines; return the number of bytes.

    `text` holds at least LONGEST_CELL bytes per value plus the longest label and a line feed per row.
    """
    cdef char* start = <char*> &text[0]
    cdef char* target = start
    cdef Py_ssize_t row, feature
    for row in range(X.shape[0]):
        target = put_label(target, labels[y[row]])
        for feature in range(X.shape[1]):
            target[0] = c','
            target = put_number(target + 1, X[row, feature])
        target[0] = c'\n'
        target += 1
    return target - start


def write_libsvm_rows(const double[:, ::1] X, const int32_t[::1] y, list labels, int64_t base,
                      const unsigned char[::1] always, unsigned char[::1] text):
    """Write `label index:value ...` lines without zeros; return the number of bytes.

    `always` marks columns to be written in the first row even if they are 0. `text` holds at least LONGEST_ENTRY
    bytes per value plus the longest label and a line feed per row.
    """
    cdef char* start = <char*> &text[0]
    cdef char* target = start
    cdef Py_ssize_t row, feature
    cdef double value
    for row in range(X.shape[0]):
        target = put_label(target, labels[y[row]])
        for feature in range(X.shape[1]):
            value = X[row, feature]
            if value == 0.0 and not signbit(value) and not (row == 0 and always[feature]):
                continue
            target[0] = c' '
            target = put_whole(target + 1, <uint64_t> (feature + base))
            target[0] = c':'
            target = put_number(target + 1, value)
        target[0] = c'\n'
        target += 1
    return target - start
