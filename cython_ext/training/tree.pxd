# A chapter of evolution.pyx: training samples as ranks, and trees in training.
#
# Each value of a sample is replaced by its rank among the distinct values of its feature. A test `x <= k` then compares
# ranks, and so do the tests whether the box of a sample reaches a side, because the bounds of boxes increase with x.
# Where boxes differ between samples with the same value, equal values have several ranks, with increasing bounds.
#
# A tree in training has growable arrays of nodes, the class counts of every node, and for every training sample the
# prediction of the tree and whether its box reaches leaves with other predictions. A prediction is a number: a label,
# or n_labels + t for the t-th set of tied labels that occurred in this tree. Equal sets have equal numbers.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from common.buffer cimport reserve
from common.node cimport goes_left, reaches_left, reaches_right


cdef struct Samples:
    int32_t n_samples
    int32_t n_features
    int32_t n_labels
    const int32_t* codes            # rank of sample i in feature f: codes[f * n_samples + i]
    # The same ranks again as bytes, for features with at most 256 of them (pixels): bytes[byte_starts[f] + i]. Sweeps read
    # them, because a feature of 10000 samples then fits into the nearest cache. byte_starts[f] is -1 for other features.
    const uint8_t* bytes
    const int64_t* byte_starts
    const int32_t* labels
    const double* values            # of the ranks of feature f, increasing, from value_starts[f] on
    const int64_t* value_starts
    const double* lower_ends        # of the boxes of the ranks, in the same places, increasing too
    const double* upper_ends
    # Features with missing values, see missing.pxd; all NULL without them.
    const int32_t* twins            # of each feature, the other copy of the same column; -1 if there is none
    const uint8_t* places           # of each feature, a MissingPlace
    const uint8_t* droppable        # of each feature, whether an attacker may drop its values
    # Weights of the samples, whole numbers; both NULL if all are 1. Class counts, and the numbers of correct, stable and
    # robust samples, are then sums of weights. Equal weights have equal numbers, from 0 to n_weights - 1.
    const int32_t* weights
    const int32_t* weight_numbers
    int32_t n_weights
    double samples_per_weight       # number of samples by their total weight
    # A limit of the total change, see norm.pxd; costs is NULL without one.
    const double* costs             # of each feature, by which its change is multiplied
    int32_t power                   # 0, 1 or 2, for the norms l0, l1 and l2
    double unit                     # a cost of 1 has so many units; 0 if changes cost nothing
    int64_t budget                  # what all changes of a sample may cost, in units


cdef enum MissingPlace:
    # The rank that stands for a missing value.
    NO_RANK
    LOWEST_RANK
    HIGHEST_RANK


cdef struct RankCut:
    # A test of a feature against a threshold, in ranks.
    int32_t left            # a sample with this rank or less goes left
    int32_t reach_left      # a box with this rank or less reaches left
    int32_t reach_right     # a box with more than this rank reaches right


cdef enum RankedPoint:
    # A point of the box of a sample that is compared with a threshold.
    SAMPLE_ITSELF
    LOWER_END
    UPPER_END


cdef inline int32_t last_left_rank(const Samples* samples, int32_t feature, double threshold,
                                   RankedPoint point) noexcept nogil:
    """The largest rank at which a point lies to the left of a threshold, -1 if there is none."""
    cdef int64_t start = samples.value_starts[feature]
    cdef int32_t low = 0, middle
    cdef int32_t high = <int32_t> (samples.value_starts[feature + 1] - start)
    cdef bint is_left
    while low < high:
        middle = (low + high) // 2
        if point == SAMPLE_ITSELF:
            is_left = goes_left(samples.values[start + middle], threshold)
        elif point == LOWER_END:
            is_left = reaches_left(samples.lower_ends[start + middle], threshold)
        else:
            is_left = not reaches_right(samples.upper_ends[start + middle], threshold)
        if is_left:
            low = middle + 1
        else:
            high = middle
    return low - 1


cdef inline RankCut rank_cut(const Samples* samples, int32_t feature, double threshold) noexcept nogil:
    """Translate a threshold into ranks by the same comparisons that classify and verify."""
    return RankCut(
        last_left_rank(samples, feature, threshold, SAMPLE_ITSELF),
        last_left_rank(samples, feature, threshold, LOWER_END),
        last_left_rank(samples, feature, threshold, UPPER_END),
    )


cdef inline int32_t weight_of(const Samples* samples, int32_t sample) noexcept nogil:
    return 1 if samples.weights == NULL else samples.weights[sample]


cdef enum:
    NONE = -2           # no leaf reached yet
    MIXED = -1          # leaves with different predictions reached

cdef struct TrainNode:
    double threshold
    int32_t feature     # < 0 marks a leaf
    int32_t left
    int32_t right
    int32_t parent      # < 0 for the root
    int32_t prediction  # of a leaf
    RankCut cut
    # Ranks up to low_code or above high_code stand for a missing value here; see missing.pxd.
    bint is_narrowed
    int32_t low_code
    int32_t high_code

cdef struct Tree:
    TrainNode* nodes
    int32_t n_nodes
    int32_t capacity
    int32_t* counts         # class counts of the samples that fall into node v: counts[v * n_labels + label]
    uint64_t* ties          # sets of tied labels as bits, n_words each
    int32_t n_ties
    size_t ties_capacity
    int32_t n_words
    int32_t n_labels
    int32_t n_samples
    int32_t n_leaves
    int32_t* own            # prediction of the leaf into which each sample falls
    int32_t* joint          # the common prediction of all leaves that each sample's box reaches, or MIXED
    int64_t n_correct
    int64_t n_stable
    int64_t n_robust


cdef inline Tree* new_tree(int32_t n_samples, int32_t n_labels) noexcept nogil:
    """A tree without nodes, or NULL."""
    cdef Tree* tree = <Tree*> malloc(sizeof(Tree))
    if tree == NULL:
        return NULL
    memset(tree, 0, sizeof(Tree))
    tree.n_samples = n_samples
    tree.n_labels = n_labels
    tree.n_words = (n_labels + 63) // 64
    tree.own = <int32_t*> malloc(max(n_samples, 1) * sizeof(int32_t))
    tree.joint = <int32_t*> malloc(max(n_samples, 1) * sizeof(int32_t))
    if tree.own == NULL or tree.joint == NULL:
        free_tree(tree)
        return NULL
    return tree


cdef inline void free_tree(Tree* tree) noexcept nogil:
    if tree != NULL:
        free(tree.nodes)
        free(tree.counts)
        free(tree.ties)
        free(tree.own)
        free(tree.joint)
        free(tree)


cdef inline int reserve_nodes(Tree* tree, int32_t capacity) except -1 nogil:
    cdef void* block
    if capacity <= tree.capacity:
        return 0
    capacity = max(capacity, 2 * tree.capacity)
    block = realloc(tree.nodes, capacity * sizeof(TrainNode))
    if block == NULL:
        with gil:
            raise MemoryError("not enough memory for the nodes of a tree")
    tree.nodes = <TrainNode*> block
    block = realloc(tree.counts, <size_t> capacity * tree.n_labels * sizeof(int32_t))
    if block == NULL:
        with gil:
            raise MemoryError("not enough memory for the class counts of a tree")
    tree.counts = <int32_t*> block
    tree.capacity = capacity
    return 0


cdef inline int32_t add_node(Tree* tree, int32_t parent) except -1 nogil:
    """Append a leaf without counts."""
    cdef int32_t node = tree.n_nodes
    reserve_nodes(tree, node + 1)
    memset(&tree.nodes[node], 0, sizeof(TrainNode))
    tree.nodes[node].feature = -1
    tree.nodes[node].left = -1
    tree.nodes[node].right = -1
    tree.nodes[node].parent = parent
    memset(&tree.counts[<size_t> node * tree.n_labels], 0, tree.n_labels * sizeof(int32_t))
    tree.n_nodes += 1
    return node


cdef inline int set_ties(Tree* tree, const uint64_t* ties, int32_t n_words) except -1 nogil:
    """Number the sets of tied labels as in the given list, n_words in all; leaves added later use these numbers."""
    cdef int32_t n_ties = n_words // tree.n_words
    reserve(<void**> &tree.ties, &tree.ties_capacity, n_ties, tree.n_words * sizeof(uint64_t))
    if n_ties > 0:
        memcpy(tree.ties, ties, <size_t> n_ties * tree.n_words * sizeof(uint64_t))
    tree.n_ties = n_ties
    return 0


cdef inline int copy_tree(const Tree* source, Tree* target) except -1 nogil:
    """Make target equal to source; both are for the same samples."""
    reserve_nodes(target, source.n_nodes)
    memcpy(target.nodes, source.nodes, source.n_nodes * sizeof(TrainNode))
    memcpy(target.counts, source.counts, <size_t> source.n_nodes * source.n_labels * sizeof(int32_t))
    set_ties(target, source.ties, source.n_ties * source.n_words)
    target.n_nodes = source.n_nodes
    target.n_leaves = source.n_leaves
    memcpy(target.own, source.own, source.n_samples * sizeof(int32_t))
    memcpy(target.joint, source.joint, source.n_samples * sizeof(int32_t))
    target.n_correct = source.n_correct
    target.n_stable = source.n_stable
    target.n_robust = source.n_robust
    return 0


cdef inline bint _is_tie(const uint64_t* words, const int32_t* counts, int32_t largest,
                         int32_t n_labels) noexcept nogil:
    """Whether a set, as bits, is the set of labels with the largest count."""
    cdef int32_t label
    for label in range(n_labels):
        if ((words[label >> 6] >> (label & 63)) & 1) != (counts[label] == largest):
            return False
    return True


cdef inline int32_t known_tie(const Tree* tree, const int32_t* counts, int32_t largest) noexcept nogil:
    """The prediction for class counts of which several are the largest, or -1 if this tie is new to the tree."""
    cdef int32_t tie
    for tie in range(tree.n_ties):
        if _is_tie(&tree.ties[<size_t> tie * tree.n_words], counts, largest, tree.n_labels):
            return tree.n_labels + tie
    return -1


cdef inline int32_t known_prediction(const Tree* tree, const int32_t* counts) noexcept nogil:
    """The prediction for class counts, or -1 for a tie that is new to the tree."""
    cdef int32_t label, best = 0, n_best = 1
    for label in range(1, tree.n_labels):
        if counts[label] > counts[best]:
            best = label
            n_best = 1
        elif counts[label] == counts[best]:
            n_best += 1
    return best if n_best == 1 else known_tie(tree, counts, counts[best])


cdef inline int32_t number_prediction(Tree* tree, const int32_t* counts) except -1 nogil:
    """The prediction for class counts; a tie that is new to the tree gets the next number."""
    cdef int32_t prediction = known_prediction(tree, counts)
    cdef int32_t label, largest
    cdef uint64_t* words
    if prediction >= 0:
        return prediction
    reserve(<void**> &tree.ties, &tree.ties_capacity, tree.n_ties + 1, tree.n_words * sizeof(uint64_t))
    words = &tree.ties[<size_t> tree.n_ties * tree.n_words]
    memset(words, 0, tree.n_words * sizeof(uint64_t))
    largest = 0
    for label in range(tree.n_labels):
        largest = max(largest, counts[label])
    for label in range(tree.n_labels):
        if counts[label] == largest:
            words[label >> 6] |= <uint64_t> 1 << (label & 63)
    tree.n_ties += 1
    return tree.n_labels + tree.n_ties - 1


cdef inline int32_t merge_predictions(int32_t seen, int32_t prediction) noexcept nogil:
    """The common prediction after one more leaf, or one more set of leaves, was reached."""
    if seen == NONE or prediction == NONE:
        return prediction if seen == NONE else seen
    return seen if seen == prediction else MIXED
