import numpy as np
from numpy.typing import NDArray

def find_conflicts(
    head_low: NDArray[np.float64],
    head_high: NDArray[np.float64],
    y: NDArray[np.int32],
    order: NDArray[np.int32],
    tail: NDArray[np.int32],
    low_center: NDArray[np.float64],
    high_center: NDArray[np.float64],
    radius_down: NDArray[np.float64],
    radius_up: NDArray[np.float64],
    minimum: NDArray[np.float64],
    maximum: NDArray[np.float64],
    members: NDArray[np.int32],
    group_starts: NDArray[np.int32],
    codes: NDArray[np.int32],
    n_options: NDArray[np.int32],
    ones: NDArray[np.uint64],
    allowed: NDArray[np.uint64],
    dropping: NDArray[np.uint8],
    window: int,
    options: NDArray[np.uint64],
    start: int,
    stop: int,
    pairs: NDArray[np.int32],
) -> tuple[int, int]: ...
def match_greedily(
    head_low: NDArray[np.float64],
    head_high: NDArray[np.float64],
    y: NDArray[np.int32],
    order: NDArray[np.int32],
    tail: NDArray[np.int32],
    low_center: NDArray[np.float64],
    high_center: NDArray[np.float64],
    radius_down: NDArray[np.float64],
    radius_up: NDArray[np.float64],
    minimum: NDArray[np.float64],
    maximum: NDArray[np.float64],
    members: NDArray[np.int32],
    group_starts: NDArray[np.int32],
    codes: NDArray[np.int32],
    n_options: NDArray[np.int32],
    ones: NDArray[np.uint64],
    allowed: NDArray[np.uint64],
    dropping: NDArray[np.uint8],
    window: int,
    options: NDArray[np.uint64],
    start: int,
    stop: int,
    is_matched: NDArray[np.uint8],
) -> int: ...
def fill_neighbours(pairs: NDArray[np.int32], starts: NDArray[np.int64], neighbours: NDArray[np.int32]) -> None: ...
def augment(
    starts: NDArray[np.int64],
    neighbours: NDArray[np.int32],
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    distance: NDArray[np.int32],
    queue: NDArray[np.int32],
    cursor: NDArray[np.int64],
) -> int: ...
def fill_cover(
    starts: NDArray[np.int64],
    neighbours: NDArray[np.int32],
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    queue: NDArray[np.int32],
    is_reached: NDArray[np.uint8],
    cover: NDArray[np.uint8],
) -> None: ...
def label_components(
    starts: NDArray[np.int64], neighbours: NDArray[np.int32], queue: NDArray[np.int32], component: NDArray[np.int32]
) -> int: ...
def pick_independent(
    starts: NDArray[np.int64],
    neighbours: NDArray[np.int32],
    candidates: NDArray[np.int64],
    is_taken: NDArray[np.uint8],
) -> None: ...
