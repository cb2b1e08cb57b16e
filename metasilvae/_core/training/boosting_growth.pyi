import numpy as np
from numpy.typing import NDArray

def find_splits(
    own_codes: NDArray[np.uint8],
    low_codes: NDArray[np.uint8],
    high_codes: NDArray[np.uint8],
    n_thresholds: NDArray[np.int32],
    features: NDArray[np.int32],
    start: int,
    stop: int,
    own_rows: NDArray[np.int32],
    own_starts: NDArray[np.int64],
    own_gradient: NDArray[np.int32],
    own_hessian: NDArray[np.int32],
    pair_rows: NDArray[np.int32],
    segments: NDArray[np.int64],
    pair_gradient: NDArray[np.int32],
    pair_hessian: NDArray[np.int32],
    penalty: float,
    min_samples: int,
    gains: NDArray[np.float64],
    chosen: NDArray[np.int32],
    sums: NDArray[np.int64],
) -> None: ...

class Growth:
    def __init__(
        self,
        own_codes: NDArray[np.uint8],
        low_codes: NDArray[np.uint8],
        high_codes: NDArray[np.uint8],
        n_thresholds: NDArray[np.int32],
        own_gradient: NDArray[np.int32],
        own_hessian: NDArray[np.int32],
        gradient: NDArray[np.int32],
        hessian: NDArray[np.int32],
        is_positive: NDArray[np.uint8],
        rows: NDArray[np.int32],
        penalty: float,
        min_samples: int,
        fraction: float,
        most_pairs: int,
    ) -> None: ...
    @property
    def n_open(self) -> int: ...
    def begin_level(self, features: NDArray[np.int32]) -> None: ...
    def find_splits(self, start: int, stop: int) -> None: ...
    def end_level(self) -> None: ...
    def finish(
        self, n_refits: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]: ...
