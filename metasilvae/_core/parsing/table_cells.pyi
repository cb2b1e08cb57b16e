from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

USED_UP: int
FULL: int
MALFORMED: int

def split_records(
    buffer: bytes | bytearray | memoryview | NDArray[np.uint8],
    start: int,
    stop: int,
    at_end: bool,
    delimiter: int,
    line: int,
    spans: NDArray[np.int64],
    line_of_row: NDArray[np.int64],
) -> tuple[int, int, int, int, int]: ...
def encode_cells(
    buffer: bytes | bytearray | memoryview | NDArray[np.uint8],
    spans: NDArray[np.int64],
    codes: dict[bytes, int],
    add: Callable[[bytes, int], int],
    numbers_first: bool,
    found: NDArray[np.int32],
    values: NDArray[np.float64],
) -> None: ...
