import numpy as np
from numpy.typing import NDArray

def fill_depths(nodes: NDArray[np.void], roots: NDArray[np.int32], depths: NDArray[np.int32]) -> None: ...
def drop_contradictions(
    nodes: NDArray[np.void],
    roots: NDArray[np.int32],
    may_be_missing: NDArray[np.uint8],
    marks_missing: bool,
    kept: NDArray[np.void],
    kept_roots: NDArray[np.int32],
) -> tuple[int, int]: ...
