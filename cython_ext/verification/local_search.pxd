# A chapter of forest_search.pyx: a local search for a witness.
#
# The search keeps a point of the box, as one cell of each feature, and improves the margin of one label over another by
# exact line searches: with all other features fixed, the margin of each tree is a step function of one feature, and the
# sum of these functions has its maximum in some cell. A sweep makes a line search along each feature in turn. Where
# no line search improves the margin any more, some features are moved at random, and the sweeps start again from there.
#
# What is found is a point, so a margin that is large enough is a proof. Nothing is concluded from a search that fails.

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

from common.buffer cimport reserve
from common.node cimport Node
from common.random cimport next_below
from verification.cells cimport CellBox
from verification.leaf_sets cimport LeafSets


cdef struct LineVisit:
    # A node to visit with the cells low..high of the feature that varies.
    int32_t node
    int32_t low
    int32_t high

cdef struct Forest:
    # What a walk needs to know of the trees.
    const Node* nodes
    const int32_t* starts       # by tree; a box that holds all points to visit goes as far as here
    const int32_t* node_cuts
    const int64_t* scores
    int32_t n_trees
    int32_t n_labels

cdef struct LocalSearch:
    # By feature.
    int32_t* point
    size_t point_capacity
    int32_t* best_point
    size_t best_point_capacity
    int32_t* free_features      # those that some tree tests in the box
    size_t free_capacity
    int32_t n_free
    int64_t* steps              # by cell of the feature that varies: the difference to the cell before it
    size_t step_capacity
    LineVisit* visits
    size_t visit_capacity
    uint64_t random


cdef inline int reserve_local_search(LocalSearch* search, int32_t n_features, int32_t max_depth) except -1 nogil:
    """Allocate the buffers whose size depends on the forest alone."""
    cdef size_t n = <size_t> n_features + 1
    reserve(<void**> &search.point, &search.point_capacity, n, sizeof(int32_t))
    reserve(<void**> &search.best_point, &search.best_point_capacity, n, sizeof(int32_t))
    reserve(<void**> &search.free_features, &search.free_capacity, n, sizeof(int32_t))
    reserve(<void**> &search.visits, &search.visit_capacity, <size_t> max_depth + 2, sizeof(LineVisit))
    return 0


cdef inline void free_local_search(LocalSearch* search) noexcept nogil:
    free(search.point)
    free(search.best_point)
    free(search.free_features)
    free(search.steps)
    free(search.visits)


cdef inline int32_t merged_cut(const CellBox* box, int32_t feature, int32_t cut) noexcept nogil:
    """The cut that counts for a threshold: members of table groups have one."""
    if box.merged_low[feature] <= cut < box.merged_high[feature]:
        return box.merged_low[feature]
    return cut


cdef inline int32_t leaf_of_point(const Forest* forest, const CellBox* box, const int32_t* point,
                                  int32_t tree) noexcept nogil:
    """The leaf, in the model's numbering, that a point falls into."""
    cdef int32_t node = forest.starts[tree], feature = forest.nodes[node].feature
    while feature >= 0:
        if point[feature] <= merged_cut(box, feature, forest.node_cuts[node]):
            node = forest.nodes[node].left
        else:
            node = forest.nodes[node].right
        feature = forest.nodes[node].feature
    return forest.nodes[node].leaf


cdef inline int64_t margin_of_leaf(const Forest* forest, int32_t leaf, int32_t ahead, int32_t behind) noexcept nogil:
    cdef const int64_t* scores = forest.scores + <size_t> leaf * forest.n_labels
    return scores[ahead] - scores[behind]


cdef inline int64_t margin_of_point(const Forest* forest, const CellBox* box, const int32_t* point, int32_t ahead,
                                    int32_t behind) noexcept nogil:
    cdef int64_t margin = 0
    cdef int32_t tree
    for tree in range(forest.n_trees):
        margin += margin_of_leaf(forest, leaf_of_point(forest, box, point, tree), ahead, behind)
    return margin


cdef inline int list_free_features(LocalSearch* search, const CellBox* box, const LeafSets* sets) except -1 nogil:
    """The features along which points of the box can differ for some tree, without those of table groups."""
    cdef int32_t f, widest = 0
    search.n_free = 0
    for f in range(box.n_features):
        if box.group_of[f] < 0 and sets.feature_start[f] < sets.feature_start[f + 1]:
            search.free_features[search.n_free] = f
            search.n_free += 1
            widest = max(widest, box.row_high[f] - box.row_low[f] + 1)
    reserve(<void**> &search.steps, &search.step_capacity, <size_t> widest + 1, sizeof(int64_t))
    return 0


cdef inline int64_t search_line(LocalSearch* search, const Forest* forest, const CellBox* box, const LeafSets* sets,
                                int32_t feature, int32_t ahead, int32_t behind) noexcept nogil:
    """Move the point to the best cell of one feature; returns by how much the margin grows."""
    cdef int32_t start = box.row_low[feature], n_cells = box.row_high[feature] - start + 1
    cdef int32_t e, node, tested, cut, top, cell, best_cell = 0
    cdef int64_t margin, sum = 0, best = 0, here = 0
    cdef int64_t* steps = search.steps
    cdef int32_t* point = search.point
    cdef LineVisit* visits = search.visits
    cdef LineVisit visit
    memset(steps, 0, (n_cells + 1) * sizeof(int64_t))
    for e in range(sets.feature_start[feature], sets.feature_start[feature + 1]):
        visits[0] = LineVisit(forest.starts[sets.entries[e].tree], 0, n_cells - 1)
        top = 1
        while top > 0:
            top -= 1
            visit = visits[top]
            node = visit.node
            tested = forest.nodes[node].feature
            while tested >= 0:
                cut = merged_cut(box, tested, forest.node_cuts[node])
                if tested == feature:
                    cut -= start
                    if visit.high <= cut:
                        node = forest.nodes[node].left
                    elif visit.low > cut:
                        node = forest.nodes[node].right
                    else:
                        visits[top] = LineVisit(forest.nodes[node].right, cut + 1, visit.high)
                        top += 1
                        visit.high = cut
                        node = forest.nodes[node].left
                elif point[tested] <= cut:
                    node = forest.nodes[node].left
                else:
                    node = forest.nodes[node].right
                tested = forest.nodes[node].feature
            margin = margin_of_leaf(forest, forest.nodes[node].leaf, ahead, behind)
            steps[visit.low] += margin
            steps[visit.high + 1] -= margin
    for cell in range(n_cells):
        sum += steps[cell]
        if cell == 0 or sum > best:
            best = sum
            best_cell = cell
        if cell == point[feature] - start:
            here = sum
    if best > here:
        point[feature] = start + best_cell
    return best - here


cdef inline int64_t climb(LocalSearch* search, const Forest* forest, const CellBox* box, const LeafSets* sets,
                          int32_t ahead, int32_t behind, int64_t margin, int64_t enough) noexcept nogil:
    """Line searches along one feature after the other, until none helps or the margin is enough; the margin then."""
    cdef int32_t i = 0, n_idle = 0
    cdef int64_t gain
    while n_idle < search.n_free and margin < enough:
        gain = search_line(search, forest, box, sets, search.free_features[i], ahead, behind)
        margin += gain
        n_idle = 1 if gain > 0 else n_idle + 1
        i = i + 1 if i + 1 < search.n_free else 0
    return margin


cdef inline bint search_locally(LocalSearch* search, const Forest* forest, const CellBox* box, const LeafSets* sets,
                                int32_t ahead, int32_t behind, int64_t enough, int32_t n_restarts) noexcept nogil:
    """Climb from the point, then from random changes of the best point; returns whether the margin is enough.

    Parameters
    ----------
    enough : the least margin of a witness
    n_restarts : random changes
    """
    cdef int32_t i, k, f, n_moved
    cdef int64_t margin, best
    if search.n_free == 0:
        return False
    best = climb(search, forest, box, sets, ahead, behind,
                 margin_of_point(forest, box, search.point, ahead, behind), enough)
    for f in range(box.n_features):
        search.best_point[f] = search.point[f]
    for i in range(n_restarts):
        if best >= enough:
            break
        n_moved = min(search.n_free, 2 + next_below(&search.random, 4))
        for k in range(n_moved):
            f = search.free_features[next_below(&search.random, search.n_free)]
            search.point[f] = box.row_low[f] + next_below(&search.random, box.row_high[f] - box.row_low[f] + 1)
        margin = climb(search, forest, box, sets, ahead, behind,
                       margin_of_point(forest, box, search.point, ahead, behind), enough)
        if margin >= best:
            best = margin
            for k in range(search.n_free):
                f = search.free_features[k]
                search.best_point[f] = search.point[f]
        else:
            for k in range(search.n_free):
                f = search.free_features[k]
                search.point[f] = search.best_point[f]
    return best >= enough
