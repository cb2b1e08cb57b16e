import numpy as np
from numpy.typing import NDArray

def find_differences(
    first_nodes: NDArray[np.void],
    first_root: int,
    first_classes: NDArray[np.int32],
    second_nodes: NDArray[np.void],
    second_root: int,
    second_classes: NDArray[np.int32],
    depth: int,
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    may_be_missing: NDArray[np.uint8],
    members: NDArray[np.int32],
    group_starts: NDArray[np.int32],
    codes: NDArray[np.int32],
    n_options: NDArray[np.int32],
    ones: NDArray[np.uint64],
    allowed: NDArray[np.uint64],
    leaves: NDArray[np.int32],
    lowers: NDArray[np.float64],
    uppers: NDArray[np.float64],
) -> int: ...
def drop_needless_tests(
    nodes: NDArray[np.void],
    parents: NDArray[np.int32],
    classes: NDArray[np.int32],
    depth: int,
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    may_be_missing: NDArray[np.uint8],
    members: NDArray[np.int32],
    group_starts: NDArray[np.int32],
    codes: NDArray[np.int32],
    n_options: NDArray[np.int32],
    ones: NDArray[np.uint64],
    allowed: NDArray[np.uint64],
    sizes: NDArray[np.int32],
    absorbed: NDArray[np.int32],
) -> int: ...

class DifferenceSearch:
    box: NDArray[np.float64]
    n_steps: int
    done: float
    def __init__(
        self,
        nodes: NDArray[np.void],
        roots: NDArray[np.int32],
        n_first: int,
        max_depth: int,
        is_shared: NDArray[np.uint8],
        scores: NDArray[np.int64],
        is_known: NDArray[np.uint8],
        slack: NDArray[np.int64],
        lower: NDArray[np.float64],
        upper: NDArray[np.float64],
        may_be_missing: NDArray[np.uint8],
        members: NDArray[np.int32],
        group_starts: NDArray[np.int32],
        codes: NDArray[np.int32],
        n_options: NDArray[np.int32],
        ones: NDArray[np.uint64],
        allowed: NDArray[np.uint64],
    ) -> None: ...
    def advance(self, max_steps: int) -> int: ...
