import numpy as np
from numpy.typing import NDArray

def join_copies(
    nodes: NDArray[np.void],
    root: int,
    copies: NDArray[np.int32],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    may_be_missing: NDArray[np.uint8],
    max_leaves: int,
) -> tuple[NDArray[np.void], NDArray[np.int32]] | tuple[None, None]: ...

class PairSearch:
    n_steps: int
    done: float
    def __init__(
        self,
        nodes: NDArray[np.void],
        roots: NDArray[np.int32],
        max_depth: int,
        leaf_values: NDArray[np.int64],
        least: NDArray[np.int64],
        is_exact: bool,
        lower: NDArray[np.float64],
        upper: NDArray[np.float64],
        may_be_missing: NDArray[np.uint8],
        orders: NDArray[np.int32],
        members: NDArray[np.int32],
        group_starts: NDArray[np.int32],
        codes: NDArray[np.int32],
        n_options: NDArray[np.int32],
        ones: NDArray[np.uint64],
        allowed: NDArray[np.uint64],
    ) -> None: ...
    @property
    def box(self) -> NDArray[np.float64]: ...
    def advance(self, max_steps: int) -> int: ...
