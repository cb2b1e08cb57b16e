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

from libc.math cimport INFINITY, fabs
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from common.box cimport lower_bound, upper_bound

# Codes are bytes.
MOST_THRESHOLDS = 255
cdef enum:
    N_CODES = 256
    # Histograms that items are added to in turn: one that is added to over and over waits for its own last sum.
    N_TURNS = 4
    # It pays if a bin gets so many items on average.
    ITEMS_FOR_TURNS = 16
    # Steps to a better value of a leaf: how often one is halved, and how many are taken for a node to be pruned.
    MOST_HALVED = 4
    STEPS_OF_PRUNING = 3

# Products that differ by this factor do so without rounding errors too.
cdef double SURELY = 1 - 1e-12

cdef struct Bin:
    int64_t gradient
    int64_t hessian


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


cdef inline int32_t _find_leaf(const uint8_t[:, ::1] codes, const int32_t[::1] node_features,
                               const int32_t[::1] node_codes, const int32_t[::1] left, const int32_t[::1] right,
                               Py_ssize_t row) noexcept nogil:
    """The leaf that a row falls into."""
    cdef int32_t node = 0
    while node_features[node] >= 0:
        node = left[node] if codes[node_features[node], row] <= node_codes[node] else right[node]
    return node


cdef inline int32_t _next_leaf(const uint8_t[:, ::1] low_codes, const uint8_t[:, ::1] high_codes,
                               const int32_t[::1] node_features, const int32_t[::1] node_codes,
                               const int32_t[::1] left, const int32_t[::1] right, Py_ssize_t row,
                               int32_t[::1] waiting, Py_ssize_t* n_waiting) noexcept nogil:
    """The leftmost leaf below the last one of the waiting nodes that the box of a row reaches; others wait."""
    cdef int32_t node, f
    n_waiting[0] -= 1
    node = waiting[n_waiting[0]]
    f = node_features[node]
    while f >= 0:
        if low_codes[f, row] <= node_codes[node]:
            if high_codes[f, row] > node_codes[node]:
                waiting[n_waiting[0]] = right[node]
                n_waiting[0] += 1
            node = left[node]
        else:
            node = right[node]
        f = node_features[node]
    return node


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
    cdef Py_ssize_t row, n_waiting
    cdef int32_t leaf
    cdef double low, high
    with nogil:
        for row in range(start, stop):
            own[row] += values[_find_leaf(own_codes, node_features, node_codes, left, right, row)]
            low = INFINITY
            high = -INFINITY
            waiting[0] = 0
            n_waiting = 1
            while n_waiting > 0:
                leaf = _next_leaf(low_codes, high_codes, node_features, node_codes, left, right, row, waiting,
                                  &n_waiting)
                low = min(low, values[leaf])
                high = max(high, values[leaf])
            lowest[row] += low
            highest[row] += high


def reach_leaves(const uint8_t[:, ::1] own_codes, const uint8_t[:, ::1] low_codes, const uint8_t[:, ::1] high_codes,
                 const int32_t[::1] node_features, const int32_t[::1] node_codes, const int32_t[::1] left,
                 const int32_t[::1] right, const int32_t[::1] numbers, int32_t[::1] waiting,
                 int32_t[::1] own_leaves, int64_t[::1] starts, int32_t[::1] reached):
    """Write the leaf that each row falls into, and those that its box reaches, row by row, by their `numbers`.

    Returns the number of pairs of a row and a leaf. If there is less room, only the first ones are written.
    """
    cdef Py_ssize_t row, n_waiting
    cdef int32_t leaf
    cdef int64_t total = 0, room = reached.shape[0]
    with nogil:
        starts[0] = 0
        for row in range(low_codes.shape[1]):
            own_leaves[row] = numbers[_find_leaf(own_codes, node_features, node_codes, left, right, row)]
            waiting[0] = 0
            n_waiting = 1
            while n_waiting > 0:
                leaf = _next_leaf(low_codes, high_codes, node_features, node_codes, left, right, row, waiting,
                                  &n_waiting)
                if total < room:
                    reached[total] = numbers[leaf]
                total += 1
            starts[row + 1] = total
    return total


def group_rows(const int64_t[::1] starts, const int32_t[::1] reached, int64_t[::1] leaf_starts,
               int32_t[::1] leaf_rows):
    """Write the rows that reach each leaf, increasing: those of leaf l are leaf_starts[l]..leaf_starts[l + 1] - 1."""
    cdef Py_ssize_t row, place, leaf, n_leaves = leaf_starts.shape[0] - 1
    with nogil:
        for leaf in range(n_leaves + 1):
            leaf_starts[leaf] = 0
        for place in range(starts[starts.shape[0] - 1]):
            leaf_starts[reached[place] + 1] += 1
        for leaf in range(n_leaves):
            leaf_starts[leaf + 1] += leaf_starts[leaf]
        for row in range(starts.shape[0] - 1):
            for place in range(starts[row], starts[row + 1]):
                leaf_rows[leaf_starts[reached[place]]] = <int32_t> row
                leaf_starts[reached[place]] += 1
        for leaf in range(n_leaves, 0, -1):
            leaf_starts[leaf] = leaf_starts[leaf - 1]
        leaf_starts[0] = 0


# The two lowest values that a row's box reaches, and their leaves.
cdef struct Lowest:
    double first
    double second
    int32_t first_leaf
    int32_t second_leaf


# A row that reaches leaves to be changed: its lowest values elsewhere and anywhere, and the certified part of its loss.
cdef struct Part:
    double outside
    double worst
    double sign
    double gradient
    double half_hessian


cdef struct Polished:
    # Leaves have numbers, in preorder. Those of a pruned node keep their numbers and have one value.
    const int64_t* starts
    const int32_t* reached
    const int64_t* leaf_starts
    const int32_t* leaf_rows
    const double* sign
    const double* gradient
    const int32_t* hessian
    double* values
    Lowest* lowest
    int32_t* seen
    Part* parts


cdef inline void _scan(Polished* tree, int32_t row) noexcept nogil:
    """Find the two lowest values of a row."""
    cdef Lowest* found = &tree.lowest[row]
    cdef Py_ssize_t place
    cdef int32_t leaf
    cdef double value
    found.first = found.second = INFINITY
    found.first_leaf = found.second_leaf = -1
    for place in range(tree.starts[row], tree.starts[row + 1]):
        leaf = tree.reached[place]
        value = tree.sign[row] * tree.values[leaf]
        if value < found.first:
            found.second = found.first
            found.second_leaf = found.first_leaf
            found.first = value
            found.first_leaf = leaf
        elif value < found.second:
            found.second = value
            found.second_leaf = leaf


cdef inline Py_ssize_t _gather(Polished* tree, int32_t first, int32_t last, int32_t stamp) noexcept nogil:
    """List the rows whose boxes reach the leaves first..last-1, with their lowest values outside of these leaves."""
    cdef Py_ssize_t n = 0, item, place
    cdef int32_t row, leaf
    cdef Lowest* low
    cdef Part* part
    for item in range(tree.leaf_starts[first], tree.leaf_starts[last]):
        row = tree.leaf_rows[item]
        if last > first + 1:
            if tree.seen[row] == stamp:
                continue
            tree.seen[row] = stamp
        low = &tree.lowest[row]
        part = &tree.parts[n]
        n += 1
        part.sign = tree.sign[row]
        part.gradient = tree.sign[row] * tree.gradient[row]
        part.half_hessian = 0.5 * tree.hessian[row]
        part.worst = low.first
        if low.first_leaf < first or low.first_leaf >= last:
            part.outside = low.first
        elif low.second_leaf < first or low.second_leaf >= last:
            part.outside = low.second
        else:
            part.outside = INFINITY
            for place in range(tree.starts[row], tree.starts[row + 1]):
                leaf = tree.reached[place]
                if leaf < first or leaf >= last:
                    part.outside = min(part.outside, tree.sign[row] * tree.values[leaf])
    return n


cdef inline void _set(Polished* tree, int32_t first, int32_t last, double value) noexcept nogil:
    """Give the leaves first..last-1 a value."""
    cdef Py_ssize_t item
    cdef int32_t row, leaf
    cdef double signed
    cdef Lowest* low
    for leaf in range(first, last):
        tree.values[leaf] = value
    for item in range(tree.leaf_starts[first], tree.leaf_starts[last]):
        row = tree.leaf_rows[item]
        low = &tree.lowest[row]
        signed = tree.sign[row] * value
        if last > first + 1:
            _scan(tree, row)
        elif low.first_leaf == first:
            if signed <= low.second:
                low.first = signed
            else:
                _scan(tree, row)
        elif signed < low.first:
            low.second = low.first
            low.second_leaf = low.first_leaf
            low.first = signed
            low.first_leaf = first
        elif low.second_leaf == first:
            if signed <= low.second:
                low.second = signed
            else:
                _scan(tree, row)
        elif signed < low.second:
            low.second = signed
            low.second_leaf = first


cdef inline double _own_loss(double gradient, double hessian, double value) noexcept nogil:
    return value * (gradient + 0.5 * hessian * value)


cdef inline double _loss_of(const Part* parts, Py_ssize_t n, double own_gradient, double own_hessian,
                            double value) noexcept nogil:
    """The loss of the gathered rows if all leaves that were gathered have a value."""
    cdef double loss = _own_loss(own_gradient, own_hessian, value), worst
    cdef Py_ssize_t item
    for item in range(n):
        worst = min(parts[item].outside, parts[item].sign * value)
        loss += worst * (parts[item].gradient + parts[item].half_hessian * worst)
    return loss


cdef inline double _step(const Part* parts, Py_ssize_t n, double own_gradient, double own_hessian,
                         double value) noexcept nogil:
    """The best value for the rows that are worst off in the gathered leaves at a value."""
    cdef double gradient = own_gradient, hessian = own_hessian
    cdef Py_ssize_t item
    for item in range(n):
        if parts[item].sign * value <= parts[item].outside:
            gradient += parts[item].sign * parts[item].gradient
            hessian += 2 * parts[item].half_hessian
    return -gradient / hessian if hessian > 0 else value


cdef inline double _fit(const Part* parts, Py_ssize_t n, double own_gradient, double own_hessian, double value,
                        int32_t n_steps, double* loss) noexcept nogil:
    """A value with a smaller loss than the given one, if steps find one; the loss is that of the value returned."""
    cdef double tried, tried_loss = 0.0
    cdef int32_t step, n_halved
    loss[0] = _loss_of(parts, n, own_gradient, own_hessian, value)
    for step in range(n_steps):
        tried = _step(parts, n, own_gradient, own_hessian, value)
        for n_halved in range(MOST_HALVED):
            if tried == value:
                return value
            tried_loss = _loss_of(parts, n, own_gradient, own_hessian, tried)
            if tried_loss < loss[0]:
                break
            tried = 0.5 * (tried + value)
        else:
            return value
        value = tried
        loss[0] = tried_loss
    return value


def polish_tree(const int32_t[::1] left, const int32_t[::1] right, const int32_t[::1] first_leaf,
                const int32_t[::1] last_leaf, const int64_t[::1] starts, const int32_t[::1] reached,
                const int64_t[::1] leaf_starts, const int32_t[::1] leaf_rows, const double[::1] own_gradient,
                const double[::1] own_hessian, const double[::1] sign, const double[::1] gradient,
                const int32_t[::1] hessian, double penalty, bint prunes, int32_t n_passes, double[::1] values,
                uint8_t[::1] is_leaf):
    """Lower the loss of a tree: move the value of one leaf after another, and prune where that costs nothing.

    The loss is that of the derivatives, with the certified part of each row at the worst one of all leaves that its
    box reaches. It never rises.

    Parameters
    ----------
    left, right : children of the nodes, in preorder; -1 in leaves
    first_leaf, last_leaf : leaves below each node, by number; the last one is excluded
    starts, reached : leaves that the box of each row reaches
    leaf_starts, leaf_rows : the same by leaf
    own_gradient, own_hessian : natural part of the loss, summed over the leaves before each one
    sign : 1 for positive rows, -1 for negative ones
    penalty : added to each sum of second derivatives
    prunes : whether to prune before the last pass
    values : values of the leaves by number; those of a pruned node are all the same
    is_leaf : by node; receives 1 where the node is pruned to a leaf
    """
    cdef Polished tree
    cdef Py_ssize_t n, item, n_rows = sign.shape[0]
    cdef int32_t number, node, n_nodes = left.shape[0], first, middle, last, done, stamp = 0, row
    cdef double value, loss, pruned
    tree.starts = &starts[0]
    tree.reached = &reached[0]
    tree.leaf_starts = &leaf_starts[0]
    tree.leaf_rows = &leaf_rows[0]
    tree.sign = &sign[0]
    tree.gradient = &gradient[0]
    tree.hessian = &hessian[0]
    tree.values = &values[0]
    tree.lowest = <Lowest*> malloc(n_rows * sizeof(Lowest))
    tree.parts = <Part*> malloc(n_rows * sizeof(Part))
    tree.seen = <int32_t*> malloc(n_rows * sizeof(int32_t))
    if tree.lowest == NULL or tree.parts == NULL or tree.seen == NULL:
        free(tree.lowest)
        free(tree.parts)
        free(tree.seen)
        raise MemoryError
    with nogil:
        for row in range(n_rows):
            tree.seen[row] = -1
            _scan(&tree, row)
        for number in range(n_passes):
            if prunes and number == n_passes - 1:
                for node in range(n_nodes - 1, -1, -1):
                    if is_leaf[node] or not (is_leaf[left[node]] and is_leaf[right[node]]):
                        continue
                    first = first_leaf[node]
                    middle = first_leaf[right[node]]
                    last = last_leaf[node]
                    n = _gather(&tree, first, last, stamp)
                    stamp += 1
                    loss = (_own_loss(own_gradient[middle] - own_gradient[first],
                                      own_hessian[middle] - own_hessian[first] + penalty, values[first])
                            + _own_loss(own_gradient[last] - own_gradient[middle],
                                        own_hessian[last] - own_hessian[middle] + penalty, values[middle]))
                    for item in range(n):
                        value = tree.parts[item].worst
                        loss += value * (tree.parts[item].gradient + tree.parts[item].half_hessian * value)
                    value = _fit(tree.parts, n, own_gradient[last] - own_gradient[first],
                                 own_hessian[last] - own_hessian[first] + penalty,
                                 0.5 * (values[first] + values[middle]), STEPS_OF_PRUNING, &pruned)
                    if pruned <= loss:
                        is_leaf[node] = 1
                        _set(&tree, first, last, value)
            done = 0
            for node in range(n_nodes):
                # Below a pruned node nothing is left to do.
                if not is_leaf[node] or first_leaf[node] < done:
                    continue
                first = first_leaf[node]
                done = last = last_leaf[node]
                n = _gather(&tree, first, last, stamp)
                stamp += 1
                value = _fit(tree.parts, n, own_gradient[last] - own_gradient[first],
                             own_hessian[last] - own_hessian[first] + penalty, values[first], 1, &loss)
                if value != values[first]:
                    _set(&tree, first, last, value)
    free(tree.lowest)
    free(tree.parts)
    free(tree.seen)
