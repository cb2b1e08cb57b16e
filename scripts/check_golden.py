"""Compare our verdicts with recorded verdicts of silva, line by line.

    python scripts/check_golden.py [FOLDER] [--data FOLDER]

FOLDER holds index.tsv, models/ and verdicts/; the data folder one folder for each set with test.csv.gz. Prints one
line for each recorded file and exits with 1 when a row differs. Rows whose tied prediction silva gets wrong are proved
by a point with another prediction, and counted separately.
"""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import read_model
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Ball
from metasilvae.verification.query import make_query
from metasilvae.verification.verdicts import Verdict
from metasilvae.verification.verifier import find_witnesses, verify

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"


@dataclass(frozen=True)
class Recording:
    """One recorded run of silva."""

    verdicts: Path
    model: Path
    data: Path
    rows: int
    epsilon: float
    voting: str


def recordings(golden: Path, data: Path) -> Iterator[Recording]:
    with (golden / "index.tsv").open() as index:
        for line in csv.DictReader(index, delimiter="\t"):
            yield Recording(
                golden / "verdicts" / line["verdicts"],
                golden / "models" / line["model"],
                data / line["dataset"] / "test.csv.gz",
                int(line["rows"]),
                float(line["epsilon"]),
                line["voting"],
            )


def widen(dataset: Dataset, model: Model) -> Dataset:
    """Data as the C programs read them: a row shorter than announced gets its last value once more.

    The published forest for breast-cancer tests such a column.
    """
    if model.tested_features.max(initial=-1) < dataset.n_features:
        return dataset
    missing = model.n_features - dataset.n_features
    X = np.pad(dataset.X, ((0, 0), (0, missing)), mode="edge")
    return Dataset(np.ascontiguousarray(X), dataset.y, dataset.labels, source=dataset.source)


def elect(model: Model, x: list[float], voting: str) -> tuple[int, ...]:
    """Answer for one sample in plain Python with exact numbers, independent of the verifier."""
    totals = [Fraction(0)] * model.n_labels
    for root in model.roots:
        node = model.nodes[root]
        while node["feature"] >= 0:
            node = model.nodes[node["left"] if x[node["feature"]] <= node["threshold"] else node["right"]]
        values = model.leaf_values[node["leaf"]].tolist()
        for label, value in enumerate(values):
            if voting == "max":
                totals[label] += value == max(values)
            else:
                totals[label] += Fraction(value, sum(values)) if voting == "average" else Fraction(value)
    return tuple(label for label, total in enumerate(totals) if total == max(totals))


@dataclass(frozen=True)
class Comparison:
    """Rows on which we and silva differ, described.

    Attributes
    ----------
    proved : those where silva calls a tied answer stable and a point of the box gets another one
    unexplained : all others
    """

    proved: list[str]
    unexplained: list[str]


def compare(recording: Recording) -> Comparison:
    with warnings.catch_warnings():
        # The authors' files announce wrong counts; that is no news here.
        warnings.simplefilter("ignore", MetasilvaeWarning)
        model = read_model(str(recording.model))
        dataset = read_dataset(str(recording.data))
        dataset = widen(dataset.subset(np.arange(recording.rows)), model)
        query = make_query(model, dataset, Ball(recording.epsilon), voting=recording.voting)
        outcome = verify(query)
    comparison = Comparison([], [])
    with recording.verdicts.open() as lines:
        recorded = list(csv.DictReader(lines, delimiter="\t"))
    if len(recorded) != recording.rows:
        return Comparison([], [f"{len(recorded)} rows recorded, {recording.rows} expected"])
    differing = {}
    for row, theirs in enumerate(recorded):
        prediction = outcome.predictions.sets[outcome.predictions.ids[row]]
        ours = {
            "row": str(row),
            "label": dataset.labels[dataset.y[row]],
            "predicted": ",".join(model.labels[label] for label in prediction),
            "verdict": Verdict(outcome.verdicts[row]).word,
        }
        if ours != theirs:
            differing[row] = f"row {row}: ours {list(ours.values())}, silva's {list(theirs.values())}"
    points = {w.row: w.point.tolist() for w in find_witnesses(query, outcome) if w.row in differing}
    for row, description in differing.items():
        prediction, theirs = elect(model, dataset.X[row].tolist(), recording.voting), recorded[row]
        is_proved = (
            len(prediction) > 1
            and theirs["predicted"] == ",".join(model.labels[label] for label in prediction)
            and theirs["verdict"] in ("ROBUST", "VULNERABLE")
            and row in points
            and bool((np.abs(np.array(points[row]) - dataset.X[row]) <= recording.epsilon).all())
            and elect(model, points[row], recording.voting) != prediction
        )
        (comparison.proved if is_proved else comparison.unexplained).append(description)
    return comparison


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=SHARED / "golden")
    parser.add_argument("--data", type=Path, default=SHARED / "data")
    arguments = parser.parse_args()
    if not (arguments.folder / "index.tsv").exists():
        print(f"{arguments.folder}: no index.tsv; name the folder of recorded verdicts", file=sys.stderr)
        return 1
    n_rows = n_proved = n_unexplained = 0
    for recording in recordings(arguments.folder, arguments.data):
        found = compare(recording)
        n_rows += recording.rows
        n_proved += len(found.proved)
        n_unexplained += len(found.unexplained)
        print(f"{recording.verdicts.name}: {recording.rows} rows, {len(found.unexplained)} differ")
        for line in found.unexplained[:10]:
            print(f"  {line}")
        for line in found.proved:
            print(f"  a tie that silva gets wrong: {line}")
    print(f"{n_rows} rows compared, {n_unexplained} differ, {n_proved} ties that silva gets wrong")
    return 1 if n_unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
