# The smallest radius at which a box passes a test. Boxes are computed in float64 (ms_box.pxd), so this is a question about
# rounded sums; they are monotone in the radius, so that a search over all float64 numbers answers it exactly.

from libc.float cimport DBL_MAX
from libc.math cimport INFINITY, fabs, floor, nextafter
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from ms_box cimport lower_bound, upper_bound
from ms_node cimport reaches_left, reaches_right


cdef inline int64_t order_of(double radius) noexcept nogil:
    """Position of a number that is not negative among all of them."""
    cdef int64_t position
    memcpy(&position, &radius, sizeof(double))
    return position


cdef inline double number_at(int64_t position) noexcept nogil:
    cdef double radius
    memcpy(&radius, &position, sizeof(double))
    return radius


cdef inline double stretched(double radius, double weight, bint is_whole) noexcept nogil:
    """How far a box with this radius extends; 0 times anything is 0, and whole numbers are moved by whole numbers."""
    cdef double distance = radius * weight if radius > 0.0 else 0.0
    return floor(distance) if is_whole else distance


cdef inline bint passes(double radius, double center, double weight, double limit, bint is_whole, double threshold,
                        bint is_left) noexcept nogil:
    """Whether the box with this radius reaches the left (right) side of a threshold; limit is its minimum (maximum)."""
    if is_left:
        return reaches_left(lower_bound(center, stretched(radius, weight, is_whole), limit), threshold)
    return reaches_right(upper_bound(center, stretched(radius, weight, is_whole), limit), threshold)


cdef inline double critical_radius(double center, double weight, double limit, bint is_whole, double threshold,
                                   bint is_left) noexcept nogil:
    """The smallest radius at which the box reaches one side of a threshold, INFINITY if no finite one does."""
    cdef int64_t low, high, middle, step = 1
    cdef double guess
    if passes(0.0, center, weight, limit, is_whole, threshold, is_left):
        return 0.0
    if not passes(DBL_MAX, center, weight, limit, is_whole, threshold, is_left):
        return INFINITY
    # low does not pass, high does. The true radius lies within a few roundings of the guess, as a rule.
    low, high = 0, order_of(DBL_MAX)
    if is_whole:
        guess = 0.0 if is_left else 1.0
    else:
        guess = 0.5 * (nextafter(threshold, INFINITY) - threshold)
    guess = fabs((center - threshold if is_left else threshold - center) + (-guess if is_left else guess)) / weight
    if guess < DBL_MAX:
        middle = order_of(guess)
        if low < middle < high:
            if passes(guess, center, weight, limit, is_whole, threshold, is_left):
                high = middle
                while high - step > low:
                    if not passes(number_at(high - step), center, weight, limit, is_whole, threshold, is_left):
                        low = high - step
                        break
                    high -= step
                    step *= 2
            else:
                low = middle
                while low + step < high:
                    if passes(number_at(low + step), center, weight, limit, is_whole, threshold, is_left):
                        high = low + step
                        break
                    low += step
                    step *= 2
    while high - low > 1:
        middle = low + (high - low) // 2
        if passes(number_at(middle), center, weight, limit, is_whole, threshold, is_left):
            high = middle
        else:
            low = middle
    return number_at(high)


cdef inline double radius_to_value(double center, double weight, double minimum, double maximum,
                                   double value) noexcept nogil:
    """The smallest radius at which the box holds a value, for a center that lies between the limits."""
    if value < center:
        return critical_radius(center, weight, minimum, False, value, True)
    if value > center:
        return critical_radius(center, weight, maximum, False, nextafter(value, -INFINITY), False)
    return 0.0
