# One node of a decision tree, and the only place that decides which way a value or an interval goes.
#
# Trees are stored in pre-order in one array of these records; metasilvae.model.NODE_DTYPE is the same record for
# numpy (tests/test_model.py proves that they agree).

from libc.stdint cimport int32_t

cdef packed struct Node:
    double threshold
    int32_t feature     # < 0 marks a leaf
    int32_t left        # position in the array of nodes
    int32_t right
    int32_t leaf        # row of the leaf in the model's table of leaves, -1 in an inner node


cdef inline bint goes_left(double value, double threshold) noexcept nogil:
    """A sample goes to the left child."""
    return value <= threshold


cdef inline int32_t child(const Node* node, bint is_left) noexcept nogil:
    """The left or the right child, without a branch: the processor cannot predict which one it is."""
    return node.right ^ ((node.left ^ node.right) & -<int32_t> is_left)


cdef inline bint reaches_left(double lower, double threshold) noexcept nogil:
    """Some value of an interval that starts at `lower` goes to the left child."""
    return lower <= threshold


cdef inline bint reaches_right(double upper, double threshold) noexcept nogil:
    """Some value of an interval that ends at `upper` goes to the right child."""
    return upper > threshold
