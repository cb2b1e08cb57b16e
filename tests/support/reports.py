"""Reports of verdicts."""

from __future__ import annotations

import json

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.model import PredictionTable
from metasilvae.output.text.verdicts import VerificationReport
from metasilvae.perturbations.boxes import Ball
from metasilvae.verification.query import make_query
from metasilvae.verification.requirements import Requirement
from metasilvae.verification.verdicts import Outcome, Stability
from support.oracles import make_model

LABELS = ("a", 'b"', "ü;c")


# Label, answer, stability, verdict; row 4 is undecided.
FOUND = [
    (0, (0,), Stability.STABLE, "ROBUST"),
    (1, (1,), Stability.UNSTABLE, "FRAGILE"),
    (2, (0, 2), Stability.STABLE, "VULNERABLE"),
    (0, (0, 1, 2), Stability.UNSTABLE, "BROKEN"),
    (1, (1,), Stability.UNKNOWN, "NO-INFO"),
]


def report_of(repeat: int = 1, seconds: float = 0.25, requirements: tuple[str, ...] = ()) -> VerificationReport:
    found = FOUND * repeat
    model = make_model([[1, 0, 0]], 1, LABELS, source="m.silva")
    labels = np.array([label for label, *_ in found], dtype=np.int32)
    dataset = Dataset(np.zeros((len(found), 1)), labels, LABELS, source="d.csv")
    sets = tuple(dict.fromkeys(prediction for _, prediction, _, _ in found))
    predictions = PredictionTable(
        sets, np.array([sets.index(prediction) for _, prediction, _, _ in found], dtype=np.int32)
    )
    outcome = Outcome(
        predictions,
        np.array([prediction == (label,) for label, prediction, _, _ in found]),
        np.array([stability for _, _, stability, _ in found], dtype=np.uint8),
        seconds=seconds,
        reasons={row: "timeout" for row, (*_, verdict) in enumerate(found) if verdict == "NO-INFO"},
    )
    checked = [Requirement.parse(text).check(outcome) for text in requirements]
    return VerificationReport(make_query(model, dataset, Ball(0.5)), "l_inf 0.5", outcome, checked)


def without_times(text: str, report_format: str) -> str:
    """A report without what differs from run to run."""
    if report_format == "silva":
        return "\n".join(" ".join(line.split()[:-1]) for line in text.splitlines()[:-1])
    lines = [line for line in text.splitlines() if '"seconds"' not in line and "verified in" not in line]
    if report_format == "jsonl":
        summary = json.loads(text.splitlines()[-1])["summary"]
        return "\n".join(text.splitlines()[:-1]) + str({**summary, "seconds": 0})
    return "\n".join(lines)
