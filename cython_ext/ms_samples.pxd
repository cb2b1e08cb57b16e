# Training samples as the kernels of the trainer see them: each value is replaced by its rank among the distinct values
# of its feature. A test `x <= k` then compares ranks, and so do the tests whether a sample's box reaches a side, because
# the ends of the boxes rise with x.

from libc.stdint cimport int32_t, int64_t

from ms_box cimport lower_bound, upper_bound
from ms_node cimport goes_left, reaches_left, reaches_right


cdef struct Samples:
    int32_t n_samples
    int32_t n_features
    int32_t n_labels
    const int32_t* codes            # rank of sample i in feature f: codes[f * n_samples + i]
    const int32_t* labels
    const double* values            # distinct values of feature f, rising, from value_starts[f] on
    const int64_t* value_starts
    const double* radius_down
    const double* radius_up
    const double* minimum
    const double* maximum


cdef struct Cut:
    # A test of feature f against a threshold, in ranks.
    int32_t left            # a sample with this rank or less goes left
    int32_t reach_left      # a box with this rank or less reaches left
    int32_t reach_right     # a box with more than this rank reaches right


cdef inline Cut cut_at(const Samples* samples, int32_t feature, double threshold) noexcept nogil:
    """Translate a threshold into ranks by the same comparisons that classify and verify."""
    cdef const double* values = samples.values + samples.value_starts[feature]
    cdef int32_t n_values = <int32_t> (samples.value_starts[feature + 1] - samples.value_starts[feature])
    cdef int32_t low, high, middle
    cdef Cut cut
    low, high = 0, n_values
    while low < high:
        middle = (low + high) // 2
        if goes_left(values[middle], threshold):
            low = middle + 1
        else:
            high = middle
    cut.left = low - 1
    low, high = 0, n_values
    while low < high:
        middle = (low + high) // 2
        if reaches_left(lower_bound(values[middle], samples.radius_down[feature], samples.minimum[feature]), threshold):
            low = middle + 1
        else:
            high = middle
    cut.reach_left = low - 1
    low, high = 0, n_values
    while low < high:
        middle = (low + high) // 2
        if reaches_right(upper_bound(values[middle], samples.radius_up[feature], samples.maximum[feature]), threshold):
            high = middle
        else:
            low = middle + 1
    cut.reach_right = low - 1
    return cut
