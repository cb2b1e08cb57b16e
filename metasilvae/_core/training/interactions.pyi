import numpy as np
from numpy.typing import NDArray

def sum_products(
    left_negative: NDArray[np.uint64],
    left_present: NDArray[np.uint64],
    right_negative: NDArray[np.uint64],
    right_present: NDArray[np.uint64],
    members: NDArray[np.uint64],
    sums: NDArray[np.int64],
) -> None: ...
