"""Tracing the curves of several models, watched and interruptible, for the commands that print or draw them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence

from metasilvae.cli.row_work import RowWork, follow_rows
from metasilvae.curve import trace_curve
from metasilvae.dataset import Dataset
from metasilvae.forest_verification import Limits
from metasilvae.model import Model
from metasilvae.perturbation import Perturbation
from metasilvae.report.curves import CurveReport
from metasilvae.report.terminal import tell


def follow_models(
    models: Sequence[Model], dataset: Dataset, n_perturbations: int, limits: Limits
) -> contextlib.AbstractContextManager[RowWork]:
    """A single tree is done at once; with more there is something to wait for and something to keep."""
    is_long = n_perturbations > 0 and (len(models) * n_perturbations > 1 or models[0].n_trees > 1)
    n_rows = len(models) * n_perturbations * dataset.n_samples
    return follow_rows(n_rows, limits, is_long=is_long, name="evaluate")


def trace_curves(
    models: Sequence[Model],
    dataset: Dataset,
    attacks: Sequence[Perturbation],
    voting: str | None,
    jobs: int | None,
    limits: Limits,
) -> tuple[list[CurveReport], int]:
    """A curve for each model and attack, or for balls where there is no attack, as far as no signal interrupts.

    Returns them and the exit code.
    """
    curves: list[CurveReport] = []
    scaled: Sequence[Perturbation | None] = attacks or [None]
    with follow_models(models, dataset, len(scaled), limits) as work:
        for model, attack in itertools.product(models, scaled):
            if work.is_interrupted:
                break
            curve = trace_curve(
                model, dataset, attack, voting=voting, jobs=jobs, limits=limits, stop=work.stop, on_rows=work.advance
            )
            curves.append(CurveReport(model, dataset, curve, attack))
    if work.is_interrupted:
        n_exact = sum(int(each.curve.radii.is_exact.sum()) for each in curves)
        n_all = dataset.n_samples * len(models) * len(scaled)
        tell(f"interrupted; {n_exact} of {n_all} radii are exact")
    return curves, work.exit_code
