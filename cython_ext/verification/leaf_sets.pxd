# Which leaves of a forest are left in a box, and the largest lead that one label can have over another in it.
#
# The leaves that each tree had at the start are bits of words, ordered by the lead they give, best first, so that the
# best leaf of a tree is its first bit. A cut of the box leaves, in each tree that tests the feature, those leaves that a
# mask tells. The bound is the sum of the best leads of the trees: no sample of the box has a larger one. It is
# attained if the best leaves have a sample in common.

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, qsort
from libc.string cimport memset

from common.buffer cimport reserve
from common.node cimport Node


# The leaves of each tree of a forest that a box reaches, and what each of them demands of a sample.
#
# Values are replaced by cells: the thresholds of a feature cut the line into cells, and all values of one cell take the
# same way in every tree. Cell i of a feature holds the values above its threshold i-1 and not above its threshold i; a
# sample goes to the left of threshold i iff its cell is i or less.

cdef struct Demand:
    # A leaf is reached by cells low..high of a feature.
    int32_t feature
    int32_t low
    int32_t high

cdef struct Visit:
    int32_t node            # to visit next, or -1: only put a bound back
    int32_t feature         # whose cells are to be set first, -1 for none
    int32_t low
    int32_t high

cdef struct Reached:
    int32_t n_trees
    int32_t n_leaves
    int32_t n_demands
    int32_t n_tests
    int32_t* tree_start     # first leaf of each tree, and the end
    size_t tree_capacity
    int32_t* leaf           # its number in the model
    size_t leaf_capacity
    int32_t* demand_start   # first demand of each leaf, and the end
    size_t demand_start_capacity
    Demand* demands
    size_t demand_capacity
    int64_t* tests          # feature and cut of each split with both sides reached, as one number
    size_t test_capacity
    int32_t* test_start     # first test of each tree, and the end
    size_t test_start_capacity
    Visit* visits
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
    free(reached.demand_start)
    free(reached.demands)
    free(reached.tests)
    free(reached.test_start)
    free(reached.visits)
    free(reached.narrowed)
    free(reached.times)


cdef inline int reserve_reached(Reached* reached, int32_t n_trees, int32_t n_features, int32_t max_depth) except -1 nogil:
    """Make the room whose size depends on the forest alone."""
    cdef int32_t f
    reserve(<void**> &reached.tree_start, &reached.tree_capacity, n_trees + 1, sizeof(int32_t))
    reserve(<void**> &reached.test_start, &reached.test_start_capacity, n_trees + 1, sizeof(int32_t))
    reserve(<void**> &reached.visits, &reached.visit_capacity, 3 * <size_t> max_depth + 4, sizeof(Visit))
    reserve(<void**> &reached.narrowed, &reached.narrowed_capacity, <size_t> n_features + 1, sizeof(int32_t))
    reserve(<void**> &reached.times, &reached.times_capacity, <size_t> n_features + 1, sizeof(int32_t))
    for f in range(n_features):
        reached.times[f] = 0
    return 0


cdef inline int _add_leaf(Reached* reached, int32_t leaf, int32_t n_narrowed,
                          const int32_t* low, const int32_t* high) except -1 nogil:
    cdef int32_t i
    reserve(<void**> &reached.leaf, &reached.leaf_capacity, reached.n_leaves + 1, sizeof(int32_t))
    reserve(<void**> &reached.demand_start, &reached.demand_start_capacity, reached.n_leaves + 2, sizeof(int32_t))
    reserve(<void**> &reached.demands, &reached.demand_capacity, reached.n_demands + n_narrowed, sizeof(Demand))
    reached.leaf[reached.n_leaves] = leaf
    reached.demand_start[reached.n_leaves] = reached.n_demands
    for i in range(n_narrowed):
        reached.demands[reached.n_demands + i] = Demand(
            reached.narrowed[i], low[reached.narrowed[i]], high[reached.narrowed[i]])
    reached.n_demands += n_narrowed
    reached.n_leaves += 1
    reached.demand_start[reached.n_leaves] = reached.n_demands
    return 0


cdef inline int collect_reached(Reached* reached, const Node* nodes, const int32_t* roots, int32_t n_trees,
                                const int32_t* node_cut, const int32_t* merged_low, const int32_t* merged_high,
                                int32_t* low, int32_t* high) except -1 nogil:
    """Walk all trees with the box of cells low..high.

    Parameters
    ----------
    node_cut : for each split the number of its threshold among those of its feature
    merged_low, merged_high : by feature; cuts from the first to before the second count as the first one
    low, high : cells of the box; changed on the way, put back at the end
    """
    cdef Visit* visits = reached.visits
    cdef Visit visit
    cdef int32_t tree, top, node, feature, cut
    cdef int32_t n_narrowed = 0
    reached.n_trees = n_trees
    reached.n_leaves = reached.n_demands = reached.n_tests = 0
    for tree in range(n_trees):
        reached.tree_start[tree] = reached.n_leaves
        reached.test_start[tree] = reached.n_tests
        visits[0] = Visit(roots[tree], -1, 0, 0)
        top = 1
        while top > 0:
            top -= 1
            visit = visits[top]
            if visit.feature >= 0:
                low[visit.feature] = visit.low
                high[visit.feature] = visit.high
            if visit.node < 0:
                reached.times[visit.feature] -= 1
                if reached.times[visit.feature] == 0:
                    n_narrowed -= 1
                continue
            node = visit.node
            while True:
                feature = nodes[node].feature
                if feature < 0:
                    _add_leaf(reached, nodes[node].leaf, n_narrowed, low, high)
                    break
                cut = node_cut[node]
                if merged_low[feature] <= cut < merged_high[feature]:
                    cut = merged_low[feature]
                if high[feature] <= cut:
                    node = nodes[node].left
                elif low[feature] > cut:
                    node = nodes[node].right
                else:
                    reserve(<void**> &reached.tests, &reached.test_capacity, reached.n_tests + 1, sizeof(int64_t))
                    reached.tests[reached.n_tests] = as_test(feature, cut)
                    reached.n_tests += 1
                    if reached.times[feature] == 0:
                        reached.narrowed[n_narrowed] = feature
                        n_narrowed += 1
                    reached.times[feature] += 1
                    visits[top] = Visit(-1, feature, low[feature], high[feature])
                    visits[top + 1] = Visit(nodes[node].right, feature, cut + 1, high[feature])
                    visits[top + 2] = Visit(nodes[node].left, feature, low[feature], cut)
                    top += 3
                    break
    reached.tree_start[n_trees] = reached.n_leaves
    reached.test_start[n_trees] = reached.n_tests
    return 0


cdef extern from * nogil:
    """
    #if defined(_MSC_VER)
    #include <intrin.h>
    static __inline int ms_first_bit(unsigned __int64 word) { unsigned long i; _BitScanForward64(&i, word); return (int) i; }
    #else
    static inline int ms_first_bit(unsigned long long word) { return __builtin_ctzll(word); }
    #endif
    """
    int ms_first_bit(uint64_t word)

cdef struct Entry:
    # One tree that tests one feature.
    int32_t tree
    int32_t n_cuts
    size_t first_cut
    size_t first_mask       # n_cuts masks of cuts to the left, then n_cuts masks of cuts to the right

cdef struct Ranked:
    int64_t lead
    int32_t n_demands
    int32_t leaf            # among the reached ones

cdef struct Lost:
    # A word of leaves as it was before a cut.
    uint64_t word
    int32_t place

cdef struct Replaced:
    # The best leaf of a tree as it was before a cut.
    int32_t tree
    int32_t best

cdef struct Arena:
    int32_t n_trees
    int32_t n_features
    Entry* entries          # by feature
    size_t entry_capacity
    int32_t* feature_start  # first entry of each feature, and the end
    size_t feature_capacity
    int32_t* entry_of       # by feature, of the tree at hand
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
    # What cuts took away.
    Lost* lost
    size_t lost_capacity
    size_t n_lost
    Replaced* replaced
    size_t replaced_capacity
    size_t n_replaced


cdef inline void free_arena(Arena* arena) noexcept nogil:
    free(arena.entries)
    free(arena.feature_start)
    free(arena.entry_of)
    free(arena.tree_entries)
    free(arena.tree_entry_start)
    free(arena.cuts)
    free(arena.masks)
    free(arena.ranked)
    free(arena.word_start)
    free(arena.words)
    free(arena.best)
    free(arena.lost)
    free(arena.replaced)


cdef inline int reserve_arena(Arena* arena, int32_t n_trees, int32_t n_features) except -1 nogil:
    """Make the room whose size depends on the forest alone."""
    arena.n_trees = n_trees
    arena.n_features = n_features
    reserve(<void**> &arena.feature_start, &arena.feature_capacity, <size_t> n_features + 2, sizeof(int32_t))
    reserve(<void**> &arena.entry_of, &arena.entry_of_capacity, <size_t> n_features + 1, sizeof(int32_t))
    reserve(<void**> &arena.tree_entry_start, &arena.tree_entry_start_capacity, n_trees + 1, sizeof(int32_t))
    reserve(<void**> &arena.word_start, &arena.word_start_capacity, n_trees + 1, sizeof(int32_t))
    reserve(<void**> &arena.best, &arena.best_capacity, n_trees + 1, sizeof(int32_t))
    return 0


cdef inline int _compare_tests(const void* a, const void* b) noexcept nogil:
    cdef int64_t first = (<const int64_t*> a)[0]
    cdef int64_t second = (<const int64_t*> b)[0]
    return (first > second) - (first < second)


cdef inline int _compare_ranked(const void* a, const void* b) noexcept nogil:
    """The larger lead first; among equal ones the leaf that demands less."""
    cdef const Ranked* first = <const Ranked*> a
    cdef const Ranked* second = <const Ranked*> b
    if first.lead != second.lead:
        return 1 if first.lead < second.lead else -1
    if first.n_demands != second.n_demands:
        return 1 if first.n_demands > second.n_demands else -1
    return 1 if first.leaf > second.leaf else -1


cdef inline int lay_out(Arena* arena, Reached* reached) except -1 nogil:
    """Make room for the leaves that were reached."""
    cdef int32_t tree
    arena.word_start[0] = 0
    for tree in range(reached.n_trees):
        arena.word_start[tree + 1] = (arena.word_start[tree]
                                      + (reached.tree_start[tree + 1] - reached.tree_start[tree] + 63) // 64)
    reserve(<void**> &arena.words, &arena.word_capacity, arena.word_start[reached.n_trees] + 1, sizeof(uint64_t))
    reserve(<void**> &arena.ranked, &arena.ranked_capacity, reached.n_leaves + 1, sizeof(Ranked))
    reserve(<void**> &arena.lost, &arena.lost_capacity, reached.n_leaves + 1, sizeof(Lost))
    reserve(<void**> &arena.replaced, &arena.replaced_capacity, reached.n_leaves + 1, sizeof(Replaced))
    return 0


cdef inline int set_entries(Arena* arena, Reached* reached) except -1 nogil:
    """Find out which trees test which features where; the same for all pairs of labels."""
    cdef int32_t tree, feature, f, n_entries = 0, e
    cdef int64_t i, start, stop, n_distinct = 0
    cdef size_t n_cuts = 0, n_masks = 0, n_words
    cdef int32_t* feature_start = arena.feature_start
    for f in range(arena.n_features + 2):
        feature_start[f] = 0
    # Distinct tests of each tree, in order; counts of entries for each feature, two places ahead.
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
    for f in range(arena.n_features):
        feature_start[f + 2] += feature_start[f + 1]
    reserve(<void**> &arena.entries, &arena.entry_capacity, n_entries + 1, sizeof(Entry))
    reserve(<void**> &arena.tree_entries, &arena.tree_entry_capacity, n_entries + 1, sizeof(int32_t))
    reserve(<void**> &arena.cuts, &arena.cut_capacity, n_distinct + 1, sizeof(int32_t))
    e = 0
    for tree in range(reached.n_trees):
        n_words = arena.word_start[tree + 1] - arena.word_start[tree]
        arena.tree_entry_start[tree] = e
        feature = -1
        for i in range(reached.test_start[tree], reached.test_start[tree + 1]):
            if <int32_t> (reached.tests[i] >> 32) != feature:
                feature = <int32_t> (reached.tests[i] >> 32)
                arena.tree_entries[e] = feature_start[feature + 1]
                arena.entries[arena.tree_entries[e]] = Entry(tree, 0, n_cuts, n_masks)
                feature_start[feature + 1] += 1
                e += 1
            arena.entries[arena.tree_entries[e - 1]].n_cuts += 1
            arena.cuts[n_cuts] = <int32_t> (reached.tests[i] & 0x7fffffff)
            n_cuts += 1
            n_masks += 2 * n_words
    arena.tree_entry_start[reached.n_trees] = e
    reserve(<void**> &arena.masks, &arena.mask_capacity, n_masks + 1, sizeof(uint64_t))
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


cdef inline void rank_leaves(Arena* arena, Reached* reached, const int64_t* scores, int32_t n_labels,
                             int32_t ahead, int32_t behind) noexcept nogil:
    """Rank the leaves by the lead of one label over another and put all of them back.

    Parameters
    ----------
    scores : n_labels scores for each leaf of the model
    """
    cdef int32_t tree, leaf, first, last, n_words
    cdef uint64_t* words
    arena.bound = 0
    arena.n_lost = arena.n_replaced = 0
    for tree in range(reached.n_trees):
        first, last = reached.tree_start[tree], reached.tree_start[tree + 1]
        for leaf in range(first, last):
            arena.ranked[leaf].lead = (scores[<size_t> reached.leaf[leaf] * n_labels + ahead]
                                       - scores[<size_t> reached.leaf[leaf] * n_labels + behind])
            arena.ranked[leaf].n_demands = reached.demand_start[leaf + 1] - reached.demand_start[leaf]
            arena.ranked[leaf].leaf = leaf
        qsort(&arena.ranked[first], last - first, sizeof(Ranked), _compare_ranked)
        arena.best[tree] = first
        arena.bound += arena.ranked[first].lead
        words = &arena.words[arena.word_start[tree]]
        n_words = arena.word_start[tree + 1] - arena.word_start[tree]
        memset(words, 0xff, n_words * sizeof(uint64_t))
        if (last - first) % 64:
            words[n_words - 1] = ((<uint64_t> 1) << ((last - first) % 64)) - 1


cdef inline void make_masks(Arena* arena, Reached* reached, const int32_t* box_low,
                            const int32_t* box_high) noexcept nogil:
    """Find out which leaves are left on either side of every cut.

    Parameters
    ----------
    box_low, box_high : cells of the box at the start, by feature
    """
    cdef int32_t tree, place, leaf, first, n_words, bit, rank, i, f, e, d
    cdef uint64_t* mask
    cdef Entry* entry
    cdef Demand* demand
    for tree in range(reached.n_trees):
        first = reached.tree_start[tree]
        n_words = arena.word_start[tree + 1] - arena.word_start[tree]
        for i in range(arena.tree_entry_start[tree], arena.tree_entry_start[tree + 1]):
            entry = &arena.entries[arena.tree_entries[i]]
            memset(&arena.masks[entry.first_mask], 0xff, 2 * <size_t> entry.n_cuts * n_words * sizeof(uint64_t))
            # The feature of an entry: that of the test at its first cut.
            arena.entry_of[<int32_t> (reached.tests[entry.first_cut] >> 32)] = arena.tree_entries[i]
        for place in range(first, reached.tree_start[tree + 1]):
            bit = place - first
            leaf = arena.ranked[place].leaf
            for d in range(reached.demand_start[leaf], reached.demand_start[leaf + 1]):
                demand = &reached.demands[d]
                f = demand.feature
                entry = &arena.entries[arena.entry_of[f]]
                if demand.low > box_low[f]:
                    # Gone when the box is cut to the left of any cut not above the one below `low`.
                    rank = count_below(&arena.cuts[entry.first_cut], entry.n_cuts, demand.low - 1)
                    mask = &arena.masks[entry.first_mask + <size_t> rank * n_words]
                    mask[bit >> 6] &= ~((<uint64_t> 1) << (bit & 63))
                if demand.high < box_high[f]:
                    rank = count_below(&arena.cuts[entry.first_cut], entry.n_cuts, demand.high)
                    mask = &arena.masks[entry.first_mask + <size_t> (entry.n_cuts + rank) * n_words]
                    mask[bit >> 6] &= ~((<uint64_t> 1) << (bit & 63))
        for i in range(arena.tree_entry_start[tree], arena.tree_entry_start[tree + 1]):
            entry = &arena.entries[arena.tree_entries[i]]
            mask = &arena.masks[entry.first_mask]
            for e in range((entry.n_cuts - 1) * n_words - 1, -1, -1):
                mask[e] &= mask[e + n_words]
            mask += <size_t> entry.n_cuts * n_words
            for e in range(n_words, entry.n_cuts * n_words):
                mask[e] &= mask[e - n_words]


cdef inline const uint64_t* mask_of(Arena* arena, const Entry* entry, bint is_left, int32_t cut,
                                    int32_t n_words) noexcept nogil:
    """Leaves of a tree that are left on one side of a cut, NULL for all of them."""
    cdef int32_t rank
    if is_left:
        rank = count_below(&arena.cuts[entry.first_cut], entry.n_cuts, cut)
        return NULL if rank == entry.n_cuts else &arena.masks[entry.first_mask + <size_t> rank * n_words]
    rank = count_below(&arena.cuts[entry.first_cut], entry.n_cuts, cut + 1)
    return NULL if rank == 0 else &arena.masks[entry.first_mask + <size_t> (entry.n_cuts + rank - 1) * n_words]


cdef inline int32_t first_left(const uint64_t* words, const uint64_t* mask, int32_t n_words) noexcept nogil:
    """First leaf that is there and in the mask, -1 for none."""
    cdef int32_t i
    cdef uint64_t word
    for i in range(n_words):
        word = words[i] & mask[i]
        if word:
            return 64 * i + ms_first_bit(word)
    return -1


cdef inline int64_t bound_after(Arena* arena, Reached* reached, int32_t feature, int32_t cut,
                                bint is_left) noexcept nogil:
    """What the bound would be on one side of a cut."""
    cdef int64_t bound = arena.bound
    cdef const Entry* entry
    cdef const uint64_t* mask
    cdef int32_t e, n_words, bit, tree, start
    for e in range(arena.feature_start[feature], arena.feature_start[feature + 1]):
        entry = &arena.entries[e]
        tree = entry.tree
        start = arena.word_start[tree]
        n_words = arena.word_start[tree + 1] - start
        mask = mask_of(arena, entry, is_left, cut, n_words)
        if mask == NULL:
            continue
        bit = arena.best[tree] - reached.tree_start[tree]
        if mask[bit >> 6] >> (bit & 63) & 1:
            continue
        bit = first_left(&arena.words[start], mask, n_words)
        bound += arena.ranked[reached.tree_start[tree] + bit].lead - arena.ranked[arena.best[tree]].lead
    return bound


cdef inline void cut_leaves(Arena* arena, Reached* reached, int32_t feature, int32_t cut, bint is_left) noexcept nogil:
    """Take away the leaves on the other side of a cut, and bound again."""
    cdef const Entry* entry
    cdef const uint64_t* mask
    cdef uint64_t* words
    cdef int32_t e, i, n_words, bit, tree
    for e in range(arena.feature_start[feature], arena.feature_start[feature + 1]):
        entry = &arena.entries[e]
        tree = entry.tree
        n_words = arena.word_start[tree + 1] - arena.word_start[tree]
        mask = mask_of(arena, entry, is_left, cut, n_words)
        if mask == NULL:
            continue
        words = &arena.words[arena.word_start[tree]]
        for i in range(n_words):
            if words[i] & ~mask[i]:
                arena.lost[arena.n_lost] = Lost(words[i], arena.word_start[tree] + i)
                arena.n_lost += 1
                words[i] &= mask[i]
        bit = arena.best[tree] - reached.tree_start[tree]
        if words[bit >> 6] >> (bit & 63) & 1:
            continue
        arena.replaced[arena.n_replaced] = Replaced(tree, arena.best[tree])
        arena.n_replaced += 1
        arena.bound -= arena.ranked[arena.best[tree]].lead
        arena.best[tree] = reached.tree_start[tree] + first_left(words, mask, n_words)
        arena.bound += arena.ranked[arena.best[tree]].lead


cdef inline void undo_cuts(Arena* arena, size_t n_lost, size_t n_replaced, int64_t bound) noexcept nogil:
    """Go back to the leaves that were there when this much had been taken away."""
    while arena.n_lost > n_lost:
        arena.n_lost -= 1
        arena.words[arena.lost[arena.n_lost].place] = arena.lost[arena.n_lost].word
    while arena.n_replaced > n_replaced:
        arena.n_replaced -= 1
        arena.best[arena.replaced[arena.n_replaced].tree] = arena.replaced[arena.n_replaced].best
    arena.bound = bound
