# Table groups: features that take one of several listed joint values together, the options of the group.
#
# Every value is 0 or 1. Group g has the members members[group_starts[g]:group_starts[g + 1]], and n_options[g] options.
# For each member there is a set of options, as bits of words: those in which it is 1. A one-hot group has an option for
# each of its members. If `codes[g]` is not negative, it is a further feature, whose value is the number of the option; no
# tree tests it.
#
# The options that a box allows follow from its bounds: those of the members, and of the code. Where that is not all,
# each row has a set of `allowed` options beside its box.

from libc.stdint cimport int32_t, uint64_t

cdef struct Tables:
    int32_t n_groups
    int32_t n_members
    int32_t n_words             # of a set of options
    const int32_t* members
    const int32_t* group_starts
    const int32_t* codes
    const int32_t* n_options
    const uint64_t* ones        # n_words for each member


cdef inline Tables make_tables(const int32_t[::1] members, const int32_t[::1] group_starts, const int32_t[::1] codes,
                               const int32_t[::1] n_options, const uint64_t[:, ::1] ones) noexcept nogil:
    """The groups of arrays, which must stay alive."""
    cdef Tables tables
    tables.n_groups = <int32_t> group_starts.shape[0] - 1
    tables.n_members = <int32_t> members.shape[0]
    tables.n_words = <int32_t> ones.shape[1]
    tables.members = &members[0] if members.shape[0] else NULL
    tables.group_starts = &group_starts[0]
    tables.codes = &codes[0] if codes.shape[0] else NULL
    tables.n_options = &n_options[0] if n_options.shape[0] else NULL
    tables.ones = &ones[0, 0] if ones.shape[0] and ones.shape[1] else NULL
    return tables


cdef inline const uint64_t* allowed_of(const uint64_t[:, :, ::1] allowed, Py_ssize_t row) noexcept nogil:
    """The allowed options of a row, of all groups; NULL if all are allowed. `allowed` has no rows then."""
    return &allowed[row, 0, 0] if allowed.shape[0] and allowed.shape[1] else NULL


cdef inline bint has_option(const uint64_t* options, int32_t option) noexcept nogil:
    return options[option >> 6] >> (option & 63) & 1


cdef inline bint has_options(const uint64_t* options, int32_t n_words) noexcept nogil:
    cdef int32_t i
    for i in range(n_words):
        if options[i]:
            return True
    return False


cdef inline bint can_be(const Tables* tables, int32_t place, bint is_one, const uint64_t* options) noexcept nogil:
    """Whether the member at a place is 1 (0) in some of the options."""
    cdef int32_t i
    cdef uint64_t flip = 0 if is_one else ~(<uint64_t> 0)
    cdef const uint64_t* ones = tables.ones + <size_t> place * tables.n_words
    for i in range(tables.n_words):
        if options[i] & (ones[i] ^ flip):
            return True
    return False


cdef inline void keep_options(const Tables* tables, int32_t place, bint is_one, uint64_t* options) noexcept nogil:
    """Keep the options in which the member at a place is 1 (0)."""
    cdef int32_t i
    cdef uint64_t flip = 0 if is_one else ~(<uint64_t> 0)
    cdef const uint64_t* ones = tables.ones + <size_t> place * tables.n_words
    for i in range(tables.n_words):
        options[i] &= ones[i] ^ flip


cdef inline void start_options(const Tables* tables, int32_t group, const uint64_t* allowed,
                               uint64_t* options) noexcept nogil:
    """All options of a group that are allowed; `allowed` are those of all groups, NULL for all options."""
    cdef int32_t i, n = tables.n_options[group]
    for i in range(tables.n_words):
        if n - 64 * i >= 64:
            options[i] = ~(<uint64_t> 0)
        else:
            options[i] = ((<uint64_t> 1) << (n - 64 * i)) - 1 if n > 64 * i else 0
        if allowed != NULL:
            options[i] &= allowed[<size_t> group * tables.n_words + i]


cdef inline bint fill_options(const Tables* tables, int32_t group, const uint64_t* allowed, const double* low,
                              const double* high, uint64_t* options) noexcept nogil:
    """Write the options of a group that lie in a box; returns whether there are some."""
    cdef int32_t place, f, option, code = tables.codes[group]
    start_options(tables, group, allowed, options)
    if code >= 0 and (low[code] > 0.0 or high[code] < tables.n_options[group] - 1):
        for option in range(tables.n_options[group]):
            if not low[code] <= option <= high[code]:
                options[option >> 6] &= ~((<uint64_t> 1) << (option & 63))
    for place in range(tables.group_starts[group], tables.group_starts[group + 1]):
        f = tables.members[place]
        if not low[f] <= 0.0 <= high[f]:
            keep_options(tables, place, True, options)
        if not low[f] <= 1.0 <= high[f]:
            keep_options(tables, place, False, options)
    return has_options(options, tables.n_words)


cdef inline bint tables_admit(const Tables* tables, const uint64_t* allowed, const double* low, const double* high,
                              uint64_t* options) noexcept nogil:
    """Whether a box contains a point in which every group takes one of its options; `options` is space for a set."""
    cdef int32_t group
    for group in range(tables.n_groups):
        if not fill_options(tables, group, allowed, low, high, options):
            return False
    return True
