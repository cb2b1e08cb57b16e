import numpy as np
from numpy.typing import NDArray

NO_FAULT: int
MISSING: int
BAD_WORD: int
BAD_FEATURE: int
BAD_THRESHOLD: int
BAD_COUNT: int
BAD_SCORE: int
ZERO_LEAF: int
MIXED_LEAVES: int
NO_LEAVES_YET: int
COUNTS: int
SCORES: int

class Scanner:
    text: bytes
    line: int
    start: int
    end: int
    n_nodes: int
    n_leaves: int
    n_open: int
    n_read: int
    leaf_kind: int
    def __init__(self, text: bytes) -> None: ...
    def next_token(self) -> bytes: ...
    def skip_block(self, block: bytes, n_lines: int) -> bool: ...
    def read_tree(
        self,
        n_features: int,
        n_labels: int,
        nodes: NDArray[np.void],
        counts: NDArray[np.int64],
        scores: NDArray[np.float64],
    ) -> int: ...
