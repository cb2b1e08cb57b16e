# Room for one thread of the trainer to work in: lists of samples, stacks, counters. Everything grows as needed and is
# kept for the next change of a tree.

from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

from training.tree cimport TrainNode

cdef struct Frame:
    int32_t node        # of the tree or template that is walked
    int32_t parent      # of the tree that is built
    bint is_right
    int32_t depth
    size_t start        # of the list in the arena
    int32_t length

cdef struct Scratch:
    # Room for one thread.
    int32_t n_samples
    int32_t n_labels
    int32_t* entries        # the list of the node at hand
    int32_t n_entries
    int32_t* outside        # by sample: answers of the leaves outside the node at hand
    uint8_t* branched       # by sample: its box reaches leaves outside the node at hand
    int32_t* path
    int32_t path_capacity
    int32_t n_path
    int32_t* arena          # lists of a walk; a list lies behind those of its ancestors
    size_t arena_capacity
    Frame* frames
    int32_t frames_capacity
    TrainNode* spare_nodes  # for renumbering
    int32_t* spare_counts
    int32_t spare_capacity
    # For the sweeps: what each listed sample is to the sweep, and the runs of equal ones in the order of a feature.
    int32_t* key_of
    int32_t* key_category
    int32_t* key_label
    int32_t* key_own
    int32_t n_keys
    uint64_t* keys
    uint64_t* spare_keys
    int32_t* run_keys
    int32_t* run_counts
    double* lows
    double* mids
    double* highs
    int32_t* cells
    size_t cells_capacity
    int32_t* aside          # answers inside the left or right subtree, by sample
    int32_t* across
    int32_t* own_left
    int32_t* own_right
    int32_t* tables         # counters of a sweep
    size_t tables_capacity


cdef inline Scratch* new_scratch(int32_t n_samples, int32_t n_labels) noexcept nogil:
    cdef size_t n = max(n_samples, 1)
    cdef Scratch* scratch = <Scratch*> malloc(sizeof(Scratch))
    if scratch == NULL:
        return NULL
    memset(scratch, 0, sizeof(Scratch))
    scratch.n_samples = n_samples
    scratch.n_labels = n_labels
    scratch.entries = <int32_t*> malloc(n * sizeof(int32_t))
    scratch.outside = <int32_t*> malloc(n * sizeof(int32_t))
    scratch.branched = <uint8_t*> malloc(n * sizeof(uint8_t))
    scratch.keys = <uint64_t*> malloc(n * sizeof(uint64_t))
    scratch.spare_keys = <uint64_t*> malloc(n * sizeof(uint64_t))
    scratch.lows = <double*> malloc(n * sizeof(double))
    scratch.mids = <double*> malloc(n * sizeof(double))
    scratch.highs = <double*> malloc(n * sizeof(double))
    scratch.key_of = <int32_t*> malloc(n * sizeof(int32_t))
    scratch.key_category = <int32_t*> malloc(n * sizeof(int32_t))
    scratch.key_label = <int32_t*> malloc(n * sizeof(int32_t))
    scratch.key_own = <int32_t*> malloc(n * sizeof(int32_t))
    scratch.run_keys = <int32_t*> malloc(n * sizeof(int32_t))
    scratch.run_counts = <int32_t*> malloc(n * sizeof(int32_t))
    scratch.aside = <int32_t*> malloc(n * sizeof(int32_t))
    scratch.across = <int32_t*> malloc(n * sizeof(int32_t))
    scratch.own_left = <int32_t*> malloc(n * sizeof(int32_t))
    scratch.own_right = <int32_t*> malloc(n * sizeof(int32_t))
    if (scratch.entries == NULL or scratch.outside == NULL or scratch.branched == NULL or scratch.keys == NULL
            or scratch.spare_keys == NULL or scratch.lows == NULL or scratch.mids == NULL or scratch.highs == NULL
            or scratch.key_of == NULL or scratch.key_category == NULL or scratch.key_label == NULL or scratch.key_own == NULL
            or scratch.run_keys == NULL or scratch.run_counts == NULL or scratch.aside == NULL or scratch.across == NULL
            or scratch.own_left == NULL or scratch.own_right == NULL):
        free_scratch(scratch)
        return NULL
    return scratch


cdef inline void free_scratch(Scratch* scratch) noexcept nogil:
    if scratch != NULL:
        free(scratch.entries)
        free(scratch.outside)
        free(scratch.branched)
        free(scratch.path)
        free(scratch.arena)
        free(scratch.frames)
        free(scratch.spare_nodes)
        free(scratch.spare_counts)
        free(scratch.keys)
        free(scratch.spare_keys)
        free(scratch.lows)
        free(scratch.mids)
        free(scratch.highs)
        free(scratch.key_of)
        free(scratch.key_category)
        free(scratch.key_label)
        free(scratch.key_own)
        free(scratch.run_keys)
        free(scratch.run_counts)
        free(scratch.cells)
        free(scratch.aside)
        free(scratch.across)
        free(scratch.own_left)
        free(scratch.own_right)
        free(scratch.tables)
        free(scratch)


cdef inline int reserve(void** block, size_t* capacity, size_t wanted, size_t item) except -1 nogil:
    cdef void* larger
    if wanted <= capacity[0]:
        return 0
    wanted = max(wanted, 2 * capacity[0])
    larger = realloc(block[0], wanted * item)
    if larger == NULL:
        with gil:
            raise MemoryError("no room for the lists of the trainer")
    block[0] = larger
    capacity[0] = wanted
    return 0


cdef inline int reserve_arena(Scratch* scratch, size_t wanted) except -1 nogil:
    return reserve(<void**> &scratch.arena, &scratch.arena_capacity, wanted, sizeof(int32_t))


cdef inline int reserve_tables(Scratch* scratch, size_t wanted) except -1 nogil:
    return reserve(<void**> &scratch.tables, &scratch.tables_capacity, wanted, sizeof(int32_t))


cdef inline int reserve_cells(Scratch* scratch, size_t wanted) except -1 nogil:
    return reserve(<void**> &scratch.cells, &scratch.cells_capacity, wanted, sizeof(int32_t))


cdef inline int reserve_frames(Scratch* scratch, int32_t wanted) except -1 nogil:
    cdef size_t capacity = scratch.frames_capacity
    reserve(<void**> &scratch.frames, &capacity, wanted, sizeof(Frame))
    scratch.frames_capacity = <int32_t> capacity
    return 0
