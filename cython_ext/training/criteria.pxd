# A chapter of evolution.pyx: what a split is worth. The score of the whole tree, the decrease of impurity, the width of
# the interval of thresholds.

from libc.math cimport log, sqrt
from libc.stdint cimport int32_t, int64_t


cdef enum Impurity:
    GINI
    ENTROPY
    EXPONENTIAL         # exponential loss with the best value of each leaf, see worst_side_loss

cdef struct Weights:
    # The score of a tree is correct * its correct samples + stable * its stable samples + robust * its robust samples.
    double correct
    double stable
    double robust

cdef struct Criterion:
    bint by_score       # the score of the whole tree decides, impurity breaks ties; else the other way round
    double reach        # weight of the impurity of reach sets against that of the samples themselves
    Impurity impurity

cdef struct Split:
    int32_t feature     # < 0: none found
    double threshold
    double score        # of the whole tree with this split
    double gain         # decrease of the blended impurity, in samples
    double width        # of the interval of equivalent thresholds, as a fraction of the feature's range


cdef inline double score_of(const Weights* weights, int64_t correct, int64_t stable, int64_t robust) noexcept nogil:
    return weights.correct * correct + weights.stable * stable + weights.robust * robust


cdef inline bint is_better(const Criterion* criterion, const Split* a, const Split* b) noexcept nogil:
    if b.feature < 0:
        return True
    if criterion.by_score:
        if a.score != b.score:
            return a.score > b.score
        if a.gain != b.gain:
            return a.gain > b.gain
    else:
        if a.gain != b.gain:
            return a.gain > b.gain
        if a.score != b.score:
            return a.score > b.score
    return a.width > b.width


cdef inline double mass_of(Impurity impurity, double count) noexcept nogil:
    """What a class of this size subtracts from the impurity of a node; see impurity_of."""
    if impurity == ENTROPY:
        return count * log(count) if count > 0 else 0.0
    return count * count


cdef inline double mass_change(Impurity impurity, int32_t size, int32_t more) noexcept nogil:
    """Change of mass_of when a class of this size gets `more` samples."""
    if impurity == ENTROPY:
        return mass_of(impurity, size + more) - mass_of(impurity, size)
    return <double> more * (2.0 * size + more)


cdef inline double impurity_of(Impurity impurity, double total, double mass, double unit) noexcept nogil:
    """Impurity of a node times its number of samples; `unit` scales entropy to the base of the number of labels."""
    if total <= 0:
        return 0.0
    if impurity == ENTROPY:
        return (total * log(total) - mass) * unit
    return total - mass / total


cdef inline double blend(const Criterion* criterion, double own, double reach) noexcept nogil:
    return (1 - criterion.reach) * own + criterion.reach * reach


# Exponential loss. A leaf whose samples weigh `p` for a class and `q` against it has the loss 2 sqrt(p q) with its best
# value, 0.5 log(p / q). A sample counts with weight 1 - reach where it lies, and with weight reach on the worst side that
# its box reaches: the one with the lower value if the sample is of the class, the other one if not. Several classes: the
# sum over one against all.

cdef inline double leaf_loss(double p, double q) noexcept nogil:
    return 2 * sqrt(p * q)


cdef inline double exponential_loss(double reach, const int32_t* own, const int32_t* reached, int32_t n_own,
                                    int32_t n_reached, int32_t m) noexcept nogil:
    """Loss of a leaf that is not split."""
    cdef double total = (1 - reach) * n_own + reach * n_reached, loss = 0, p
    cdef int32_t label
    for label in range(m - (m == 2)):
        p = (1 - reach) * own[label] + reach * reached[label]
        loss += leaf_loss(p, total - p)
    return loss


cdef inline double worst_side_loss(double reach, const int32_t* tables, int32_t m, int32_t left_size, int32_t right_size,
                                   int32_t left_reach, int32_t right_reach, int32_t n_reached) noexcept nogil:
    """Loss of the two sides of a split; that of the leaf as it is where no order of the two values is consistent.

    `tables` are class counts: of the samples and of the reach set of the leaf, of the samples on the left and on the
    right, of the reach sets on the left and on the right.
    """
    cdef const int32_t* own_total = tables
    cdef const int32_t* reach_total = tables + m
    cdef const int32_t* own_left = tables + 2 * m
    cdef const int32_t* own_right = tables + 3 * m
    cdef const int32_t* reach_left = tables + 4 * m
    cdef const int32_t* reach_right = tables + 5 * m
    cdef double own_weight = 1 - reach, loss = 0, least, p_left, q_left, p_right, q_right, p, found
    cdef int32_t label, n_own = left_size + right_size
    for label in range(m - (m == 2)):
        p = own_weight * own_total[label] + reach * reach_total[label]
        least = leaf_loss(p, own_weight * n_own + reach * n_reached - p)
        # The left value is the lower one: samples of the class that reach both sides count on the left, others right.
        p_left = own_weight * own_left[label] + reach * reach_left[label]
        q_left = own_weight * (left_size - own_left[label]) + reach * (
            n_reached - right_reach - reach_total[label] + reach_right[label])
        p_right = own_weight * own_right[label] + reach * (reach_total[label] - reach_left[label])
        q_right = own_weight * (right_size - own_right[label]) + reach * (right_reach - reach_right[label])
        if p_left * q_right <= p_right * q_left:
            found = leaf_loss(p_left, q_left) + leaf_loss(p_right, q_right)
            if found < least:
                least = found
        # The other way round.
        p_left = own_weight * own_left[label] + reach * (reach_total[label] - reach_right[label])
        q_left = own_weight * (left_size - own_left[label]) + reach * (left_reach - reach_left[label])
        p_right = own_weight * own_right[label] + reach * reach_right[label]
        q_right = own_weight * (right_size - own_right[label]) + reach * (
            n_reached - left_reach - reach_total[label] + reach_left[label])
        if p_left * q_right >= p_right * q_left:
            found = leaf_loss(p_left, q_left) + leaf_loss(p_right, q_right)
            if found < least:
                least = found
        loss += least
    return loss


cdef inline double gain_of(const Criterion* criterion, double before, double unit, const int32_t* tables, int32_t m,
                           int32_t left_size, int32_t right_size, int32_t left_reach, int32_t right_reach,
                           int32_t n_reached, double left_mass, double right_mass, double reach_left_mass,
                           double reach_right_mass) noexcept nogil:
    """Decrease of the blended impurity, or of the loss, by a split; `before` is that of the leaf."""
    cdef Impurity impurity = criterion.impurity
    if impurity == EXPONENTIAL:
        return before - worst_side_loss(
            criterion.reach, tables, m, left_size, right_size, left_reach, right_reach, n_reached)
    return before - blend(
        criterion,
        impurity_of(impurity, left_size, left_mass, unit) + impurity_of(impurity, right_size, right_mass, unit),
        impurity_of(impurity, left_reach, reach_left_mass, unit)
        + impurity_of(impurity, right_reach, reach_right_mass, unit),
    )
