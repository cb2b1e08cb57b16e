# The leaves of each tree of a forest that a box reaches, and what each of them demands of a sample.
#
# Values are replaced by cells: the thresholds of a feature cut the line into cells, and all values of one cell take the
# same way in every tree. Cell i of a feature holds the values above its threshold i-1 and not above its threshold i; a
# sample goes to the left of threshold i iff its cell is i or less.

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free

from ms_node cimport Node
from ms_room cimport reserve

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
