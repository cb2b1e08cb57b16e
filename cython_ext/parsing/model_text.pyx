"""Tokens and nodes of silva's text format, without recursion.

A `Scanner` reads the bytes of a file once. It stops at the first fault and keeps its position, the offending token and
what was being read. The error message, and the meaning of headers and labels, are left to
metasilvae.formats.silva_models.
"""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcmp

from common.node cimport Node
from parsing.number_text cimport read_number

cdef int64_t LARGEST_COUNT = <int64_t> 1 << 53    # counts stay exact when they become float64

cpdef enum:     # what is wrong
    NO_FAULT
    MISSING     # the file ends
    BAD_WORD
    BAD_FEATURE
    BAD_THRESHOLD
    BAD_COUNT
    BAD_SCORE
    ZERO_LEAF
    MIXED_LEAVES

cpdef enum:     # kind of leaves
    NO_LEAVES_YET
    COUNTS
    SCORES


cdef inline bint is_space(char c) noexcept nogil:
    return c == 32 or 9 <= c <= 13


cdef inline int64_t parse_whole(const char* token, Py_ssize_t length) noexcept nogil:
    """A non-negative whole number of digits only, at most LARGEST_COUNT; -1 for anything else."""
    cdef int64_t number = 0
    cdef Py_ssize_t i
    if length == 0:
        return -1
    for i in range(length):
        if token[i] < 48 or token[i] > 57:
            return -1
        number = 10 * number + (token[i] - 48)
        if number > LARGEST_COUNT:
            return -1
    return number


cdef inline bint parse_real(const char* token, Py_ssize_t length, double* number) noexcept nogil:
    """Whether the whole token is a finite decimal number; white space or NUL must follow."""
    return read_number(<const unsigned char*> token, number) == <const unsigned char*> token + length


cdef class Scanner:
    """A walk over the tokens of a model file.

    Attributes
    ----------
    line : int
        Line of the last token, from 1.
    start, end : int
        Place of the last token in the text; equal if there was none left.
    n_nodes, n_leaves : int
        Nodes and leaves stored so far.
    leaf_kind : int
        NO_LEAVES_YET, COUNTS or SCORES.
    n_open : int
        Splits of the present tree whose right child has not begun.
    n_read : int
        Values of the present leaf that were read.
    """

    cdef readonly bytes text
    cdef readonly Py_ssize_t line, start, end, n_nodes, n_leaves, n_open, n_read
    cdef readonly int leaf_kind
    cdef const char* data
    cdef Py_ssize_t size

    def __cinit__(self, bytes text not None):
        self.text = text
        self.data = text
        self.size = len(text)
        self.line = 1

    cdef bint advance(self) noexcept:
        """Go to the next token; whether there is one."""
        cdef Py_ssize_t i = self.end
        cdef Py_ssize_t line = self.line
        while i < self.size and is_space(self.data[i]):
            if self.data[i] == 10:
                line += 1
            i += 1
        self.start = i
        if i < self.size:
            self.line = line
            while i < self.size and not is_space(self.data[i]):
                i += 1
        self.end = i
        return i > self.start

    def next_token(self):
        """The next token as bytes; empty at the end of the file."""
        self.advance()
        return self.text[self.start:self.end]

    def skip_block(self, bytes block not None, Py_ssize_t n_lines):
        """Step over the given tokens if they follow as they are, white space included; whether they do.

        `block` begins and ends with a token and contains `n_lines` line ends.
        """
        cdef Py_ssize_t line = self.line
        cdef Py_ssize_t end = self.end
        if not self.advance():
            return False
        if (not self.text.startswith(block, self.start)
                or (self.start + len(block) < self.size and not is_space(self.data[self.start + len(block)]))):
            self.line = line
            self.end = end
            return False
        self.end = self.start + len(block)
        self.line += n_lines
        return True

    cdef bint is_word(self, const char* word, Py_ssize_t length) noexcept:
        return self.end - self.start == length and memcmp(self.data + self.start, word, length) == 0

    def read_tree(self, Py_ssize_t n_features, Py_ssize_t n_labels, Node[::1] nodes, int64_t[::1] counts,
                  double[::1] scores):
        """Read the nodes of one tree and append them; return NO_FAULT or what is wrong.

        Parameters
        ----------
        nodes : output for all nodes of the file
        counts, scores : outputs for the values of all leaves of the file, row by row; only the one for the kind of
            leaves is filled, so both may be views of the same memory
        """
        cdef int fault
        cdef Py_ssize_t here
        # Splits that wait for their right child are linked through `right`, innermost first.
        cdef Py_ssize_t waiting = -1
        cdef Py_ssize_t parent
        cdef int64_t feature
        cdef double threshold
        self.n_open = 0
        while True:
            if not self.advance():
                return MISSING
            here = self.n_nodes
            if self.is_word(b"SPLIT", 5):
                if not self.advance():
                    return MISSING
                feature = parse_whole(self.data + self.start, self.end - self.start)
                if feature < 0 or feature >= n_features:
                    return BAD_FEATURE
                if not self.advance():
                    return MISSING
                nodes[here].feature = <int32_t> feature
                if not parse_real(self.data + self.start, self.end - self.start, &threshold):
                    return BAD_THRESHOLD
                nodes[here].threshold = threshold
                nodes[here].leaf = -1
                nodes[here].left = <int32_t> here + 1
                nodes[here].right = <int32_t> waiting
                waiting = here
                self.n_open += 1
                self.n_nodes += 1
                continue
            if self.is_word(b"LEAF", 4):
                fault = self.read_counts(n_labels, counts)
            elif self.is_word(b"LEAF_LOGARITHMIC", 16):
                fault = self.read_scores(n_labels, scores)
            else:
                return BAD_WORD
            if fault != NO_FAULT:
                return fault
            nodes[here].feature = -1
            nodes[here].threshold = 0.0
            nodes[here].left = nodes[here].right = -1
            nodes[here].leaf = <int32_t> self.n_leaves
            self.n_leaves += 1
            self.n_nodes += 1
            if waiting < 0:
                return NO_FAULT
            parent = waiting
            waiting = nodes[parent].right
            nodes[parent].right = <int32_t> self.n_nodes
            self.n_open -= 1

    cdef int read_counts(self, Py_ssize_t n_labels, int64_t[::1] counts) except -1:
        cdef Py_ssize_t first = self.n_leaves * n_labels
        cdef int64_t count
        cdef bint is_zero = True
        if self.leaf_kind == SCORES:
            return MIXED_LEAVES
        self.leaf_kind = COUNTS
        for self.n_read in range(n_labels):
            if not self.advance():
                return MISSING
            count = parse_whole(self.data + self.start, self.end - self.start)
            if count < 0:
                return BAD_COUNT
            is_zero = is_zero and count == 0
            counts[first + self.n_read] = count
        return ZERO_LEAF if is_zero else NO_FAULT

    cdef int read_scores(self, Py_ssize_t n_labels, double[::1] scores) except -1:
        cdef Py_ssize_t first = self.n_leaves * n_labels
        if self.leaf_kind == COUNTS:
            return MIXED_LEAVES
        self.leaf_kind = SCORES
        for self.n_read in range(n_labels):
            if not self.advance():
                return MISSING
            if not parse_real(self.data + self.start, self.end - self.start, &scores[first + self.n_read]):
                return BAD_SCORE
        return NO_FAULT
