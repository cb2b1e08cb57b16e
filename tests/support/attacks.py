"""Random attack files, and what they allow spelled out point by point."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.model import Model
from metasilvae.perturbations.attack import Attack, fit_attack
from metasilvae.perturbations.attack_files import parse_attack
from support.oracles import LARGEST

KINDS = ("default", "radius", "asymmetric", "immutable", "bounded", "integer", "values", "one-sided values", "free")


@dataclass(frozen=True)
class Column:
    """What may become of one column, in the plainest words."""

    kind: str
    text: str
    down: float = 0.0
    up: float = 0.0
    low: float = -math.inf
    high: float = math.inf
    values: tuple[float, ...] | None = None

    def choices(self, x: float, thresholds: Sequence[float]) -> list[float]:
        """Values such that every allowed one goes the same way as one of them at all thresholds."""
        if self.values is not None:
            candidates = list(self.values)
        elif self.kind == "integer":
            candidates = [x + step for step in range(-40, 41)]
        else:
            candidates = [x, x - self.down, x + self.up, self.low, self.high, -LARGEST, LARGEST]
            candidates += [*thresholds, *(math.nextafter(k, math.inf) for k in thresholds)]
        # In float64 x - down may be a little off; that number is where the box ends.
        down, up = (float(np.floor(each)) if self.kind == "integer" else each for each in (self.down, self.up))
        low, high = max(x - down, self.low, -LARGEST), min(x + up, self.high, LARGEST)
        return sorted({v + 0.0 for v in candidates if low <= v <= high})


@dataclass(frozen=True)
class Case:
    """Columns, one-hot groups, and samples that obey them."""

    columns: list[Column]
    groups: list[list[int]]
    dataset: Dataset
    text: str

    @property
    def attack(self) -> Attack:
        return fit_attack(parse_attack(self.text.encode(), "attack.toml"), self.dataset)

    def times(self, factor: float) -> Case:
        """The same rules with all radii multiplied; 0 times anything is 0. The text is not changed."""

        def multiply(radius: float) -> float:
            return factor * radius if factor > 0 else 0.0

        columns = [replace(column, down=multiply(column.down), up=multiply(column.up)) for column in self.columns]
        # Members of groups have an endless radius.
        return replace(self, columns=columns, groups=self.groups if factor > 0 else [])

    def points(self, row: int, model: Model) -> Iterator[tuple[float, ...]]:
        """Representatives of all that may become of a row."""
        x = self.dataset.X[row].tolist()
        inner = model.nodes[model.nodes["feature"] >= 0]
        members = set(itertools.chain(*self.groups))
        choices = [
            [0.0]
            if f in members
            else column.choices(x[f], inner["threshold"][inner["feature"] == f].tolist())
            for f, column in enumerate(self.columns)
        ]  # fmt: skip
        for point in itertools.product(*choices):
            for ones in itertools.product(*self.groups):
                yield tuple(1.0 if f in ones else value for f, value in enumerate(point))


def random_case(rng: random.Random, n_features: int, n_samples: int, n_labels: int = 2) -> Case:
    columns = [_random_column(rng, f) for f in range(n_features)]
    free = [f for f, column in enumerate(columns) if column.kind in ("default", "free")]
    groups = [free] if len(free) > 1 and rng.random() < 0.5 else []
    for f in itertools.chain(*groups):
        columns[f] = Column("member", "")
    X = np.array([_random_sample(rng, columns, groups) for _ in range(n_samples)])
    y = np.array([rng.randrange(n_labels) for _ in range(n_samples)], dtype=np.int32)
    labels = tuple(chr(ord("a") + label) for label in range(n_labels))
    names = tuple(f"c{f}" for f in range(n_features))
    sections = ["[default]", "radius = 0.5", "[columns]"]
    sections += [f"c{f} = {{ {column.text} }}" for f, column in enumerate(columns) if column.text]
    sections += [f"[[one-hot]]\ncolumns = {[names[f] for f in group]}" for group in groups]
    return Case(columns, groups, Dataset(X, y, labels, names, "data.csv"), "\n".join(sections) + "\n")


def _random_column(rng: random.Random, feature: int) -> Column:
    kind = rng.choice(KINDS)
    down, up = (rng.choice([0.0, 0.25, 0.5, 1.0, 1.5, 2.9]) for _ in range(2))
    low, high = float(rng.randint(-4, 0)), float(rng.randint(1, 4))
    values = tuple(sorted(rng.sample([-3.0, -1.0, -0.5, 0.0, 0.25, 1.0, 2.0, 3.0], rng.randint(1, 5))))
    listed = ", ".join(map(str, rng.sample(values, len(values))))
    match kind:
        case "default":
            return Column(kind, "", 0.5, 0.5)
        case "radius":
            return Column(kind, f"radius = {up}", up, up)
        case "asymmetric":
            text, down = rng.choice([(f"up = {up}", 0.0), (f"down = {down}, up = {up}", down)])
            return Column(kind, text, down, up)
        case "immutable":
            return Column(kind, "immutable = true")
        case "bounded":
            text = f"up = {up}, down = {down}, min = {low}, max = {high}"
            return Column(kind, text, down, up, low, high)
        case "integer":
            low, high = rng.choice([(low - 0.5, high + 0.5), (-math.inf, math.inf)])
            limits = f", min = {low}, max = {high}" if math.isfinite(low) else ""
            return Column(kind, f"integer = true, down = {down}, up = {up}{limits}", down, up, low, high)
        case "values":
            return Column(kind, f"values = [{listed}]", math.inf, math.inf, values=values)
        case "one-sided values":
            return Column(kind, f"values = [{listed}], down = 0", 0.0, math.inf, values=values)
        case _:
            return Column(kind, "radius = inf", math.inf, math.inf)


def _random_sample(rng: random.Random, columns: Sequence[Column], groups: Sequence[Sequence[int]]) -> list[float]:
    ones = {rng.choice(group) for group in groups}
    sample = []
    for f, column in enumerate(columns):
        if column.kind == "member":
            sample.append(float(f in ones))
        elif column.values is not None:
            sample.append(rng.choice(column.values))
        elif column.kind == "integer":
            sample.append(float(rng.randint(math.ceil(max(column.low, -3)), math.floor(min(column.high, 3)))))
        else:
            x = rng.choice([float(rng.randint(-4, 4)), rng.random(), rng.choice([-0.5, 0.5, 0.3])])
            sample.append(min(max(x, column.low), column.high))
    return sample
