"""Growth of boosted trees under a loss that counts each sample twice: where it is, and where it is worst off in its box.

A tree scores one label. Samples of that label are positive: they want a high score, and the point of their box with the
lowest one is the worst. For the others it is the highest. The loss is known by two derivatives for each sample (Newton
boosting): those of the natural part, which count in the leaf that the sample falls into, and those of the certified
part, which count in the worst leaf that its box reaches.

Suppose that the left child of a split gets the lower value ("rising"). Then a positive sample whose box reaches both
children is worst off on the left, a negative one on the right. So the loss of the split is that of an ordinary split in
which each positive sample was moved to the low end of its box and each negative one to the high end. With the other
order ("falling") they are moved the other way. Two histograms and their running sums score all thresholds of a feature.

Values are known by their codes (boosting_codes.pyx). Derivatives are whole numbers, so that sums do not depend on the
order of additions. A leaf's samples are kept in lists: `own` samples fall into it, `pairs` are samples whose box reaches
it, first the positive ones. A tree grows level by level (`Growth`). Which features a level may test, who tries them, and
the loss itself are left to metasilvae.training.
"""

import numpy as np

from libc.math cimport INFINITY, fabs
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcpy, memset

cdef enum:
    # Codes are bytes.
    N_CODES = 256
    # Histograms that items are added to in turn: one that is added to over and over waits for its own last sum.
    N_TURNS = 4
    # It pays if a bin gets so many items on average.
    ITEMS_FOR_TURNS = 16

# Products that differ by this factor do so without rounding errors too.
cdef double SURELY = 1 - 1e-12

cdef struct Bin:
    int64_t gradient
    int64_t hessian


cdef object fill_worst(const int32_t[::1] pair_rows, const int64_t[::1] segments, const double[::1] values, double[::1] worst):
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


cdef object weigh_pairs(const int32_t[::1] pair_rows, const int64_t[::1] segments, const double[::1] values,
                const double[::1] worst, double fraction, const int32_t[::1] gradient, const int32_t[::1] hessian,
                int32_t[::1] pair_gradient, int32_t[::1] pair_hessian):
    """Write the derivatives of each pair: those of its sample in its worst leaf, and a fraction of them elsewhere."""
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
                        pair_gradient[pair] = <int32_t> (fraction * gradient[row])
                        pair_hessian[pair] = <int32_t> (fraction * hessian[row])


cdef object sum_derivatives(const int32_t[::1] own_rows, const int64_t[::1] own_starts, const int32_t[::1] own_gradient,
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
    """The value of a leaf that minimizes the loss; 0 where the second derivatives are rounded to 0."""
    cdef double bend = <double> hessian + penalty
    return <double> (-gradient) / bend if bend > 0 else 0.0


cdef inline double _merit(int64_t gradient, int64_t hessian, double penalty) noexcept nogil:
    """Twice what that value takes off the loss."""
    cdef double bend = <double> hessian + penalty
    return (<double> gradient) * (<double> gradient) / bend if bend > 0 else 0.0


cdef inline bint _is_less(int64_t gradient, int64_t hessian, int64_t other_gradient, int64_t other_hessian,
                          double penalty, double merit) noexcept nogil:
    """Whether the merits of two children are surely not above a number; says so without a division, which is slow."""
    cdef double first = <double> hessian + penalty, second = <double> other_hessian + penalty
    cdef double scaled = ((<double> gradient) * (<double> gradient) * second
                          + (<double> other_gradient) * (<double> other_gradient) * first)
    return scaled < merit * first * second * SURELY


cdef inline int32_t _sign_of_rise(int64_t gradient, int64_t hessian, int64_t other_gradient, int64_t other_hessian,
                                  double penalty) noexcept nogil:
    """1 if the value of the second child is surely the higher one, -1 if it is surely the lower one, else 0."""
    cdef double first = (<double> gradient) * (<double> other_hessian + penalty)
    cdef double second = (<double> other_gradient) * (<double> hessian + penalty)
    cdef double doubt = (1 - SURELY) * (fabs(first) + fabs(second))
    return (first - second > doubt) - (second - first > doubt)


cdef inline void _add(Bin* bin, const Bin* part) noexcept nogil:
    cdef int64_t gradient = bin.gradient + part.gradient, hessian = bin.hessian + part.hessian
    bin.gradient = gradient
    bin.hessian = hessian


cdef inline void _add_parts(const uint8_t* codes, const int32_t* rows, const Bin* parts, Py_ssize_t n,
                            Py_ssize_t n_bins, Bin* bins) noexcept nogil:
    """Add the parts of rows to the bins of their codes, in one of N_TURNS histograms after the other."""
    cdef Py_ssize_t item = 0, turn
    while item + N_TURNS <= n:
        for turn in range(N_TURNS):
            _add(&bins[turn * n_bins + codes[rows[item + turn]]], &parts[item + turn])
        item += N_TURNS
    while item < n:
        _add(&bins[codes[rows[item]]], &parts[item])
        item += 1


cdef inline void _add_few(const uint8_t* codes, const uint8_t* other_codes, const int32_t* rows, const Bin* parts,
                          Py_ssize_t n, Bin* bins, Bin* other_bins) noexcept nogil:
    """Add the parts of rows to the bins of their codes, in two histograms."""
    cdef Py_ssize_t item
    for item in range(n):
        _add(&bins[codes[rows[item]]], &parts[item])
        _add(&other_bins[other_codes[rows[item]]], &parts[item])


cdef inline void _find_range(const uint8_t* codes, const int32_t* rows, Py_ssize_t n, int64_t min_samples,
                             int64_t* counts, int32_t* first, int32_t* end) noexcept nogil:
    """The thresholds first..end-1 have at least so many of the rows on each side."""
    cdef Py_ssize_t item
    cdef int64_t n_left
    cdef int32_t low = N_CODES, high = 0, code
    if min_samples <= 1:
        for item in range(n):
            code = codes[rows[item]]
            low = min(low, code)
            high = max(high, code)
    else:
        memset(counts, 0, N_CODES * sizeof(int64_t))
        for item in range(n):
            counts[codes[rows[item]]] += 1
        n_left = 0
        for code in range(N_CODES):
            n_left += counts[code]
            if n_left >= min_samples and code < low:
                low = code
            if n - n_left >= min_samples:
                high = code + 1
    first[0] = low
    end[0] = high


cpdef object find_splits(const uint8_t[:, ::1] own_codes, const uint8_t[:, ::1] low_codes, const uint8_t[:, ::1] high_codes,
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
    cdef Bin rising[N_TURNS * N_CODES]
    cdef Bin falling[N_TURNS * N_CODES]
    cdef Bin own[N_TURNS * N_CODES]
    cdef int64_t counts[N_CODES]
    cdef Py_ssize_t place, leaf, item, n_leaves = own_starts.shape[0] - 1, n_own, n_positive, n_negative, most = 1
    cdef int32_t f, code, order, rise, n, first, end, turn, n_turns
    cdef const int32_t* pairs = &pair_rows[0] if pair_rows.shape[0] > 0 else NULL
    cdef const int32_t* own_list
    cdef const uint8_t* own_code
    cdef const int32_t* positive
    cdef const int32_t* negative
    cdef const uint8_t* low_code
    cdef const uint8_t* high_code
    cdef Bin* bins
    cdef int64_t gradient, hessian, total_gradient, total_hessian, left_gradient, left_hessian
    cdef double gain, best, whole
    for leaf in range(n_leaves):
        most = max(most, own_starts[leaf + 1] - own_starts[leaf] + segments[2 * leaf + 2] - segments[2 * leaf])
    # The derivatives of a leaf side by side: those of its own samples, then those of its pairs.
    cdef Bin* parts = <Bin*> malloc(most * sizeof(Bin))
    if parts == NULL:
        raise MemoryError
    with nogil:
        for leaf in range(n_leaves):
            n_own = own_starts[leaf + 1] - own_starts[leaf]
            if n_own < 2 * min_samples or n_own == 0:
                for place in range(start, stop):
                    gains[place, leaf] = 0.0
                continue
            own_list = &own_rows[own_starts[leaf]]
            positive = pairs + segments[2 * leaf]
            negative = pairs + segments[2 * leaf + 1]
            n_positive = segments[2 * leaf + 1] - segments[2 * leaf]
            n_negative = segments[2 * leaf + 2] - segments[2 * leaf + 1]
            for item in range(n_own):
                parts[item].gradient = own_gradient[own_list[item]]
                parts[item].hessian = own_hessian[own_list[item]]
            for item in range(n_positive + n_negative):
                parts[n_own + item].gradient = pair_gradient[segments[2 * leaf] + item]
                parts[n_own + item].hessian = pair_hessian[segments[2 * leaf] + item]
            for place in range(start, stop):
                gains[place, leaf] = 0.0
                f = features[place]
                n = n_thresholds[f]
                if n == 0:
                    continue
                _find_range(&own_codes[f, 0], own_list, n_own, min_samples, counts, &first, &end)
                if first >= end:
                    continue
                own_code = &own_codes[f, 0]
                low_code = &low_codes[f, 0]
                high_code = &high_codes[f, 0]
                n_turns = N_TURNS if n_own + n_positive + n_negative > ITEMS_FOR_TURNS * (n + 1) else 1
                memset(rising, 0, n_turns * (n + 1) * sizeof(Bin))
                memset(falling, 0, n_turns * (n + 1) * sizeof(Bin))
                if n_turns == 1:
                    _add_few(own_code, own_code, own_list, parts, n_own, rising, falling)
                    _add_few(low_code, high_code, positive, parts + n_own, n_positive, rising, falling)
                    _add_few(high_code, low_code, negative, parts + n_own + n_positive, n_negative, rising, falling)
                else:
                    memset(own, 0, n_turns * (n + 1) * sizeof(Bin))
                    _add_parts(own_code, own_list, parts, n_own, n + 1, own)
                    _add_parts(low_code, positive, parts + n_own, n_positive, n + 1, rising)
                    _add_parts(high_code, positive, parts + n_own, n_positive, n + 1, falling)
                    _add_parts(high_code, negative, parts + n_own + n_positive, n_negative, n + 1, rising)
                    _add_parts(low_code, negative, parts + n_own + n_positive, n_negative, n + 1, falling)
                    for turn in range(n_turns):
                        for code in range(n + 1):
                            if turn:
                                _add(&rising[code], &rising[turn * (n + 1) + code])
                                _add(&falling[code], &falling[turn * (n + 1) + code])
                            _add(&rising[code], &own[turn * (n + 1) + code])
                            _add(&falling[code], &own[turn * (n + 1) + code])
                total_gradient = total_hessian = 0
                for code in range(n + 1):
                    total_gradient += rising[code].gradient
                    total_hessian += rising[code].hessian
                whole = _merit(total_gradient, total_hessian, penalty)
                best = 0.0
                for order in range(2):
                    bins = &rising[0] if order == 0 else &falling[0]
                    left_gradient = left_hessian = 0
                    for code in range(end):
                        left_gradient += bins[code].gradient
                        left_hessian += bins[code].hessian
                        # A threshold without rows divides the leaf as the one before it does.
                        if code < first or (code > first and bins[code].gradient == 0 and bins[code].hessian == 0):
                            continue
                        gradient = total_gradient - left_gradient
                        hessian = total_hessian - left_hessian
                        if _is_less(left_gradient, left_hessian, gradient, hessian, penalty, whole + best):
                            continue
                        rise = _sign_of_rise(left_gradient, left_hessian, gradient, hessian, penalty)
                        if rise != 0 and (rise > 0) != (order == 0):
                            continue
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
    free(parts)


cdef object count_children(const uint8_t[:, ::1] own_codes, const uint8_t[:, ::1] low_codes, const uint8_t[:, ::1] high_codes,
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


cdef object fill_children(const uint8_t[:, ::1] own_codes, const uint8_t[:, ::1] low_codes, const uint8_t[:, ::1] high_codes,
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


cdef class Leaves:
    """The leaves of one level with their samples; leaf l has the lists that `fill_worst` describes.

    Attributes
    ----------
    nodes : numbers of the leaves in the tree
    pair_gradient, pair_hessian : derivatives of each pair, see `weigh_pairs`
    """

    cdef int32_t[::1] own_rows, pair_rows, pair_gradient, pair_hessian, nodes
    cdef int64_t[::1] own_starts, segments
    cdef double[::1] values

    def __cinit__(self, Py_ssize_t n_leaves, Py_ssize_t n_own, Py_ssize_t n_pairs):
        self.own_rows = np.empty(n_own, dtype=np.int32)
        self.pair_rows = np.empty(n_pairs, dtype=np.int32)
        self.pair_gradient, self.pair_hessian = np.empty((2, n_pairs), dtype=np.int32)
        self.nodes = np.empty(n_leaves, dtype=np.int32)
        self.own_starts = np.zeros(n_leaves + 1, dtype=np.int64)
        self.segments = np.zeros(2 * n_leaves + 1, dtype=np.int64)
        self.values = np.zeros(n_leaves)

    cdef inline Py_ssize_t count(self) noexcept nogil:
        return self.nodes.shape[0]


cdef struct Ranked:
    double gain
    Py_ssize_t leaf


cdef int _by_gain(const void* a, const void* b) noexcept nogil:
    """The largest gain first; of equal ones, the first leaf."""
    cdef const Ranked* one = <const Ranked*> a
    cdef const Ranked* other = <const Ranked*> b
    if one.gain != other.gain:
        return -1 if one.gain > other.gain else 1
    return -1 if one.leaf < other.leaf else one.leaf > other.leaf


cdef class Growth:
    """A tree that grows level by level.

    For each level, `begin_level` takes the features that may be tested, `find_splits` tries a part of them (parts may
    be tried by several threads at the same time), and `end_level` splits the leaves.

    Parameters
    ----------
    own_codes, low_codes, high_codes, n_thresholds : codes of all samples, shape (n_features, n_samples)
    own_gradient, own_hessian, gradient, hessian : derivatives of the natural and of the certified part, by sample
    is_positive : 1 for samples of the label that the tree scores
    rows : samples to grow on, increasing
    penalty : added to each sum of second derivatives
    min_samples : own samples that each leaf must have at least
    fraction : weight of a sample in leaves that it reaches but where it is not worst off
    most_pairs : pairs that a level may have; splits with the largest gain come first
    """

    cdef const uint8_t[:, ::1] _own_codes, _low_codes, _high_codes
    cdef const int32_t[::1] _n_thresholds, _own_gradient, _own_hessian, _gradient, _hessian, _features
    cdef double _penalty, _fraction
    cdef int64_t _min_samples, _most_pairs
    cdef Leaves _open
    cdef list _closed, _levels
    cdef int32_t _n_nodes
    # By sample: the worst value among all leaves, and among the closed ones.
    cdef double[::1] _worst, _worst_closed
    # By feature and leaf, see `find_splits`.
    cdef double[:, ::1] _gains
    cdef int32_t[:, ::1] _chosen
    cdef int64_t[:, :, ::1] _sums

    def __init__(self, const uint8_t[:, ::1] own_codes, const uint8_t[:, ::1] low_codes,
                 const uint8_t[:, ::1] high_codes, const int32_t[::1] n_thresholds, const int32_t[::1] own_gradient,
                 const int32_t[::1] own_hessian, const int32_t[::1] gradient, const int32_t[::1] hessian,
                 const uint8_t[::1] is_positive, const int32_t[::1] rows, double penalty, int64_t min_samples,
                 double fraction, int64_t most_pairs):
        cdef Py_ssize_t n_samples = own_codes.shape[1], n = rows.shape[0], item, place, kind
        cdef Leaves root = Leaves(1, n, n)
        self._own_codes, self._low_codes, self._high_codes = own_codes, low_codes, high_codes
        self._n_thresholds = n_thresholds
        self._own_gradient, self._own_hessian = own_gradient, own_hessian
        self._gradient, self._hessian = gradient, hessian
        self._penalty, self._min_samples, self._fraction, self._most_pairs = penalty, min_samples, fraction, most_pairs
        self._open, self._closed, self._levels = root, [], []
        self._n_nodes = 1
        self._worst, self._worst_closed = np.full((2, n_samples), np.inf)
        with nogil:
            place = 0
            for kind in range(2):
                for item in range(n):
                    if (is_positive[rows[item]] != 0) == (kind == 0):
                        root.pair_rows[place] = rows[item]
                        place += 1
                root.segments[kind + 1] = place
            for item in range(n):
                root.own_rows[item] = rows[item]
            root.own_starts[1] = n
            root.nodes[0] = 0
        weigh_pairs(root.pair_rows, root.segments, root.values, self._worst, 1.0, gradient, hessian,
                    root.pair_gradient, root.pair_hessian)
        self._solve(root, 0.0)

    @property
    def n_open(self):
        """Number of leaves that may still be split."""
        return self._open.count()

    cdef object _solve(self, Leaves leaves, double kept):
        """Move the values of leaves towards those that are best for the pairs as they are weighed."""
        cdef int64_t[:, ::1] sums = np.empty((leaves.count(), 2), dtype=np.int64)
        cdef Py_ssize_t leaf
        sum_derivatives(leaves.own_rows, leaves.own_starts, self._own_gradient, self._own_hessian, leaves.segments,
                        leaves.pair_gradient, leaves.pair_hessian, sums)
        for leaf in range(leaves.count()):
            leaves.values[leaf] = _value(sums[leaf, 0], sums[leaf, 1], self._penalty) + kept * leaves.values[leaf]

    def begin_level(self, const int32_t[::1] features):
        cdef Leaves leaves = self._open
        cdef Py_ssize_t n_leaves = leaves.count(), n_features = features.shape[0], n_samples = self._worst.shape[0]
        if n_samples:
            memcpy(&self._worst[0], &self._worst_closed[0], n_samples * sizeof(double))
        fill_worst(leaves.pair_rows, leaves.segments, leaves.values, self._worst)
        weigh_pairs(leaves.pair_rows, leaves.segments, leaves.values, self._worst, self._fraction, self._gradient,
                    self._hessian, leaves.pair_gradient, leaves.pair_hessian)
        self._features = features
        self._gains = np.empty((n_features, n_leaves))
        self._chosen = np.empty((n_features, n_leaves), dtype=np.int32)
        self._sums = np.empty((n_features, n_leaves, 4), dtype=np.int64)

    def find_splits(self, Py_ssize_t start, Py_ssize_t stop):
        """Try the features start..stop-1 of the level."""
        cdef Leaves leaves = self._open
        find_splits(self._own_codes, self._low_codes, self._high_codes, self._n_thresholds, self._features, start, stop,
                    leaves.own_rows, leaves.own_starts, self._own_gradient, self._own_hessian, leaves.pair_rows,
                    leaves.segments, leaves.pair_gradient, leaves.pair_hessian, self._penalty, self._min_samples,
                    self._gains, self._chosen, self._sums)

    def end_level(self):
        """Split each leaf by its best test; those without any, and those whose pairs would be too many, are closed."""
        cdef Leaves leaves = self._open, children
        cdef Py_ssize_t n_leaves = leaves.count(), leaf, side, kind, child
        cdef int64_t n_own, n_pairs
        split = np.full((4, n_leaves), -1, dtype=np.int32)
        cdef int32_t[:, ::1] node = split
        cdef int64_t[::1] best = np.zeros(n_leaves, dtype=np.int64)
        cdef int64_t[:, :, ::1] counts = np.empty((n_leaves, 2, 3), dtype=np.int64)
        self._choose(best, node[0], node[1], counts)
        child = n_own = n_pairs = 0
        for leaf in range(n_leaves):
            if node[0, leaf] >= 0:
                node[2, leaf] = <int32_t> (self._n_nodes + child)
                node[3, leaf] = <int32_t> (self._n_nodes + child + 1)
                child += 2
                n_own += counts[leaf, 0, 0] + counts[leaf, 1, 0]
                n_pairs += counts[leaf, 0, 1] + counts[leaf, 0, 2] + counts[leaf, 1, 1] + counts[leaf, 1, 2]
        children = Leaves(child, n_own, n_pairs)
        child = 0
        for leaf in range(n_leaves):
            if node[0, leaf] < 0:
                continue
            for side in range(2):
                children.nodes[child] = <int32_t> (self._n_nodes + child)
                children.own_starts[child + 1] = children.own_starts[child] + counts[leaf, side, 0]
                for kind in range(2):
                    children.segments[2 * child + kind + 1] = (
                        children.segments[2 * child + kind] + counts[leaf, side, 1 + kind])
                children.values[child] = _value(self._sums[best[leaf], leaf, 2 * side],
                                                self._sums[best[leaf], leaf, 2 * side + 1], self._penalty)
                child += 1
        fill_children(self._own_codes, self._low_codes, self._high_codes, node[0], node[1], leaves.own_rows,
                      leaves.own_starts, leaves.pair_rows, leaves.segments, children.own_rows, children.pair_rows)
        self._close(leaves, node[0], n_leaves - child // 2)
        self._levels.append(split)
        self._n_nodes += <int32_t> child
        self._open = children

    cdef int _choose(self, int64_t[::1] best, int32_t[::1] features, int32_t[::1] codes,
                     int64_t[:, :, ::1] counts) except -1:
        """The best test of each leaf, by its place among the features; feature -1 for none."""
        cdef Leaves leaves = self._open
        cdef Py_ssize_t n_leaves = leaves.count(), leaf, place
        cdef int64_t n_pairs = 0
        cdef double gain
        cdef Ranked* ranked
        for leaf in range(n_leaves):
            gain = 0.0
            for place in range(self._gains.shape[0]):
                if self._gains[place, leaf] > gain:
                    gain = self._gains[place, leaf]
                    best[leaf] = place
            if gain > 0:
                features[leaf] = self._features[best[leaf]]
                codes[leaf] = self._chosen[best[leaf], leaf]
        count_children(self._own_codes, self._low_codes, self._high_codes, features, codes, leaves.own_rows,
                       leaves.own_starts, leaves.pair_rows, leaves.segments, counts)
        for leaf in range(n_leaves):
            n_pairs += counts[leaf, 0, 1] + counts[leaf, 0, 2] + counts[leaf, 1, 1] + counts[leaf, 1, 2]
        if n_pairs <= self._most_pairs:
            return 0
        ranked = <Ranked*> malloc(n_leaves * sizeof(Ranked))
        if ranked == NULL:
            raise MemoryError
        for leaf in range(n_leaves):
            ranked[leaf].leaf = leaf
            ranked[leaf].gain = self._gains[best[leaf], leaf] if features[leaf] >= 0 else 0.0
        qsort(ranked, n_leaves, sizeof(Ranked), _by_gain)
        n_pairs = 0
        for place in range(n_leaves):
            leaf = ranked[place].leaf
            n_pairs += counts[leaf, 0, 1] + counts[leaf, 0, 2] + counts[leaf, 1, 1] + counts[leaf, 1, 2]
            if n_pairs > self._most_pairs:
                features[leaf] = -1
                codes[leaf] = -1
        free(ranked)
        return 0

    cdef object _close(self, Leaves leaves, const int32_t[::1] features, Py_ssize_t n_closed):
        """Keep the leaves that are not split."""
        cdef Leaves closed
        cdef Py_ssize_t leaf, item, side, place = 0
        cdef int64_t n_own = 0, n_pairs = 0
        if n_closed == 0:
            return
        for leaf in range(leaves.count()):
            if features[leaf] < 0:
                n_own += leaves.own_starts[leaf + 1] - leaves.own_starts[leaf]
                n_pairs += leaves.segments[2 * leaf + 2] - leaves.segments[2 * leaf]
        closed = Leaves(n_closed, n_own, n_pairs)
        n_own = n_pairs = 0
        with nogil:
            for leaf in range(leaves.count()):
                if features[leaf] >= 0:
                    continue
                closed.nodes[place] = leaves.nodes[leaf]
                closed.values[place] = leaves.values[leaf]
                for item in range(leaves.own_starts[leaf], leaves.own_starts[leaf + 1]):
                    closed.own_rows[n_own] = leaves.own_rows[item]
                    n_own += 1
                closed.own_starts[place + 1] = n_own
                for side in range(2):
                    for item in range(leaves.segments[2 * leaf + side], leaves.segments[2 * leaf + side + 1]):
                        closed.pair_rows[n_pairs] = leaves.pair_rows[item]
                        n_pairs += 1
                    closed.segments[2 * place + side + 1] = n_pairs
                place += 1
        self._closed.append(closed)
        fill_worst(closed.pair_rows, closed.segments, closed.values, self._worst_closed)

    def finish(self, Py_ssize_t n_refits):
        """Close all leaves and refit their values; returns feature, code, left, right and value of all nodes.

        A refit moves each value halfway to the one that is best if each sample stays worst off where it is now.
        """
        cdef Leaves leaves
        cdef Py_ssize_t leaf
        if self._open.count():
            self._closed.append(self._open)
            self._levels.append(np.full((4, self._open.count()), -1, dtype=np.int32))
        for _ in range(n_refits):
            self._worst[:] = INFINITY
            for leaves in self._closed:
                fill_worst(leaves.pair_rows, leaves.segments, leaves.values, self._worst)
            for leaves in self._closed:
                weigh_pairs(leaves.pair_rows, leaves.segments, leaves.values, self._worst, 0.0, self._gradient,
                            self._hessian, leaves.pair_gradient, leaves.pair_hessian)
                self._solve(leaves, 1.0)
                for leaf in range(leaves.count()):
                    leaves.values[leaf] *= 0.5
        value = np.zeros(self._n_nodes)
        cdef double[::1] values = value
        for leaves in self._closed:
            for leaf in range(leaves.count()):
                values[leaves.nodes[leaf]] = leaves.values[leaf]
        return (*np.concatenate(self._levels, axis=1), value)
