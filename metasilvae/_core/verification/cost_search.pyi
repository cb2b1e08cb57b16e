from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

class CostSearch:
    n_steps: int
    point: NDArray[np.int32]
    def __init__(
        self,
        nodes: NDArray[np.void],
        roots: NDArray[np.int32],
        max_depth: int,
        threshold_starts: NDArray[np.int32],
        node_cuts: NDArray[np.int32],
        scores: NDArray[np.int64],
        slack: int,
        members: NDArray[np.int32],
        group_starts: NDArray[np.int32],
        codes: NDArray[np.int32],
        n_options: NDArray[np.int32],
        ones: NDArray[np.uint64],
        is_table: NDArray[np.uint8],
        zero_cells: NDArray[np.int32],
        one_cells: NDArray[np.int32],
        is_sum: bool,
        is_exact: bool,
        is_affordable: Callable[[NDArray[np.int32]], bool],
    ) -> None: ...
    def set_row(
        self,
        costs: NDArray[np.float64],
        home: NDArray[np.int32],
        is_free: NDArray[np.uint8],
        option_costs: NDArray[np.float64],
        limit: float,
    ) -> None: ...
    def begin(self, conditions: NDArray[np.int32]) -> None: ...
    def lower_limit(self, limit: float) -> None: ...
    def advance(self, max_steps: int) -> int: ...
    def discard(self) -> None: ...
    def divide(self, condition: int) -> None: ...
    def leaves(self, leaves: NDArray[np.int32]) -> None: ...
    def least_open_cost(self) -> float: ...
