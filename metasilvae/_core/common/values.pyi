import numpy as np
from numpy.typing import NDArray

MIN_COLUMNS: int
BATCH_VALUES: int

def rank_values(
    matrix: NDArray[np.float64],
) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int64]]: ...
def rank_boxes(
    matrix: NDArray[np.float64], lower: NDArray[np.float64], upper: NDArray[np.float64]
) -> (
    tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]] | None
): ...
def find_narrow(columns: NDArray[np.float64], n_places: int, narrow: NDArray[np.uint8]) -> None: ...
def rank_columns(
    columns: NDArray[np.float64],
    counted: NDArray[np.uint8],
    order: NDArray[np.int64],
    buffer: NDArray[np.int32],
    ranks: NDArray[np.int32],
    distinct: NDArray[np.float64],
    lengths: NDArray[np.int64],
) -> int: ...
def hash_rows(X: NDArray[np.float64], hashes: NDArray[np.uint64]) -> None: ...
