"""Draw the questions of `prove` and `explain --sufficient` in the plane of a small tree.

    python scripts/draw_proofs.py [--output FOLDER]

Writes sensitivity.svg, monotonicity.svg, regions.svg and sufficient.svg. The tree is the one that ships with the
project for iris, which tests two features; its regions are those of its leaves, and the inputs those of the proofs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from metasilvae.analysis.proofs import prove_insensitive, prove_monotone
from metasilvae.analysis.spaces import InputSpace
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import read_model
from metasilvae.model import Model
from metasilvae.prediction import predict

FEATURES = (2, 3)
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 520, 300, 56, 44, 14
COLOURS = {"setosa": "#dbe9f6", "versicolor": "#fde3c8", "virginica": "#d8efd9"}
STYLE = (
    "text{font:13px sans-serif;fill:#222}.small{font-size:11px;fill:#555}.mark{stroke:#222;fill:#fff;stroke-width:1.5}"
    ".line{stroke:#b3261e;stroke-width:2;fill:none}.box{stroke:#222;stroke-width:1.5;fill:none;stroke-dasharray:5 3}"
    ".frame{stroke:#888;fill:none}"
)


class Plane:
    """A drawing of two features."""

    def __init__(self, model: Model, space: InputSpace, names: Sequence[str]) -> None:
        self.low = space.lower[list(FEATURES)]
        self.high = space.upper[list(FEATURES)]
        self.parts: list[str] = []
        cuts = [
            sorted({self.low[i], *model.nodes["threshold"][model.nodes["feature"] == f].tolist(), self.high[i]})
            for i, f in enumerate(FEATURES)
        ]
        shown: set[str] = set()
        for left, right in zip(cuts[0], cuts[0][1:], strict=False):
            for below, above in zip(cuts[1], cuts[1][1:], strict=False):
                point = np.zeros((1, model.n_features))
                point[0, list(FEATURES)] = right, above
                table = predict(model, point)
                label = model.labels[table.sets[table.ids[0]][0]]
                (x1, y1), (x2, y2) = self.place((left, above)), self.place((right, below))
                self.parts.append(
                    f'<rect x="{x1:.1f}" y="{y1:.1f}" width="{x2 - x1:.1f}" height="{y2 - y1:.1f}" '
                    f'fill="{COLOURS[label]}"/>'
                )
                if label not in shown and x2 - x1 > 80 and y2 - y1 > 60:
                    shown.add(label)
                    self.parts.append(f'<text x="{x1 + 8:.1f}" y="{y1 + 18:.1f}">{label}</text>')
        self.parts.append(
            f'<rect class="frame" x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - 10}" height="{HEIGHT - TOP - BOTTOM}"/>'
        )
        middle = (LEFT + WIDTH - 10) / 2
        self.parts.append(f'<text x="{middle:.0f}" y="{HEIGHT - 10}" text-anchor="middle">{names[0]}</text>')
        height = (TOP + HEIGHT - BOTTOM) / 2
        self.parts.append(
            f'<text x="16" y="{height:.0f}" text-anchor="middle" transform="rotate(-90 16 {height:.0f})">'
            f"{names[1]}</text>"
        )
        for value in (self.low[0], self.high[0]):
            x, _ = self.place((value, self.low[1]))
            self.parts.append(
                f'<text class="small" x="{x:.0f}" y="{HEIGHT - 28}" text-anchor="middle">{value:g}</text>'
            )
        for value in (self.low[1], self.high[1]):
            _, y = self.place((self.low[0], value))
            self.parts.append(f'<text class="small" x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end">{value:g}</text>')

    def place(self, values: Sequence[float]) -> tuple[float, float]:
        x = LEFT + (values[0] - self.low[0]) / (self.high[0] - self.low[0]) * (WIDTH - LEFT - 10)
        y = HEIGHT - BOTTOM - (values[1] - self.low[1]) / (self.high[1] - self.low[1]) * (HEIGHT - TOP - BOTTOM)
        return float(x), float(y)

    def line(self, start: Sequence[float], end: Sequence[float]) -> None:
        (x1, y1), (x2, y2) = self.place(start), self.place(end)
        self.parts.append(f'<line class="line" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')

    def pair(self, start: Sequence[float], end: Sequence[float]) -> None:
        self.line(start, end)
        self.mark(start)
        self.mark(end)

    def mark(self, values: Sequence[float]) -> None:
        x, y = self.place(values)
        self.parts.append(f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>')

    def box(self, low: Sequence[float], high: Sequence[float], text: str) -> None:
        (x1, y1), (x2, y2) = self.place((low[0], high[1])), self.place((high[0], low[1]))
        self.parts.append(
            f'<rect class="box" x="{x1:.1f}" y="{y1:.1f}" width="{x2 - x1:.1f}" height="{y2 - y1:.1f}"/>'
            f'<text class="small" x="{x1 + 5:.1f}" y="{y2 - 6:.1f}">{text}</text>'
        )

    def note(self, values: Sequence[float], text: str) -> None:
        x, y = self.place(values)
        self.parts.append(f'<text class="small" x="{x + 8:.1f}" y="{y + 4:.1f}">{text}</text>')

    def write(self, path: Path, title: str) -> None:
        body = "\n".join(self.parts)
        path.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">\n'
            f'<style>{STYLE}</style>\n<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>\n{body}\n</svg>\n',
            encoding="utf-8",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "docs")
    folder = parser.parse_args().output
    rows = read_dataset("builtin:iris/train")
    model = read_model("builtin:iris/tree.silva")
    space = InputSpace.around(model, rows)
    assert rows.feature_names is not None
    names = [rows.feature_names[f].replace("_", " ") for f in FEATURES]

    def draw() -> Plane:
        return Plane(model, space, names)

    pick = list(FEATURES)
    plane = draw()
    pair = prove_insensitive(model, [3], space).pair
    assert pair is not None
    plane.pair(pair.first[pick], pair.second[pick])
    plane.note(pair.second[pick], "they differ in petal width only")
    plane.write(folder / "sensitivity.svg", "Two inputs that differ in one feature and get different predictions")

    plane = draw()
    pair = prove_monotone(model, {2: "up"}, space, target="versicolor").pair
    assert pair is not None
    plane.pair(pair.first[pick], pair.second[pick])
    plane.note((pair.first[2], pair.first[3] - 0.15), "raising petal length ends versicolor")
    plane.write(folder / "monotonicity.svg", "Raising a feature changes the prediction away from a label")

    plane = draw()
    plane.box((3.0, 0.9), (4.8, 1.5), "constant: proved")
    plane.box((4.5, 1.9), (6.5, 2.4), "constant: proved")
    plane.box((2.0, 0.2), (3.7, 0.7), "refuted")
    plane.write(folder / "regions.svg", "Regions in which the prediction is constant, and one in which it is not")

    plane = draw()
    row = rows.X[int(np.argmax(rows.X[:, 2] < 2.0))]
    plane.line((row[2], space.lower[3]), (row[2], space.upper[3]))
    plane.mark(row[pick])
    plane.note((row[2], 1.2), "petal length alone is sufficient: whatever the others are, setosa")
    plane.write(folder / "sufficient.svg", "A row and the inputs that share one of its values")


if __name__ == "__main__":
    main()
