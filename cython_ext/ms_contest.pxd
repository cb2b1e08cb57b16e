# Contests of two labels: can one be ahead of the other (or level with it) somewhere in a box?

from libc.stdint cimport int32_t, int64_t, uint8_t

from ms_node cimport Node, reaches_left, reaches_right

cdef struct Contest:
    int32_t ahead
    int32_t behind
    bint is_strict          # ahead, not level
    int64_t best            # of the leads in the tree at hand
    int64_t bound           # the sum of the best leads


cdef inline int32_t list_contests(const uint8_t* is_expected, int32_t n_labels, Contest* contests) noexcept nogil:
    """The contests of which one can be won if and only if an answer other than the expected one is possible.

    Parameters
    ----------
    is_expected : for each label whether it belongs to the expected answer
    contests : room for 2 * n_labels

    Returns their number.
    """
    cdef int32_t label, one = 0, n_contests = 0
    while not is_expected[one]:
        one += 1
    for label in range(n_labels):
        if label == one:
            continue
        contests[n_contests] = Contest(label, one, is_expected[label], 0, 0)
        n_contests += 1
        if is_expected[label]:
            contests[n_contests] = Contest(one, label, True, 0, 0)
            n_contests += 1
    return n_contests


cdef inline void bound_contests(Contest* contests, int32_t n_contests, const Node* nodes, const int32_t* starts,
                                int32_t n_trees, const int64_t* scores, int32_t n_labels, const double* lower,
                                const double* upper, int32_t* waiting) noexcept nogil:
    """Add up the best leads of all trees in a box.

    Parameters
    ----------
    starts : for each tree the root, or where `ms_descent.descend_together` ended
    lower, upper : bounds of the box, by feature
    waiting : room for one node at each depth
    """
    cdef int32_t tree, node, feature, i, top
    cdef const int64_t* leaf_scores
    cdef int64_t lead
    cdef bint is_first
    for tree in range(n_trees):
        node = starts[tree]
        top = 0
        is_first = True
        while True:
            feature = nodes[node].feature
            if feature >= 0:
                if reaches_left(lower[feature], nodes[node].threshold):
                    if reaches_right(upper[feature], nodes[node].threshold):
                        waiting[top] = nodes[node].right
                        top += 1
                    node = nodes[node].left
                else:
                    node = nodes[node].right
                continue
            leaf_scores = &scores[<size_t> nodes[node].leaf * n_labels]
            for i in range(n_contests):
                lead = leaf_scores[contests[i].ahead] - leaf_scores[contests[i].behind]
                if is_first or lead > contests[i].best:
                    contests[i].best = lead
            is_first = False
            if top == 0:
                break
            top -= 1
            node = waiting[top]
        for i in range(n_contests):
            contests[i].bound += contests[i].best


cdef inline int32_t sort_open(Contest* contests, int32_t n_contests, int64_t least, int64_t least_strict) noexcept nogil:
    """Keep the contests whose bound does not decide them, the highest bound first; returns their number."""
    cdef int32_t i, place, n_open = 0
    cdef Contest contest
    for i in range(n_contests):
        contest = contests[i]
        if contest.bound < (least_strict if contest.is_strict else least):
            continue
        place = n_open
        while place > 0 and contests[place - 1].bound < contest.bound:
            contests[place] = contests[place - 1]
            place -= 1
        contests[place] = contest
        n_open += 1
    return n_open
