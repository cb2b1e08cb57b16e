"""Long work on rows: a progress bar on a terminal, and signals that stop it and keep what is decided so far."""

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
from metasilvae.voting import choose_voting

LIMIT_HINT = "a row takes long; Ctrl-C reports what is decided, --sample-timeout SECONDS limits each row"


class RowWork:
    """Connects long work with the progress bar and with signals.

    Attributes
    ----------
    stop : threading.Event
        Set by a signal; what is not decided by then remains undecided.
    on_stop : function
        Called by the signal too, for work that runs in other processes.
    """

    def __init__(self, interrupts: Interrupts, bar: RowBar) -> None:
        self.stop = threading.Event()
        self.on_stop: Callable[[], object] = lambda: None
        self._interrupts = interrupts
        self._bar = bar

    def advance(self, n_rows: int) -> None:
        """Count more rows that are done; threads may call this."""
        self._bar.advance(n_rows)

    def reach(self, fraction: float) -> None:
        """This fraction of the work is done."""
        self._bar.reach(fraction)

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
    n_rows: int, budget: Budget, *, is_long: bool = True, phase: str = "verifying", unit: str = "rows"
) -> Iterator[RowWork]:
    """Show progress and handle signals; short work has nothing to keep, so that a signal ends the program."""
    hint = "" if budget.as_dict() else LIMIT_HINT
    with Interrupts() as interrupts, RowBar(n_rows, is_long, phase, unit, hint) as bar:
        work = RowWork(interrupts, bar)
        interrupts.stop = work.end if is_long else None
        yield work


def follow_models(
    models: Sequence[Model], dataset: Dataset, n_perturbations: int, budget: Budget
) -> contextlib.AbstractContextManager[RowWork]:
    """The same for several models or perturbations; a single tree is done at once."""
    is_long = n_perturbations > 0 and (len(models) * n_perturbations > 1 or models[0].n_trees > 1)
    n_rows = len(models) * n_perturbations * dataset.n_samples
    return follow_rows(n_rows, budget, is_long=is_long, phase="evaluating")


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
            shown = choose_voting(model, voting) if any(each.is_forest for each in models) else None
            curves.append(CurveReport(model, dataset, curve, attack, shown))
    if work.is_interrupted:
        n_exact = sum(int(each.curve.radii.is_exact.sum()) for each in curves)
        n_all = dataset.n_samples * len(models) * len(scaled)
        tell(f"interrupted; {n_exact} of {n_all} radii are exact")
    return curves, work.exit_code
