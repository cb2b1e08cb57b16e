# A chapter of evolution.pyx: replacing a subtree. `collect` lists the samples whose box reaches the subtree, with the
# predictions of the rest of the tree for them; `replace` builds the new subtree and updates the counts of correct,
# stable and robust samples of the whole tree. Other samples are not visited.
#
# A list entry is 2 * sample + 1 for a sample that falls into the node, 2 * sample for one whose box merely reaches it.

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from common.buffer cimport reserve
from training.missing cimport Region, is_copy, narrow_region, settle_split, whole_region
from training.norm cimport Sides, find_sides
from training.scratch cimport Level, PendingNode, Scratch, reserve_levels, reserve_lists, reserve_path, reserve_pending
from training.tree cimport (
    MIXED, NONE, Samples, TrainNode, Tree, add_node, merge_predictions, number_prediction, rank_cut, reserve_nodes,
    weight_of,
)


cdef inline int _find_path(const Tree* tree, int32_t node, Scratch* scratch) except -1 nogil:
    """Write the nodes from the root to the parent of a node."""
    cdef int32_t step = tree.nodes[node].parent, n_path = 0, position
    while step >= 0:
        n_path += 1
        step = tree.nodes[step].parent
    reserve_path(scratch, n_path + 1)
    scratch.n_path = n_path
    scratch.path[n_path] = node
    step = node
    for position in range(n_path - 1, -1, -1):
        step = tree.nodes[step].parent
        scratch.path[position] = step
    return 0


cdef inline int merge_leaves(const Samples* samples, const TrainNode* nodes, int32_t root, size_t start, int32_t length,
                             int32_t* merged, Scratch* scratch) except -1 nogil:
    """Merge the predictions of all leaves below `root` that each sample of a list reaches.

    The list lies in scratch.lists from `start` on.
    """
    cdef int32_t top = 1, node, position, entry, code, n_left, n_right
    cdef size_t left, right
    cdef Sides sides
    cdef PendingNode pending
    reserve_pending(scratch, 1)
    scratch.pending_nodes[0] = PendingNode(root, -1, False, 0, start, length)
    while top > 0:
        top -= 1
        pending = scratch.pending_nodes[top]
        node = pending.node
        if nodes[node].feature < 0:
            for position in range(pending.length):
                entry = scratch.lists[pending.start + position] >> 1
                merged[entry] = merge_predictions(merged[entry], nodes[node].prediction)
            continue
        find_sides(samples, nodes, node, NULL, -1, scratch.lists + pending.start, pending.length, scratch, &sides)
        left = pending.start + pending.length
        right = left + pending.length
        reserve_lists(scratch, right + pending.length)
        reserve_pending(scratch, top + 2)
        n_left = 0
        n_right = 0
        for position in range(pending.length):
            entry = scratch.lists[pending.start + position]
            if merged[entry >> 1] == MIXED:
                continue
            code = sides.codes[entry >> 1]
            if code <= sides.cut.reach_left:
                scratch.lists[left + n_left] = entry
                n_left += 1
            if code > sides.cut.reach_right:
                scratch.lists[right + n_right] = entry
                n_right += 1
        # The right list moves next to the left one. It is walked first; the memory behind it is free by then.
        for position in range(n_right):
            scratch.lists[left + n_left + position] = scratch.lists[right + position]
        if n_left > 0:
            scratch.pending_nodes[top] = PendingNode(nodes[node].left, -1, False, 0, left, n_left)
            top += 1
        if n_right > 0:
            scratch.pending_nodes[top] = PendingNode(nodes[node].right, -1, True, 0, left + n_left, n_right)
            top += 1
    return 0


cdef inline int _descend(const Samples* samples, const Tree* tree, int32_t step, Scratch* scratch) except -1 nogil:
    """List the samples that reach the node at `step + 1` of the path, from the list of its parent."""
    cdef const TrainNode* split = &tree.nodes[scratch.path[step]]
    cdef bint to_left = split.left == scratch.path[step + 1], also_other, is_root = step == 0
    cdef Sides sides
    cdef int32_t position, entry, sample, code, seen, kept = 0, n_pending = 0, n
    cdef size_t source, target
    n = samples.n_samples if is_root else scratch.levels[step].length
    source = 0 if is_root else scratch.levels[step].start
    target = source if is_root else source + n
    reserve_levels(scratch, step + 2, target + n)
    reserve_lists(scratch, n)
    # Nothing lies above the root that could narrow its ranks.
    find_sides(samples, tree.nodes, scratch.path[step], NULL, -1, scratch.level_entries + source, 0 if is_root else n,
               scratch, &sides)
    for position in range(n):
        entry = 2 * position + 1 if is_root else scratch.level_entries[source + position]
        sample = entry >> 1
        code = sides.codes[sample]
        if to_left:
            if code > sides.cut.reach_left:
                continue
            also_other = code > sides.cut.reach_right
            if code > sides.cut.left:
                entry &= ~1
        else:
            if code <= sides.cut.reach_right:
                continue
            also_other = code <= sides.cut.reach_left
            if code <= sides.cut.left:
                entry &= ~1
        seen = NONE if is_root else scratch.level_outside[source + position]
        if also_other and seen != MIXED:
            # If all leaves that a box reaches agree, no walk is needed.
            if tree.joint[sample] != MIXED:
                seen = tree.joint[sample]
            else:
                scratch.lists[n_pending] = entry
                n_pending += 1
        scratch.outside[sample] = seen
        scratch.level_entries[target + kept] = entry
        scratch.level_outside[target + kept] = seen
        kept += 1
    if n_pending > 0:
        merge_leaves(samples, tree.nodes, split.right if to_left else split.left, 0, n_pending, scratch.outside, scratch)
        for position in range(kept):
            scratch.level_outside[target + position] = scratch.outside[scratch.level_entries[target + position] >> 1]
    scratch.levels[step + 1] = Level(scratch.path[step + 1], target, kept)
    return 0


cdef inline int collect(const Samples* samples, const Tree* tree, int32_t node, Scratch* scratch) except -1 nogil:
    """List the samples whose box reaches a node, and the predictions of the rest of the tree for them.

    The lists of the nodes on the path are kept, and the next call starts from the last one that its path has in common
    with this one. So a walk over all nodes in pre-order, or in reverse, visits each list once. In between the tree may
    be changed by `replace` at the node that was collected last: that changes nothing outside this node, and the nodes
    on the path keep their numbers. After any other change, `forget_levels` must be called.
    """
    cdef int32_t step = 0, position
    cdef const Level* level
    _find_path(tree, node, scratch)
    if scratch.walked_tree != tree or scratch.n_levels == 0:
        reserve_levels(scratch, 1, 0)
        scratch.walked_tree = tree
        scratch.levels[0] = Level(0, 0, samples.n_samples)
        scratch.n_levels = 1
    while (step < scratch.n_path and step + 1 < scratch.n_levels
           and scratch.levels[step + 1].node == scratch.path[step + 1]):
        step += 1
    while step < scratch.n_path:
        _descend(samples, tree, step, scratch)
        step += 1
        scratch.n_levels = step + 1
    level = &scratch.levels[scratch.n_path]
    scratch.n_entries = level.length
    if scratch.n_path == 0:
        for position in range(samples.n_samples):
            scratch.entries[position] = 2 * position + 1
            scratch.outside[position] = NONE
        return 0
    memcpy(scratch.entries, scratch.level_entries + level.start, level.length * sizeof(int32_t))
    for position in range(level.length):
        scratch.outside[scratch.entries[position] >> 1] = scratch.level_outside[level.start + position]
    return 0


cdef inline void _add_to_counts(const Samples* samples, Tree* tree, const Scratch* scratch,
                                int32_t sign) noexcept nogil:
    cdef int32_t position, sample, weight
    cdef bint correct, stable
    for position in range(scratch.n_entries):
        sample = scratch.entries[position] >> 1
        weight = sign * weight_of(samples, sample)
        correct = tree.own[sample] == samples.labels[sample]
        stable = tree.joint[sample] != MIXED
        tree.n_correct += weight * correct
        tree.n_stable += weight * stable
        tree.n_robust += weight * (correct and stable)


cdef inline void _exchange_nodes(Tree* tree, Scratch* scratch) noexcept nogil:
    tree.nodes, scratch.spare_nodes = scratch.spare_nodes, tree.nodes
    tree.counts, scratch.spare_counts = scratch.spare_counts, tree.counts
    tree.capacity, scratch.spare_capacity = scratch.spare_capacity, tree.capacity


cdef inline int renumber(Tree* tree, Scratch* scratch) except -1 nogil:
    """Drop nodes that are no longer part of the tree and put the others into pre-order."""
    cdef int32_t top = 1, n_nodes = 0, node, m = tree.n_labels, n_leaves = 0
    cdef size_t capacity = scratch.spare_capacity
    cdef size_t counts_capacity = scratch.spare_capacity * <size_t> m
    cdef PendingNode pending
    reserve(<void**> &scratch.spare_nodes, &capacity, tree.n_nodes, sizeof(TrainNode))
    reserve(<void**> &scratch.spare_counts, &counts_capacity, <size_t> capacity * m, sizeof(int32_t))
    scratch.spare_capacity = <int32_t> capacity
    reserve_pending(scratch, 1)
    scratch.pending_nodes[0] = PendingNode(0, -1, False, 0, 0, 0)
    while top > 0:
        top -= 1
        pending = scratch.pending_nodes[top]
        node = pending.node
        scratch.spare_nodes[n_nodes] = tree.nodes[node]
        scratch.spare_nodes[n_nodes].parent = pending.parent
        memcpy(&scratch.spare_counts[<size_t> n_nodes * m], &tree.counts[<size_t> node * m], m * sizeof(int32_t))
        if pending.parent >= 0:
            if pending.is_right:
                scratch.spare_nodes[pending.parent].right = n_nodes
            else:
                scratch.spare_nodes[pending.parent].left = n_nodes
        if tree.nodes[node].feature >= 0:
            reserve_pending(scratch, top + 2)
            scratch.pending_nodes[top] = PendingNode(tree.nodes[node].right, n_nodes, True, 0, 0, 0)
            scratch.pending_nodes[top + 1] = PendingNode(tree.nodes[node].left, n_nodes, False, 0, 0, 0)
            top += 2
        else:
            n_leaves += 1
        n_nodes += 1
    _exchange_nodes(tree, scratch)
    tree.n_nodes = n_nodes
    tree.n_leaves = n_leaves
    return 0


cdef struct Former:
    # What a tree was like before `replace`, as far as `undo_replace` does not find it elsewhere.
    int32_t node
    TrainNode split         # at this node
    int32_t n_nodes
    int32_t n_leaves
    int32_t n_ties
    int64_t n_correct
    int64_t n_stable
    int64_t n_robust


cdef inline Former note_former(const Tree* tree, int32_t node, const Scratch* scratch) noexcept nogil:
    """Note a tree before the subtree at `node`, which was collected, is replaced by a template in the same tree."""
    cdef int32_t position, sample
    for position in range(scratch.n_entries):
        sample = scratch.entries[position] >> 1
        scratch.former_own[position] = tree.own[sample]
        scratch.former_joint[position] = tree.joint[sample]
    return Former(node, tree.nodes[node], tree.n_nodes, tree.n_leaves, tree.n_ties, tree.n_correct, tree.n_stable,
                  tree.n_robust)


cdef inline void undo_replace(Tree* tree, const Former* former, Scratch* scratch) noexcept nogil:
    """Take back what `replace` did last; nothing else may have been done since.

    It appends nodes and links one of them, and `renumber` leaves this array in scratch.spare_nodes.
    """
    cdef int32_t position, sample, parent = former.split.parent
    _exchange_nodes(tree, scratch)
    if parent >= 0:
        if tree.nodes[parent].left >= former.n_nodes:
            tree.nodes[parent].left = former.node
        else:
            tree.nodes[parent].right = former.node
    tree.nodes[former.node] = former.split
    tree.n_nodes, tree.n_leaves, tree.n_ties = former.n_nodes, former.n_leaves, former.n_ties
    tree.n_correct, tree.n_stable, tree.n_robust = former.n_correct, former.n_stable, former.n_robust
    for position in range(scratch.n_entries):
        sample = scratch.entries[position] >> 1
        tree.own[sample] = scratch.former_own[position]
        tree.joint[sample] = scratch.former_joint[position]


cdef inline int replace(const Samples* samples, Tree* tree, int32_t node, const TrainNode* template, int32_t root,
                        int32_t n_template, int32_t min_leaf, int32_t max_depth, Scratch* scratch) except -1 nogil:
    """Replace the subtree at `node`, which was collected before, by a copy of a template.

    A split that leaves fewer than `min_leaf` samples on a side is replaced by its other side, one at the largest depth
    by a leaf. `template` may lie in the same tree.
    """
    cdef int32_t top = 1, position, entry, code, n_left, n_right, own_left, own_right, new, m = tree.n_labels
    cdef int32_t first, sample, parent, label, left_child, right_child, last_left
    cdef Region region
    cdef bint in_tree = template == tree.nodes
    cdef size_t left, right
    cdef const int32_t* codes
    cdef Sides sides
    cdef const TrainNode* split
    cdef PendingNode pending
    _add_to_counts(samples, tree, scratch, -1)
    for position in range(scratch.n_entries):
        sample = scratch.entries[position] >> 1
        tree.joint[sample] = scratch.outside[sample]
    reserve_nodes(tree, tree.n_nodes + n_template + 1)
    if in_tree:
        template = tree.nodes
    reserve_lists(scratch, 3 * <size_t> scratch.n_entries)
    reserve_pending(scratch, 1)
    memcpy(scratch.lists, scratch.entries, scratch.n_entries * sizeof(int32_t))
    first = tree.n_nodes
    parent = tree.nodes[node].parent
    scratch.pending_nodes[0] = PendingNode(root, -1, False, scratch.n_path, 0, scratch.n_entries)
    while top > 0:
        top -= 1
        pending = scratch.pending_nodes[top]
        split = &template[pending.node]
        while split.feature >= 0 and pending.depth < max_depth:
            codes = samples.codes + <size_t> split.feature * samples.n_samples
            last_left = split.cut.left
            if is_copy(samples, split.feature):
                # The ranks of the template may be those of another place.
                last_left = rank_cut(samples, split.feature, split.threshold).left
            own_left = 0
            own_right = 0
            for position in range(pending.length):
                entry = scratch.lists[pending.start + position]
                if entry & 1:
                    if codes[entry >> 1] <= last_left:
                        own_left += 1
                    else:
                        own_right += 1
            if own_left >= min_leaf and own_right >= min_leaf:
                break
            split = &template[split.right if own_right >= own_left else split.left]
        new = add_node(tree, pending.parent)
        if pending.parent >= 0:
            if pending.is_right:
                tree.nodes[pending.parent].right = new
            else:
                tree.nodes[pending.parent].left = new
        if split.feature < 0 or pending.depth >= max_depth:
            for position in range(pending.length):
                entry = scratch.lists[pending.start + position]
                if entry & 1:
                    tree.counts[<size_t> new * m + samples.labels[entry >> 1]] += weight_of(samples, entry >> 1)
            tree.nodes[new].prediction = number_prediction(tree, &tree.counts[<size_t> new * m])
            for position in range(pending.length):
                entry = scratch.lists[pending.start + position]
                sample = entry >> 1
                tree.joint[sample] = merge_predictions(tree.joint[sample], tree.nodes[new].prediction)
                if entry & 1:
                    tree.own[sample] = tree.nodes[new].prediction
            continue
        tree.nodes[new].feature = split.feature
        tree.nodes[new].threshold = split.threshold
        tree.nodes[new].cut = split.cut
        left_child, right_child = split.left, split.right
        if is_copy(samples, split.feature):
            region = whole_region()
            narrow_region(samples, split.feature, tree.nodes, new, &region)
            if parent >= 0:
                narrow_region(samples, split.feature, tree.nodes, node, &region)
            if settle_split(samples, scratch.lists + pending.start, pending.length, own_left, own_right, &region,
                            &tree.nodes[new]):
                left_child, right_child = right_child, left_child
        # The new nodes are not yet children of the parent.
        find_sides(samples, tree.nodes, new, tree.nodes if parent >= 0 else NULL, node, scratch.lists + pending.start,
                   pending.length, scratch, &sides)
        left = pending.start + pending.length
        right = left + pending.length
        reserve_lists(scratch, right + pending.length)
        reserve_pending(scratch, top + 2)
        n_left = 0
        n_right = 0
        for position in range(pending.length):
            entry = scratch.lists[pending.start + position]
            code = sides.codes[entry >> 1]
            if code <= sides.cut.reach_left:
                scratch.lists[left + n_left] = entry if code <= sides.cut.left else entry & ~1
                n_left += 1
            if code > sides.cut.reach_right:
                scratch.lists[right + n_right] = entry if code > sides.cut.left else entry & ~1
                n_right += 1
        for position in range(n_right):
            scratch.lists[left + n_left + position] = scratch.lists[right + position]
        scratch.pending_nodes[top] = PendingNode(left_child, new, False, pending.depth + 1, left, n_left)
        scratch.pending_nodes[top + 1] = PendingNode(right_child, new, True, pending.depth + 1, left + n_left, n_right)
        top += 2
    # Children lie behind their parents in the array.
    for new in range(tree.n_nodes - 1, first, -1):
        for label in range(m):
            tree.counts[<size_t> tree.nodes[new].parent * m + label] += tree.counts[<size_t> new * m + label]
    tree.nodes[first].parent = parent
    if parent < 0:
        tree.nodes[node] = tree.nodes[first]
        memcpy(&tree.counts[<size_t> node * m], &tree.counts[<size_t> first * m], m * sizeof(int32_t))
        if tree.nodes[node].feature >= 0:
            tree.nodes[tree.nodes[node].left].parent = node
            tree.nodes[tree.nodes[node].right].parent = node
    elif tree.nodes[parent].left == node:
        tree.nodes[parent].left = first
    else:
        tree.nodes[parent].right = first
    _add_to_counts(samples, tree, scratch, 1)
    # Lists of nodes below this one are no longer valid.
    scratch.n_levels = min(scratch.n_levels, scratch.n_path + 1)
    return renumber(tree, scratch)
