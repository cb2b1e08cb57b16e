# A chapter of forest_search.pyx: a tighter bound of the margin, by messages between trees (dual decomposition).
#
# The sum of the best margins of all trees is far above the largest margin of a point, because each tree chooses its
# leaf for itself. Messages make them agree: a message adds a number to a tree for each cell of a feature that the tree
# tests, and the numbers of all trees add up to zero in every cell. Whatever the messages are, the margin of a point is
# unchanged, and the sum of the best values of all trees is an upper bound of it, where the value of a leaf is its margin
# plus, for each feature, the largest number of a cell inside the leaf.
#
# A sweep goes over the features. The max-marginal of a tree in a cell is the best value that the tree has when the
# feature lies in this cell. The messages along a feature are set such that all trees have the same max-marginals, which
# never raises the bound (max-sum diffusion); going somewhat further in the same direction converges faster. The sum of
# the max-marginals bounds the margin of all points in a cell, so cells where it is too small are removed.
#
# All numbers are whole, and shares of a sum have remainders, so that sums are exact and every bound is a proof.
# Messages that were set for some cells of a box remain valid for any others.

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, qsort
from libc.string cimport memcpy, memset

from common.buffer cimport reserve
from verification.leaf_sets cimport Constraint, FeatureEntry, LeafSets, Reached, count_below


cdef enum:
    # Margins are scaled down to at most so many bits for the sum over all trees.
    MARGIN_BITS = 52
    # The most numbers that the messages of all trees may have.
    MAX_NUMBERS = 1 << 23
    # Features for which both sides of a cut are tried before the box is divided.
    MAX_PROBES = 4
    SWEEPS_PER_PROBE = 2

cdef struct CutBounds:
    # A cut of the box between two cells of a feature, and bounds on its sides.
    int32_t feature         # -1 for none
    int32_t cell            # the last one on the left side
    int64_t left
    int64_t right
    double score            # how much the cut lowers the bounds

cdef struct DualBound:
    int32_t n_features
    int32_t n_trees
    int32_t n_cells
    int32_t shift               # margins are divided by two to this power, rounded up
    int64_t least               # the smallest bound that leaves the box open, in this unit
    int64_t bound
    # By tree: its first leaf, and the end.
    int32_t* tree_start
    size_t tree_start_capacity
    # By feature: its first entry and its first cell, and the ends.
    int32_t* feature_start
    size_t feature_start_capacity
    int32_t* cell_start
    size_t cell_start_capacity
    # By cell. Only cuts of reached splits count, so these cells are larger than those of the whole forest.
    int32_t* cell_cut           # the cut at the upper end, -1 for the last cell of a feature
    size_t cell_cut_capacity
    char* is_removed
    size_t removed_capacity
    char* kept_removed          # those of a box while its sides are tried
    size_t kept_capacity
    int64_t* sums               # of the max-marginals
    size_t sum_capacity
    int64_t* shared             # what the trees share equally
    size_t shared_capacity
    int64_t* left_sums          # the largest max-marginals up to each cell, added up
    size_t left_capacity
    int64_t* right_sums
    size_t right_capacity
    # By entry, which is a tree that tests a feature.
    int32_t* entry_tree
    size_t entry_tree_capacity
    int32_t* segment_start      # its first segment; segments are what the tree's own cuts divide the feature into
    size_t segment_start_capacity
    size_t* message_start
    size_t message_start_capacity
    size_t* link_start
    size_t link_start_capacity
    # By segment.
    int32_t* segment_end        # the cell behind it
    size_t segment_end_capacity
    int64_t* marginals          # of one entry
    size_t marginal_capacity
    # Messages: by entry and cell.
    int64_t* messages
    size_t message_capacity
    size_t n_messages
    int64_t* saved              # messages of boxes that are divided, by their depth
    size_t saved_capacity
    # By entry and leaf of its tree.
    int32_t* link_first         # segments of the leaf
    size_t link_first_capacity
    int32_t* link_last
    size_t link_last_capacity
    int64_t* link_best          # the largest message inside the leaf
    size_t link_best_capacity
    # By leaf.
    int64_t* margins
    size_t margin_capacity
    int64_t* values             # NOWHERE if no cell of the leaf remains
    size_t value_capacity


cdef inline void free_dual_bound(DualBound* dual) noexcept nogil:
    free(dual.tree_start)
    free(dual.feature_start)
    free(dual.cell_start)
    free(dual.cell_cut)
    free(dual.is_removed)
    free(dual.kept_removed)
    free(dual.sums)
    free(dual.shared)
    free(dual.left_sums)
    free(dual.right_sums)
    free(dual.entry_tree)
    free(dual.segment_start)
    free(dual.message_start)
    free(dual.link_start)
    free(dual.segment_end)
    free(dual.marginals)
    free(dual.messages)
    free(dual.saved)
    free(dual.link_first)
    free(dual.link_last)
    free(dual.link_best)
    free(dual.margins)
    free(dual.values)


cdef extern from * nogil:
    """
    /* Less than every value. */
    #define NOWHERE (-((int64_t) 1 << 61))
    """
    const int64_t NOWHERE


cdef inline int _compare_cuts(const void* a, const void* b) noexcept nogil:
    cdef int32_t first = (<const int32_t*> a)[0]
    cdef int32_t second = (<const int32_t*> b)[0]
    return (first > second) - (first < second)


cdef inline int64_t _divide_up(int64_t number, int32_t shift) noexcept nogil:
    """A number divided by two to the power of shift, rounded up."""
    return -((-number) >> shift)


cdef inline bint begin_dual_bound(DualBound* dual, LeafSets* sets, Reached* reached, int64_t least) except -1 nogil:
    """Start without messages; returns False if they would take too much memory.

    The leaves must have been ranked for a label pair, and the entries set. Nothing of them is used later.

    Parameters
    ----------
    least : the smallest bound that leaves the box open
    """
    cdef int32_t f, e, i, n, tree, n_cells = 0, n_segments = 0
    cdef int32_t n_entries = sets.feature_start[sets.n_features]
    cdef size_t n_messages = 0, n_links = 0
    cdef FeatureEntry* entry
    dual.n_features, dual.n_trees = sets.n_features, reached.n_trees
    reserve(<void**> &dual.tree_start, &dual.tree_start_capacity, <size_t> reached.n_trees + 1, sizeof(int32_t))
    reserve(<void**> &dual.feature_start, &dual.feature_start_capacity, <size_t> sets.n_features + 1, sizeof(int32_t))
    reserve(<void**> &dual.cell_start, &dual.cell_start_capacity, <size_t> sets.n_features + 1, sizeof(int32_t))
    reserve(<void**> &dual.entry_tree, &dual.entry_tree_capacity, <size_t> n_entries + 1, sizeof(int32_t))
    reserve(<void**> &dual.segment_start, &dual.segment_start_capacity, <size_t> n_entries + 1, sizeof(int32_t))
    reserve(<void**> &dual.message_start, &dual.message_start_capacity, <size_t> n_entries + 1, sizeof(size_t))
    reserve(<void**> &dual.link_start, &dual.link_start_capacity, <size_t> n_entries + 1, sizeof(size_t))
    for tree in range(reached.n_trees + 1):
        dual.tree_start[tree] = reached.tree_start[tree]
    for e in range(n_entries):
        n_segments += sets.entries[e].n_cuts + 1
        dual.entry_tree[e] = sets.entries[e].tree
    reserve(<void**> &dual.cell_cut, &dual.cell_cut_capacity, <size_t> n_segments + 1, sizeof(int32_t))
    reserve(<void**> &dual.segment_end, &dual.segment_end_capacity, <size_t> n_segments + 1, sizeof(int32_t))
    reserve(<void**> &dual.marginals, &dual.marginal_capacity, <size_t> n_segments + 1, sizeof(int64_t))
    n_segments = 0
    for f in range(sets.n_features):
        dual.feature_start[f] = sets.feature_start[f]
        dual.cell_start[f] = n_cells
        # The distinct cuts of all trees.
        n = n_cells
        for e in range(sets.feature_start[f], sets.feature_start[f + 1]):
            entry = &sets.entries[e]
            for i in range(entry.n_cuts):
                dual.cell_cut[n] = sets.cuts[entry.first_cut + i]
                n += 1
        if n == n_cells:
            continue
        qsort(&dual.cell_cut[n_cells], n - n_cells, sizeof(int32_t), _compare_cuts)
        tree = n_cells
        for i in range(n_cells + 1, n):
            if dual.cell_cut[i] != dual.cell_cut[tree]:
                tree += 1
                dual.cell_cut[tree] = dual.cell_cut[i]
        n = tree + 1 - n_cells
        for e in range(sets.feature_start[f], sets.feature_start[f + 1]):
            entry = &sets.entries[e]
            dual.segment_start[e] = n_segments
            for i in range(entry.n_cuts):
                dual.segment_end[n_segments] = 1 + count_below(
                    &dual.cell_cut[n_cells], n, sets.cuts[entry.first_cut + i])
                n_segments += 1
            dual.segment_end[n_segments] = n + 1
            n_segments += 1
            dual.message_start[e] = n_messages
            n_messages += n + 1
            dual.link_start[e] = n_links
            n_links += reached.tree_start[entry.tree + 1] - reached.tree_start[entry.tree]
        n_cells += n
        dual.cell_cut[n_cells] = -1
        n_cells += 1
    dual.n_cells, dual.n_messages = n_cells, n_messages
    dual.feature_start[sets.n_features] = n_entries
    dual.cell_start[sets.n_features] = n_cells
    dual.segment_start[n_entries] = n_segments
    if n_messages > MAX_NUMBERS or n_links > MAX_NUMBERS:
        return False
    reserve(<void**> &dual.is_removed, &dual.removed_capacity, <size_t> n_cells + 1, sizeof(char))
    reserve(<void**> &dual.kept_removed, &dual.kept_capacity, <size_t> n_cells + 1, sizeof(char))
    reserve(<void**> &dual.sums, &dual.sum_capacity, <size_t> n_cells + 1, sizeof(int64_t))
    reserve(<void**> &dual.shared, &dual.shared_capacity, <size_t> n_cells + 1, sizeof(int64_t))
    reserve(<void**> &dual.left_sums, &dual.left_capacity, <size_t> n_cells + 1, sizeof(int64_t))
    reserve(<void**> &dual.right_sums, &dual.right_capacity, <size_t> n_cells + 1, sizeof(int64_t))
    reserve(<void**> &dual.messages, &dual.message_capacity, n_messages + 1, sizeof(int64_t))
    reserve(<void**> &dual.link_first, &dual.link_first_capacity, n_links + 1, sizeof(int32_t))
    reserve(<void**> &dual.link_last, &dual.link_last_capacity, n_links + 1, sizeof(int32_t))
    reserve(<void**> &dual.link_best, &dual.link_best_capacity, n_links + 1, sizeof(int64_t))
    reserve(<void**> &dual.margins, &dual.margin_capacity, <size_t> reached.n_leaves + 1, sizeof(int64_t))
    reserve(<void**> &dual.values, &dual.value_capacity, <size_t> reached.n_leaves + 1, sizeof(int64_t))
    memset(dual.is_removed, 0, n_cells * sizeof(char))
    memset(dual.messages, 0, n_messages * sizeof(int64_t))
    _link_leaves(dual, sets, reached)
    _set_margins(dual, sets, reached, least)
    dual.bound = set_values(dual)
    return True


cdef inline void _link_leaves(DualBound* dual, LeafSets* sets, const Reached* reached) noexcept nogil:
    """Find the segments of each leaf."""
    cdef int32_t tree, i, e, leaf, n_leaves, d
    cdef FeatureEntry* entry
    cdef Constraint* constraint
    for tree in range(reached.n_trees):
        n_leaves = reached.tree_start[tree + 1] - reached.tree_start[tree]
        for i in range(sets.tree_entry_start[tree], sets.tree_entry_start[tree + 1]):
            e = sets.tree_entries[i]
            entry = &sets.entries[e]
            # The feature of an entry: that of the test at its first cut.
            sets.entry_of[<int32_t> (reached.tests[entry.first_cut] >> 32)] = e
            for leaf in range(n_leaves):
                dual.link_first[dual.link_start[e] + leaf] = 0
                dual.link_last[dual.link_start[e] + leaf] = entry.n_cuts
        for leaf in range(n_leaves):
            i = reached.tree_start[tree] + leaf
            for d in range(reached.constraint_start[i], reached.constraint_start[i + 1]):
                constraint = &reached.constraints[d]
                e = sets.entry_of[constraint.feature]
                entry = &sets.entries[e]
                dual.link_first[dual.link_start[e] + leaf] = count_below(
                    &sets.cuts[entry.first_cut], entry.n_cuts, constraint.low)
                dual.link_last[dual.link_start[e] + leaf] = count_below(
                    &sets.cuts[entry.first_cut], entry.n_cuts, constraint.high)


cdef inline void _set_margins(DualBound* dual, const LeafSets* sets, const Reached* reached,
                              int64_t least) noexcept nogil:
    cdef int32_t tree, i
    cdef int64_t largest, total = 1
    for tree in range(reached.n_trees):
        largest = 0
        for i in range(reached.tree_start[tree], reached.tree_start[tree + 1]):
            largest = max(largest, max(sets.ranked[i].margin, -sets.ranked[i].margin))
        total += largest
    dual.shift = 0
    while total >> dual.shift >> MARGIN_BITS:
        dual.shift += 1
    for i in range(reached.n_leaves):
        dual.margins[sets.ranked[i].leaf] = _divide_up(sets.ranked[i].margin, dual.shift)
    dual.least = _divide_up(least, dual.shift)


cdef inline int64_t set_values(DualBound* dual) noexcept nogil:
    """Compute the values of all leaves from the messages of the remaining cells; returns the bound, or NOWHERE."""
    cdef int32_t leaf, tree, e
    cdef int64_t bound = 0, best
    for leaf in range(dual.tree_start[dual.n_trees]):
        dual.values[leaf] = dual.margins[leaf]
    for e in range(dual.feature_start[dual.n_features]):
        memset(&dual.link_best[dual.link_start[e]], 0,
               (dual.tree_start[dual.entry_tree[e] + 1] - dual.tree_start[dual.entry_tree[e]]) * sizeof(int64_t))
    for leaf in range(dual.n_features):
        for e in range(dual.feature_start[leaf], dual.feature_start[leaf + 1]):
            _find_best_messages(dual, e, leaf)
            _update_values(dual, e)
    for tree in range(dual.n_trees):
        best = NOWHERE
        for leaf in range(dual.tree_start[tree], dual.tree_start[tree + 1]):
            best = max(best, dual.values[leaf])
        if best == NOWHERE:
            return NOWHERE
        bound += best
    return bound


cdef inline void _find_best_messages(DualBound* dual, int32_t e, int32_t f) noexcept nogil:
    """The largest message of an entry in each of its segments, into `marginals`."""
    cdef const int64_t* messages = &dual.messages[dual.message_start[e]]
    cdef const char* is_removed = &dual.is_removed[dual.cell_start[f]]
    cdef const int32_t* segment_end = &dual.segment_end[dual.segment_start[e]]
    cdef int32_t s, c = 0
    cdef int64_t best
    for s in range(dual.segment_start[e + 1] - dual.segment_start[e]):
        best = NOWHERE
        while c < segment_end[s]:
            if not is_removed[c] and messages[c] > best:
                best = messages[c]
            c += 1
        dual.marginals[s] = best


cdef inline int64_t _update_values(DualBound* dual, int32_t e) noexcept nogil:
    """Set the values of the leaves of an entry by the largest messages in its segments; returns the largest value."""
    cdef int32_t start = dual.tree_start[dual.entry_tree[e]]
    cdef int32_t n_leaves = dual.tree_start[dual.entry_tree[e] + 1] - start, leaf, s
    cdef const int32_t* first = &dual.link_first[dual.link_start[e]]
    cdef const int32_t* last = &dual.link_last[dual.link_start[e]]
    cdef int64_t* link_best = &dual.link_best[dual.link_start[e]]
    cdef int64_t* values = &dual.values[start]
    cdef int64_t best, largest = NOWHERE
    for leaf in range(n_leaves):
        if values[leaf] == NOWHERE:
            continue
        best = NOWHERE
        for s in range(first[leaf], last[leaf] + 1):
            best = max(best, dual.marginals[s])
        if best == NOWHERE:
            values[leaf] = NOWHERE
            continue
        values[leaf] += best - link_best[leaf]
        link_best[leaf] = best
        largest = max(largest, values[leaf])
    return largest


cdef inline void _find_marginals(DualBound* dual, int32_t e) noexcept nogil:
    """The best value of a tree in each segment of an entry, without the messages of the entry, into `marginals`."""
    cdef int32_t start = dual.tree_start[dual.entry_tree[e]]
    cdef int32_t n_leaves = dual.tree_start[dual.entry_tree[e] + 1] - start, leaf, s
    cdef const int32_t* first = &dual.link_first[dual.link_start[e]]
    cdef const int32_t* last = &dual.link_last[dual.link_start[e]]
    cdef const int64_t* link_best = &dual.link_best[dual.link_start[e]]
    cdef int64_t* marginals = dual.marginals
    cdef int64_t value
    for s in range(dual.segment_start[e + 1] - dual.segment_start[e]):
        marginals[s] = NOWHERE
    for leaf in range(n_leaves):
        if dual.values[start + leaf] == NOWHERE:
            continue
        value = dual.values[start + leaf] - link_best[leaf]
        for s in range(first[leaf], last[leaf] + 1):
            if value > marginals[s]:
                marginals[s] = value


cdef inline bint sweep_feature(DualBound* dual, int32_t f, bint is_relaxed) noexcept nogil:
    """Set the messages along one feature such that all trees have the same max-marginals; `is_relaxed` goes further.

    Removes cells whose points cannot have a margin that is large enough; returns False if none remains.
    """
    cdef int32_t first = dual.cell_start[f], n_cells = dual.cell_start[f + 1] - first
    cdef int32_t n_trees = dual.feature_start[f + 1] - dual.feature_start[f]
    cdef int32_t e, s, c
    cdef int64_t others = dual.bound, best, marginal
    cdef int64_t* sums = &dual.sums[first]
    cdef int64_t* shared = &dual.shared[first]
    cdef char* is_removed = &dual.is_removed[first]
    cdef int64_t* messages
    cdef const int32_t* segment_end
    cdef bint remains = False, is_empty = False
    if n_trees == 0:
        return True
    memset(sums, 0, n_cells * sizeof(int64_t))
    memset(shared, 0, n_cells * sizeof(int64_t))
    for e in range(dual.feature_start[f], dual.feature_start[f + 1]):
        messages = &dual.messages[dual.message_start[e]]
        segment_end = &dual.segment_end[dual.segment_start[e]]
        _find_marginals(dual, e)
        best = NOWHERE
        c = 0
        for s in range(dual.segment_start[e + 1] - dual.segment_start[e]):
            if dual.marginals[s] == NOWHERE:
                # No leaf of this tree remains here.
                while c < segment_end[s]:
                    is_removed[c] = True
                    c += 1
            while c < segment_end[s]:
                if not is_removed[c]:
                    marginal = dual.marginals[s] + messages[c]
                    best = max(best, marginal)
                    sums[c] += marginal
                    if is_relaxed:
                        marginal += (marginal >> 1) + (marginal >> 3)
                    shared[c] += marginal
                    messages[c] -= marginal
                c += 1
        if best == NOWHERE:
            is_empty = True
            break
        others -= best
    # Now `others` bounds the trees that do not test the feature.
    for c in range(n_cells):
        if not is_removed[c]:
            is_removed[c] = others + sums[c] < dual.least
            remains |= not is_removed[c]
    dual.bound = others
    # Shared in any case, so that messages add up to zero for other boxes.
    return _share(dual, f) and remains and not is_empty


cdef inline bint _share(DualBound* dual, int32_t f) noexcept nogil:
    """Give each tree its part of what the trees of a feature share, and add the best values of these trees."""
    cdef int32_t first = dual.cell_start[f], n_cells = dual.cell_start[f + 1] - first
    cdef int32_t n_trees = dual.feature_start[f + 1] - dual.feature_start[f]
    cdef int32_t e, c, number = 0
    cdef int64_t* shared = &dual.shared[first]
    cdef int64_t* rest = &dual.left_sums[first]
    cdef int64_t* messages
    cdef int64_t best
    cdef bint remains = True
    for c in range(n_cells):
        # Equal parts, rounded down; the first trees take the rest.
        best = shared[c] // n_trees if shared[c] >= 0 else -((-shared[c] + n_trees - 1) // n_trees)
        rest[c] = shared[c] - best * n_trees
        shared[c] = best
    for e in range(dual.feature_start[f], dual.feature_start[f + 1]):
        messages = &dual.messages[dual.message_start[e]]
        for c in range(n_cells):
            messages[c] += shared[c] + (number < rest[c])
        number += 1
        _find_best_messages(dual, e, f)
        best = _update_values(dual, e)
        if best == NOWHERE:
            remains = False
        else:
            dual.bound += best
    return remains


cdef inline bint sweep(DualBound* dual, bint is_relaxed) noexcept nogil:
    """Sweep over all features; returns False if that proves that no point has a large enough margin."""
    cdef int32_t f
    for f in range(dual.n_features):
        if not sweep_feature(dual, f, is_relaxed) or dual.bound < dual.least:
            return False
    return True


cdef inline int save_messages(DualBound* dual, int32_t depth) except -1 nogil:
    """Keep the messages for the parts of a box; of boxes too deep to keep them, nothing is kept."""
    cdef size_t start = depth * dual.n_messages
    if start + dual.n_messages <= MAX_NUMBERS:
        reserve(<void**> &dual.saved, &dual.saved_capacity, start + dual.n_messages + 1, sizeof(int64_t))
        memcpy(dual.saved + start, dual.messages, dual.n_messages * sizeof(int64_t))
    return 0


cdef inline void restore_messages(DualBound* dual, int32_t depth) noexcept nogil:
    """Set the messages to those that were kept at a depth, or at the largest one below it."""
    cdef size_t most = MAX_NUMBERS // max(dual.n_messages, 1)
    if most > 0:
        memcpy(dual.messages, dual.saved + min(<size_t> depth, most - 1) * dual.n_messages,
               dual.n_messages * sizeof(int64_t))


cdef inline CutBounds propose_cut(const DualBound* dual, int32_t f) noexcept nogil:
    """A cut that divides the remaining cells of a feature into two parts of about the same weight.

    A cell weighs the more, the farther its sum of max-marginals is from being too small.
    """
    cdef CutBounds found = CutBounds(-1, 0, 0, 0, 0.0)
    cdef int32_t first = dual.cell_start[f], last = dual.cell_start[f + 1], c, best = -1, n_remaining = 0
    cdef double span = 1.0 + <double> (dual.bound - dual.least), total = 0.0, left = 0.0, weight
    for c in range(first, last):
        if not dual.is_removed[c]:
            n_remaining += 1
            if best < 0 or dual.sums[c] > dual.sums[best]:
                best = c
    if n_remaining < 2:
        return found
    for c in range(first, last):
        if not dual.is_removed[c]:
            total += max(0.01, 1.0 - <double> (dual.sums[best] - dual.sums[c]) / span)
    found.feature, found.score = f, total
    for c in range(first, last):
        if dual.is_removed[c]:
            continue
        weight = max(0.01, 1.0 - <double> (dual.sums[best] - dual.sums[c]) / span)
        n_remaining -= 1
        if n_remaining == 0 or (left > 0.0 and left + 0.5 * weight > 0.5 * total):
            break
        left += weight
        found.cell = c - first
    return found


cdef inline void remove_side(DualBound* dual, CutBounds cut, bint is_left) noexcept nogil:
    """Remove the cells on the other side of a cut."""
    cdef int32_t start = dual.cell_start[cut.feature], middle = start + cut.cell + 1
    cdef int32_t stop = dual.cell_start[cut.feature + 1], c
    for c in range(middle if is_left else start, stop if is_left else middle):
        dual.is_removed[c] = True


cdef inline void narrow_to_remaining(const DualBound* dual, int32_t* low, int32_t* high) noexcept nogil:
    """Narrow the cells low..high of a box to what remains, as far as one range for each feature can say it."""
    cdef int32_t f, first, last
    for f in range(dual.n_features):
        first, last = dual.cell_start[f], dual.cell_start[f + 1] - 1
        while first < last and dual.is_removed[first]:
            low[f] = max(low[f], dual.cell_cut[first] + 1)
            first += 1
        while last > first and dual.is_removed[last]:
            last -= 1
            high[f] = min(high[f], dual.cell_cut[last])


cdef inline void decode_point(const DualBound* dual, const int32_t* low, const int32_t* high,
                              int32_t* point) noexcept nogil:
    """The point of the box low..high with the largest sum of max-marginals of each feature, for a local search."""
    cdef int32_t f, c, best
    for f in range(dual.n_features):
        point[f] = low[f]
        best = -1
        for c in range(dual.cell_start[f], dual.cell_start[f + 1]):
            if not dual.is_removed[c] and (best < 0 or dual.sums[c] > dual.sums[best]):
                best = c
        if best >= 0:
            point[f] = high[f] if dual.cell_cut[best] < 0 else dual.cell_cut[best]
