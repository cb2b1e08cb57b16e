from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Bytes = bytes | bytearray | memoryview | NDArray[np.uint8]

def next_line(buffer: Bytes, start: int, stop: int, at_end: bool) -> tuple[int, int]: ...
def encode_labels(
    buffer: Bytes,
    spans: NDArray[np.int64],
    codes: dict[bytes, int],
    add: Callable[[bytes, int], int],
    y: NDArray[np.int32],
) -> None: ...
