# Changes of a whole tree that the genetic operators are made of: growing greedily, pruning, moving a test, grafting.

from libc.math cimport log
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from training.sweep cimport Criterion, Test, Weights, score_of
from common.random cimport next_below, next_share
from training.tree cimport Samples, cut_at
from training.threshold_move cimport find_test
from training.subtree_replacement cimport collect, replace
from training.sweep cimport find_split
from training.tree cimport MIXED, NONE, TrainNode, Tree, add_node, known_answer
from training.scratch cimport Scratch

cdef struct Limits:
    int32_t min_leaf        # samples in a leaf, at least
    int32_t max_leaves
    int32_t max_depth
    double leaf_cost        # what a leaf takes off the score
    int32_t stop            # set from outside: long work ends early, with a tree that is whole

cdef struct Bud:
    # A leaf of a tree that is being grown, with its samples and its best split.
    int32_t node
    int32_t depth
    int32_t n_entries
    int32_t* entries
    Test test


cdef inline double fitness_of(const Tree* tree, const Weights* weights, const Limits* limits) noexcept nogil:
    return score_of(weights, tree.n_correct, tree.n_stable, tree.n_robust) - limits.leaf_cost * tree.n_leaves


cdef inline int plant(const Samples* samples, Tree* tree, Scratch* scratch) except -1 nogil:
    """Make the tree a single leaf that holds every sample."""
    cdef TrainNode leaf
    cdef int32_t position
    from_scratch(samples, tree)
    add_node(tree, -1)
    memset(&leaf, 0, sizeof(TrainNode))
    leaf.feature = -1
    scratch.n_path = 0
    scratch.n_entries = samples.n_samples
    for position in range(samples.n_samples):
        scratch.entries[position] = 2 * position + 1
        scratch.outside[position] = NONE
    return replace(samples, tree, 0, &leaf, 0, 1, 1, 1, scratch)


cdef inline void from_scratch(const Samples* samples, Tree* tree) noexcept nogil:
    """A root without history: every sample counts as wrong and unstable until it is placed."""
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


cdef inline int _examine(const Samples* samples, const Tree* tree, Bud* bud, const int32_t* features, int32_t n_features,
                         const Criterion* criterion, const Weights* weights, const Limits* limits,
                         Scratch* scratch) except -1 nogil:
    memcpy(scratch.entries, bud.entries, bud.n_entries * sizeof(int32_t))
    scratch.n_entries = bud.n_entries
    bud.test.feature = -1
    if bud.depth >= limits.max_depth:
        return 0
    return find_split(samples, tree, scratch, features, n_features, criterion, weights, limits.min_leaf, &bud.test)


cdef inline int32_t grow_template(const Samples* samples, const Tree* tree, int32_t node, int32_t n_splits,
                                  const int32_t* features, int32_t n_features, const Criterion* criterion,
                                  const Weights* weights, const Limits* limits, Scratch* scratch,
                                  TrainNode* template) except -1 nogil:
    """Grow a subtree for a collected leaf, best split first; return its number of nodes.

    The t-th split has the nodes 2t+1 and 2t+2 as children, so a part of the template that ends earlier is a template too.
    `template` has room for 2 * n_splits + 1 nodes. Splits that do not lower the impurity are not made.
    """
    cdef Bud* buds = <Bud*> malloc((n_splits + 1) * sizeof(Bud))
    cdef int32_t n_buds = 0, n_nodes = 1, split, position, best, entry, code, feature
    cdef const int32_t* codes
    cdef Bud bud
    cdef Bud* left
    cdef Bud* right
    if buds == NULL:
        with gil:
            raise MemoryError("no room to grow a tree")
    memset(&template[0], 0, sizeof(TrainNode))
    template[0].feature = -1
    template[0].parent = -1
    try:
        buds[0].node = 0
        buds[0].depth = scratch.n_path
        buds[0].n_entries = scratch.n_entries
        buds[0].entries = <int32_t*> malloc(max(scratch.n_entries, 1) * sizeof(int32_t))
        n_buds = 1
        if buds[0].entries == NULL:
            with gil:
                raise MemoryError("no room to grow a tree")
        memcpy(buds[0].entries, scratch.entries, scratch.n_entries * sizeof(int32_t))
        _examine(samples, tree, &buds[0], features, n_features, criterion, weights, limits, scratch)
        for split in range(n_splits):
            best = -1
            for position in range(n_buds):
                if buds[position].test.feature >= 0 and buds[position].test.gain > 0 and (
                        best < 0 or buds[position].test.gain > buds[best].test.gain):
                    best = position
            if best < 0 or limits.stop:
                break
            bud = buds[best]
            feature = bud.test.feature
            template[bud.node].feature = feature
            template[bud.node].threshold = bud.test.threshold
            template[bud.node].cut = cut_at(samples, feature, bud.test.threshold)
            template[bud.node].left = n_nodes
            template[bud.node].right = n_nodes + 1
            left = &buds[best]
            right = &buds[n_buds]
            left.entries = <int32_t*> malloc(max(bud.n_entries, 1) * sizeof(int32_t))
            right.entries = <int32_t*> malloc(max(bud.n_entries, 1) * sizeof(int32_t))
            n_buds += 1
            left.node = n_nodes
            right.node = n_nodes + 1
            left.depth = bud.depth + 1
            right.depth = bud.depth + 1
            left.n_entries = 0
            right.n_entries = 0
            if left.entries == NULL or right.entries == NULL:
                free(bud.entries)
                with gil:
                    raise MemoryError("no room to grow a tree")
            codes = samples.codes + <size_t> feature * samples.n_samples
            for position in range(bud.n_entries):
                entry = bud.entries[position]
                code = codes[entry >> 1]
                if code <= template[bud.node].cut.reach_left:
                    left.entries[left.n_entries] = entry if code <= template[bud.node].cut.left else entry & ~1
                    left.n_entries += 1
                if code > template[bud.node].cut.reach_right:
                    right.entries[right.n_entries] = entry if code > template[bud.node].cut.left else entry & ~1
                    right.n_entries += 1
            free(bud.entries)
            for position in range(2):
                memset(&template[n_nodes + position], 0, sizeof(TrainNode))
                template[n_nodes + position].feature = -1
                template[n_nodes + position].parent = bud.node
            n_nodes += 2
            _examine(samples, tree, left, features, n_features, criterion, weights, limits, scratch)
            _examine(samples, tree, right, features, n_features, criterion, weights, limits, scratch)
        return n_nodes
    finally:
        for position in range(n_buds):
            free(buds[position].entries)
        free(buds)


cdef inline int grow_leaf(const Samples* samples, Tree* tree, int32_t node, const int32_t* features, int32_t n_features,
                          const Criterion* criterion, const Weights* weights, const Limits* limits,
                          Scratch* scratch) except -1 nogil:
    """Split a leaf by the best test found for it; 0 if there is none."""
    cdef Test test
    cdef TrainNode[3] template
    collect(samples, tree, node, scratch)
    if tree.n_leaves >= limits.max_leaves or scratch.n_path >= limits.max_depth:
        return 0
    find_split(samples, tree, scratch, features, n_features, criterion, weights, limits.min_leaf, &test)
    if test.feature < 0:
        return 0
    memset(template, 0, sizeof(template))
    template[0].feature = test.feature
    template[0].threshold = test.threshold
    template[0].cut = cut_at(samples, test.feature, test.threshold)
    template[0].left = 1
    template[0].right = 2
    template[1].feature = -1
    template[2].feature = -1
    replace(samples, tree, node, template, 0, 3, limits.min_leaf, limits.max_depth, scratch)
    return 1


cdef inline int32_t grow_subtree(const Samples* samples, Tree* tree, int32_t node, int32_t n_splits,
                                 const int32_t* features, int32_t n_features, const Criterion* criterion,
                                 const Weights* weights, const Limits* limits, Scratch* scratch) except -1 nogil:
    """Grow a whole subtree in the place of a leaf; return the number of splits made."""
    cdef TrainNode* template
    cdef int32_t n_nodes
    n_splits = min(n_splits, limits.max_leaves - tree.n_leaves)
    if n_splits <= 0:
        return 0
    template = <TrainNode*> malloc((2 * n_splits + 1) * sizeof(TrainNode))
    if template == NULL:
        with gil:
            raise MemoryError("no room to grow a tree")
    try:
        collect(samples, tree, node, scratch)
        n_nodes = grow_template(samples, tree, node, n_splits, features, n_features, criterion, weights, limits, scratch,
                                template)
        if n_nodes > 1:
            collect(samples, tree, node, scratch)
            replace(samples, tree, node, template, 0, n_nodes, limits.min_leaf, limits.max_depth, scratch)
        return n_nodes // 2
    finally:
        free(template)


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
    cdef int32_t position, entry, sample, label, outside
    cdef int32_t answer = known_answer(tree, &tree.counts[<size_t> node * tree.n_labels])
    cdef int64_t correct = tree.n_correct, stable = tree.n_stable, robust = tree.n_robust
    cdef bint is_correct, is_stable
    for position in range(scratch.n_entries):
        entry = scratch.entries[position]
        sample = entry >> 1
        label = samples.labels[sample]
        is_correct = tree.own[sample] == label
        is_stable = tree.joint[sample] != MIXED
        correct -= is_correct
        stable -= is_stable
        robust -= is_correct and is_stable
        if entry & 1:
            is_correct = answer == label
        outside = scratch.outside[sample]
        is_stable = outside == NONE or (outside == answer and outside >= 0)
        correct += is_correct
        stable += is_stable
        robust += is_correct and is_stable
    return score_of(weights, correct, stable, robust)


cdef inline int prune(const Samples* samples, Tree* tree, int32_t node, Scratch* scratch) except -1 nogil:
    """Replace a subtree by a leaf."""
    cdef TrainNode leaf
    memset(&leaf, 0, sizeof(TrainNode))
    leaf.feature = -1
    collect(samples, tree, node, scratch)
    return replace(samples, tree, node, &leaf, 0, 1, 1, scratch.n_path + 1, scratch)


cdef inline int move_test(const Samples* samples, Tree* tree, int32_t node, const int32_t* features, int32_t n_features,
                          const Weights* weights, const Limits* limits, Scratch* scratch) except -1 nogil:
    """Give an inner node the best test for the subtrees that it has; 0 if no test beats the present one."""
    cdef Test test
    cdef int32_t n_nodes = tree.n_nodes
    collect(samples, tree, node, scratch)
    find_test(samples, tree, node, scratch, features, n_features, weights, limits.min_leaf, &test)
    if test.feature < 0 or test.score <= score_of(weights, tree.n_correct, tree.n_stable, tree.n_robust):
        return 0
    tree.nodes[node].feature = test.feature
    tree.nodes[node].threshold = test.threshold
    tree.nodes[node].cut = cut_at(samples, test.feature, test.threshold)
    replace(samples, tree, node, tree.nodes, node, n_nodes, limits.min_leaf, limits.max_depth, scratch)
    return 1


cdef inline int graft(const Samples* samples, Tree* tree, int32_t node, const Tree* donor, int32_t donor_node,
                      const Limits* limits, Scratch* scratch) except -1 nogil:
    """Put a subtree of another tree in the place of a subtree; branches that no sample separates are left out."""
    collect(samples, tree, node, scratch)
    return replace(samples, tree, node, donor.nodes, donor_node, donor.n_nodes, limits.min_leaf, limits.max_depth, scratch)


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
