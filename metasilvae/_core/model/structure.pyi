import numpy as np
from numpy.typing import NDArray

def fill_depths(nodes: NDArray[np.void], roots: NDArray[np.int32], depths: NDArray[np.int32]) -> None: ...
def number_thresholds(
    nodes: NDArray[np.void],
    thresholds: NDArray[np.float64],
    starts: NDArray[np.int32],
    numbers: NDArray[np.int32],
) -> int: ...
def drop_contradictions(
    nodes: NDArray[np.void],
    roots: NDArray[np.int32],
    may_be_missing: NDArray[np.uint8],
    marks_missing: bool,
    kept: NDArray[np.void],
    kept_roots: NDArray[np.int32],
) -> tuple[int, int]: ...
