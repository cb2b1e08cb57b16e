"""Results of the paper's experiments by subject, as the document needs them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from experiments.store import Bundle
from experiments.tasks import EXPERIMENTS, Task, choose_forest, list_grid, phi, plan_tasks, share

# Fewer figures make no box.
FEWEST_SEEDS = 5


def median(values: Iterable[float]) -> float:
    return float(np.median(list(values)))


def show_pair(counts: dict[str, int], second: str = "stable") -> str:
    """Accuracy and stability, or another share, in per cent."""
    return f"{100 * share(counts, 'correct'):.1f} / {100 * share(counts, second):.1f}"


class Trees:
    """Trees of several seeds on the test split: medians, each by itself."""

    def __init__(self, results: Sequence[dict[str, Any]]) -> None:
        self.results = results

    @property
    def phis(self) -> list[float]:
        return [phi(result["test"]) for result in self.results]

    @property
    def phi(self) -> float:
        return median(self.phis)

    def median(self, name: str) -> float:
        return median(result[name] for result in self.results)

    def share(self, name: str) -> float:
        return median(share(result["test"], name) for result in self.results)

    def show_pair(self, second: str = "stable") -> str:
        return f"{100 * self.share('correct'):.1f} / {100 * self.share(second):.1f}"


class Reader:
    """What there is, and what is missing."""

    def __init__(self, bundle: Bundle) -> None:
        self.request, self.results, self.skipped = bundle.request, bundle.results, bundle.skipped
        self.sets, self.mode = bundle.request.sets, bundle.request.mode
        self._origins = bundle.origins
        self.origins: list[dict[str, str]] = []
        for task in plan_tasks(list(EXPERIMENTS), self.request, self.results):
            if task in self.results and self._origins[task] not in self.origins:
                self.origins.append(self._origins[task])

    def trees(self, name: str, weight: float | None = None) -> Trees | None:
        """Trees for a set: those of the training table, or those for a weight of accuracy."""
        plan = EXPERIMENTS["training" if weight is None else "weights"](self.request, self.results)
        tasks = [task for task in plan if task.dataset == name and weight in (None, task["w_acc"])]
        found = [self.results[task] for task in tasks if task in self.results]
        return Trees(found) if found else None

    def find(self, experiment: str, kind: str) -> list[tuple[Task, dict[str, Any]]]:
        """The results of a kind that belong to an experiment."""
        tasks = EXPERIMENTS[experiment](self.request, self.results)
        return [(task, self.results[task]) for task in tasks if task.kind == kind and task in self.results]

    def forest(self, name: str) -> dict[str, Any] | None:
        """Our forest for a set."""
        return next((result for task, result in self.find("boosting", "forest") if task.dataset == name), None)

    def chosen_forest(self, name: str) -> tuple[Task, dict[str, Any]] | None:
        """The random forest that was chosen for a set."""
        task = choose_forest(self.request, name, self.results)
        return None if task is None or task not in self.results else (task, self.results[task])

    def held_out(self, chosen: Task) -> dict[str, int]:
        """What made a random forest the chosen one."""
        wanted = chosen["depth"], chosen["criterion"], chosen["trees"]
        return next(
            tried
            for task in list_grid(self.request, chosen.dataset)
            for tried in self.results[task]["tried"]
            if (task["depth"], task["criterion"], tried["trees"]) == wanted
        )

    def describe_gaps(self, experiment: str) -> list[str]:
        """Lines that name the runs behind the numbers of an experiment, and what is missing."""
        tasks = plan_tasks([experiment], self.request, self.results)
        lines = []
        numbers = sorted({self.origins.index(self._origins[task]) + 1 for task in tasks if task in self.results})
        if numbers:
            lines += [f"Source: {', '.join(f'[{number}](#provenance)' for number in numbers)}.", ""]
        missing = [task for task in tasks if task not in self.results and task.dataset not in self.skipped]
        if missing:
            lines += [f"Not run yet: {len(missing)} of {len(tasks)} tasks. This command runs them:", ""]
            lines += [f"    {self._command(experiment, [task.dataset for task in missing])}", ""]
        skipped = [name for name in self.sets if name in self.skipped]
        if skipped:
            lines += [f"Skipped, because the data were missing: {', '.join(skipped)}.", ""]
        return lines

    def _command(self, experiment: str, names: Sequence[str]) -> str:
        words = ["python scripts/paper.py", *(["--quick"] if self.mode.name == "quick" else [])]
        words += [] if self.request.seed == 1 else [f"--seed {self.request.seed}"]
        sets = [name for name in self.sets if name in names]
        return " ".join([*words, f"--only {experiment}", f"--sets {','.join(sets)}"])
