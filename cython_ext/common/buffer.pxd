# Buffers that grow as needed and keep their memory for later.

from libc.stdlib cimport realloc


cdef inline int reserve(void** buffer, size_t* capacity, size_t wanted, size_t item_size) except -1 nogil:
    """Make a buffer large enough for `wanted` items, keeping those that it holds."""
    cdef void* larger
    cdef size_t size
    if wanted <= capacity[0]:
        return 0
    size = max(wanted, 2 * capacity[0])
    larger = realloc(buffer[0], size * item_size)
    if larger == NULL:
        with gil:
            raise MemoryError("not enough memory for the buffers of a kernel")
    buffer[0] = larger
    capacity[0] = size
    return 0
