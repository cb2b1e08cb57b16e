import numpy as np
from numpy.typing import NDArray

MOST_THRESHOLDS: int

def fill_codes(
    X: NDArray[np.float64],
    low_center: NDArray[np.float64],
    high_center: NDArray[np.float64],
    radius_down: NDArray[np.float64],
    radius_up: NDArray[np.float64],
    minimum: NDArray[np.float64],
    maximum: NDArray[np.float64],
    thresholds: NDArray[np.float64],
    threshold_starts: NDArray[np.int64],
    start: int,
    stop: int,
    own_codes: NDArray[np.uint8],
    low_codes: NDArray[np.uint8],
    high_codes: NDArray[np.uint8],
) -> None: ...
def order_nodes(
    node_features: NDArray[np.int32],
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    order: NDArray[np.int32],
    places: NDArray[np.int32],
) -> int: ...
def order_levels(
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    is_leaf: NDArray[np.uint8],
    order: NDArray[np.int32],
) -> int: ...
def number_leaves(
    node_features: NDArray[np.int32],
    right: NDArray[np.int32],
    first: NDArray[np.int32],
    last: NDArray[np.int32],
) -> None: ...
def add_tree(
    own_codes: NDArray[np.uint8],
    low_codes: NDArray[np.uint8],
    high_codes: NDArray[np.uint8],
    node_features: NDArray[np.int32],
    node_codes: NDArray[np.int32],
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    values: NDArray[np.float64],
    waiting: NDArray[np.int32],
    start: int,
    stop: int,
    own: NDArray[np.float64],
    lowest: NDArray[np.float64],
    highest: NDArray[np.float64],
) -> None: ...
def reach_leaves(
    own_codes: NDArray[np.uint8],
    low_codes: NDArray[np.uint8],
    high_codes: NDArray[np.uint8],
    node_features: NDArray[np.int32],
    node_codes: NDArray[np.int32],
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    numbers: NDArray[np.int32],
    waiting: NDArray[np.int32],
    own_leaves: NDArray[np.int32],
    starts: NDArray[np.int64],
    reached: NDArray[np.int32],
) -> int: ...
