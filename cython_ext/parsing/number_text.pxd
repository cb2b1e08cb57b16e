# Decimal text to float64: the same result as Python's float() in any locale, for plain decimal numbers only (no nan,
# inf, underscores, hexadecimal digits, nor anything that overflows).
#
# A mantissa of at most 2**53 and a power of ten of at most 10**22 are both exact in float64, so one multiplication or
# division rounds correctly. Everything else goes to PyOS_string_to_double.

from libc.math cimport INFINITY, isfinite
from libc.stdint cimport uint64_t


cdef extern from "Python.h":
    ctypedef struct PyObject
    double PyOS_string_to_double(const char* text, char** stop, PyObject* overflow) except? -1.0


cdef extern from *:
    """
    static const double ms_powers_of_ten[23] = {
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22
    };
    """
    const double ms_powers_of_ten[23]


cdef enum:
    MOST_DIGITS = 19            # any such mantissa fits into 64 bits
    LARGEST_EXACT_POWER = 22
    LARGEST_EXPONENT = 100000   # beyond it every float64 is 0 or infinite, unless thousands of digits precede


cdef inline double round_by_python(const unsigned char* text) noexcept with gil:
    """Value of a number of any length; infinite if it is too large."""
    cdef char* stop
    try:
        return PyOS_string_to_double(<const char*> text, &stop, NULL)
    except Exception:
        return INFINITY


cdef inline const unsigned char* read_digits(const unsigned char* position, uint64_t* mantissa) noexcept nogil:
    """Append decimal digits to a mantissa, which may overflow; returns the position behind them."""
    cdef unsigned int digit
    while True:
        digit = <unsigned int> position[0] - c'0'
        if digit > 9:
            return position
        mantissa[0] = mantissa[0] * 10 + digit
        position += 1


cdef inline const unsigned char* read_number(const unsigned char* text, double* value) noexcept nogil:
    """Read the number that starts at `text`; return the position behind it, NULL if there is none or it overflows.

    Does not look for the end of the text: some byte behind the number must be readable and no part of one.
    """
    cdef const unsigned char* position = text
    cdef const unsigned char* ahead
    cdef const unsigned char* fraction
    cdef bint negative = position[0] == c'-'
    cdef bint small = False
    cdef uint64_t mantissa = 0
    cdef unsigned int digit
    cdef Py_ssize_t n_digits
    cdef int exponent = 0
    cdef int power = 0
    cdef double result
    if negative or position[0] == c'+':
        position += 1
    ahead = position
    position = read_digits(position, &mantissa)
    n_digits = position - ahead
    if position[0] == c'.':
        position += 1
        fraction = position
        position = read_digits(position, &mantissa)
        n_digits += position - fraction
        if n_digits <= MOST_DIGITS:
            power = -<int> (position - fraction)
    if n_digits == 0:
        return NULL
    if position[0] | 32 == c'e':
        ahead = position + 1
        small = ahead[0] == c'-'
        if small or ahead[0] == c'+':
            ahead += 1
        if c'0' <= ahead[0] <= c'9':
            while True:
                digit = <unsigned int> ahead[0] - c'0'
                if digit > 9:
                    break
                if exponent < LARGEST_EXPONENT:
                    exponent = exponent * 10 + <int> digit
                ahead += 1
            position = ahead
            power += -exponent if small else exponent
    if (n_digits <= MOST_DIGITS and mantissa <= (<uint64_t> 1 << 53)
            and -LARGEST_EXACT_POWER <= power <= LARGEST_EXACT_POWER):
        result = <double> mantissa
        if power < 0:
            result /= ms_powers_of_ten[-power]
        elif power > 0:
            result *= ms_powers_of_ten[power]
        value[0] = -result if negative else result
        return position
    result = round_by_python(text)
    if not isfinite(result):
        return NULL
    value[0] = result
    return position
