"""The plots of the document about the paper's experiments."""

from __future__ import annotations

from collections import Counter

from experiments.reader import FEWEST_SEEDS, Reader
from experiments.store import Bundle
from experiments.tasks import Task, phi, share
from metasilvae.formats.training_records import METRICS, TEST_PREFIX, LoggedRun, StudyTable
from metasilvae.output.plots.canvas import render
from metasilvae.output.plots.trainings import draw_convergence, draw_objective_weights, draw_variance


def draw_figures(bundle: Bundle) -> dict[str, bytes]:
    """Pictures by name, of the experiments that have results."""
    figures = {}
    logs = []
    for task, log in Reader(bundle).find("convergence", "convergence"):
        steps = {name: log[name] for name in METRICS}
        logs.append(LoggedRun(f"{task.dataset}, {task['preset']}", task["seed"], log["phases"], steps))
    if logs:
        figures["convergence.svg"] = draw_convergence(logs, "steps", "")
    weights = _list_records(bundle, "weights")
    if weights:
        figures["weights.svg"] = draw_objective_weights([_as_table(weights)], "test")
    seeds = _list_records(bundle, "variance")
    counts = Counter(record["set"] for record in seeds)
    boxes = [record for record in seeds if counts[record["set"]] >= FEWEST_SEEDS]
    if boxes:
        figures["variance.svg"] = draw_variance([_as_table(boxes)], "test")
    return {name: render(figure, "svg") for name, figure in figures.items()}


def _as_table(records: list[dict[str, object]]) -> StudyTable:
    return StudyTable("results.json", records, list(range(1, len(records) + 1)))


def _list_records(bundle: Bundle, experiment: str) -> list[dict[str, object]]:
    return [_record(task, bundle) for task, _ in Reader(bundle).find(experiment, "tree")]


def _record(task: Task, bundle: Bundle) -> dict[str, object]:
    result = bundle.results[task]
    test = result["test"]
    return {
        "set": task.dataset,
        "w_acc": task["w_acc"],
        f"{TEST_PREFIX}accuracy": share(test, "correct"),
        f"{TEST_PREFIX}stability": share(test, "stable"),
        f"{TEST_PREFIX}phi": phi(test),
        "leaves": result["leaves"],
    }
