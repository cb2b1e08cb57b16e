"""What a tree is trained for: a weighted sum of shares of the training samples.

Every share of the C program's linear fitness depends on two bits of each sample, whether its answer is correct and
whether it is stable. So the sum is the same as one of a constant and the shares of correct, stable and robust samples,
which is the form that the kernels take.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from metasilvae.errors import RequestError


@dataclass(frozen=True)
class Fitness:
    """Weights of the shares, by the names of the verdicts; exact training leaves no sample without information."""

    correct: float = 0.0
    wrong: float = 0.0
    stable: float = 0.0
    unstable: float = 0.0
    no_info: float = 0.0
    robust: float = 0.0
    fragile: float = 0.0
    vulnerable: float = 0.0
    broken: float = 0.0

    @property
    def by_verdict(self) -> dict[str, float]:
        """What one robust, fragile, vulnerable or broken sample is worth."""
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
        """Weights of the shares of correct, stable and robust samples, beside the constant."""
        worth = self.by_verdict
        correct = worth["fragile"] - worth["broken"]
        stable = worth["vulnerable"] - worth["broken"]
        return correct, stable, worth["robust"] - worth["fragile"] - worth["vulnerable"] + worth["broken"]

    def value(self, correct: float, stable: float, robust: float) -> float:
        """Fitness for given shares of correct, stable and robust samples."""
        of_correct, of_stable, of_robust = self.weights
        return self.constant + of_correct * correct + of_stable * stable + of_robust * robust


PAPER_FITNESS = Fitness(correct=0.9, stable=0.1)
# Friendly names of weights, beside those of the fields.
WEIGHT_NAMES = {"accuracy": "correct", "stability": "stable", "robustness": "robust"} | {
    field.name: field.name for field in fields(Fitness)
}


def fitness_from_weights(weights: dict[str, float]) -> Fitness:
    """Fitness with the given weights, by friendly or exact names; all others are 0."""
    chosen: dict[str, float] = {}
    for name, weight in weights.items():
        if name not in WEIGHT_NAMES:
            raise RequestError(f"'{name}' has no weight; choose among {', '.join(WEIGHT_NAMES)}")
        if WEIGHT_NAMES[name] in chosen:
            raise RequestError(f"the weight of '{name}' is given twice")
        chosen[WEIGHT_NAMES[name]] = weight
    return Fitness(**chosen)
