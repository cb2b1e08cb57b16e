import numpy as np
from numpy.typing import NDArray

def group_rows(
    starts: NDArray[np.int64],
    reached: NDArray[np.int32],
    leaf_starts: NDArray[np.int64],
    leaf_rows: NDArray[np.int32],
) -> None: ...
def polish_tree(
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    first_leaf: NDArray[np.int32],
    last_leaf: NDArray[np.int32],
    starts: NDArray[np.int64],
    reached: NDArray[np.int32],
    leaf_starts: NDArray[np.int64],
    leaf_rows: NDArray[np.int32],
    own_gradient: NDArray[np.float64],
    own_hessian: NDArray[np.float64],
    sign: NDArray[np.float64],
    gradient: NDArray[np.int32],
    hessian: NDArray[np.int32],
    penalty: float,
    prunes: bool,
    n_passes: int,
    values: NDArray[np.float64],
    is_leaf: NDArray[np.uint8],
) -> None: ...
