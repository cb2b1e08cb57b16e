"""Compare our verdicts with recorded verdicts of silva, line by line.

    python scripts/check_golden.py [FOLDER] [--data FOLDER]

FOLDER holds index.tsv, models/ and verdicts/; the data folder one folder for each set with test.csv.gz. Prints one
line for each recorded file and exits with 1 when a row differs.
"""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import read_model
from metasilvae.model import Model
from metasilvae.outcome import Verdict
from metasilvae.perturbation import Ball
from metasilvae.verification import ask, verify

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


def differing_rows(recording: Recording) -> list[str]:
    """Rows on which we and silva differ, described."""
    with warnings.catch_warnings():
        # The authors' files announce wrong counts; that is no news here.
        warnings.simplefilter("ignore", MetasilvaeWarning)
        model = read_model(str(recording.model))
        dataset = read_dataset(str(recording.data))
        dataset = widen(dataset.subset(np.arange(recording.rows)), model)
        outcome = verify(ask(model, dataset, Ball(recording.epsilon), voting=recording.voting))
    differing = []
    with recording.verdicts.open() as lines:
        recorded = list(csv.DictReader(lines, delimiter="\t"))
    if len(recorded) != recording.rows:
        return [f"{len(recorded)} rows recorded, {recording.rows} expected"]
    for row, theirs in enumerate(recorded):
        answer = outcome.answers.sets[outcome.answers.ids[row]]
        ours = {
            "row": str(row),
            "label": dataset.labels[dataset.y[row]],
            "predicted": ",".join(model.labels[label] for label in answer),
            "verdict": Verdict(outcome.verdicts[row]).word,
        }
        if ours != theirs:
            differing.append(f"row {row}: ours {list(ours.values())}, silva's {list(theirs.values())}")
    return differing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=SHARED / "golden")
    parser.add_argument("--data", type=Path, default=SHARED / "data")
    arguments = parser.parse_args()
    if not (arguments.folder / "index.tsv").exists():
        print(f"{arguments.folder}: no index.tsv; name the folder of recorded verdicts", file=sys.stderr)
        return 1
    n_rows = n_differing = 0
    for recording in recordings(arguments.folder, arguments.data):
        differing = differing_rows(recording)
        n_rows += recording.rows
        n_differing += len(differing)
        print(f"{recording.verdicts.name}: {recording.rows} rows, {len(differing)} differ")
        for line in differing[:10]:
            print(f"  {line}")
    print(f"{n_rows} rows compared, {n_differing} differ")
    return 1 if n_differing else 0


if __name__ == "__main__":
    sys.exit(main())
