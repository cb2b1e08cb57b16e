import numpy as np
from numpy.typing import NDArray

def fill_depths(nodes: NDArray[np.void], roots: NDArray[np.int32], depths: NDArray[np.int32]) -> None: ...
def drop_contradictions(
    nodes: NDArray[np.void],
    roots: NDArray[np.int32],
    n_features: int,
    kept: NDArray[np.void],
    kept_roots: NDArray[np.int32],
) -> int: ...
