# Room for one thread of the trainer to work in: lists of samples, stacks, counters. Everything grows as needed and is
# kept for the next change of a tree.

from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

from ms_tree cimport TrainNode

cdef struct Frame:
    int32_t node        # of the tree or template that is walked
    int32_t parent      # of the tree that is built
    bint is_right
    int32_t depth
    size_t start        # of the list in the arena
    int32_t length

cdef struct Workspace:
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


cdef inline Workspace* new_workspace(int32_t n_samples, int32_t n_labels) noexcept nogil:
    cdef size_t n = max(n_samples, 1)
    cdef Workspace* space = <Workspace*> malloc(sizeof(Workspace))
    if space == NULL:
        return NULL
    memset(space, 0, sizeof(Workspace))
    space.n_samples = n_samples
    space.n_labels = n_labels
    space.entries = <int32_t*> malloc(n * sizeof(int32_t))
    space.outside = <int32_t*> malloc(n * sizeof(int32_t))
    space.branched = <uint8_t*> malloc(n * sizeof(uint8_t))
    space.keys = <uint64_t*> malloc(n * sizeof(uint64_t))
    space.spare_keys = <uint64_t*> malloc(n * sizeof(uint64_t))
    space.lows = <double*> malloc(n * sizeof(double))
    space.mids = <double*> malloc(n * sizeof(double))
    space.highs = <double*> malloc(n * sizeof(double))
    space.key_of = <int32_t*> malloc(n * sizeof(int32_t))
    space.key_category = <int32_t*> malloc(n * sizeof(int32_t))
    space.key_label = <int32_t*> malloc(n * sizeof(int32_t))
    space.key_own = <int32_t*> malloc(n * sizeof(int32_t))
    space.run_keys = <int32_t*> malloc(n * sizeof(int32_t))
    space.run_counts = <int32_t*> malloc(n * sizeof(int32_t))
    space.aside = <int32_t*> malloc(n * sizeof(int32_t))
    space.across = <int32_t*> malloc(n * sizeof(int32_t))
    space.own_left = <int32_t*> malloc(n * sizeof(int32_t))
    space.own_right = <int32_t*> malloc(n * sizeof(int32_t))
    if (space.entries == NULL or space.outside == NULL or space.branched == NULL or space.keys == NULL
            or space.spare_keys == NULL or space.lows == NULL or space.mids == NULL or space.highs == NULL
            or space.key_of == NULL or space.key_category == NULL or space.key_label == NULL or space.key_own == NULL
            or space.run_keys == NULL or space.run_counts == NULL or space.aside == NULL or space.across == NULL
            or space.own_left == NULL or space.own_right == NULL):
        free_workspace(space)
        return NULL
    return space


cdef inline void free_workspace(Workspace* space) noexcept nogil:
    if space != NULL:
        free(space.entries)
        free(space.outside)
        free(space.branched)
        free(space.path)
        free(space.arena)
        free(space.frames)
        free(space.spare_nodes)
        free(space.spare_counts)
        free(space.keys)
        free(space.spare_keys)
        free(space.lows)
        free(space.mids)
        free(space.highs)
        free(space.key_of)
        free(space.key_category)
        free(space.key_label)
        free(space.key_own)
        free(space.run_keys)
        free(space.run_counts)
        free(space.cells)
        free(space.aside)
        free(space.across)
        free(space.own_left)
        free(space.own_right)
        free(space.tables)
        free(space)


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


cdef inline int reserve_arena(Workspace* space, size_t wanted) except -1 nogil:
    return reserve(<void**> &space.arena, &space.arena_capacity, wanted, sizeof(int32_t))


cdef inline int reserve_tables(Workspace* space, size_t wanted) except -1 nogil:
    return reserve(<void**> &space.tables, &space.tables_capacity, wanted, sizeof(int32_t))


cdef inline int reserve_cells(Workspace* space, size_t wanted) except -1 nogil:
    return reserve(<void**> &space.cells, &space.cells_capacity, wanted, sizeof(int32_t))


cdef inline int reserve_frames(Workspace* space, int32_t wanted) except -1 nogil:
    cdef size_t capacity = space.frames_capacity
    reserve(<void**> &space.frames, &capacity, wanted, sizeof(Frame))
    space.frames_capacity = <int32_t> capacity
    return 0
