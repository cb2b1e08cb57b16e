import numpy as np
from numpy.typing import NDArray

def fill_leaves(
    nodes: NDArray[np.void],
    roots: NDArray[np.int32],
    X: NDArray[np.float64],
    has_missing: bool,
    start: int,
    stop: int,
    leaves: NDArray[np.int32],
) -> None: ...
