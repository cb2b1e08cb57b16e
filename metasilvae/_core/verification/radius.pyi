import numpy as np
from numpy.typing import NDArray

def fill_breaking_radii(
    nodes: NDArray[np.void],
    leaf_predictions: NDArray[np.int32],
    max_depth: int,
    X: NDArray[np.float64],
    weight_down: NDArray[np.float64],
    weight_up: NDArray[np.float64],
    minimum: NDArray[np.float64],
    maximum: NDArray[np.float64],
    is_whole: NDArray[np.uint8],
    members: NDArray[np.int32],
    group_starts: NDArray[np.int32],
    group_of: NDArray[np.int32],
    droppable: NDArray[np.uint8],
    expected: NDArray[np.int32],
    start: int,
    stop: int,
    radii: NDArray[np.float64],
) -> None: ...
def fill_critical_radii(
    thresholds: NDArray[np.float64],
    features: NDArray[np.int32],
    X: NDArray[np.float64],
    weight_down: NDArray[np.float64],
    weight_up: NDArray[np.float64],
    minimum: NDArray[np.float64],
    maximum: NDArray[np.float64],
    is_whole: NDArray[np.uint8],
    row: int,
    radii: NDArray[np.float64],
) -> None: ...
def find_radius_of_leaves(
    nodes: NDArray[np.void],
    parents: NDArray[np.int32],
    leaf_nodes: NDArray[np.int32],
    leaves: NDArray[np.int32],
    X: NDArray[np.float64],
    weight_down: NDArray[np.float64],
    weight_up: NDArray[np.float64],
    minimum: NDArray[np.float64],
    maximum: NDArray[np.float64],
    is_whole: NDArray[np.uint8],
    row: int,
) -> float: ...
def fill_member_radii(
    members: NDArray[np.int32],
    X: NDArray[np.float64],
    weight_down: NDArray[np.float64],
    weight_up: NDArray[np.float64],
    minimum: NDArray[np.float64],
    maximum: NDArray[np.float64],
    row: int,
    radii: NDArray[np.float64],
) -> None: ...
