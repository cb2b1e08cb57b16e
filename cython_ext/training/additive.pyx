"""Worst margins of samples in additive models, and what lowers their loss.

Features may share what may change; where they do not, changes cost nothing.

An additive model has a score for each cell of each feature: for each interval between neighbouring thresholds, and for
missing values. The scores of a sample's cells add up. An attacker moves values to other cells, each at a cost, and the
costs together are at most 1 (epsilon, to the power of the norm). With a price for each unit of cost, every feature is
attacked by itself, where that takes more off the margin than it costs, and

    margin - price - sum over features of the largest (loss of margin - price * cost)

is at most the margin at the worst point that the attacker can pay (Lagrangian relaxation). Every price gives a bound.
Costs fill up to 1 at the best price, so one price leads to the next.

Cells have numbers by feature, as codes in training/boosting_codes.pyx: x <= threshold j if and only if its cell is at most j.
The cell of missing values comes after those of all numbers. Derivatives are sums of whole numbers, which do not depend on
the order of the samples. Steps, thresholds and the choice of options are left to metasilvae.training.additive_models.
"""

from libc.math cimport INFINITY, exp, fabs, pow, rint
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

# Cells are bytes: those between and beyond the thresholds, and the one of missing values.
MOST_THRESHOLDS = 254

cdef enum:
    # Prices tried for one sample: to enclose the best one, and to come near to it.
    MOST_ENCLOSING = 40
    MOST_HALVING = 12

cdef double LARGEST_EXPONENT = 500.0
# A search changes the price by this factor until the best one is enclosed.
cdef double WIDENING = 4.0
# A search takes smaller prices for 0: no bound is lower by more than the price, and this is about a unit of scores.
cdef double SMALLEST_PRICE = 1e-6
# From round to round a price changes by a factor of exp(PRICE_RATE), or 1.35, at most: about as fast as scores do.
cdef double PRICE_RATE = 0.3
# Such prices are multiplied, so that one of 0 would stay 0.
cdef double SMALLEST_NEXT_PRICE = 1e-9


cdef struct Costs:
    # By cell: the largest and the smallest possible value in it.
    const double* last_value
    const double* first_value
    # By feature: factor of its changes; or the cost of any change, not negative, in units of the limit.
    const double* factors
    const double* fixed
    int32_t power
    double limit


# The values of a sample, their cells, and the cells that they may reach; the cells of each feature begin at cell_starts.
cdef struct Sample:
    Py_ssize_t n_features
    const int64_t* cell_starts
    const double* values
    const uint8_t* home
    const uint8_t* low
    const uint8_t* high


# base + sign * (ahead - behind) by the scores of two labels; `behind` may be missing (NULL).
cdef struct Margin:
    const double* ahead
    const double* behind
    double sign
    double base


# What the attacker makes of a margin at a price: the margin without any change, its bound, and the costs spent.
cdef struct Attack:
    double margin
    double bound
    double spent


cdef inline double _cost(const Costs* costs, Py_ssize_t f, Py_ssize_t first, int32_t home, int32_t cell,
                         double value) noexcept nogil:
    """What it costs to move a value from its home to another cell, as a part of the limit."""
    cdef double size
    if costs.fixed[f] >= 0:
        return costs.fixed[f]
    size = costs.first_value[first + cell] - value if cell > home else value - costs.last_value[first + cell]
    size *= costs.factors[f]
    if costs.power == 2:
        size *= size
    if not size > 0:
        return 0.0
    return size / costs.limit if costs.limit > 0 else INFINITY


def limit_reach(const double[:, ::1] X, const int64_t[::1] cell_starts, const double[::1] last_value,
                const double[::1] first_value, const double[::1] factors, const double[::1] fixed, int32_t power,
                double limit, const uint8_t[:, ::1] home, Py_ssize_t start, Py_ssize_t stop, uint8_t[:, ::1] low,
                uint8_t[:, ::1] high):
    """Narrow the cells that each value may reach to those that do not exceed the limit by themselves."""
    cdef Costs costs
    cdef Py_ssize_t row, f
    costs.last_value, costs.first_value = &last_value[0], &first_value[0]
    costs.factors, costs.fixed = &factors[0], &fixed[0]
    costs.power, costs.limit = power, limit
    with nogil:
        for row in range(start, stop):
            for f in range(X.shape[1]):
                while low[row, f] < home[row, f] and not _cost(
                        &costs, f, cell_starts[f], home[row, f], low[row, f], X[row, f]) <= 1.0:
                    low[row, f] += 1
                while high[row, f] > home[row, f] and not _cost(
                        &costs, f, cell_starts[f], home[row, f], high[row, f], X[row, f]) <= 1.0:
                    high[row, f] -= 1


cdef Attack _attack(const Costs* costs, const Sample* sample, const Margin* margin, double price,
                    uint8_t* reached) noexcept nogil:
    """The bound of a margin at a price, and the cells that the attacker then prefers."""
    cdef Attack found
    cdef const double* ahead = margin.ahead
    cdef const double* behind = margin.behind
    cdef Py_ssize_t f, first
    cdef int32_t cell, own_cell, best_cell
    cdef double own, loss, best, best_cost, cost, sign = margin.sign
    found.margin = margin.base
    found.spent = 0.0
    found.bound = -price
    for f in range(sample.n_features):
        first = sample.cell_starts[f]
        own_cell = sample.home[f]
        own = ahead[first + own_cell]
        if behind != NULL:
            own -= behind[first + own_cell]
        own *= sign
        found.margin += own
        best_cell = own_cell
        best = best_cost = 0.0
        for cell in range(sample.low[f], sample.high[f] + 1):
            loss = ahead[first + cell]
            if behind != NULL:
                loss -= behind[first + cell]
            loss = own - sign * loss
            # Costs are not negative.
            if loss <= best:
                continue
            cost = _cost(costs, f, first, own_cell, cell, sample.values[f])
            loss -= price * cost
            if loss > best:
                best = loss
                best_cost = cost
                best_cell = cell
        found.bound -= best
        found.spent += best_cost
        reached[f] = <uint8_t> best_cell
    found.bound += found.margin
    return found


cdef Attack _find_price(const Costs* costs, const Sample* sample, const Margin* margin, double* price,
                        uint8_t* reached) noexcept nogil:
    """The best bound of a margin that a search from a price finds; `price` receives that of this bound.

    The bound rises with the price as long as more than the limit is spent. `reached` is left as the last price tried
    left it.
    """
    cdef double tried_price = price[0], lower = 0.0, upper = INFINITY
    cdef Attack tried = _attack(costs, sample, margin, tried_price, reached)
    cdef Attack best = tried
    cdef int32_t step
    for step in range(MOST_ENCLOSING):
        if tried.bound > best.bound:
            best = tried
            price[0] = tried_price
        if tried.spent > 1.0:
            lower = tried_price
            if upper < INFINITY:
                break
            tried_price = WIDENING * tried_price if tried_price > 0 else SMALLEST_PRICE
        else:
            upper = tried_price
            if lower > 0 or tried_price == 0:
                break
            tried_price = tried_price / WIDENING if tried_price > SMALLEST_PRICE else 0.0
        tried = _attack(costs, sample, margin, tried_price, reached)
    if upper > lower and upper < INFINITY:
        for step in range(MOST_HALVING):
            tried_price = 0.5 * (lower + upper)
            tried = _attack(costs, sample, margin, tried_price, reached)
            if tried.bound > best.bound:
                best = tried
                price[0] = tried_price
            if tried.spent > 1.0:
                lower = tried_price
            else:
                upper = tried_price
    return best


cdef inline double _next_price(double price, double spent) noexcept nogil:
    """A price that is nearer to the best one: higher if more than the limit is spent, else lower."""
    return max(price * exp(PRICE_RATE * min(max(spent - 1.0, -1.0), 1.0)), SMALLEST_NEXT_PRICE)


cdef inline double _failure_probability(double margin) noexcept nogil:
    """Probability of another label at a margin: the first derivative of the logistic loss, without its sign."""
    return 1.0 / (1.0 + exp(min(max(margin, -LARGEST_EXPONENT), LARGEST_EXPONENT)))


cdef void _add_gradient_of_two(const Sample* sample, double sign, double weight, double natural_weight,
                               double certified_weight, double tolerance, double margin, double bound,
                               const uint8_t* reached, int64_t[:, ::1] gradient,
                               int64_t[::1] base_gradient) noexcept nogil:
    """Add the derivatives of the loss of a sample by the only row of scores: log(1 + exp(-margin)) for each part."""
    cdef double failure = _failure_probability(bound)
    cdef int64_t natural = <int64_t> rint(-sign * weight * natural_weight * _failure_probability(margin))
    cdef int64_t certified = <int64_t> rint(
        -sign * weight * certified_weight * failure * pow(1.0 - failure, tolerance))
    cdef Py_ssize_t f
    base_gradient[0] += natural + certified
    for f in range(sample.n_features):
        gradient[0, sample.cell_starts[f] + sample.home[f]] += natural
        gradient[0, sample.cell_starts[f] + reached[f]] += certified


cdef void _add_gradient_of_many(const Sample* sample, int32_t label, int32_t n_rivals, double weight,
                                double part_weight, double tolerance, const double* margins, const uint8_t* cells,
                                Py_ssize_t stride, double* probabilities, int64_t[:, ::1] gradient,
                                int64_t[::1] base_gradient) noexcept nogil:
    """Add the derivatives of one part of the loss of a sample: log(1 + sum of exp(-margin)) over the other labels.

    Parameters
    ----------
    weight, part_weight, tolerance : of the sample, in units; of the part; the exponent of `measure_rows`
    margins : to each other label
    cells, stride : the cells in which each margin is lost; those for the next label come `stride` places later
    probabilities : buffer, a number by label
    """
    cdef double worst = 0.0, total, of_label, factor
    cdef int32_t rival
    cdef int64_t slope
    cdef Py_ssize_t f, cell
    for rival in range(n_rivals):
        if rival != label:
            worst = min(worst, margins[rival])
    # By exponents that are at most 0; that of the true label comes first.
    of_label = total = exp(max(worst, -LARGEST_EXPONENT))
    for rival in range(n_rivals):
        probabilities[rival] = 0.0
        if rival != label:
            probabilities[rival] = exp(min(max(worst - margins[rival], -LARGEST_EXPONENT), 0.0))
            total += probabilities[rival]
    factor = part_weight * pow(of_label / total, tolerance)
    for rival in range(n_rivals):
        if rival == label:
            continue
        slope = <int64_t> rint(weight * probabilities[rival] / total * factor)
        base_gradient[rival] += slope
        base_gradient[label] -= slope
        for f in range(sample.n_features):
            cell = sample.cell_starts[f] + cells[rival * stride + f]
            gradient[rival, cell] += slope
            gradient[label, cell] -= slope


def measure_rows(const double[:, ::1] X, const int64_t[::1] cell_starts, const double[::1] last_value,
                 const double[::1] first_value, const double[::1] factors, const double[::1] fixed, int32_t power,
                 double limit, const uint8_t[:, ::1] home, const uint8_t[:, ::1] low, const uint8_t[:, ::1] high,
                 const double[:, ::1] scores, const double[::1] base, const int32_t[::1] labels,
                 const int32_t[::1] rows, Py_ssize_t start, Py_ssize_t stop, bint is_thorough, double[:, ::1] prices,
                 double[:, ::1] margins, double[:, ::1] bounds, const double[::1] row_weights, double natural_weight,
                 double certified_weight, double tolerance, double unit, int64_t[:, ::1] gradient,
                 int64_t[::1] base_gradient):
    """Bound the margins of the samples rows[start..stop-1], and add the derivatives of their loss.

    With two classes there is one row of scores, those of the second label relative to the first one, and one margin for
    each sample. With more, each sample has a margin for each other label; that for its own label is not used.

    Parameters
    ----------
    X : samples; missing values may be anything
    cell_starts : where the cells of each feature begin
    last_value, first_value : the largest and smallest possible value in each cell
    factors : by which the changes of each feature are multiplied
    fixed : cost of any change of a feature as a part of the limit; -1 where it grows with its size
    power, limit : costs are added to this power and divided by this limit
    home, low, high : cell of each value, and the ones that it may reach
    scores : by label and cell
    base : by label
    labels : of the samples
    is_thorough : whether to search for the best price; otherwise the given one is used, and the next one written
    prices : by sample and other label; receives those to begin with next time
    margins, bounds : receive the margins, and what they are at least at every point that is allowed
    row_weights : weights of the samples in the loss
    natural_weight, certified_weight : of the two parts of the loss
    tolerance : exponent, see metasilvae.training.boosting_scores.find_derivatives
    unit : derivatives are counted in multiples of it
    gradient, base_gradient : derivatives are added to them; without any rows nothing is
    """
    cdef Costs costs
    cdef Sample sample
    cdef Margin margin
    cdef Attack found
    cdef Py_ssize_t item, row, n_features = X.shape[1]
    cdef int32_t label, rival, n_rivals = prices.shape[1]
    cdef double weight
    cdef bint is_of_two = scores.shape[0] == 1, has_gradient = gradient.shape[0] > 0
    cdef uint8_t* cells
    cdef uint8_t* reached = <uint8_t*> malloc(n_features * n_rivals + 1)
    cdef double* probabilities = <double*> malloc((n_rivals + 1) * sizeof(double))
    if reached == NULL or probabilities == NULL:
        free(reached)
        free(probabilities)
        raise MemoryError
    costs.last_value, costs.first_value = &last_value[0], &first_value[0]
    costs.factors, costs.fixed = &factors[0], &fixed[0]
    costs.power, costs.limit = power, limit
    sample.n_features, sample.cell_starts = n_features, &cell_starts[0]
    with nogil:
        for item in range(start, stop):
            row = rows[item]
            label = labels[row]
            sample.values, sample.home = &X[row, 0], &home[row, 0]
            sample.low, sample.high = &low[row, 0], &high[row, 0]
            for rival in range(n_rivals):
                cells = reached + rival * n_features
                if is_of_two:
                    margin.sign = 1.0 if label == 1 else -1.0
                    margin.ahead = &scores[0, 0]
                    margin.behind = NULL
                    margin.base = margin.sign * base[0]
                elif rival == label:
                    margins[row, rival] = bounds[row, rival] = INFINITY
                    continue
                else:
                    margin.sign = 1.0
                    margin.ahead = &scores[label, 0]
                    margin.behind = &scores[rival, 0]
                    margin.base = base[label] - base[rival]
                if is_thorough:
                    found = _find_price(&costs, &sample, &margin, &prices[row, rival], cells)
                else:
                    found = _attack(&costs, &sample, &margin, prices[row, rival], cells)
                    prices[row, rival] = _next_price(prices[row, rival], found.spent)
                margins[row, rival] = found.margin
                bounds[row, rival] = found.bound
            if not has_gradient:
                continue
            weight = row_weights[row] / unit
            if is_of_two:
                _add_gradient_of_two(&sample, margin.sign, weight, natural_weight, certified_weight, tolerance,
                                     margins[row, 0], bounds[row, 0], reached, gradient, base_gradient)
            else:
                # The natural part is lost where the sample is, whatever the other label.
                _add_gradient_of_many(&sample, label, n_rivals, weight, natural_weight, 0.0, &margins[row, 0],
                                      sample.home, 0, probabilities, gradient, base_gradient)
                _add_gradient_of_many(&sample, label, n_rivals, weight, certified_weight, tolerance, &bounds[row, 0],
                                      reached, n_features, probabilities, gradient, base_gradient)
    free(reached)
    free(probabilities)
