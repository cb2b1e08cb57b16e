# One-hot groups: features of which exactly one is 1 and the others are 0 in every admissible sample.

from libc.stdint cimport int32_t


cdef inline bint groups_admit(const int32_t[::1] members, const int32_t[::1] group_starts,
                              const double* low, const double* high) noexcept nogil:
    """Whether a box contains a point in which every group is one-hot: one member 1, the others 0."""
    cdef Py_ssize_t group, position
    cdef int32_t f
    cdef int n_not_zero
    cdef bint some_one, forced_one
    for group in range(group_starts.shape[0] - 1):
        n_not_zero = 0
        some_one = False
        forced_one = False
        for position in range(group_starts[group], group_starts[group + 1]):
            f = members[position]
            if low[f] <= 1.0 <= high[f]:
                some_one = True
                if not (low[f] <= 0.0 <= high[f]):
                    forced_one = True
            if not (low[f] <= 0.0 <= high[f]):
                n_not_zero += 1
        if n_not_zero > 1 or not some_one or (n_not_zero == 1 and not forced_one):
            return False
    return True


cdef inline double _clamp(double value, double low, double high) noexcept nogil:
    if value < low:
        return low
    return high if value > high else value


cdef inline void fill_nearest(const int32_t[::1] members, const int32_t[::1] group_starts, const double* sample,
                              const double* low, const double* high, Py_ssize_t n_features,
                              double* point) noexcept nogil:
    """Point of an admissible box that is nearest to the sample, with one-hot groups."""
    cdef Py_ssize_t f, group, position
    cdef int32_t chosen, member
    for f in range(n_features):
        point[f] = _clamp(sample[f], low[f], high[f])
    for group in range(group_starts.shape[0] - 1):
        chosen = -1
        for position in range(group_starts[group], group_starts[group + 1]):
            member = members[position]
            if not (low[member] <= 0.0 <= high[member]):
                chosen = member         # cannot be 0, so it is the one
                break
            if low[member] <= 1.0 <= high[member] and (chosen < 0 or sample[member] > sample[chosen]):
                chosen = member
        for position in range(group_starts[group], group_starts[group + 1]):
            point[members[position]] = 1.0 if members[position] == chosen else 0.0
