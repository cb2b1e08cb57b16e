"""Fitting the leaves of a whole boosted tree, and pruning it, where each sample is certified by the worst leaf in its box.

The loss is that of two derivatives for each sample (see boosting_growth.pyx). Its natural part counts in the leaf that
the sample falls into, its certified part in the worst one of all leaves that its box reaches.
"""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

cdef enum:
    # Steps to a better value of a leaf: how often one is halved, and how many are taken for a node to be pruned.
    MOST_HALVED = 4
    STEPS_OF_PRUNING = 3


def group_rows(const int64_t[::1] starts, const int32_t[::1] reached, int64_t[::1] leaf_starts,
               int32_t[::1] leaf_rows):
    """Write the rows that reach each leaf, increasing: those of leaf l are leaf_starts[l]..leaf_starts[l + 1] - 1."""
    cdef Py_ssize_t row, place, leaf, n_leaves = leaf_starts.shape[0] - 1
    with nogil:
        for leaf in range(n_leaves + 1):
            leaf_starts[leaf] = 0
        for place in range(starts[starts.shape[0] - 1]):
            leaf_starts[reached[place] + 1] += 1
        for leaf in range(n_leaves):
            leaf_starts[leaf + 1] += leaf_starts[leaf]
        for row in range(starts.shape[0] - 1):
            for place in range(starts[row], starts[row + 1]):
                leaf_rows[leaf_starts[reached[place]]] = <int32_t> row
                leaf_starts[reached[place]] += 1
        for leaf in range(n_leaves, 0, -1):
            leaf_starts[leaf] = leaf_starts[leaf - 1]
        leaf_starts[0] = 0


# The two lowest values that a row's box reaches, and their leaves.
cdef struct Lowest:
    double first
    double second
    int32_t first_leaf
    int32_t second_leaf


# A row that reaches leaves to be changed: its lowest values elsewhere and anywhere, and the certified part of its loss.
cdef struct Part:
    double outside
    double worst
    double sign
    double gradient
    double half_hessian


cdef struct Polished:
    # Leaves have numbers, in preorder. Those of a pruned node keep their numbers and have one value.
    const int64_t* starts
    const int32_t* reached
    const int64_t* leaf_starts
    const int32_t* leaf_rows
    const double* sign
    const double* gradient
    const int32_t* hessian
    double* values
    Lowest* lowest
    int32_t* seen
    Part* parts


cdef inline void _scan(Polished* tree, int32_t row) noexcept nogil:
    """Find the two lowest values of a row."""
    cdef Lowest* found = &tree.lowest[row]
    cdef Py_ssize_t place
    cdef int32_t leaf
    cdef double value
    found.first = found.second = INFINITY
    found.first_leaf = found.second_leaf = -1
    for place in range(tree.starts[row], tree.starts[row + 1]):
        leaf = tree.reached[place]
        value = tree.sign[row] * tree.values[leaf]
        if value < found.first:
            found.second = found.first
            found.second_leaf = found.first_leaf
            found.first = value
            found.first_leaf = leaf
        elif value < found.second:
            found.second = value
            found.second_leaf = leaf


cdef inline Py_ssize_t _gather(Polished* tree, int32_t first, int32_t last, int32_t stamp) noexcept nogil:
    """List the rows whose boxes reach the leaves first..last-1, with their lowest values outside of these leaves."""
    cdef Py_ssize_t n = 0, item, place
    cdef int32_t row, leaf
    cdef Lowest* low
    cdef Part* part
    for item in range(tree.leaf_starts[first], tree.leaf_starts[last]):
        row = tree.leaf_rows[item]
        if last > first + 1:
            if tree.seen[row] == stamp:
                continue
            tree.seen[row] = stamp
        low = &tree.lowest[row]
        part = &tree.parts[n]
        n += 1
        part.sign = tree.sign[row]
        part.gradient = tree.sign[row] * tree.gradient[row]
        part.half_hessian = 0.5 * tree.hessian[row]
        part.worst = low.first
        if low.first_leaf < first or low.first_leaf >= last:
            part.outside = low.first
        elif low.second_leaf < first or low.second_leaf >= last:
            part.outside = low.second
        else:
            part.outside = INFINITY
            for place in range(tree.starts[row], tree.starts[row + 1]):
                leaf = tree.reached[place]
                if leaf < first or leaf >= last:
                    part.outside = min(part.outside, tree.sign[row] * tree.values[leaf])
    return n


cdef inline void _set(Polished* tree, int32_t first, int32_t last, double value) noexcept nogil:
    """Give the leaves first..last-1 a value."""
    cdef Py_ssize_t item
    cdef int32_t row, leaf
    cdef double signed
    cdef Lowest* low
    for leaf in range(first, last):
        tree.values[leaf] = value
    for item in range(tree.leaf_starts[first], tree.leaf_starts[last]):
        row = tree.leaf_rows[item]
        low = &tree.lowest[row]
        signed = tree.sign[row] * value
        if last > first + 1:
            _scan(tree, row)
        elif low.first_leaf == first:
            if signed <= low.second:
                low.first = signed
            else:
                _scan(tree, row)
        elif signed < low.first:
            low.second = low.first
            low.second_leaf = low.first_leaf
            low.first = signed
            low.first_leaf = first
        elif low.second_leaf == first:
            if signed <= low.second:
                low.second = signed
            else:
                _scan(tree, row)
        elif signed < low.second:
            low.second = signed
            low.second_leaf = first


cdef inline double _own_loss(double gradient, double hessian, double value) noexcept nogil:
    return value * (gradient + 0.5 * hessian * value)


cdef inline double _loss_of(const Part* parts, Py_ssize_t n, double own_gradient, double own_hessian,
                            double value) noexcept nogil:
    """The loss of the gathered rows if all leaves that were gathered have a value."""
    cdef double loss = _own_loss(own_gradient, own_hessian, value), worst
    cdef Py_ssize_t item
    for item in range(n):
        worst = min(parts[item].outside, parts[item].sign * value)
        loss += worst * (parts[item].gradient + parts[item].half_hessian * worst)
    return loss


cdef inline double _step(const Part* parts, Py_ssize_t n, double own_gradient, double own_hessian,
                         double value) noexcept nogil:
    """The best value for the rows that are worst off in the gathered leaves at a value."""
    cdef double gradient = own_gradient, hessian = own_hessian
    cdef Py_ssize_t item
    for item in range(n):
        if parts[item].sign * value <= parts[item].outside:
            gradient += parts[item].sign * parts[item].gradient
            hessian += 2 * parts[item].half_hessian
    return -gradient / hessian if hessian > 0 else value


cdef inline double _fit(const Part* parts, Py_ssize_t n, double own_gradient, double own_hessian, double value,
                        int32_t n_steps, double* loss) noexcept nogil:
    """A value with a smaller loss than the given one, if steps find one; the loss is that of the value returned."""
    cdef double tried, tried_loss = 0.0
    cdef int32_t step, n_halved
    loss[0] = _loss_of(parts, n, own_gradient, own_hessian, value)
    for step in range(n_steps):
        tried = _step(parts, n, own_gradient, own_hessian, value)
        for n_halved in range(MOST_HALVED):
            if tried == value:
                return value
            tried_loss = _loss_of(parts, n, own_gradient, own_hessian, tried)
            if tried_loss < loss[0]:
                break
            tried = 0.5 * (tried + value)
        else:
            return value
        value = tried
        loss[0] = tried_loss
    return value


def polish_tree(const int32_t[::1] left, const int32_t[::1] right, const int32_t[::1] first_leaf,
                const int32_t[::1] last_leaf, const int64_t[::1] starts, const int32_t[::1] reached,
                const int64_t[::1] leaf_starts, const int32_t[::1] leaf_rows, const double[::1] own_gradient,
                const double[::1] own_hessian, const double[::1] sign, const double[::1] gradient,
                const int32_t[::1] hessian, double penalty, bint prunes, int32_t n_passes, double[::1] values,
                uint8_t[::1] is_leaf):
    """Lower the loss of a tree: move the value of one leaf after another, and prune where that costs nothing.

    The loss is that of the derivatives, with the certified part of each row at the worst one of all leaves that its
    box reaches. It never rises.

    Parameters
    ----------
    left, right : children of the nodes, in preorder; -1 in leaves
    first_leaf, last_leaf : leaves below each node, by number; the last one is excluded
    starts, reached : leaves that the box of each row reaches
    leaf_starts, leaf_rows : the same by leaf
    own_gradient, own_hessian : natural part of the loss, summed over the leaves before each one
    sign : 1 for positive rows, -1 for negative ones
    penalty : added to each sum of second derivatives
    prunes : whether to prune before the last pass
    values : values of the leaves by number; those of a pruned node are all the same
    is_leaf : by node; receives 1 where the node is pruned to a leaf
    """
    cdef Polished tree
    cdef Py_ssize_t n, item, n_rows = sign.shape[0]
    cdef int32_t number, node, n_nodes = left.shape[0], first, middle, last, done, stamp = 0, row
    cdef double value, loss, pruned
    tree.starts = &starts[0]
    tree.reached = &reached[0]
    tree.leaf_starts = &leaf_starts[0]
    tree.leaf_rows = &leaf_rows[0]
    tree.sign = &sign[0]
    tree.gradient = &gradient[0]
    tree.hessian = &hessian[0]
    tree.values = &values[0]
    tree.lowest = <Lowest*> malloc(n_rows * sizeof(Lowest))
    tree.parts = <Part*> malloc(n_rows * sizeof(Part))
    tree.seen = <int32_t*> malloc(n_rows * sizeof(int32_t))
    if tree.lowest == NULL or tree.parts == NULL or tree.seen == NULL:
        free(tree.lowest)
        free(tree.parts)
        free(tree.seen)
        raise MemoryError
    with nogil:
        for row in range(n_rows):
            tree.seen[row] = -1
            _scan(&tree, row)
        for number in range(n_passes):
            if prunes and number == n_passes - 1:
                for node in range(n_nodes - 1, -1, -1):
                    if is_leaf[node] or not (is_leaf[left[node]] and is_leaf[right[node]]):
                        continue
                    first = first_leaf[node]
                    middle = first_leaf[right[node]]
                    last = last_leaf[node]
                    n = _gather(&tree, first, last, stamp)
                    stamp += 1
                    loss = (_own_loss(own_gradient[middle] - own_gradient[first],
                                      own_hessian[middle] - own_hessian[first] + penalty, values[first])
                            + _own_loss(own_gradient[last] - own_gradient[middle],
                                        own_hessian[last] - own_hessian[middle] + penalty, values[middle]))
                    for item in range(n):
                        value = tree.parts[item].worst
                        loss += value * (tree.parts[item].gradient + tree.parts[item].half_hessian * value)
                    value = _fit(tree.parts, n, own_gradient[last] - own_gradient[first],
                                 own_hessian[last] - own_hessian[first] + penalty,
                                 0.5 * (values[first] + values[middle]), STEPS_OF_PRUNING, &pruned)
                    if pruned <= loss:
                        is_leaf[node] = 1
                        _set(&tree, first, last, value)
            done = 0
            for node in range(n_nodes):
                # Below a pruned node nothing is left to do.
                if not is_leaf[node] or first_leaf[node] < done:
                    continue
                first = first_leaf[node]
                done = last = last_leaf[node]
                n = _gather(&tree, first, last, stamp)
                stamp += 1
                value = _fit(tree.parts, n, own_gradient[last] - own_gradient[first],
                             own_hessian[last] - own_hessian[first] + penalty, values[first], 1, &loss)
                if value != values[first]:
                    _set(&tree, first, last, value)
    free(tree.lowest)
    free(tree.parts)
    free(tree.seen)
