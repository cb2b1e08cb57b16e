# What a test is worth: the score of the whole tree, the impurity that it takes away, the width of its interval.

from libc.math cimport log
from libc.stdint cimport int32_t, int64_t


cdef enum Impurity:
    GINI
    ENTROPY

cdef struct Weights:
    # The score of a tree is correct * its correct samples + stable * its stable samples + robust * its robust samples.
    double correct
    double stable
    double robust

cdef struct Criterion:
    bint by_score       # the score of the whole tree decides, impurity breaks ties; else the other way round
    double reach        # share of the impurity of reach sets in the blend with that of the samples themselves
    Impurity impurity

cdef struct Test:
    int32_t feature     # < 0: none found
    double threshold
    double score        # of the whole tree with this test
    double gain         # decrease of the blended impurity, in samples
    double width        # of the interval of equivalent thresholds, as a share of the feature's range


cdef inline double score_of(const Weights* weights, int64_t correct, int64_t stable, int64_t robust) noexcept nogil:
    return weights.correct * correct + weights.stable * stable + weights.robust * robust


cdef inline bint is_better(const Criterion* criterion, const Test* a, const Test* b) noexcept nogil:
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
    """What a class of this size takes off the impurity of a node; see impurity_of."""
    if impurity == GINI:
        return count * count
    return count * log(count) if count > 0 else 0.0


cdef inline double mass_change(Impurity impurity, int32_t size, int32_t more) noexcept nogil:
    """Change of mass_of when a class of this size gets `more` samples."""
    if impurity == GINI:
        return <double> more * (2.0 * size + more)
    return mass_of(impurity, size + more) - mass_of(impurity, size)


cdef inline double impurity_of(Impurity impurity, double total, double mass, double unit) noexcept nogil:
    """Impurity of a node times its number of samples; `unit` scales entropy to the base of the number of labels."""
    if total <= 0:
        return 0.0
    if impurity == GINI:
        return total - mass / total
    return (total * log(total) - mass) * unit


cdef inline double blend(const Criterion* criterion, double own, double reach) noexcept nogil:
    return (1 - criterion.reach) * own + criterion.reach * reach
