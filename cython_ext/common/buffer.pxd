# Arrays that grow as needed and keep their room for later.

from libc.stdlib cimport realloc

cdef inline int reserve(void** room, size_t* capacity, size_t wanted, size_t item_size) except -1 nogil:
    """Make room for `wanted` items, keeping those that are there."""
    cdef void* larger
    cdef size_t size
    if wanted <= capacity[0]:
        return 0
    size = max(wanted, 2 * capacity[0])
    larger = realloc(room[0], size * item_size)
    if larger == NULL:
        with gil:
            raise MemoryError()
    room[0] = larger
    capacity[0] = size
    return 0
