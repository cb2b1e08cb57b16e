# A chapter of evolution.pyx: the memory that one thread of the trainer works in. It holds lists of samples, stacks and
# counters. Buffers grow as needed and are kept for the next change of a tree.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from common.buffer cimport reserve
from training.tree cimport TrainNode, Tree

cdef enum:
    # Samples: sweeps over more than FEW_SWEPT begin with a part of the thresholds, those over more than MANY_SWEPT also
    # with a part of so many samples; see sweep.pxd.
    FEW_SWEPT = 768
    MANY_SWEPT = 8192

cdef struct PendingNode:
    # A node that a walk visits later.
    int32_t node        # of the tree or template that is walked
    int32_t parent      # of the tree that is built
    bint is_right
    int32_t depth
    size_t start        # of its list of samples
    int32_t length

cdef struct Level:
    # The list of a node on the path to the node that was collected last.
    int32_t node
    size_t start        # of its entries and their outside predictions
    int32_t length

cdef struct PathInterval:
    # The values of a column that the tests above a node leave: low < x <= high; see norm.pxd.
    int32_t column
    double low
    double high

cdef struct Event:
    # A threshold at which something changes, and for what.
    double at
    int64_t key

cdef struct Scratch:
    int32_t n_samples
    int32_t n_labels
    # Blocks that hold the arrays of one item per sample.
    int32_t* int_block
    uint64_t* key_block
    double* double_block
    int32_t* entries        # the list of the present node, see subtree_replacement.pxd
    int32_t n_entries
    int32_t* part           # a part of a long list, and its keys
    int32_t* part_keys
    int32_t* outside        # by sample: merged predictions of the leaves outside the present node
    # By sample, merged predictions of the leaves of the left or right subtree that its box reaches.
    int32_t* left_merged
    int32_t* right_merged
    # By sample, prediction of the leaf of the left or right subtree that it falls into.
    int32_t* own_left
    int32_t* own_right
    # By position in the list: predictions before a change that may be taken back. A sweep is over then, and needs
    # left_merged and right_merged no more.
    int32_t* former_own
    int32_t* former_joint
    # For the sweeps: a key for each listed sample, and the runs of equal keys in the order of a feature.
    int32_t* key_of
    int32_t* key_category
    int32_t* key_label
    int32_t* key_own
    int32_t* key_counts     # listed samples with each key
    int32_t* key_weight     # of each of these samples
    int32_t n_keys
    uint64_t* keys
    uint64_t* spare_keys
    int32_t* run_keys
    int32_t* run_counts     # samples of each run
    int32_t* run_sums       # the sums of their weights; the same array if all weights are 1
    int32_t* run_weights    # room for these sums
    double* lows
    double* mids
    double* highs
    # The first and the last events in their order. Those of the runs themselves, unless samples differ in their radii.
    const double* low_ends
    const int32_t* low_keys
    const int32_t* low_sums
    const double* high_ends
    const int32_t* high_keys
    const int32_t* high_sums
    int32_t n_sides
    # Buffers that grow.
    int32_t* cells
    size_t cells_capacity
    int32_t* narrowed       # by sample: ranks of the present feature, see missing.pxd
    size_t narrowed_capacity
    # The leaf that is being grown, if it is not yet a node of the tree: a node of a template below the present node.
    const TrainNode* template
    int32_t template_node
    int32_t* tables         # counters of a sweep
    size_t tables_capacity
    double* gains           # by position in the list of features that a sweep goes through
    size_t gains_capacity
    int32_t* path           # nodes from the root to the present node
    size_t path_capacity
    int32_t n_path
    # Lists of the nodes on the path to the node that was collected last, for the next node; see `collect`.
    const Tree* walked_tree
    Level* levels
    size_t levels_capacity
    int32_t n_levels        # that are valid
    int32_t* level_entries
    size_t level_entries_capacity
    int32_t* level_outside
    size_t level_outside_capacity
    int32_t* lists          # lists of samples of a walk; the list of a node lies behind those of its ancestors
    size_t lists_capacity
    PendingNode* pending_nodes
    size_t pending_capacity
    # For norms, see norm.pxd: the intervals of the present node; what the listed samples that pay have left, and the
    # root of that. They are the last ones of the list, behind n_free others.
    PathInterval* intervals
    size_t intervals_capacity
    int32_t n_intervals
    int64_t* rests
    size_t rests_capacity
    double* roots
    size_t roots_capacity
    int32_t n_free
    Event* events
    Event* spare_events
    double* paid_ends       # two lists of events with their keys and sums, paid_capacity each
    int32_t* paid_keys
    int32_t* paid_sums
    size_t paid_capacity
    # By sample: what is left on the way to leaves of the left and right subtree, see norm_move.pxd.
    int64_t* slacks
    size_t slacks_capacity
    double* slack_roots
    size_t slack_roots_capacity
    uint8_t* is_tested      # by feature: whether a test above or below the present node is about it
    size_t is_tested_capacity
    TrainNode* spare_nodes  # for renumbering
    int32_t* spare_counts
    int32_t spare_capacity


cdef inline Scratch* new_scratch(int32_t n_samples, int32_t n_labels) noexcept nogil:
    # One item more: runs of events are written before it is known whether they count.
    cdef size_t n = <size_t> n_samples + 1
    cdef Scratch* scratch = <Scratch*> malloc(sizeof(Scratch))
    cdef int32_t* ints
    if scratch == NULL:
        return NULL
    memset(scratch, 0, sizeof(Scratch))
    scratch.n_samples = n_samples
    scratch.n_labels = n_labels
    scratch.int_block = <int32_t*> malloc((15 * n + 2 * MANY_SWEPT) * sizeof(int32_t))
    scratch.key_block = <uint64_t*> malloc(2 * n * sizeof(uint64_t))
    scratch.double_block = <double*> malloc(3 * n * sizeof(double))
    if scratch.int_block == NULL or scratch.key_block == NULL or scratch.double_block == NULL:
        free_scratch(scratch)
        return NULL
    ints = scratch.int_block
    scratch.entries, scratch.outside = ints, ints + n
    scratch.left_merged, scratch.right_merged = ints + 2 * n, ints + 3 * n
    scratch.former_own, scratch.former_joint = scratch.left_merged, scratch.right_merged
    scratch.own_left, scratch.own_right = ints + 4 * n, ints + 5 * n
    scratch.key_of, scratch.key_category = ints + 6 * n, ints + 7 * n
    scratch.key_label, scratch.key_own = ints + 8 * n, ints + 9 * n
    scratch.run_keys, scratch.run_counts = ints + 10 * n, ints + 11 * n
    scratch.key_counts = ints + 12 * n
    scratch.key_weight, scratch.run_weights = ints + 13 * n, ints + 14 * n
    scratch.run_sums = scratch.run_counts
    scratch.part, scratch.part_keys = ints + 15 * n, ints + 15 * n + MANY_SWEPT
    scratch.keys, scratch.spare_keys = scratch.key_block, scratch.key_block + n
    scratch.lows, scratch.mids = scratch.double_block, scratch.double_block + n
    scratch.highs = scratch.double_block + 2 * n
    return scratch


cdef inline void free_scratch(Scratch* scratch) noexcept nogil:
    if scratch != NULL:
        free(scratch.int_block)
        free(scratch.key_block)
        free(scratch.double_block)
        free(scratch.cells)
        free(scratch.narrowed)
        free(scratch.tables)
        free(scratch.gains)
        free(scratch.path)
        free(scratch.levels)
        free(scratch.level_entries)
        free(scratch.level_outside)
        free(scratch.lists)
        free(scratch.pending_nodes)
        free(scratch.intervals)
        free(scratch.rests)
        free(scratch.roots)
        free(scratch.events)
        free(scratch.spare_events)
        free(scratch.paid_ends)
        free(scratch.paid_keys)
        free(scratch.paid_sums)
        free(scratch.slacks)
        free(scratch.slack_roots)
        free(scratch.is_tested)
        free(scratch.spare_nodes)
        free(scratch.spare_counts)
        free(scratch)


cdef inline int reserve_cells(Scratch* scratch, size_t wanted) except -1 nogil:
    return reserve(<void**> &scratch.cells, &scratch.cells_capacity, wanted, sizeof(int32_t))


cdef inline int reserve_tables(Scratch* scratch, size_t wanted) except -1 nogil:
    return reserve(<void**> &scratch.tables, &scratch.tables_capacity, wanted, sizeof(int32_t))


cdef inline int reserve_gains(Scratch* scratch, size_t wanted) except -1 nogil:
    return reserve(<void**> &scratch.gains, &scratch.gains_capacity, wanted, sizeof(double))


cdef inline int reserve_path(Scratch* scratch, size_t wanted) except -1 nogil:
    return reserve(<void**> &scratch.path, &scratch.path_capacity, wanted, sizeof(int32_t))


cdef inline int reserve_lists(Scratch* scratch, size_t wanted) except -1 nogil:
    return reserve(<void**> &scratch.lists, &scratch.lists_capacity, wanted, sizeof(int32_t))


cdef inline int reserve_pending(Scratch* scratch, size_t wanted) except -1 nogil:
    return reserve(<void**> &scratch.pending_nodes, &scratch.pending_capacity, wanted, sizeof(PendingNode))


cdef inline int reserve_levels(Scratch* scratch, size_t n_levels, size_t n_entries) except -1 nogil:
    reserve(<void**> &scratch.levels, &scratch.levels_capacity, n_levels, sizeof(Level))
    reserve(<void**> &scratch.level_entries, &scratch.level_entries_capacity, n_entries, sizeof(int32_t))
    return reserve(<void**> &scratch.level_outside, &scratch.level_outside_capacity, n_entries, sizeof(int32_t))


cdef inline int reserve_events(Scratch* scratch, size_t wanted) except -1 nogil:
    cdef size_t capacity = scratch.paid_capacity
    if wanted <= capacity:
        return 0
    reserve(<void**> &scratch.events, &capacity, wanted, sizeof(Event))
    wanted = capacity
    capacity = scratch.paid_capacity
    reserve(<void**> &scratch.spare_events, &capacity, wanted, sizeof(Event))
    capacity = 2 * scratch.paid_capacity
    reserve(<void**> &scratch.paid_ends, &capacity, 2 * wanted, sizeof(double))
    capacity = 2 * scratch.paid_capacity
    reserve(<void**> &scratch.paid_keys, &capacity, 2 * wanted, sizeof(int32_t))
    capacity = 2 * scratch.paid_capacity
    reserve(<void**> &scratch.paid_sums, &capacity, 2 * wanted, sizeof(int32_t))
    scratch.paid_capacity = wanted
    return 0


cdef inline void forget_levels(Scratch* scratch) noexcept nogil:
    """Make the next `collect` start from the root; needed wherever a tree may have been changed by others."""
    scratch.n_levels = 0
