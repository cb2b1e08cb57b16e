from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Referee = Callable[[int, int, bool, list[list[int]]], Sequence[int] | None]

class ForestSearch:
    n_steps: int
    def __init__(
        self,
        nodes: NDArray[np.void],
        roots: NDArray[np.int32],
        max_depth: int,
        thresholds: NDArray[np.float64],
        threshold_starts: NDArray[np.int32],
        node_cuts: NDArray[np.int32],
        scores: NDArray[np.int64],
        error: int,
        members: NDArray[np.int32],
        group_starts: NDArray[np.int32],
        codes: NDArray[np.int32],
        n_options: NDArray[np.int32],
        ones: NDArray[np.uint64],
        allowed: NDArray[np.uint64],
        low_center: NDArray[np.float64],
        high_center: NDArray[np.float64],
        radius_down: NDArray[np.float64],
        radius_up: NDArray[np.float64],
        minimum: NDArray[np.float64],
        maximum: NDArray[np.float64],
        droppable: NDArray[np.uint8],
        has_missing: bool,
        predictions: NDArray[np.int32],
        is_member: NDArray[np.uint8],
        referee: Referee,
        steps_before_local: int,
        steps_before_division: int,
    ) -> None: ...
    def decide(
        self, first: int, last: int, max_steps: int, found: NDArray[np.uint8], leaves: NDArray[np.int32]
    ) -> None: ...
    def begin(self, row: int) -> None: ...
    def advance(self, max_steps: int) -> int: ...
    def witness(self, leaves: NDArray[np.int32]) -> None: ...
