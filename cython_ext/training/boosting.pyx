"""Splits of boosted trees under a loss that counts each sample twice: where it is, and where it is worst off in its box.

A tree scores one label. Samples of that label are positive: they want a high score, and the point of their box with the
lowest one is the worst. For the others it is the highest. The loss is known by two derivatives for each sample (Newton
boosting): those of the natural part, which count in the leaf that the sample falls into, and those of the certified
part, which count in the worst leaf that its box reaches.

Suppose that the left child of a split gets the lower value ("rising"). Then a positive sample whose box reaches both
children is worst off on the left, a negative one on the right. So the loss of the split is that of an ordinary split in
which each positive sample was moved to the low end of its box and each negative one to the high end. With the other
order ("falling") they are moved the other way. Two histograms and their running sums score all thresholds of a feature.

Thresholds have numbers by feature, and the code of a value is the number of thresholds below it: x <= threshold j if and
only if code <= j. Derivatives are whole numbers, so that sums do not depend on the order of additions. A node's
samples are kept in lists: `own` samples fall into it, `pairs` are samples whose box reaches it, first the positive ones.
Choice among features, values of leaves and the loss itself are left to metasilvae.training.boosting.
"""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from common.box cimport lower_bound, upper_bound

# Codes are bytes.
MOST_THRESHOLDS = 255
cdef enum:
    N_CODES = 256

cdef struct Bin:
    int64_t gradient
    int64_t hessian

cdef struct OwnBin:
    int64_t gradient
    int64_t hessian
    int64_t count


cdef inline uint8_t _code(const double* thresholds, Py_ssize_t n_thresholds, double value) noexcept nogil:
    """Number of thresholds below a value."""
    cdef Py_ssize_t low = 0, half, left = n_thresholds
    while left > 0:
        half = left >> 1
        if thresholds[low + half] < value:
            low += half + 1
            left -= half + 1
        else:
            left = half
    return <uint8_t> low


def fill_codes(const double[:, ::1] X, const double[:, ::1] low_center, const double[:, ::1] high_center,
               const double[::1] radius_down, const double[::1] radius_up,
               const double[::1] minimum, const double[::1] maximum,
               const double[::1] thresholds, const int64_t[::1] threshold_starts, Py_ssize_t start, Py_ssize_t stop,
               uint8_t[:, ::1] own_codes, uint8_t[:, ::1] low_codes, uint8_t[:, ::1] high_codes):
    """Write the codes of the rows start..stop-1 and of the ends of their boxes, by feature and row."""
    cdef Py_ssize_t row, f, n
    cdef const double* own
    with nogil:
        for f in range(X.shape[1]):
            n = threshold_starts[f + 1] - threshold_starts[f]
            if n == 0:
                for row in range(start, stop):
                    own_codes[f, row] = low_codes[f, row] = high_codes[f, row] = 0
                continue
            own = &thresholds[threshold_starts[f]]
            for row in range(start, stop):
                own_codes[f, row] = _code(own, n, X[row, f])
                low_codes[f, row] = _code(own, n, lower_bound(low_center[row, f], radius_down[f], minimum[f]))
                high_codes[f, row] = _code(own, n, upper_bound(high_center[row, f], radius_up[f], maximum[f]))


def fill_worst(const int32_t[::1] pair_rows, const int64_t[::1] segments, const double[::1] values, double[::1] worst):
    """Lower the worst value of each sample to that of each leaf that it reaches.

    Values of positive samples are those of the leaves, values of negative ones have the other sign: low is bad.
    Leaf l has the positive pairs segments[2 l]..segments[2 l + 1] - 1 and then the negative ones.
    """
    cdef Py_ssize_t leaf, pair
    cdef double value
    with nogil:
        for leaf in range(values.shape[0]):
            value = values[leaf]
            for pair in range(segments[2 * leaf], segments[2 * leaf + 1]):
                if value < worst[pair_rows[pair]]:
                    worst[pair_rows[pair]] = value
            value = -value
            for pair in range(segments[2 * leaf + 1], segments[2 * leaf + 2]):
                if value < worst[pair_rows[pair]]:
                    worst[pair_rows[pair]] = value


def weigh_pairs(const int32_t[::1] pair_rows, const int64_t[::1] segments, const double[::1] values,
                const double[::1] worst, double share, const int32_t[::1] gradient, const int32_t[::1] hessian,
                int32_t[::1] pair_gradient, int32_t[::1] pair_hessian):
    """Write the derivatives of each pair: those of its sample in its worst leaf, and a share of them elsewhere."""
    cdef Py_ssize_t leaf, pair
    cdef int32_t row, side
    cdef double value
    with nogil:
        for leaf in range(values.shape[0]):
            for side in range(2):
                value = values[leaf] if side == 0 else -values[leaf]
                for pair in range(segments[2 * leaf + side], segments[2 * leaf + side + 1]):
                    row = pair_rows[pair]
                    if value <= worst[row]:
                        pair_gradient[pair] = gradient[row]
                        pair_hessian[pair] = hessian[row]
                    else:
                        pair_gradient[pair] = <int32_t> (share * gradient[row])
                        pair_hessian[pair] = <int32_t> (share * hessian[row])


def sum_derivatives(const int32_t[::1] own_rows, const int64_t[::1] own_starts, const int32_t[::1] own_gradient,
                    const int32_t[::1] own_hessian, const int64_t[::1] segments, const int32_t[::1] pair_gradient,
                    const int32_t[::1] pair_hessian, int64_t[:, ::1] sums):
    """Write the sums of first and second derivatives in each leaf."""
    cdef Py_ssize_t leaf, item
    with nogil:
        for leaf in range(sums.shape[0]):
            sums[leaf, 0] = sums[leaf, 1] = 0
            for item in range(own_starts[leaf], own_starts[leaf + 1]):
                sums[leaf, 0] += own_gradient[own_rows[item]]
                sums[leaf, 1] += own_hessian[own_rows[item]]
            for item in range(segments[2 * leaf], segments[2 * leaf + 2]):
                sums[leaf, 0] += pair_gradient[item]
                sums[leaf, 1] += pair_hessian[item]


cdef inline double _value(int64_t gradient, int64_t hessian, double penalty) noexcept nogil:
    """The value of a leaf that minimizes the loss."""
    return -(<double> gradient) / (<double> hessian + penalty)


cdef inline double _merit(int64_t gradient, int64_t hessian, double penalty) noexcept nogil:
    """Twice what that value takes off the loss."""
    return (<double> gradient) * (<double> gradient) / (<double> hessian + penalty)


def find_splits(const uint8_t[:, ::1] own_codes, const uint8_t[:, ::1] low_codes, const uint8_t[:, ::1] high_codes,
                const int32_t[::1] n_thresholds, const int32_t[::1] features, Py_ssize_t start, Py_ssize_t stop,
                const int32_t[::1] own_rows, const int64_t[::1] own_starts, const int32_t[::1] own_gradient,
                const int32_t[::1] own_hessian, const int32_t[::1] pair_rows, const int64_t[::1] segments,
                const int32_t[::1] pair_gradient, const int32_t[::1] pair_hessian, double penalty,
                int64_t min_samples, double[:, ::1] gains, int32_t[:, ::1] chosen, int64_t[:, :, ::1] sums):
    """Find the best threshold for each leaf and each of the features start..stop-1 of a list.

    Parameters
    ----------
    n_thresholds : number of thresholds of each feature
    own_gradient, own_hessian : natural part of the loss, by sample
    pair_gradient, pair_hessian : certified part, by pair
    penalty : added to each sum of second derivatives
    min_samples : own samples that each child must have at least
    gains : receives what the split takes off the loss, times two; 0 if there is none; shape (n_features, n_leaves)
    chosen : receives the threshold's number
    sums : receives first and second derivatives of the left, then of the right child
    """
    cdef Bin rising[N_CODES]
    cdef Bin falling[N_CODES]
    cdef OwnBin own[N_CODES]
    cdef Py_ssize_t place, leaf, item, n_leaves = own_starts.shape[0] - 1
    cdef int32_t f, row, code, order, n
    cdef const uint8_t* own_code
    cdef const uint8_t* low_code
    cdef const uint8_t* high_code
    cdef Bin* bins
    cdef int64_t gradient, hessian, total_gradient, total_hessian, n_own, n_left, left_gradient, left_hessian
    cdef double gain, best, whole
    with nogil:
        for place in range(start, stop):
            f = features[place]
            n = n_thresholds[f]
            own_code = &own_codes[f, 0]
            low_code = &low_codes[f, 0]
            high_code = &high_codes[f, 0]
            for leaf in range(n_leaves):
                gains[place, leaf] = 0.0
                n_own = own_starts[leaf + 1] - own_starts[leaf]
                if n == 0 or n_own < 2 * min_samples:
                    continue
                memset(rising, 0, (n + 1) * sizeof(Bin))
                memset(falling, 0, (n + 1) * sizeof(Bin))
                memset(own, 0, (n + 1) * sizeof(OwnBin))
                for item in range(own_starts[leaf], own_starts[leaf + 1]):
                    row = own_rows[item]
                    code = own_code[row]
                    own[code].gradient += own_gradient[row]
                    own[code].hessian += own_hessian[row]
                    own[code].count += 1
                for item in range(segments[2 * leaf], segments[2 * leaf + 1]):
                    row = pair_rows[item]
                    gradient = pair_gradient[item]
                    hessian = pair_hessian[item]
                    code = low_code[row]
                    rising[code].gradient += gradient
                    rising[code].hessian += hessian
                    code = high_code[row]
                    falling[code].gradient += gradient
                    falling[code].hessian += hessian
                for item in range(segments[2 * leaf + 1], segments[2 * leaf + 2]):
                    row = pair_rows[item]
                    gradient = pair_gradient[item]
                    hessian = pair_hessian[item]
                    code = high_code[row]
                    rising[code].gradient += gradient
                    rising[code].hessian += hessian
                    code = low_code[row]
                    falling[code].gradient += gradient
                    falling[code].hessian += hessian
                total_gradient = total_hessian = 0
                for code in range(n + 1):
                    total_gradient += own[code].gradient + rising[code].gradient
                    total_hessian += own[code].hessian + rising[code].hessian
                whole = _merit(total_gradient, total_hessian, penalty)
                best = 0.0
                for order in range(2):
                    bins = &rising[0] if order == 0 else &falling[0]
                    left_gradient = left_hessian = n_left = 0
                    for code in range(n):
                        n_left += own[code].count
                        left_gradient += own[code].gradient + bins[code].gradient
                        left_hessian += own[code].hessian + bins[code].hessian
                        if n_left < min_samples:
                            continue
                        gradient = total_gradient - left_gradient
                        hessian = total_hessian - left_hessian
                        if n_own - n_left < min_samples:
                            break
                        gain = (_merit(left_gradient, left_hessian, penalty) + _merit(gradient, hessian, penalty)
                                - whole)
                        if gain <= best:
                            continue
                        if ((_value(left_gradient, left_hessian, penalty) <= _value(gradient, hessian, penalty))
                                == (order == 0)):
                            best = gain
                            chosen[place, leaf] = code
                            sums[place, leaf, 0] = left_gradient
                            sums[place, leaf, 1] = left_hessian
                            sums[place, leaf, 2] = gradient
                            sums[place, leaf, 3] = hessian
                gains[place, leaf] = best


def count_children(const uint8_t[:, ::1] own_codes, const uint8_t[:, ::1] low_codes, const uint8_t[:, ::1] high_codes,
                   const int32_t[::1] split_features, const int32_t[::1] split_codes,
                   const int32_t[::1] own_rows, const int64_t[::1] own_starts,
                   const int32_t[::1] pair_rows, const int64_t[::1] segments, int64_t[:, :, ::1] counts):
    """Count the samples of both children of each leaf that is split (feature not -1): own, positive and negative pairs.

    `counts` has the shape (n_leaves, 2, 3).
    """
    cdef Py_ssize_t leaf, item, kind
    cdef int32_t f, code, row
    cdef int64_t n_left, n_right
    with nogil:
        for leaf in range(split_features.shape[0]):
            f = split_features[leaf]
            for kind in range(3):
                counts[leaf, 0, kind] = counts[leaf, 1, kind] = 0
            if f < 0:
                continue
            code = split_codes[leaf]
            n_left = 0
            for item in range(own_starts[leaf], own_starts[leaf + 1]):
                n_left += own_codes[f, own_rows[item]] <= code
            counts[leaf, 0, 0] = n_left
            counts[leaf, 1, 0] = own_starts[leaf + 1] - own_starts[leaf] - n_left
            for kind in range(2):
                n_left = n_right = 0
                for item in range(segments[2 * leaf + kind], segments[2 * leaf + kind + 1]):
                    row = pair_rows[item]
                    n_left += low_codes[f, row] <= code
                    n_right += high_codes[f, row] > code
                counts[leaf, 0, 1 + kind] = n_left
                counts[leaf, 1, 1 + kind] = n_right


def fill_children(const uint8_t[:, ::1] own_codes, const uint8_t[:, ::1] low_codes, const uint8_t[:, ::1] high_codes,
                  const int32_t[::1] split_features, const int32_t[::1] split_codes,
                  const int32_t[::1] own_rows, const int64_t[::1] own_starts,
                  const int32_t[::1] pair_rows, const int64_t[::1] segments,
                  int32_t[::1] child_own_rows, int32_t[::1] child_pair_rows):
    """Write the samples of the children of the leaves that are split, in order; a pair may go to both."""
    cdef Py_ssize_t leaf, item, kind, next_own = 0, next_pair = 0
    cdef int32_t f, code, row, side
    with nogil:
        for leaf in range(split_features.shape[0]):
            f = split_features[leaf]
            if f < 0:
                continue
            code = split_codes[leaf]
            for side in range(2):
                for item in range(own_starts[leaf], own_starts[leaf + 1]):
                    row = own_rows[item]
                    if (own_codes[f, row] > code) == side:
                        child_own_rows[next_own] = row
                        next_own += 1
                for kind in range(2):
                    for item in range(segments[2 * leaf + kind], segments[2 * leaf + kind + 1]):
                        row = pair_rows[item]
                        if (high_codes[f, row] > code) if side else (low_codes[f, row] <= code):
                            child_pair_rows[next_pair] = row
                            next_pair += 1


def add_tree(const uint8_t[:, ::1] own_codes, const uint8_t[:, ::1] low_codes, const uint8_t[:, ::1] high_codes,
             const int32_t[::1] node_features, const int32_t[::1] node_codes, const int32_t[::1] left,
             const int32_t[::1] right, const double[::1] values, int32_t[::1] waiting,
             Py_ssize_t start, Py_ssize_t stop, double[::1] own, double[::1] lowest, double[::1] highest):
    """Add the value of a tree for the rows start..stop-1: at the row, and the lowest and the highest in its box.

    Parameters
    ----------
    node_features : -1 in a leaf
    waiting : room for as many nodes as the tree is deep, and one more
    """
    cdef Py_ssize_t row, top
    cdef int32_t node, f
    cdef double low, high
    with nogil:
        for row in range(start, stop):
            node = 0
            while node_features[node] >= 0:
                node = left[node] if own_codes[node_features[node], row] <= node_codes[node] else right[node]
            own[row] += values[node]
            low = INFINITY
            high = -INFINITY
            waiting[0] = 0
            top = 1
            while top > 0:
                top -= 1
                node = waiting[top]
                f = node_features[node]
                while f >= 0:
                    if low_codes[f, row] <= node_codes[node]:
                        if high_codes[f, row] > node_codes[node]:
                            waiting[top] = right[node]
                            top += 1
                        node = left[node]
                    else:
                        node = right[node]
                    f = node_features[node]
                low = min(low, values[node])
                high = max(high, values[node])
            lowest[row] += low
            highest[row] += high
