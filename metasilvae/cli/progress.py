"""Long work on rows: progress on a terminal, and signals that end it with what is decided so far."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence

from metasilvae.cli.interrupts import Interrupts
from metasilvae.dataset import Dataset
from metasilvae.model import Model
from metasilvae.output.text.evaluations import CurveReport
from metasilvae.output.text.terminal import RowBar, tell
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.verification.budget import Budget
from metasilvae.verification.curve import trace_curve

LIMIT_HINT = "a row takes long; Ctrl-C reports what is known, --sample-timeout SECONDS limits each row"


class RowWork:
    """What the work and its caller have to know of each other.

    Attributes
    ----------
    stop : threading.Event
        Set by a signal; what is not decided by then stays open.
    on_stop : function
        Called by the signal too, for work that is done elsewhere.
    """

    def __init__(self, interrupts: Interrupts, bar: RowBar) -> None:
        self.stop = threading.Event()
        self.on_stop: Callable[[], object] = lambda: None
        self._interrupts = interrupts
        self._bar = bar

    def advance(self, n_rows: int) -> None:
        """So many more rows; threads may call this."""
        self._bar.advance(n_rows)

    def reach(self, share: float) -> None:
        """So much of the whole is done, from 0 to 1."""
        self._bar.reach(share)

    def end(self) -> None:
        self.stop.set()
        self.on_stop()

    @property
    def is_interrupted(self) -> bool:
        return self._interrupts.received != 0

    @property
    def exit_code(self) -> int:
        return self._interrupts.exit_code


@contextlib.contextmanager
def follow_rows(
    n_rows: int, budget: Budget, *, is_long: bool = True, name: str = "verify", unit: str = "row"
) -> Iterator[RowWork]:
    """Show progress and take signals, if the work is long; else there is nothing to keep, and a signal ends it all."""
    hint = "" if budget.as_dict() else LIMIT_HINT
    with Interrupts() as interrupts, RowBar(n_rows, is_long, name, unit, hint) as bar:
        work = RowWork(interrupts, bar)
        interrupts.stop = work.end if is_long else None
        yield work


def follow_models(
    models: Sequence[Model], dataset: Dataset, n_perturbations: int, budget: Budget
) -> contextlib.AbstractContextManager[RowWork]:
    """A single tree is done at once; with more there is something to wait for and something to keep."""
    is_long = n_perturbations > 0 and (len(models) * n_perturbations > 1 or models[0].n_trees > 1)
    n_rows = len(models) * n_perturbations * dataset.n_samples
    return follow_rows(n_rows, budget, is_long=is_long, name="evaluate")


def trace_curves(
    models: Sequence[Model],
    dataset: Dataset,
    attacks: Sequence[Perturbation],
    voting: str | None,
    jobs: int | None,
    budget: Budget,
) -> tuple[list[CurveReport], int]:
    """A curve for each model and attack, or for balls where there is no attack, as far as no signal interrupts.

    Returns them and the exit code.
    """
    curves: list[CurveReport] = []
    scaled: Sequence[Perturbation | None] = attacks or [None]
    with follow_models(models, dataset, len(scaled), budget) as work:
        for model, attack in itertools.product(models, scaled):
            if work.is_interrupted:
                break
            curve = trace_curve(
                model, dataset, attack, voting=voting, jobs=jobs, budget=budget, stop=work.stop, on_rows=work.advance
            )
            curves.append(CurveReport(model, dataset, curve, attack))
    if work.is_interrupted:
        n_exact = sum(int(each.curve.radii.is_exact.sum()) for each in curves)
        n_all = dataset.n_samples * len(models) * len(scaled)
        tell(f"interrupted; {n_exact} of {n_all} radii are exact")
    return curves, work.exit_code
