# A chapter of forest_search.pyx: the leaves of a forest that a box reaches, which of them remain when the box is cut,
# and the largest margin that one label can have over another in it.
#
# This is a header because bounding is the inner loop of the search: compiled into the same unit, its functions are
# inlined there. Compiled on its own it would be called through pointers.
#
# The leaves that each tree has at the start are bits of words, ordered by their margin, best first, so that the best
# leaf of a tree is its first bit. After a cut of the box, those leaves remain in a tree that a mask selects. The bound
# is the sum of the best margins of the trees: no sample of the box has a larger margin. It is attained if the best
# leaves have a sample in common.

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, qsort
from libc.string cimport memset

from common.box cimport as_droppable
from common.buffer cimport reserve
from common.node cimport Node, missing_goes_left


# The leaves of each tree that a box reaches, and the constraints that each of them puts on a sample.
#
# Values are replaced by cells: the thresholds of a feature divide the line into cells, and all values of one cell go
# the same way in every tree. Cell i of a feature holds the values above its threshold i-1 and not above its threshold
# i; a sample goes to the left of threshold i iff its cell is i or less.
#
# A feature that is or may be missing has cells from NO_CELL to ALL_CELLS, which reach both sides of every test; the
# cells of its values are in a table, from ALL_CELLS to NO_CELL if it has none. Whether feature f is missing is a feature of its own,
# with number n_features + f, cell 0 (it has a value) and cell 1 (it is missing). As long as both are possible the box is
# cut there only, never between values of f.

cdef enum:
    NO_CELL = -1
    ALL_CELLS = 0x7fffffff

cdef struct Constraint:
    # A leaf is reached by cells low..high of a feature, and by samples without a value if is_missing.
    int32_t feature
    int32_t low
    int32_t high
    int32_t is_missing

cdef struct CellVisit:
    # The same as common.box.BoxVisit for a box of cells.
    int32_t node            # to visit next, or -1: only restore the cells
    int32_t feature         # whose cells are set first, -1 for none, as_droppable(feature) if it may be missing
    int32_t low
    int32_t high

cdef struct Reached:
    int32_t n_trees
    int32_t n_leaves
    int32_t n_constraints
    int32_t n_tests
    int32_t* tree_start     # first leaf of each tree, and the end
    size_t tree_capacity
    int32_t* leaf           # its number in the model
    size_t leaf_capacity
    int32_t* constraint_start   # first constraint of each leaf, and the end
    size_t constraint_start_capacity
    Constraint* constraints
    size_t constraint_capacity
    int64_t* tests          # feature and cut of each split with both sides reached, as one number
    size_t test_capacity
    int32_t* test_start     # first test of each tree, and the end
    size_t test_start_capacity
    CellVisit* visits
    size_t visit_capacity
    int32_t* narrowed       # features narrowed on the path
    size_t narrowed_capacity
    int32_t* times          # how often each feature is narrowed on the path
    size_t times_capacity


cdef inline int64_t as_test(int32_t feature, int32_t cut) noexcept nogil:
    return (<int64_t> feature << 32) | cut


cdef inline void free_reached(Reached* reached) noexcept nogil:
    free(reached.tree_start)
    free(reached.leaf)
    free(reached.constraint_start)
    free(reached.constraints)
    free(reached.tests)
    free(reached.test_start)
    free(reached.visits)
    free(reached.narrowed)
    free(reached.times)


cdef inline int reserve_reached(Reached* reached, int32_t n_trees, int32_t n_features,
                                int32_t max_depth) except -1 nogil:
    """Allocate the buffers whose size depends on the forest alone."""
    cdef int32_t f
    reserve(<void**> &reached.tree_start, &reached.tree_capacity, n_trees + 1, sizeof(int32_t))
    reserve(<void**> &reached.test_start, &reached.test_start_capacity, n_trees + 1, sizeof(int32_t))
    reserve(<void**> &reached.visits, &reached.visit_capacity, 3 * <size_t> max_depth + 4, sizeof(CellVisit))
    reserve(<void**> &reached.narrowed, &reached.narrowed_capacity, <size_t> n_features + 1, sizeof(int32_t))
    reserve(<void**> &reached.times, &reached.times_capacity, <size_t> n_features + 1, sizeof(int32_t))
    for f in range(n_features):
        reached.times[f] = 0
    return 0


cdef inline int _add_leaf(Reached* reached, int32_t leaf, int32_t n_narrowed, const int32_t* low,
                          const int32_t* high, const int32_t* values) except -1 nogil:
    cdef int32_t i, f
    reserve(<void**> &reached.leaf, &reached.leaf_capacity, reached.n_leaves + 1, sizeof(int32_t))
    reserve(<void**> &reached.constraint_start, &reached.constraint_start_capacity, reached.n_leaves + 2,
            sizeof(int32_t))
    reserve(<void**> &reached.constraints, &reached.constraint_capacity, reached.n_constraints + n_narrowed,
            sizeof(Constraint))
    reached.leaf[reached.n_leaves] = leaf
    reached.constraint_start[reached.n_leaves] = reached.n_constraints
    for i in range(n_narrowed):
        f = reached.narrowed[i]
        if low[f] != NO_CELL:
            reached.constraints[reached.n_constraints + i] = Constraint(f, low[f], high[f], False)
        else:
            reached.constraints[reached.n_constraints + i] = Constraint(f, values[2 * f], values[2 * f + 1], True)
    reached.n_constraints += n_narrowed
    reached.n_leaves += 1
    reached.constraint_start[reached.n_leaves] = reached.n_constraints
    return 0


cdef inline bint _reaches_both(const Node* node, int32_t cut, const int32_t* values) noexcept nogil:
    """Whether a feature that may be missing reaches both sides of a test."""
    cdef int32_t low = values[2 * node.feature], high = values[2 * node.feature + 1]
    return low <= high and (high > cut if missing_goes_left(node) else low <= cut)


cdef inline CellVisit _side_of_missing(const Node* node, bint is_left, int32_t cut,
                                       const int32_t* values) noexcept nogil:
    """The visit of one side of a test, of which a feature that may be missing reaches both sides."""
    cdef int32_t low = values[2 * node.feature], high = values[2 * node.feature + 1]
    if is_left:
        high = min(high, cut)
    else:
        low = max(low, cut + 1)
    if low > high:
        low, high = ALL_CELLS, NO_CELL
    return CellVisit(node.left if is_left else node.right,
                     as_droppable(node.feature) if missing_goes_left(node) == is_left else node.feature, low, high)


cdef inline int collect_reached(Reached* reached, const Node* nodes, const int32_t* roots, int32_t n_trees,
                                const int32_t* node_cut, const int32_t* merged_low, const int32_t* merged_high,
                                int32_t* low, int32_t* high, int32_t* values, int32_t n_features) except -1 nogil:
    """Walk all trees with the box of cells low..high.

    Parameters
    ----------
    node_cut : for each split the number of its threshold among those of its feature
    merged_low, merged_high : by feature; cuts from the first to before the second count as the first one
    low, high : cells of the box; changed on the way, restored at the end
    values : cells of the values of features that may be missing, two numbers for each; restored too
    """
    cdef CellVisit* visits = reached.visits
    cdef CellVisit visit
    cdef int32_t tree, top, node, feature, cut
    cdef int32_t n_narrowed = 0
    reached.n_trees = n_trees
    reached.n_leaves = reached.n_constraints = reached.n_tests = 0
    for tree in range(n_trees):
        reached.tree_start[tree] = reached.n_leaves
        reached.test_start[tree] = reached.n_tests
        visits[0] = CellVisit(roots[tree], -1, 0, 0)
        top = 1
        while top > 0:
            top -= 1
            visit = visits[top]
            if visit.feature >= 0:
                low[visit.feature] = visit.low
                high[visit.feature] = visit.high
            elif visit.feature < -1:
                visit.feature = as_droppable(visit.feature)
                low[visit.feature], high[visit.feature] = NO_CELL, ALL_CELLS
                values[2 * visit.feature], values[2 * visit.feature + 1] = visit.low, visit.high
            if visit.node < 0:
                reached.times[visit.feature] -= 1
                if reached.times[visit.feature] == 0:
                    n_narrowed -= 1
                continue
            node = visit.node
            while True:
                feature = nodes[node].feature
                if feature < 0:
                    _add_leaf(reached, nodes[node].leaf, n_narrowed, low, high, values)
                    break
                cut = node_cut[node]
                if merged_low[feature] <= cut < merged_high[feature]:
                    cut = merged_low[feature]
                if high[feature] <= cut:
                    node = nodes[node].left
                elif low[feature] > cut:
                    node = nodes[node].right
                else:
                    if low[feature] == NO_CELL:
                        if not _reaches_both(&nodes[node], cut, values):
                            # Values, if there are any, go where missing values go.
                            node = nodes[node].left if missing_goes_left(&nodes[node]) else nodes[node].right
                            continue
                    reserve(<void**> &reached.tests, &reached.test_capacity, reached.n_tests + 2, sizeof(int64_t))
                    reached.tests[reached.n_tests] = as_test(feature, cut)
                    reached.n_tests += 1
                    if reached.times[feature] == 0:
                        reached.narrowed[n_narrowed] = feature
                        n_narrowed += 1
                    reached.times[feature] += 1
                    if low[feature] == NO_CELL:
                        reached.tests[reached.n_tests] = as_test(n_features + feature, 0)
                        reached.n_tests += 1
                        visits[top] = CellVisit(-1, as_droppable(feature), values[2 * feature], values[2 * feature + 1])
                        visits[top + 1] = _side_of_missing(&nodes[node], False, cut, values)
                        visits[top + 2] = _side_of_missing(&nodes[node], True, cut, values)
                        top += 3
                        break
                    visits[top] = CellVisit(-1, feature, low[feature], high[feature])
                    visits[top + 1] = CellVisit(nodes[node].right, feature, cut + 1, high[feature])
                    visits[top + 2] = CellVisit(nodes[node].left, feature, low[feature], cut)
                    top += 3
                    break
    reached.tree_start[n_trees] = reached.n_leaves
    reached.test_start[n_trees] = reached.n_tests
    return 0


cdef extern from * nogil:
    """
    #if defined(_MSC_VER)
    #include <intrin.h>
    static __inline int first_bit(unsigned __int64 word) { unsigned long i; _BitScanForward64(&i, word); return (int) i; }
    #else
    static inline int first_bit(unsigned long long word) { return __builtin_ctzll(word); }
    #endif
    """
    int first_bit(uint64_t word)

cdef struct FeatureEntry:
    # One tree that tests one feature.
    int32_t tree
    int32_t n_cuts
    size_t first_cut
    size_t first_mask       # n_cuts masks of cuts to the left, then n_cuts masks of cuts to the right

cdef struct Ranked:
    int64_t margin
    int32_t n_constraints
    int32_t leaf            # among the reached ones

cdef struct SavedWord:
    # A word of leaves as it was before a cut.
    uint64_t word
    int32_t place

cdef struct SavedBest:
    # The best leaf of a tree as it was before a cut.
    int32_t tree
    int32_t best

cdef struct LeafSets:
    int32_t n_trees
    int32_t n_features
    FeatureEntry* entries   # by feature
    size_t entry_capacity
    int32_t* feature_start  # first entry of each feature, and the end
    size_t feature_capacity
    int32_t* entry_of       # by feature, of the tree that is processed
    size_t entry_of_capacity
    int32_t* tree_entries   # entries of each tree
    size_t tree_entry_capacity
    int32_t* tree_entry_start
    size_t tree_entry_start_capacity
    int32_t* cuts
    size_t cut_capacity
    uint64_t* masks
    size_t mask_capacity
    # Leaves, in the order of their trees, best first.
    Ranked* ranked
    size_t ranked_capacity
    int32_t* word_start     # first word of each tree, and the end
    size_t word_start_capacity
    uint64_t* words
    size_t word_capacity
    int32_t* best           # place of the best leaf of each tree among the ranked ones
    size_t best_capacity
    int64_t bound
    # What was there before the cuts, to undo them.
    SavedWord* saved_words
    size_t saved_word_capacity
    size_t n_saved_words
    SavedBest* saved_best
    size_t saved_best_capacity
    size_t n_saved_best


cdef inline void free_leaf_sets(LeafSets* sets) noexcept nogil:
    free(sets.entries)
    free(sets.feature_start)
    free(sets.entry_of)
    free(sets.tree_entries)
    free(sets.tree_entry_start)
    free(sets.cuts)
    free(sets.masks)
    free(sets.ranked)
    free(sets.word_start)
    free(sets.words)
    free(sets.best)
    free(sets.saved_words)
    free(sets.saved_best)


cdef inline int reserve_leaf_sets(LeafSets* sets, int32_t n_trees, int32_t n_features) except -1 nogil:
    """Allocate the buffers whose size depends on the forest alone."""
    sets.n_trees = n_trees
    sets.n_features = n_features
    reserve(<void**> &sets.feature_start, &sets.feature_capacity, <size_t> n_features + 2, sizeof(int32_t))
    reserve(<void**> &sets.entry_of, &sets.entry_of_capacity, <size_t> n_features + 1, sizeof(int32_t))
    reserve(<void**> &sets.tree_entry_start, &sets.tree_entry_start_capacity, n_trees + 1, sizeof(int32_t))
    reserve(<void**> &sets.word_start, &sets.word_start_capacity, n_trees + 1, sizeof(int32_t))
    reserve(<void**> &sets.best, &sets.best_capacity, n_trees + 1, sizeof(int32_t))
    return 0


cdef inline int _compare_tests(const void* a, const void* b) noexcept nogil:
    cdef int64_t first = (<const int64_t*> a)[0]
    cdef int64_t second = (<const int64_t*> b)[0]
    return (first > second) - (first < second)


cdef inline int _compare_ranked(const void* a, const void* b) noexcept nogil:
    """The larger margin first; among equal ones the leaf with fewer constraints."""
    cdef const Ranked* first = <const Ranked*> a
    cdef const Ranked* second = <const Ranked*> b
    if first.margin != second.margin:
        return 1 if first.margin < second.margin else -1
    if first.n_constraints != second.n_constraints:
        return 1 if first.n_constraints > second.n_constraints else -1
    return 1 if first.leaf > second.leaf else -1


cdef inline int reserve_for_leaves(LeafSets* sets, Reached* reached) except -1 nogil:
    """Allocate the buffers for the leaves that were reached."""
    cdef int32_t tree
    sets.word_start[0] = 0
    for tree in range(reached.n_trees):
        sets.word_start[tree + 1] = (sets.word_start[tree]
                                      + (reached.tree_start[tree + 1] - reached.tree_start[tree] + 63) // 64)
    reserve(<void**> &sets.words, &sets.word_capacity, sets.word_start[reached.n_trees] + 1, sizeof(uint64_t))
    reserve(<void**> &sets.ranked, &sets.ranked_capacity, reached.n_leaves + 1, sizeof(Ranked))
    reserve(<void**> &sets.saved_words, &sets.saved_word_capacity, reached.n_leaves + 1, sizeof(SavedWord))
    reserve(<void**> &sets.saved_best, &sets.saved_best_capacity, reached.n_leaves + 1, sizeof(SavedBest))
    return 0


cdef inline int set_entries(LeafSets* sets, Reached* reached) except -1 nogil:
    """List which trees test which features where; the same for all label pairs."""
    cdef int32_t tree, feature, f, n_entries = 0, e
    cdef int64_t i, start, stop, n_distinct = 0
    cdef size_t n_cuts = 0, n_masks = 0, n_words
    cdef int32_t* feature_start = sets.feature_start
    for f in range(sets.n_features + 2):
        feature_start[f] = 0
    # Distinct tests of each tree, in order; entries of feature f are counted at f + 2.
    for tree in range(reached.n_trees):
        start, stop = reached.test_start[tree], reached.test_start[tree + 1]
        reached.test_start[tree] = <int32_t> n_distinct
        if stop - start > 1:
            qsort(&reached.tests[start], stop - start, sizeof(int64_t), _compare_tests)
        feature = -1
        for i in range(start, stop):
            if i > start and reached.tests[i] == reached.tests[i - 1]:
                continue
            if <int32_t> (reached.tests[i] >> 32) != feature:
                feature = <int32_t> (reached.tests[i] >> 32)
                feature_start[feature + 2] += 1
                n_entries += 1
            reached.tests[n_distinct] = reached.tests[i]
            n_distinct += 1
    reached.test_start[reached.n_trees] = <int32_t> n_distinct
    for f in range(sets.n_features):
        feature_start[f + 2] += feature_start[f + 1]
    reserve(<void**> &sets.entries, &sets.entry_capacity, n_entries + 1, sizeof(FeatureEntry))
    reserve(<void**> &sets.tree_entries, &sets.tree_entry_capacity, n_entries + 1, sizeof(int32_t))
    reserve(<void**> &sets.cuts, &sets.cut_capacity, n_distinct + 1, sizeof(int32_t))
    e = 0
    for tree in range(reached.n_trees):
        n_words = sets.word_start[tree + 1] - sets.word_start[tree]
        sets.tree_entry_start[tree] = e
        feature = -1
        for i in range(reached.test_start[tree], reached.test_start[tree + 1]):
            if <int32_t> (reached.tests[i] >> 32) != feature:
                feature = <int32_t> (reached.tests[i] >> 32)
                sets.tree_entries[e] = feature_start[feature + 1]
                sets.entries[sets.tree_entries[e]] = FeatureEntry(tree, 0, n_cuts, n_masks)
                feature_start[feature + 1] += 1
                e += 1
            sets.entries[sets.tree_entries[e - 1]].n_cuts += 1
            sets.cuts[n_cuts] = <int32_t> (reached.tests[i] & 0x7fffffff)
            n_cuts += 1
            n_masks += 2 * n_words
    sets.tree_entry_start[reached.n_trees] = e
    reserve(<void**> &sets.masks, &sets.mask_capacity, n_masks + 1, sizeof(uint64_t))
    return 0


cdef inline int32_t count_below(const int32_t* cuts, int32_t n_cuts, int32_t cut) noexcept nogil:
    """Number of cuts that are smaller than the given one."""
    cdef int32_t first = 0, last = n_cuts, middle
    while first < last:
        middle = (first + last) // 2
        if cuts[middle] < cut:
            first = middle + 1
        else:
            last = middle
    return first


cdef inline void rank_leaves(LeafSets* sets, Reached* reached, const int64_t* scores, int32_t n_labels,
                             int32_t ahead, int32_t behind) noexcept nogil:
    """Rank the leaves by the margin of one label over another and let all of them remain.

    Parameters
    ----------
    scores : n_labels scores for each leaf of the model
    """
    cdef int32_t tree, leaf, first, last, n_words
    cdef uint64_t* words
    sets.bound = 0
    sets.n_saved_words = sets.n_saved_best = 0
    for tree in range(reached.n_trees):
        first, last = reached.tree_start[tree], reached.tree_start[tree + 1]
        for leaf in range(first, last):
            sets.ranked[leaf].margin = (scores[<size_t> reached.leaf[leaf] * n_labels + ahead]
                                       - scores[<size_t> reached.leaf[leaf] * n_labels + behind])
            sets.ranked[leaf].n_constraints = reached.constraint_start[leaf + 1] - reached.constraint_start[leaf]
            sets.ranked[leaf].leaf = leaf
        qsort(&sets.ranked[first], last - first, sizeof(Ranked), _compare_ranked)
        sets.best[tree] = first
        sets.bound += sets.ranked[first].margin
        words = &sets.words[sets.word_start[tree]]
        n_words = sets.word_start[tree + 1] - sets.word_start[tree]
        memset(words, 0xff, n_words * sizeof(uint64_t))
        if (last - first) % 64:
            words[n_words - 1] = ((<uint64_t> 1) << ((last - first) % 64)) - 1


cdef inline void make_masks(LeafSets* sets, Reached* reached, const int32_t* box_low, const int32_t* box_high,
                            int32_t n_features) noexcept nogil:
    """Compute which leaves remain on either side of every cut.

    Parameters
    ----------
    box_low, box_high : cells of the box at the start, by feature
    n_features : of samples; behind these are the features that tell which ones are missing, if some may be
    """
    cdef int32_t tree, place, leaf, first, n_words, bit, rank, i, f, e, d
    cdef bint has_missing = sets.n_features > n_features
    cdef uint64_t* mask
    cdef FeatureEntry* entry
    cdef Constraint* constraint
    for tree in range(reached.n_trees):
        first = reached.tree_start[tree]
        n_words = sets.word_start[tree + 1] - sets.word_start[tree]
        for i in range(sets.tree_entry_start[tree], sets.tree_entry_start[tree + 1]):
            entry = &sets.entries[sets.tree_entries[i]]
            memset(&sets.masks[entry.first_mask], 0xff, 2 * <size_t> entry.n_cuts * n_words * sizeof(uint64_t))
            # The feature of an entry: that of the test at its first cut.
            sets.entry_of[<int32_t> (reached.tests[entry.first_cut] >> 32)] = sets.tree_entries[i]
        for place in range(first, reached.tree_start[tree + 1]):
            bit = place - first
            leaf = sets.ranked[place].leaf
            for d in range(reached.constraint_start[leaf], reached.constraint_start[leaf + 1]):
                constraint = &reached.constraints[d]
                f = constraint.feature
                entry = &sets.entries[sets.entry_of[f]]
                if has_missing and box_low[n_features + f] < box_high[n_features + f]:
                    # One cut: with a value on the left side, without one on the right side.
                    mask = &sets.masks[sets.entries[sets.entry_of[n_features + f]].first_mask]
                    if not constraint.is_missing:
                        mask[n_words + (bit >> 6)] &= ~((<uint64_t> 1) << (bit & 63))
                    if constraint.low > constraint.high:
                        mask[bit >> 6] &= ~((<uint64_t> 1) << (bit & 63))
                        continue
                if constraint.low > box_low[f]:
                    # Lost on the left side of every cut up to the one below `low`.
                    rank = count_below(&sets.cuts[entry.first_cut], entry.n_cuts, constraint.low - 1)
                    mask = &sets.masks[entry.first_mask + <size_t> rank * n_words]
                    mask[bit >> 6] &= ~((<uint64_t> 1) << (bit & 63))
                if constraint.high < box_high[f]:
                    rank = count_below(&sets.cuts[entry.first_cut], entry.n_cuts, constraint.high)
                    mask = &sets.masks[entry.first_mask + <size_t> (entry.n_cuts + rank) * n_words]
                    mask[bit >> 6] &= ~((<uint64_t> 1) << (bit & 63))
        for i in range(sets.tree_entry_start[tree], sets.tree_entry_start[tree + 1]):
            entry = &sets.entries[sets.tree_entries[i]]
            mask = &sets.masks[entry.first_mask]
            for e in range((entry.n_cuts - 1) * n_words - 1, -1, -1):
                mask[e] &= mask[e + n_words]
            mask += <size_t> entry.n_cuts * n_words
            for e in range(n_words, entry.n_cuts * n_words):
                mask[e] &= mask[e - n_words]


cdef inline const uint64_t* mask_of(LeafSets* sets, const FeatureEntry* entry, bint is_left, int32_t cut,
                                    int32_t n_words) noexcept nogil:
    """Mask of the leaves of a tree that remain on one side of a cut, NULL for all of them."""
    cdef int32_t rank
    if is_left:
        rank = count_below(&sets.cuts[entry.first_cut], entry.n_cuts, cut)
        return NULL if rank == entry.n_cuts else &sets.masks[entry.first_mask + <size_t> rank * n_words]
    rank = count_below(&sets.cuts[entry.first_cut], entry.n_cuts, cut + 1)
    return NULL if rank == 0 else &sets.masks[entry.first_mask + <size_t> (entry.n_cuts + rank - 1) * n_words]


cdef inline int32_t first_remaining(const uint64_t* words, const uint64_t* mask, int32_t n_words) noexcept nogil:
    """First leaf that is in the set and in the mask, -1 for none."""
    cdef int32_t i
    cdef uint64_t word
    for i in range(n_words):
        word = words[i] & mask[i]
        if word:
            return 64 * i + first_bit(word)
    return -1


cdef inline int64_t bound_after(LeafSets* sets, Reached* reached, int32_t feature, int32_t cut,
                                bint is_left) noexcept nogil:
    """What the bound would be on one side of a cut."""
    cdef int64_t bound = sets.bound
    cdef const FeatureEntry* entry
    cdef const uint64_t* mask
    cdef int32_t e, n_words, bit, tree, start
    for e in range(sets.feature_start[feature], sets.feature_start[feature + 1]):
        entry = &sets.entries[e]
        tree = entry.tree
        start = sets.word_start[tree]
        n_words = sets.word_start[tree + 1] - start
        mask = mask_of(sets, entry, is_left, cut, n_words)
        if mask == NULL:
            continue
        bit = sets.best[tree] - reached.tree_start[tree]
        if mask[bit >> 6] >> (bit & 63) & 1:
            continue
        bit = first_remaining(&sets.words[start], mask, n_words)
        bound += sets.ranked[reached.tree_start[tree] + bit].margin - sets.ranked[sets.best[tree]].margin
    return bound


cdef inline void cut_leaves(LeafSets* sets, Reached* reached, int32_t feature, int32_t cut,
                            bint is_left) noexcept nogil:
    """Remove the leaves on the other side of a cut and update the bound."""
    cdef const FeatureEntry* entry
    cdef const uint64_t* mask
    cdef uint64_t* words
    cdef int32_t e, i, n_words, bit, tree
    for e in range(sets.feature_start[feature], sets.feature_start[feature + 1]):
        entry = &sets.entries[e]
        tree = entry.tree
        n_words = sets.word_start[tree + 1] - sets.word_start[tree]
        mask = mask_of(sets, entry, is_left, cut, n_words)
        if mask == NULL:
            continue
        words = &sets.words[sets.word_start[tree]]
        for i in range(n_words):
            if words[i] & ~mask[i]:
                sets.saved_words[sets.n_saved_words] = SavedWord(words[i], sets.word_start[tree] + i)
                sets.n_saved_words += 1
                words[i] &= mask[i]
        bit = sets.best[tree] - reached.tree_start[tree]
        if words[bit >> 6] >> (bit & 63) & 1:
            continue
        sets.saved_best[sets.n_saved_best] = SavedBest(tree, sets.best[tree])
        sets.n_saved_best += 1
        sets.bound -= sets.ranked[sets.best[tree]].margin
        sets.best[tree] = reached.tree_start[tree] + first_remaining(words, mask, n_words)
        sets.bound += sets.ranked[sets.best[tree]].margin


cdef inline void undo_cuts(LeafSets* sets, size_t n_saved_words, size_t n_saved_best, int64_t bound) noexcept nogil:
    """Restore the leaves as they were when so many words and best leaves had been saved."""
    while sets.n_saved_words > n_saved_words:
        sets.n_saved_words -= 1
        sets.words[sets.saved_words[sets.n_saved_words].place] = sets.saved_words[sets.n_saved_words].word
    while sets.n_saved_best > n_saved_best:
        sets.n_saved_best -= 1
        sets.best[sets.saved_best[sets.n_saved_best].tree] = sets.saved_best[sets.n_saved_best].best
    sets.bound = bound
