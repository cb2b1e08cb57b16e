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
    int32_t leaf        # row of the leaf in the model's table of leaves; in an inner node a MissingDirection

cdef enum MissingDirection:
    # Where a split sends samples whose value is missing, a NaN. Python's names are in metasilvae.model.
    NO_DIRECTION = -1
    MISSING_LEFT = -2
    MISSING_RIGHT = -3


cdef inline bint goes_left(double value, double threshold) noexcept nogil:
    """A sample with a value goes to the left child."""
    return value <= threshold


cdef inline bint is_missing(double value) noexcept nogil:
    return value != value


cdef inline bint missing_goes_left(const Node* node) noexcept nogil:
    """A sample without a value goes to the left child."""
    return node.leaf == MISSING_LEFT


cdef inline int32_t default_child(const Node* node) noexcept nogil:
    """The child of samples without a value."""
    return node.left if missing_goes_left(node) else node.right


cdef inline int32_t child(const Node* node, bint is_left) noexcept nogil:
    """The left or the right child, without a branch: the processor cannot predict which one it is."""
    return node.right ^ ((node.left ^ node.right) & -<int32_t> is_left)


# The bounds of a feature that is or may be missing are NaN, and both of these hold for NaN: a walk pays for missing
# values only where it would go both ways.


cdef inline bint reaches_left(double lower, double threshold) noexcept nogil:
    """Some value of an interval that starts at `lower` goes to the left child; True for NaN."""
    return not lower > threshold


cdef inline bint reaches_right(double upper, double threshold) noexcept nogil:
    """Some value of an interval that ends at `upper` goes to the right child; True for NaN."""
    return not upper <= threshold
