"""Logs and tables of studies, as `train` writes them."""

from __future__ import annotations

import json

INITIAL = "initial population"


def step(seed: int = 1, phase: str = INITIAL, seconds: float = 0.1, leaves: int = 3, **others: object) -> str:
    figures = {"fitness": 0.9 + seconds / 100, "accuracy": 0.95, "stability": 0.8, "leaves": leaves}
    return json.dumps({"seed": seed, "phase": phase, "seconds": seconds, **figures, **others}) + "\n"


LOG = "".join(
    step(seed, phase, seconds, leaves)
    for seed in (1, 2)
    for seconds, (phase, leaves) in enumerate([(INITIAL, 3), (INITIAL, 4), ("generation", 5), ("local search", 4)], 1)
)


TABLE = "set,seed,w_acc,accuracy,stability,phi,leaves\n" + "".join(
    f"{name},{seed},{weight},{0.5 + 0.4 * weight + 0.01 * seed},{0.9 - 0.3 * weight},0.7,{3 + seed}\n"
    for name in ("wine", "iris")
    for weight in (0.9, 0.1, 0.5)
    for seed in (1, 2, 3)
)
