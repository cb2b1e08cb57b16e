# A chapter of evolution.pyx: the genetic operators. Selecting parents, choosing a node of a tree, and changing the tree
# there.

from libc.math cimport ceil
from libc.stdint cimport int32_t, uint64_t

from common.random cimport next_below, next_fraction
from training.criteria cimport Criterion, Impurity, Weights
from training.growth cimport (
    TreeLimits, entropy_of, fitness_of, grow_leaf, grow_subtree, leaves_below, move_threshold, prune, score_if_pruned,
)
from training.scratch cimport Scratch
from training.subtree_replacement cimport collect
from training.tree cimport Samples, Tree

cdef enum Selection:
    UNIFORM
    ROULETTE
    TOURNAMENT

cdef enum Mutation:
    NO_MUTATION
    GROW                # the paper's walk to a leaf, split there
    GROW_OR_PRUNE       # the same walk, but it may end with pruning an inner node on the way
    MIXED_MOVES         # grow, regrow, prune or move a threshold, each guided by the score

cdef enum:
    MAX_BLENDS = 16

cdef struct ReproductionOptions:
    Selection selection
    int32_t tournament_size
    double crossover_probability
    double mutation_probability
    Mutation mutation
    double aggressiveness       # fraction of the features that a split search looks at
    bint split_by_score         # for the paper's mutations
    Impurity impurity
    # For mixed moves:
    double grow_weight
    double regrow_weight
    double prune_weight
    double move_weight
    int32_t max_burst           # splits in one growth
    int32_t prune_tries
    double sweep_budget         # samples times features that one move may visit
    double by_score_probability
    # Criteria of growth to draw from: an impurity each, and the weight of reach sets.
    Impurity[MAX_BLENDS] impurities
    double[MAX_BLENDS] blends
    int32_t n_blends


cdef inline int32_t select_parent(const ReproductionOptions* options, const double* fitness, int32_t n,
                                  uint64_t* random) noexcept nogil:
    cdef int32_t position, best, other, turn
    cdef double total, mark, lowest
    if options.selection == TOURNAMENT:
        best = next_below(random, n)
        for turn in range(options.tournament_size - 1):
            other = next_below(random, n)
            if fitness[other] > fitness[best] or (fitness[other] == fitness[best] and other < best):
                best = other
        return best
    if options.selection == ROULETTE:
        # Proportional to fitness, or to its distance from the lowest fitness where that is negative.
        lowest = 0
        for position in range(n):
            lowest = min(lowest, fitness[position])
        total = 0
        for position in range(n):
            total += fitness[position] - lowest
        if total > 0:
            mark = next_fraction(random) * total
            for position in range(n):
                mark -= fitness[position] - lowest
                if mark < 0:
                    return position
            return n - 1
    return next_below(random, n)


cdef inline int32_t draw_features(const int32_t* allowed, int32_t n_allowed, int32_t wanted, int32_t* drawn,
                                  uint64_t* random) noexcept nogil:
    """Draw features without replacement into `drawn`, a buffer for all of them; return their number."""
    cdef int32_t position, other, kept
    for position in range(n_allowed):
        drawn[position] = allowed[position]
    wanted = max(1, min(wanted, n_allowed))
    if wanted < n_allowed:
        for position in range(wanted):
            other = position + next_below(random, n_allowed - position)
            kept = drawn[position]
            drawn[position] = drawn[other]
            drawn[other] = kept
    return wanted


cdef inline int paper_mutation(const Samples* samples, Tree* tree, const ReproductionOptions* options,
                               const int32_t* allowed, int32_t n_allowed, const Weights* weights,
                               const TreeLimits* limits, Scratch* scratch, int32_t* drawn,
                               uint64_t* random) except -1 nogil:
    """Walk from the root to a leaf, to a child with a probability proportional to its entropy, and split that leaf.

    With GROW_OR_PRUNE each inner node on the way is pruned instead with probability 1 - entropy, which ends the walk.
    """
    cdef int32_t node = 0, m = tree.n_labels, n_drawn
    cdef double left, right
    cdef Criterion criterion = Criterion(options.split_by_score, 0.0, options.impurity)
    while tree.nodes[node].feature >= 0:
        if options.mutation == GROW_OR_PRUNE and (
                next_fraction(random) < 1 - entropy_of(&tree.counts[<size_t> node * m], m)):
            prune(samples, tree, node, scratch)
            return 0
        left = entropy_of(&tree.counts[<size_t> tree.nodes[node].left * m], m)
        right = entropy_of(&tree.counts[<size_t> tree.nodes[node].right * m], m)
        if left + right > 0:
            node = tree.nodes[node].left if next_fraction(random) * (left + right) < left else tree.nodes[node].right
        else:
            node = tree.nodes[node].left if next_below(random, 2) == 0 else tree.nodes[node].right
    n_drawn = draw_features(allowed, n_allowed, <int32_t> ceil(options.aggressiveness * n_allowed), drawn, random)
    grow_leaf(samples, tree, node, drawn, n_drawn, &criterion, weights, limits, scratch)
    return 0


cdef inline int32_t _pick_leaf(const Tree* tree, uint64_t* random) noexcept nogil:
    """A leaf, with a probability proportional to its samples times their entropy; -1 if all are pure."""
    cdef int32_t node, label, m = tree.n_labels
    cdef double total = 0, size, mark
    cdef int32_t turn
    mark = -1
    for turn in range(2):
        for node in range(tree.n_nodes):
            if tree.nodes[node].feature >= 0:
                continue
            size = 0
            for label in range(m):
                size += tree.counts[<size_t> node * m + label]
            size *= entropy_of(&tree.counts[<size_t> node * m], m)
            if turn == 0:
                total += size
            elif size > 0:
                mark -= size
                if mark < 0:
                    return node
        if turn == 0:
            if total <= 0:
                return -1
            mark = next_fraction(random) * total
    return -1


cdef inline int32_t _pick_inner(const Tree* tree, uint64_t* random) noexcept nogil:
    """An inner node, each with the same probability; -1 for a single leaf."""
    cdef int32_t node, mark
    if tree.n_leaves < 2:
        return -1
    mark = next_below(random, tree.n_leaves - 1)
    for node in range(tree.n_nodes):
        if tree.nodes[node].feature >= 0:
            if mark == 0:
                return node
            mark -= 1
    return -1


cdef inline int32_t _affordable(const ReproductionOptions* options, int32_t n_allowed, double n_samples) noexcept nogil:
    """How many features a sweep over so many samples may visit."""
    cdef double n_features = max(options.sweep_budget / max(n_samples, 1.0), 4.0)
    return <int32_t> min(n_features, ceil(options.aggressiveness * n_allowed))


cdef inline double _size_of(const Samples* samples, const Tree* tree, int32_t node) noexcept nogil:
    """About how many samples fall into a node."""
    cdef int32_t label
    cdef double size = 0
    for label in range(tree.n_labels):
        size += tree.counts[<size_t> node * tree.n_labels + label]
    return size * samples.samples_per_weight


cdef inline int trim(const Samples* samples, Tree* tree, int32_t first, int32_t last, const Weights* weights,
                     const TreeLimits* limits, Scratch* scratch) except -1 nogil:
    """Prune every inner node between two positions, from the last to the first, that is not worth its leaves."""
    cdef int32_t node = min(last, tree.n_nodes - 1), saved
    cdef double after
    while node >= first and not limits.stop:
        if node < tree.n_nodes and tree.nodes[node].feature >= 0:
            saved = leaves_below(tree, node) - 1
            collect(samples, tree, node, scratch)
            after = score_if_pruned(samples, tree, node, weights, scratch)
            after -= limits.leaf_penalty * (tree.n_leaves - saved)
            if after >= fitness_of(tree, weights, limits):
                prune(samples, tree, node, scratch)
        node -= 1
    return 0


cdef inline int mixed_mutation(const Samples* samples, Tree* tree, const ReproductionOptions* options,
                               const int32_t* allowed, int32_t n_allowed, const Weights* weights,
                               const TreeLimits* limits, Scratch* scratch, int32_t* drawn,
                               uint64_t* random) except -1 nogil:
    """Grow, regrow, prune, or move a threshold, drawn at random."""
    cdef double mark, after, best_after
    cdef int32_t node, best, turn, n_drawn, n_splits, saved, last, drawn_criterion
    cdef Criterion criterion
    mark = options.grow_weight + options.regrow_weight + options.prune_weight + options.move_weight
    mark *= next_fraction(random)
    drawn_criterion = next_below(random, options.n_blends)
    criterion = Criterion(False, options.blends[drawn_criterion], options.impurities[drawn_criterion])
    mark -= options.move_weight
    if mark < 0:
        node = _pick_inner(tree, random)
        if node >= 0:
            n_drawn = draw_features(allowed, n_allowed, _affordable(options, n_allowed, _size_of(samples, tree, node)), drawn,
                                    random)
            move_threshold(samples, tree, node, drawn, n_drawn, weights, limits, scratch)
            return 0
    mark -= options.prune_weight
    if mark < 0 and tree.n_leaves > 1:
        best = -1
        best_after = 0
        for turn in range(options.prune_tries):
            node = _pick_inner(tree, random)
            saved = leaves_below(tree, node) - 1
            collect(samples, tree, node, scratch)
            after = score_if_pruned(samples, tree, node, weights, scratch) + limits.leaf_penalty * saved
            if best < 0 or after > best_after:
                best = node
                best_after = after
        prune(samples, tree, best, scratch)
        return 0
    mark -= options.regrow_weight
    if mark < 0:
        node = _pick_inner(tree, random)
        if node >= 0:
            n_splits = leaves_below(tree, node) - 1 + next_below(random, options.max_burst)
            if n_splits <= 8 * options.max_burst:
                n_drawn = draw_features(
                    allowed, n_allowed, _affordable(options, n_allowed, 4 * _size_of(samples, tree, node)), drawn, random)
                prune(samples, tree, node, scratch)
                n_splits = grow_subtree(samples, tree, node, n_splits, drawn, n_drawn, &criterion, weights, limits,
                                        scratch)
                return trim(samples, tree, node, node + 2 * n_splits, weights, limits, scratch)
    node = _pick_leaf(tree, random)
    if node < 0:
        return 0
    n_drawn = draw_features(allowed, n_allowed, _affordable(options, n_allowed, _size_of(samples, tree, node)), drawn, random)
    if next_fraction(random) < options.by_score_probability:
        criterion.by_score = True
        grow_leaf(samples, tree, node, drawn, n_drawn, &criterion, weights, limits, scratch)
        return 0
    n_splits = 1 + next_below(random, options.max_burst)
    n_splits = grow_subtree(samples, tree, node, n_splits, drawn, n_drawn, &criterion, weights, limits, scratch)
    return trim(samples, tree, node, node + 2 * n_splits, weights, limits, scratch)
