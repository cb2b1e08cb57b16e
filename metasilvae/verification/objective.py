"""The objective of training (fitness, phi): a weighted sum of fractions of the training samples.

Every term of the C program's linear fitness depends on two bits of each sample: whether its prediction is correct and
whether it is stable. So the sum equals a constant plus a weighted sum of the fractions of correct, stable and robust
samples, which is the form that kernels take.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

from metasilvae._core.parsing.number_text import parse_number
from metasilvae.errors import RequestError


@dataclass(frozen=True)
class Fitness:
    """Weights of the fractions, by the names of the verdicts; exact training leaves no sample undecided."""

    correct: float = 0.0
    wrong: float = 0.0
    stable: float = 0.0
    unstable: float = 0.0
    no_info: float = 0.0
    robust: float = 0.0
    fragile: float = 0.0
    vulnerable: float = 0.0
    broken: float = 0.0

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, astuple(self))):
            raise RequestError("a weight of the fitness is not a finite number")
        if self.weights == (0, 0, 0):
            raise RequestError("with these weights all trees are equally fit; give a verdict a weight of its own")

    @property
    def by_verdict(self) -> dict[str, float]:
        """Contribution of one robust, fragile, vulnerable or broken sample."""
        return {
            "robust": self.correct + self.stable + self.robust,
            "fragile": self.correct + self.unstable + self.fragile,
            "vulnerable": self.wrong + self.stable + self.vulnerable,
            "broken": self.wrong + self.unstable + self.broken,
        }

    @property
    def constant(self) -> float:
        """Fitness of a tree on which no sample is correct or stable."""
        return self.by_verdict["broken"]

    @property
    def weights(self) -> tuple[float, float, float]:
        """Weights of the fractions of correct, stable and robust samples, beside the constant."""
        worth = self.by_verdict
        correct = worth["fragile"] - worth["broken"]
        stable = worth["vulnerable"] - worth["broken"]
        return correct, stable, worth["robust"] - worth["fragile"] - worth["vulnerable"] + worth["broken"]

    def value(self, correct: float, stable: float, robust: float) -> float:
        """Fitness for given fractions of correct, stable and robust samples."""
        of_correct, of_stable, of_robust = self.weights
        return self.constant + of_correct * correct + of_stable * stable + of_robust * robust


PAPER_FITNESS = Fitness(correct=0.9, stable=0.1)
# Friendly names of weights, beside those of the fields.
WEIGHT_NAMES = {
    "accuracy": "correct",
    "stability": "stable",
    "robust_accuracy": "robust",
    "robustness": "robust",
} | {field.name.replace("_", "-"): field.name for field in fields(Fitness)}
# Arguments of the C program's `--fitness linear`, in order.
LINEAR_WORDS = ("E", *(field.name.replace("_", "-").upper() for field in fields(Fitness)))


def parse_linear(words: Sequence[str]) -> tuple[float, Fitness]:
    """Epsilon and weights from the ten arguments of ``--fitness linear``."""
    numbers = [parse_number(word.encode(errors="surrogateescape")) for word in words]
    if None in numbers:
        raise RequestError(
            f"fitness 'linear {' '.join(words)}': {words[numbers.index(None)]!r} is not a number; write epsilon and "
            f"the weights of {', '.join(field.name.replace('_', '-') for field in fields(Fitness))}"
        )
    epsilon, *weights = (number for number in numbers if number is not None)
    return epsilon, Fitness(*weights)


def fitness_from_weights(weights: dict[str, float]) -> Fitness:
    """Fitness with the given weights, by `WEIGHT_NAMES`; all others are 0."""
    chosen: dict[str, float] = {}
    for name, weight in weights.items():
        if name not in WEIGHT_NAMES:
            raise RequestError(f"{name!r} has no weight; choose among {', '.join(WEIGHT_NAMES)}")
        if WEIGHT_NAMES[name] in chosen:
            raise RequestError(f"the weight of {name} is given twice")
        chosen[WEIGHT_NAMES[name]] = weight
    return Fitness(**chosen)
