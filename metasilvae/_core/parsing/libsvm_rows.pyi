import numpy as np
from numpy.typing import NDArray

USED_UP: int
FULL: int
MALFORMED: int
LARGEST_INDEX: int

def parse_lines(
    buffer: bytes | bytearray | memoryview | NDArray[np.uint8],
    start: int,
    stop: int,
    at_end: bool,
    line: int,
    indices: NDArray[np.int32],
    values: NDArray[np.float64],
    row_sizes: NDArray[np.int64],
    label_spans: NDArray[np.int64],
    line_of_row: NDArray[np.int64],
) -> tuple[int, int, int, int, int]: ...
def scatter(
    indices: NDArray[np.int32],
    values: NDArray[np.float64],
    row_sizes: NDArray[np.int64],
    base: int,
    X: NDArray[np.float64],
) -> None: ...
