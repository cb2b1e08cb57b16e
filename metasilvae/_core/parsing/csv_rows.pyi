import numpy as np
from numpy.typing import NDArray

USED_UP: int
FULL: int
MALFORMED: int
VALUE: int
LABEL: int
NOTE: int

def parse_rows(
    buffer: bytes | bytearray | memoryview | NDArray[np.uint8],
    start: int,
    stop: int,
    at_end: bool,
    delimiter: int,
    roles: NDArray[np.uint8],
    line: int,
    X: NDArray[np.float64],
    label_spans: NDArray[np.int64],
    line_of_row: NDArray[np.int64],
) -> tuple[int, int, int, int]: ...
