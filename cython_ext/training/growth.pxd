# A chapter of evolution.pyx: the changes of a tree that the genetic operators consist of. Growing greedily, pruning,
# moving a threshold, grafting.

from libc.math cimport log
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from common.buffer cimport reserve
from training.criteria cimport Criterion, Split, Weights, score_of
from training.missing cimport Region, find_cut, is_copy, present_region
from training.norm cimport Sides, find_sides
from training.scratch cimport Scratch
from training.subtree_replacement cimport Former, collect, note_former, replace, undo_replace
from training.sweep cimport find_split
from training.threshold_move cimport find_threshold_move
from training.tree cimport MIXED, NONE, Samples, TrainNode, Tree, add_node, known_prediction, rank_cut, weight_of

cdef struct TreeLimits:
    int32_t min_leaf        # samples in a leaf, at least
    int32_t max_leaves
    int32_t max_depth
    double leaf_penalty     # subtracted from the score for each leaf
    int32_t stop            # set from outside: long work ends early and leaves a valid tree

cdef struct FrontierLeaf:
    # A leaf of a tree that is being grown, with its samples and its best split.
    int32_t node
    int32_t depth
    int32_t place           # its left child takes its place, its right child the next free one; of equal gains the first wins
    int32_t n_entries
    int32_t* entries
    Split split


cdef inline double fitness_of(const Tree* tree, const Weights* weights, const TreeLimits* limits) noexcept nogil:
    return score_of(weights, tree.n_correct, tree.n_stable, tree.n_robust) - limits.leaf_penalty * tree.n_leaves


cdef inline int make_leaf(const Samples* samples, Tree* tree, Scratch* scratch) except -1 nogil:
    """Make the tree a single leaf that holds every sample."""
    cdef TrainNode leaf
    cdef int32_t position
    reset_tree(samples, tree)
    add_node(tree, -1)
    memset(&leaf, 0, sizeof(TrainNode))
    leaf.feature = -1
    scratch.n_path = 0
    scratch.n_entries = samples.n_samples
    for position in range(samples.n_samples):
        scratch.entries[position] = 2 * position + 1
        scratch.outside[position] = NONE
    return replace(samples, tree, 0, &leaf, 0, 1, 1, 1, scratch)


cdef inline void reset_tree(const Samples* samples, Tree* tree) noexcept nogil:
    """Remove all nodes; every sample counts as wrong and unstable until it is placed."""
    cdef int32_t position
    tree.n_nodes = 0
    tree.n_ties = 0
    tree.n_leaves = 0
    tree.n_correct = 0
    tree.n_stable = 0
    tree.n_robust = 0
    for position in range(samples.n_samples):
        tree.own[position] = MIXED
        tree.joint[position] = MIXED


cdef inline int _examine(const Samples* samples, const Tree* tree, const TrainNode* template, FrontierLeaf* leaf,
                         const int32_t* features, int32_t n_features, const Criterion* criterion,
                         const Weights* weights, const TreeLimits* limits, Scratch* scratch) except -1 nogil:
    memcpy(scratch.entries, leaf.entries, leaf.n_entries * sizeof(int32_t))
    scratch.n_entries = leaf.n_entries
    leaf.split.feature = -1
    if leaf.depth >= limits.max_depth:
        return 0
    scratch.template, scratch.template_node = template, leaf.node
    try:
        return find_split(samples, tree, scratch, features, n_features, criterion, weights, limits.min_leaf,
                          &leaf.split)
    finally:
        scratch.template = NULL


cdef struct Growth:
    # A subtree that is being grown, best split first. The t-th split has the nodes 2t+1 and 2t+2 as children, so the
    # first splits of a template are a template, too.
    TrainNode* template
    size_t template_capacity
    int32_t n_nodes
    # The leaves with a split that lowers the impurity, as a heap: none comes before the one at (position - 1) // 2. Others
    # stay leaves and are not kept.
    FrontierLeaf* frontier
    size_t frontier_capacity
    int32_t n_frontier
    FrontierLeaf[2] children    # not yet in the frontier; entries is NULL for those that are


cdef inline void free_growth(Growth* growth) noexcept nogil:
    cdef int32_t position
    for position in range(growth.n_frontier):
        free(growth.frontier[position].entries)
    for position in range(2):
        free(growth.children[position].entries)
    free(growth.frontier)
    free(growth.template)
    memset(growth, 0, sizeof(Growth))


cdef inline int32_t* _new_list(int32_t n_entries) except NULL nogil:
    cdef int32_t* entries = <int32_t*> malloc(max(n_entries, 1) * sizeof(int32_t))
    if entries == NULL:
        with gil:
            raise MemoryError("not enough memory to grow a tree")
    return entries


cdef inline bint _comes_before(const FrontierLeaf* leaf, const FrontierLeaf* other) noexcept nogil:
    """Whether a leaf is split before another one."""
    return leaf.split.gain > other.split.gain or (leaf.split.gain == other.split.gain and leaf.place < other.place)


cdef inline int _enter_frontier(Growth* growth, const FrontierLeaf* leaf) except -1 nogil:
    cdef int32_t position = growth.n_frontier, above
    reserve(<void**> &growth.frontier, &growth.frontier_capacity, position + 1, sizeof(FrontierLeaf))
    growth.n_frontier += 1
    while position > 0:
        above = (position - 1) // 2
        if not _comes_before(leaf, &growth.frontier[above]):
            break
        growth.frontier[position] = growth.frontier[above]
        position = above
    growth.frontier[position] = leaf[0]
    return 0


cdef inline FrontierLeaf _leave_frontier(Growth* growth) noexcept nogil:
    """Take the leaf that is split next out of a frontier that is not empty; its list belongs to the caller."""
    cdef FrontierLeaf first = growth.frontier[0], last
    cdef int32_t position = 0, below
    growth.n_frontier -= 1
    last = growth.frontier[growth.n_frontier]
    while True:
        below = 2 * position + 1
        if below >= growth.n_frontier:
            break
        if below + 1 < growth.n_frontier and _comes_before(&growth.frontier[below + 1], &growth.frontier[below]):
            below += 1
        if not _comes_before(&growth.frontier[below], &last):
            break
        growth.frontier[position] = growth.frontier[below]
        position = below
    growth.frontier[position] = last
    return first


cdef inline int _examine_child(const Samples* samples, const Tree* tree, Growth* growth, int32_t child,
                               const int32_t* features, int32_t n_features, const Criterion* criterion,
                               const Weights* weights, const TreeLimits* limits, Scratch* scratch) except -1 nogil:
    """Find the best split of a new leaf; without one that lowers the impurity, its list is freed at once."""
    cdef FrontierLeaf* leaf = &growth.children[child]
    _examine(samples, tree, growth.template, leaf, features, n_features, criterion, weights, limits, scratch)
    if leaf.split.feature >= 0 and leaf.split.gain > 0:
        _enter_frontier(growth, leaf)
    else:
        free(leaf.entries)
    leaf.entries = NULL
    return 0


cdef inline int begin_growth(const Samples* samples, const Tree* tree, Growth* growth, const int32_t* features,
                             int32_t n_features, const Criterion* criterion, const Weights* weights,
                             const TreeLimits* limits, Scratch* scratch) except -1 nogil:
    """Begin with the leaf that was collected; `growth` is all zero."""
    cdef FrontierLeaf* root = &growth.children[0]
    reserve(<void**> &growth.template, &growth.template_capacity, 1, sizeof(TrainNode))
    memset(&growth.template[0], 0, sizeof(TrainNode))
    growth.template[0].feature = -1
    growth.template[0].parent = -1
    growth.n_nodes = 1
    root.entries = _new_list(scratch.n_entries)
    root.node, root.depth, root.place, root.n_entries = 0, scratch.n_path, 0, scratch.n_entries
    memcpy(root.entries, scratch.entries, scratch.n_entries * sizeof(int32_t))
    return _examine_child(samples, tree, growth, 0, features, n_features, criterion, weights, limits, scratch)


cdef inline int _divide(const Samples* samples, Growth* growth, const FrontierLeaf* leaf,
                        Scratch* scratch) except -1 nogil:
    """Make the lists of the children of a leaf whose node has its test."""
    cdef int32_t position, entry, code, n_left = 0, n_right = 0
    cdef Sides sides
    cdef FrontierLeaf* left = &growth.children[0]
    cdef FrontierLeaf* right = &growth.children[1]
    find_sides(samples, growth.template, leaf.node, scratch.walked_tree.nodes if scratch.n_path > 0 else NULL,
               scratch.path[scratch.n_path] if scratch.n_path > 0 else -1, leaf.entries, leaf.n_entries, scratch, &sides)
    for position in range(leaf.n_entries):
        code = sides.codes[leaf.entries[position] >> 1]
        n_left += code <= sides.cut.reach_left
        n_right += code > sides.cut.reach_right
    left.entries = _new_list(n_left)
    right.entries = _new_list(n_right)
    left.n_entries, right.n_entries = n_left, n_right
    n_left, n_right = 0, 0
    for position in range(leaf.n_entries):
        entry = leaf.entries[position]
        code = sides.codes[entry >> 1]
        if code <= sides.cut.reach_left:
            left.entries[n_left] = entry if code <= sides.cut.left else entry & ~1
            n_left += 1
        if code > sides.cut.reach_right:
            right.entries[n_right] = entry if code > sides.cut.left else entry & ~1
            n_right += 1
    return 0


cdef inline int extend_growth(const Samples* samples, const Tree* tree, Growth* growth, int32_t n_splits,
                              const int32_t* features, int32_t n_features, const Criterion* criterion,
                              const Weights* weights, const TreeLimits* limits, Scratch* scratch) except -1 nogil:
    """Go on until the template has so many splits, or no split lowers the impurity.

    scratch.outside must be as `collect` left it for the leaf that growth began with.
    """
    cdef int32_t child, feature, n_nodes
    cdef Region region
    cdef FrontierLeaf leaf
    cdef TrainNode* template
    while growth.n_nodes // 2 < n_splits and growth.n_frontier > 0 and not limits.stop:
        n_nodes = growth.n_nodes
        reserve(<void**> &growth.template, &growth.template_capacity, n_nodes + 2, sizeof(TrainNode))
        template = growth.template
        leaf = _leave_frontier(growth)
        try:
            feature = leaf.split.feature
            template[leaf.node].threshold = leaf.split.threshold
            template[leaf.node].cut = rank_cut(samples, feature, leaf.split.threshold)
            if is_copy(samples, feature):
                scratch.template, scratch.template_node = template, leaf.node
                region = present_region(samples, feature, scratch)
                scratch.template = NULL
                template[leaf.node].feature = feature
                find_cut(samples, &region, &template[leaf.node])
            template[leaf.node].feature = feature
            _divide(samples, growth, &leaf, scratch)
        finally:
            free(leaf.entries)
        growth.children[0].place = leaf.place
        growth.children[1].place = n_nodes // 2 + 1
        template[leaf.node].left = n_nodes
        template[leaf.node].right = n_nodes + 1
        for child in range(2):
            growth.children[child].node, growth.children[child].depth = n_nodes + child, leaf.depth + 1
            memset(&template[n_nodes + child], 0, sizeof(TrainNode))
            template[n_nodes + child].feature = -1
            template[n_nodes + child].parent = leaf.node
        growth.n_nodes += 2
        for child in range(2):
            _examine_child(samples, tree, growth, child, features, n_features, criterion, weights, limits, scratch)
    return 0


cdef inline int grow_leaf(const Samples* samples, Tree* tree, int32_t node, const int32_t* features, int32_t n_features,
                          const Criterion* criterion, const Weights* weights, const TreeLimits* limits,
                          Scratch* scratch) except -1 nogil:
    """Split a leaf by the best test for it; 0 if there is none."""
    cdef Split found
    cdef TrainNode[3] template
    collect(samples, tree, node, scratch)
    if tree.n_leaves >= limits.max_leaves or scratch.n_path >= limits.max_depth:
        return 0
    find_split(samples, tree, scratch, features, n_features, criterion, weights, limits.min_leaf, &found)
    if found.feature < 0:
        return 0
    memset(template, 0, sizeof(template))
    template[0].feature = found.feature
    template[0].threshold = found.threshold
    template[0].cut = rank_cut(samples, found.feature, found.threshold)
    template[0].left = 1
    template[0].right = 2
    template[1].feature = -1
    template[2].feature = -1
    replace(samples, tree, node, template, 0, 3, limits.min_leaf, limits.max_depth, scratch)
    return 1


cdef inline int32_t grow_subtree(const Samples* samples, Tree* tree, int32_t node, int32_t n_splits,
                                 const int32_t* features, int32_t n_features, const Criterion* criterion,
                                 const Weights* weights, const TreeLimits* limits, Scratch* scratch) except -1 nogil:
    """Replace a leaf by a grown subtree; return the number of splits made."""
    cdef Growth growth
    n_splits = min(n_splits, limits.max_leaves - tree.n_leaves)
    if n_splits <= 0:
        return 0
    memset(&growth, 0, sizeof(Growth))
    try:
        collect(samples, tree, node, scratch)
        begin_growth(samples, tree, &growth, features, n_features, criterion, weights, limits, scratch)
        extend_growth(samples, tree, &growth, n_splits, features, n_features, criterion, weights, limits, scratch)
        if growth.n_nodes > 1:
            collect(samples, tree, node, scratch)
            replace(samples, tree, node, growth.template, 0, growth.n_nodes, limits.min_leaf, limits.max_depth,
                    scratch)
        return growth.n_nodes // 2
    finally:
        free_growth(&growth)


cdef inline int32_t leaves_below(const Tree* tree, int32_t node) noexcept nogil:
    """Number of leaves of a subtree; a tree that was renumbered lies in pre-order."""
    cdef int32_t n_open = 1, n_leaves = 0
    while n_open > 0:
        if tree.nodes[node].feature >= 0:
            n_open += 1
        else:
            n_open -= 1
            n_leaves += 1
        node += 1
    return n_leaves


cdef inline double score_if_pruned(const Samples* samples, const Tree* tree, int32_t node, const Weights* weights,
                                   const Scratch* scratch) noexcept nogil:
    """Score of the tree with a collected subtree replaced by a leaf."""
    cdef int32_t position, entry, sample, label, outside, weight
    cdef int32_t prediction = known_prediction(tree, &tree.counts[<size_t> node * tree.n_labels])
    cdef int64_t correct = tree.n_correct, stable = tree.n_stable, robust = tree.n_robust
    cdef bint is_correct, is_stable
    for position in range(scratch.n_entries):
        entry = scratch.entries[position]
        sample = entry >> 1
        label = samples.labels[sample]
        weight = weight_of(samples, sample)
        is_correct = tree.own[sample] == label
        is_stable = tree.joint[sample] != MIXED
        correct -= weight * is_correct
        stable -= weight * is_stable
        robust -= weight * (is_correct and is_stable)
        if entry & 1:
            is_correct = prediction == label
        outside = scratch.outside[sample]
        is_stable = outside == NONE or (outside == prediction and outside >= 0)
        correct += weight * is_correct
        stable += weight * is_stable
        robust += weight * (is_correct and is_stable)
    return score_of(weights, correct, stable, robust)


cdef inline int prune(const Samples* samples, Tree* tree, int32_t node, Scratch* scratch) except -1 nogil:
    """Replace a subtree by a leaf."""
    cdef TrainNode leaf
    memset(&leaf, 0, sizeof(TrainNode))
    leaf.feature = -1
    collect(samples, tree, node, scratch)
    return replace(samples, tree, node, &leaf, 0, 1, 1, scratch.n_path + 1, scratch)


cdef inline int move_threshold(const Samples* samples, Tree* tree, int32_t node, const int32_t* features,
                               int32_t n_features, const Weights* weights, const TreeLimits* limits,
                               Scratch* scratch) except -1 nogil:
    """Give an inner node the best test for its present subtrees; 0 if no test is better than the present one.

    Leaves that change their predictions or lose their samples may make the tree worse than the sweep has promised. If
    that lowers the fitness, the tree stays as it was.
    """
    cdef Split found
    cdef Former former
    cdef double before = fitness_of(tree, weights, limits)
    collect(samples, tree, node, scratch)
    find_threshold_move(samples, tree, node, scratch, features, n_features, weights, limits.min_leaf, &found)
    if found.feature < 0 or found.score <= score_of(weights, tree.n_correct, tree.n_stable, tree.n_robust):
        return 0
    former = note_former(tree, node, scratch)
    tree.nodes[node].feature = found.feature
    tree.nodes[node].threshold = found.threshold
    tree.nodes[node].cut = rank_cut(samples, found.feature, found.threshold)
    replace(samples, tree, node, tree.nodes, node, former.n_nodes, limits.min_leaf, limits.max_depth, scratch)
    if fitness_of(tree, weights, limits) < before:
        undo_replace(tree, &former, scratch)
        return 0
    return 1


cdef inline int graft(const Samples* samples, Tree* tree, int32_t node, const Tree* donor, int32_t donor_node,
                      const TreeLimits* limits, Scratch* scratch) except -1 nogil:
    """Replace a subtree by a subtree of another tree; branches that no sample separates are left out."""
    collect(samples, tree, node, scratch)
    return replace(samples, tree, node, donor.nodes, donor_node, donor.n_nodes, limits.min_leaf, limits.max_depth,
                   scratch)


cdef inline double entropy_of(const int32_t* counts, int32_t n_labels) noexcept nogil:
    """Entropy of class counts, scaled to [0, 1]."""
    cdef double total = 0, mass = 0
    cdef int32_t label
    for label in range(n_labels):
        total += counts[label]
        if counts[label] > 0:
            mass += counts[label] * log(<double> counts[label])
    if total <= 0 or n_labels < 2:
        return 0
    return max((log(total) - mass / total) / log(<double> n_labels), 0.0)
