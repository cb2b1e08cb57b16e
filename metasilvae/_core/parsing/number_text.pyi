import numpy as np
from numpy.typing import NDArray

LONGEST_CELL: int
LONGEST_ENTRY: int

def parse_number(token: bytes) -> float | None: ...
def write_csv_rows(
    X: NDArray[np.float64], y: NDArray[np.int32], labels: list[bytes], text: bytearray | NDArray[np.uint8]
) -> int: ...
def write_libsvm_rows(
    X: NDArray[np.float64],
    y: NDArray[np.int32],
    labels: list[bytes],
    base: int,
    always: NDArray[np.uint8],
    text: bytearray | NDArray[np.uint8],
) -> int: ...
