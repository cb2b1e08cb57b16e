"""Training runs as text: the progress bar, the metrics at the end, the spread over seeds, and archives as tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from metasilvae.output.text.headings import describe_model
from metasilvae.output.text.tables import TABLE_FORMATS, Cell, Record, as_text, in_words
from metasilvae.output.text.terminal import open_bar
from metasilvae.training.options import SEARCHED_FOR, SINGLE
from metasilvae.training.pareto import StoredArchive, describe
from metasilvae.training.protocol import Progress
from metasilvae.training.results import METRICS, QUANTILES, TrainedModel, spread
from metasilvae.training.trials import TUNING_FRACTION
from metasilvae.voting import choose_voting

# Steps of different phases take different times, so that a rate would say nothing.
BAR_FORMAT = "{desc} |{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"


class ProgressBar:
    """A bar on standard error, if that is a terminal; it moves at most once in `min_seconds`.

    It counts the steps of all phases, and names the phase and the unit of its steps.
    """

    def __init__(self, min_seconds: float = 0.1) -> None:
        self._min_seconds = min_seconds
        self._title = ""
        self._bar: Any = None

    def start(self, n_steps: int, title: str, n_done: int = 0) -> None:
        self._title = title
        self._bar = open_bar(
            total=n_steps, initial=n_done, desc=title, mininterval=self._min_seconds, bar_format=BAR_FORMAT
        )

    def show(self, progress: Progress) -> None:
        if self._bar is not None:
            self._bar.set_description_str(f"{self._title}, {describe_step(progress)}", refresh=False)
            self._bar.set_postfix_str(describe_progress(progress), refresh=False)
            self._bar.update()

    def advance(self) -> None:
        if self._bar is not None:
            self._bar.update()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def describe_step(progress: Progress) -> str:
    """The phase, and the number of its step with the unit."""
    step = f"{progress.unit} {progress.step + 1}"
    return step if progress.phase == progress.unit else f"{progress.phase}: {step}"


def describe_progress(progress: Progress) -> str:
    """The metrics of the best model so far.

    Where stability is measured with a larger perturbation than the one to withstand, its factor is shown: this is why
    metrics may fall from one phase to the next.
    """
    factor = progress.training_epsilon_factor
    where = "" if factor == 1 else f" at {factor:g} epsilon"
    return (
        f"phi {progress.fitness:.4f}, accuracy {progress.accuracy:.4f}, stability {progress.stability:.4f}{where}, "
        f"{progress.leaves} leaves"
    )


def describe_training(run: TrainedModel) -> str:
    """The model and its metrics on the training rows and on the test rows."""
    assert run.training.perturbation is not None
    how = [f"seed {run.seed}", f"{run.seconds:.2f} s", *([run.stop_sentence] if run.stop_sentence else [])]
    lines = [
        f"model         {describe_model(run.model, choose_voting(run.model, None))}",
        f"perturbation  {run.training.perturbation.describe()}",
        f"training      {', '.join(how)}",
    ]
    weights = run.training.dataset.weights
    if weights is not None:
        lines.append(f"weights       {weights.description}; phi and all fractions are weighted")
    if run.tuning is not None:
        lines.append(f"tuning        {describe_tuning(run.tuning)}")
    if run.held_out_fitness is not None:
        lines.append(f"validation    phi {run.held_out_fitness:.4g} on {run.held_out_rows} rows held out")
    parts = [("training", run.training), ("test", run.test)]
    records: list[Record] = [
        {"rows": name, "number": part.dataset.n_samples, **run.metrics(part)}
        for name, part in parts
        if part is not None
    ]
    majority, fitness = find_majority(run)
    reached = run.phi(run.training)
    if fitness >= reached:
        rank = "as well" if fitness == reached else "better"
        hint = "" if weights is not None else "; --class-weight balanced counts all classes alike"
        lines.append(f"majority      predicting {majority} for every row scores {rank}, phi {fitness:.4g}{hint}")
    n_open = sum(part.counts.no_info for _, part in parts if part is not None and part.counts is not None)
    if n_open:
        lines += [
            "",
            f"stability and robust accuracy are at least as shown: {n_open} rows are not decided here; "
            "`metasilvae verify` decides them",
        ]
    return "\n".join([*lines, "", as_text(in_words(records))])


def find_majority(run: TrainedModel) -> tuple[str, float]:
    """The class with most training rows, by weight, and the fitness of predicting it for every row."""
    dataset = run.training.dataset
    counts = [dataset.count(dataset.y == label) for label in range(dataset.n_labels)]
    accuracy = max(counts) / dataset.total_weight
    return dataset.labels[counts.index(max(counts))], run.fitness.value(accuracy, 1.0, accuracy)


def describe_tuning(tuning: dict[str, Any]) -> str:
    """What tuning has chosen, with its score and the standard error."""
    chosen = _describe_candidate(tuning["chosen"])
    if tuning.get("is_cut"):
        return f"{chosen}; not finished within {100 * TUNING_FRACTION:.0f} % of the time limit, nothing was compared"
    if tuning["score"] is None:
        return f"{chosen}; " + (
            f"by {tuning['rows']} rows" if tuning["splits"] else "there are too few rows to compare"
        )
    splits = "split" if tuning["splits"] == 1 else "splits"
    how = {"random": f"random {splits}", "blocks": f"{splits} into blocks"}[tuning["split"]]
    # The error of a single split is not known.
    error = f" ± {tuning['error']:.4f}" if tuning["splits"] > 1 else ""
    return f"{chosen}; phi {tuning['score']:.4f}{error} on {tuning['splits']} {how} of {tuning['rows']} rows"


def _describe_candidate(candidate: dict[str, Any]) -> str:
    method = candidate.get("method", "reweighted" if "focus" in candidate else None)
    words = [] if method is None else ["one tree instead of a forest" if method == SINGLE else f"{method} trees"]
    names = {
        "leaf_penalty": "leaf penalty",
        "training_epsilon_factor": "epsilon factor",
        "max_depth": "depth",
        "robust_weight": "robust weight",
        "tolerance": "tolerance",
        "score_penalty": "score penalty",
        "rounds": "rounds",
        "refits": "refits",
    }
    words += [f"{name} {candidate[key]:g}" for key, name in names.items() if key in candidate]
    if candidate.get("first_tree") == SEARCHED_FOR:
        words.append("first tree searched for")
    if "blends" in candidate:
        words.append("reach-set weights " + " and ".join(f"{blend:g}" for blend in candidate["blends"]))
    return ", ".join(words)


def describe_study(runs: Sequence[TrainedModel], kept: Sequence[TrainedModel]) -> str:
    """How the metrics spread over the seeds, and which models were kept."""
    chosen = kept[0]

    def metric(part: str, name: str) -> Callable[[TrainedModel], float]:
        return lambda run: float(run.metrics(getattr(run, part))[name])

    columns: dict[str, dict[str, float]] = {}
    for prefix, part in (("", "training"), ("test ", "test")):
        if getattr(chosen, part) is not None:
            columns |= {f"{prefix}{name}": spread(runs, metric(part, name)) for name in METRICS}
    columns["leaves"] = spread(runs, lambda run: run.model.n_leaves)
    columns["seconds"] = spread(runs, lambda run: run.seconds)
    records: list[dict[str, Cell]] = [
        {
            "1 seed" if len(runs) == 1 else f"{len(runs)} seeds": quantile,
            **{name: values[quantile] for name, values in columns.items()},
        }
        for quantile in QUANTILES
    ]
    table = as_text(in_words(records))
    if any(
        part is not None and part.counts is not None and part.counts.no_info
        for run in runs
        for part in (run.training, run.test)
    ):
        table += "stability and robust accuracy are at least as shown: only what votes prove at once is counted here\n"
    if len(kept) > 1:
        what = "models, whose scores add up," if chosen.model.is_forest else "trees"
        return f"{table}\nkept all {len(kept)} {what} in {chosen.model.source}\n"
    judge = "phi on the training rows" + ("" if chosen.model.is_forest else " less the leaf penalty")
    if chosen.held_out_fitness is not None:
        judge = f"phi on {chosen.held_out_rows} rows held out"
    return f"{table}\nkept the model of seed {chosen.seed}, the best by {judge}\n"


@dataclass(frozen=True)
class ArchiveReport:
    """An archive and the position of the tree that was picked from it, if one was."""

    archive: StoredArchive
    picked: int | None = None

    @property
    def records(self) -> list[Record]:
        """Of all trees, or of the one that was picked."""
        records: list[Record] = [
            {"tree": name, **describe(metrics, self.archive.fitness), "leaves": metrics.leaves, "depth": metrics.depth}
            for name, metrics in zip(self.archive.files, self.archive.metrics, strict=True)
        ]
        return records if self.picked is None else [records[self.picked]]


def describe_archive(folder: str, n_trees: int) -> str:
    """One line about an archive that was written."""
    if not n_trees:
        return f"no tree was evaluated on held-out rows before the run stopped, so there is none in {folder}"
    what = "1 tree that no other one beats was" if n_trees == 1 else f"{n_trees} trees that no other one beats were"
    return f"{what} written to {folder}"


def _write_table(report: ArchiveReport, table_format: str) -> str:
    archive = report.archive
    if not archive.files:
        return f"{archive.folder}: no trees\n"
    n_rows = archive.metrics[0].rows
    n_trees = "1 tree" if len(archive.files) == 1 else f"{len(archive.files)} trees"
    shown = n_trees if report.picked is None else f"1 of {n_trees}"
    head = f"{shown} on {archive.data} ({n_rows} {archive.rows}), {archive.perturbation}"
    return f"{head}\n\n{TABLE_FORMATS[table_format](in_words(report.records))}"


def _write_json(report: ArchiveReport) -> str:
    archive = report.archive
    document = {
        "folder": archive.folder,
        "data": archive.data,
        "rows": archive.rows,
        "perturbation": archive.perturbation,
        "trees": list(map(dict, report.records)),
    }
    return json.dumps(document, indent=2) + "\n"


ARCHIVE_FORMATS: dict[str, Callable[[ArchiveReport], str]] = {
    "text": lambda report: _write_table(report, "text"),
    "markdown": lambda report: _write_table(report, "markdown"),
    "json": _write_json,
    "csv": lambda report: TABLE_FORMATS["csv"](report.records),
}
