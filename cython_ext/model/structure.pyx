"""Facts about the shape of trees: depths, distinct thresholds, and which branches no sample can take.

Classification is left to predict.pyx, boxes around samples to the kernels of verification. Nothing here recurses, so a
chain of a hundred thousand splits is as good as a balanced tree.
"""

from libc.float cimport DBL_MAX
from libc.math cimport INFINITY, NAN
from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from common.box cimport BoxVisit, push_node, set_bounds
from common.node cimport MISSING_RIGHT, Node, missing_goes_left


def fill_depths(const Node[::1] nodes, const int32_t[::1] roots, int32_t[::1] depths):
    """Write the number of splits above each node. Children lie behind their parents, so one pass is enough."""
    cdef Py_ssize_t i
    with nogil:
        for i in range(roots.shape[0]):
            depths[roots[i]] = 0
        for i in range(nodes.shape[0]):
            if nodes[i].feature >= 0:
                depths[nodes[i].left] = depths[i] + 1
                depths[nodes[i].right] = depths[i] + 1


cdef struct KeyedSplit:
    # A split and the bits of its threshold, which are in the order of thresholds.
    uint64_t key
    int32_t node


cdef enum:
    # Bits that one pass of the sort looks at.
    DIGIT_BITS = 11
    N_DIGITS = 1 << DIGIT_BITS


cdef inline uint64_t _key_of(double value) noexcept nogil:
    """The bits of a number as a whole number in the same order; -0.0 comes directly before 0.0."""
    cdef uint64_t bits
    memcpy(&bits, &value, sizeof(double))
    return ~bits if bits >> 63 else bits | (<uint64_t> 1 << 63)


cdef inline KeyedSplit* _sort_splits(KeyedSplit* splits, KeyedSplit* spare, Py_ssize_t n_splits,
                                     Py_ssize_t* counts) noexcept nogil:
    """Sort by key, splits of the same key in their order; returns the array that holds the result.

    One stable pass for each digit from the lowest on; digits that are the same everywhere are skipped, as those of
    thresholds that are float32 numbers.
    """
    cdef int shift = -DIGIT_BITS
    cdef Py_ssize_t i, n_before, count
    while shift < 64 - DIGIT_BITS:
        shift += DIGIT_BITS
        memset(counts, 0, N_DIGITS * sizeof(Py_ssize_t))
        for i in range(n_splits):
            counts[splits[i].key >> shift & (N_DIGITS - 1)] += 1
        if n_splits == 0 or counts[splits[0].key >> shift & (N_DIGITS - 1)] == n_splits:
            continue
        n_before = 0
        for i in range(N_DIGITS):
            count = counts[i]
            counts[i] = n_before
            n_before += count
        for i in range(n_splits):
            spare[counts[splits[i].key >> shift & (N_DIGITS - 1)]] = splits[i]
            counts[splits[i].key >> shift & (N_DIGITS - 1)] += 1
        splits, spare = spare, splits
    return splits


def number_thresholds(const Node[::1] nodes, double[::1] thresholds, int32_t[::1] starts, int32_t[::1] numbers):
    """Number the distinct thresholds of each feature by size; return how many there are of all features.

    Parameters
    ----------
    thresholds : receives the distinct thresholds by feature and size; as long as there are splits
    starts : receives where the thresholds of each feature begin, and the end; features that no split tests too
    numbers : receives for each split the number of its threshold among those of its feature, 0 for leaves
    """
    cdef Py_ssize_t n_nodes = nodes.shape[0], n_features = starts.shape[0] - 1, n_splits = 0, n_found = 0
    cdef Py_ssize_t i, feature, previous = -1
    cdef KeyedSplit* splits = <KeyedSplit*> malloc(max(2 * n_nodes, 1) * sizeof(KeyedSplit))
    cdef KeyedSplit* by_key
    cdef KeyedSplit* by_feature
    cdef Py_ssize_t* places = <Py_ssize_t*> malloc(max(n_features + 1, N_DIGITS) * sizeof(Py_ssize_t))
    if splits == NULL or places == NULL:
        free(splits)
        free(places)
        raise MemoryError()
    try:
        with nogil:
            for i in range(n_nodes):
                numbers[i] = 0
                if nodes[i].feature >= 0:
                    splits[n_splits] = KeyedSplit(_key_of(nodes[i].threshold), <int32_t> i)
                    n_splits += 1
            by_key = _sort_splits(splits, splits + n_nodes, n_splits, places)
            by_feature = splits + n_nodes if by_key == splits else splits
            memset(places, 0, (n_features + 1) * sizeof(Py_ssize_t))
            for i in range(n_splits):
                places[nodes[by_key[i].node].feature + 1] += 1
            for feature in range(n_features):
                places[feature + 1] += places[feature]
            for i in range(n_splits):
                feature = nodes[by_key[i].node].feature
                by_feature[places[feature]] = by_key[i]
                places[feature] += 1
            for i in range(n_splits):
                feature = nodes[by_feature[i].node].feature
                if feature != previous or nodes[by_feature[i].node].threshold != thresholds[n_found - 1]:
                    while previous < feature:
                        previous += 1
                        starts[previous] = <int32_t> n_found
                    thresholds[n_found] = nodes[by_feature[i].node].threshold
                    n_found += 1
                numbers[by_feature[i].node] = <int32_t> n_found - 1 - starts[feature]
            while previous < n_features:
                previous += 1
                starts[previous] = <int32_t> n_found
        return n_found
    finally:
        free(splits)
        free(places)


cdef inline void _push_side(BoxVisit* visit, int32_t node, int32_t feature, double low, double high,
                            bint may_miss) noexcept nogil:
    """A visit of one side of a split; the value of a visit is whether the feature may be missing there."""
    if not low < high:
        low = high = NAN
    visit[0] = BoxVisit(node, feature, low, high, may_miss)


def drop_contradictions(const Node[::1] nodes, const int32_t[::1] roots, const uint8_t[::1] may_be_missing,
                        bint marks_missing, Node[::1] kept, int32_t[::1] kept_roots):
    """Copy the trees without branches that no sample can take; return how many nodes are kept, and how many changed.

    The samples that arrive at a node have low[f] < x[f] <= high[f] for each feature f, or x[f] is missing. A split with
    threshold k has a left side iff low[f] < k or missing values go there, a right side iff k < high[f] or missing
    values go there; with one side only it is replaced by that side. Where values have one side only and missing values
    the other one, the split tests whether the value is missing.

    Parameters
    ----------
    nodes, roots : the trees, each in pre-order
    may_be_missing : for each feature whether there are samples without a value
    marks_missing : write the splits that test whether a value is missing as `x <= infinity`, missing values to the
        right, so that a box passes each test on a path to a leaf that it reaches by itself
    kept : as many nodes as there are in `nodes`; filled in pre-order
    kept_roots : receives the roots
    """
    cdef Py_ssize_t n_nodes = nodes.shape[0], n_features = may_be_missing.shape[0]
    cdef double* low = <double*> malloc(max(2 * n_features, 1) * sizeof(double))
    cdef double* high = low + n_features
    cdef uint8_t* may_miss = <uint8_t*> malloc(max(n_features, 1))
    # Each visited split replaces the visit that led to it by three others.
    cdef BoxVisit* stack = <BoxVisit*> malloc((3 * n_nodes + 4) * sizeof(BoxVisit))
    # For each visit the kept node that gets this one as a child, -1 for a root.
    cdef int32_t* kept_parents = <int32_t*> malloc((3 * n_nodes + 4) * sizeof(int32_t))
    cdef Py_ssize_t n_kept = 0, n_marked = 0
    cdef Py_ssize_t top, tree, f
    cdef int32_t node, feature, parent
    cdef double threshold
    cdef bint left_open, right_open, missing_left, missing_right
    if low == NULL or may_miss == NULL or stack == NULL or kept_parents == NULL:
        free(low)
        free(may_miss)
        free(stack)
        free(kept_parents)
        raise MemoryError()
    try:
        with nogil:
            for f in range(n_features):
                low[f] = -INFINITY
                high[f] = DBL_MAX
                may_miss[f] = may_be_missing[f]
            for tree in range(roots.shape[0]):
                kept_roots[tree] = <int32_t> n_kept
                push_node(stack, 0, roots[tree])
                kept_parents[0] = -1
                top = 1
                while top > 0:
                    top -= 1
                    set_bounds(&stack[top], low, high)
                    if stack[top].feature >= 0:
                        may_miss[stack[top].feature] = stack[top].value > 0.0
                    node = stack[top].node
                    if node < 0:
                        continue
                    parent = kept_parents[top]
                    feature = nodes[node].feature
                    while feature >= 0:
                        # False for the NaN bounds of a feature that has no values here.
                        left_open = low[feature] < nodes[node].threshold
                        right_open = nodes[node].threshold < high[feature]
                        missing_left = may_miss[feature] and missing_goes_left(&nodes[node])
                        missing_right = may_miss[feature] and not missing_left
                        if (left_open or missing_left) and (right_open or missing_right):
                            break
                        # Some sample arrives here, so one side is always open.
                        node = nodes[node].left if left_open or missing_left else nodes[node].right
                        feature = nodes[node].feature
                    kept[n_kept] = nodes[node]
                    if parent >= 0:
                        # In pre-order the left child directly follows its parent.
                        if n_kept == parent + 1:
                            kept[parent].left = <int32_t> n_kept
                        else:
                            kept[parent].right = <int32_t> n_kept
                    if feature >= 0:
                        threshold = nodes[node].threshold
                        _push_side(&stack[top], -1, feature, low[feature], high[feature], may_miss[feature])
                        if marks_missing and not (left_open and right_open):
                            kept[n_kept].threshold = INFINITY
                            kept[n_kept].leaf = MISSING_RIGHT
                            n_marked += 1
                            _push_side(&stack[top + 1], nodes[node].right if missing_right else nodes[node].left,
                                       feature, NAN, NAN, True)
                            _push_side(&stack[top + 2], nodes[node].left if missing_right else nodes[node].right,
                                       feature, low[feature], high[feature], False)
                        else:
                            _push_side(&stack[top + 1], nodes[node].right, feature, max(low[feature], threshold),
                                       high[feature], missing_right)
                            _push_side(&stack[top + 2], nodes[node].left, feature, low[feature],
                                       min(high[feature], threshold), missing_left)
                        kept_parents[top + 1] = kept_parents[top + 2] = <int32_t> n_kept
                        top += 3
                    n_kept += 1
        return n_kept, n_nodes - n_kept + n_marked
    finally:
        free(low)
        free(may_miss)
        free(stack)
        free(kept_parents)
