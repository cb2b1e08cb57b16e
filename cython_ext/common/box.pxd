# Bounds of the box around a sample. The right side of `x <= k` starts at the next float64 after k.

from libc.math cimport INFINITY, nextafter


cdef inline double lower_bound(double center, double radius, double minimum) noexcept nogil:
    cdef double bound = center - radius
    return bound if bound > minimum else minimum


cdef inline double upper_bound(double center, double radius, double maximum) noexcept nogil:
    cdef double bound = center + radius
    return bound if bound < maximum else maximum


cdef inline double just_above(double threshold) noexcept nogil:
    """The smallest float64 that goes to the right of a threshold."""
    return nextafter(threshold, INFINITY)
