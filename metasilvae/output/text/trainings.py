"""What is shown of a training run: the progress while it lasts, the figures at its end.

Archives of trees as tables, CSV and JSON.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import IO, Any

from metasilvae.errors import MetasilvaeWarning
from metasilvae.formats.training_records import TEST_PREFIX
from metasilvae.output.text.headings import describe_model
from metasilvae.output.text.tables import TABLE_FORMATS, Cell, Record, as_text
from metasilvae.output.text.terminal import open_bar
from metasilvae.training.pareto import StoredArchive, describe
from metasilvae.training.protocol import Progress
from metasilvae.training.runs import QUANTILES, TrainedModel, spread
from metasilvae.verification.metrics import Evaluation

_FIGURES = ("phi", "accuracy", "stability", "robustness")


class ProgressBar:
    """A bar on standard error, if that is a terminal; it moves at most once in `min_seconds`."""

    def __init__(self, min_seconds: float = 0.1) -> None:
        self._min_seconds = min_seconds
        self._bar: Any = None

    def start(self, n_steps: int, title: str, n_done: int = 0) -> None:
        self._bar = open_bar(total=n_steps, initial=n_done, desc=title, mininterval=self._min_seconds)

    def show(self, progress: Progress) -> None:
        if self._bar is not None:
            self._bar.set_postfix_str(
                f"phi {progress.fitness:.4f}, accuracy {progress.accuracy:.4f}, stability {progress.stability:.4f}, "
                f"{progress.leaves} leaves",
                refresh=False,
            )
            self._bar.update()

    def advance(self) -> None:
        if self._bar is not None:
            self._bar.update()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class ProgressLog:
    """One line of JSON for each step; a log that cannot be written any more does not end the training."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._is_lost = False

    def write(self, seed: int, progress: Progress) -> None:
        if self._is_lost:
            return
        try:
            self._stream.write(json.dumps({"seed": seed, **asdict(progress)}).encode() + b"\n")
            self._stream.flush()
        except OSError as error:
            self._is_lost = True
            name = getattr(self._stream, "name", "the log")
            message = f"{name}: cannot be written: {error.strerror or error}; the training goes on without it"
            warnings.warn(message, MetasilvaeWarning, stacklevel=2)


def describe_training(run: TrainedModel) -> str:
    """The model and its figures on the training rows and on the test rows."""
    model, reason = run.model, run.stop_reason
    assert run.training.perturbation is not None
    how = [f"seed {run.seed}", f"{run.seconds:.2f} s", *([f"end: {reason.value}"] if reason else [])]
    lines = [
        f"model         {describe_model(model)}",
        f"perturbation  {run.training.perturbation.describe()}",
        f"training      {', '.join(how)}",
    ]
    if run.held_out_fitness is not None:
        lines.append(f"validation    phi {run.held_out_fitness:.4g} on {run.held_out_rows} rows held out")
    parts = [("training", run.training), ("test", run.test)]
    records = [_figures(run, name, part) for name, part in parts if part is not None]
    n_open = sum(part.counts.no_info for _, part in parts if part is not None and part.counts is not None)
    if n_open:
        lines += [
            "",
            f"stability and robustness are at least as shown: {n_open} rows are not decided here; "
            "`metasilvae verify` decides them",
        ]
    return "\n".join([*lines, "", as_text(records)])


def _figures(run: TrainedModel, name: str, evaluation: Evaluation) -> Record:
    return {
        "rows": name,
        "number": evaluation.dataset.n_samples,
        "phi": run.phi(evaluation),
        "accuracy": evaluation.accuracy,
        "stability": evaluation.stability,
        "robustness": evaluation.robustness,
    }


def tabulate_study(runs: Sequence[TrainedModel]) -> list[Record]:
    """A record for each training, in the columns of `metasilvae.formats.training_records`."""
    records: list[Record] = []
    for run in runs:
        record: dict[str, Cell] = {"set": run.training.dataset.source, "seed": run.seed}
        record |= {"w_acc": run.fitness.correct, "w_st": run.fitness.stable, "w_rob": run.fitness.robust}
        for prefix, part in (("", "training"), (TEST_PREFIX, "test")):
            if getattr(run, part) is not None:
                record |= {f"{prefix}{name}": _figure(run, part, name) for name in _FIGURES}
        records.append(record | {"leaves": run.model.n_leaves, "depth": run.model.max_depth, "seconds": run.seconds})
    return records


def describe_study(runs: Sequence[TrainedModel], kept: Sequence[TrainedModel]) -> str:
    """How the figures spread over the seeds, and which models were kept."""
    chosen = kept[0]
    columns: dict[str, dict[str, float]] = {}
    for prefix, part in (("", "training"), ("test ", "test")):
        if getattr(chosen, part) is not None:
            columns |= {
                f"{prefix}{name}": spread(runs, lambda run, part=part, name=name: _figure(run, part, name))  # type: ignore[misc]
                for name in _FIGURES
            }
    columns["leaves"] = spread(runs, lambda run: run.model.n_leaves)
    columns["seconds"] = spread(runs, lambda run: run.seconds)
    records: list[dict[str, Cell]] = [
        {f"{len(runs)} seeds": quantile, **{name: values[quantile] for name, values in columns.items()}}
        for quantile in QUANTILES
    ]
    table = as_text(records)
    if chosen.model.is_forest:
        table += "stability and robustness are at least as shown: only what votes prove at once is counted here\n"
    if len(kept) > 1:
        return f"{table}\nkept all {len(kept)} trees in {chosen.model.source}\n"
    judge = "phi on the training rows less the leaf penalty"
    if chosen.held_out_fitness is not None:
        judge = f"phi on {chosen.held_out_rows} rows held out"
    return f"{table}\nkept the model of seed {chosen.seed}, the best by {judge}\n"


def _figure(run: TrainedModel, part: str, name: str) -> float:
    evaluation: Evaluation = getattr(run, part)
    value = run.phi(evaluation) if name == "phi" else getattr(evaluation, name)
    return float(value)


@dataclass(frozen=True)
class ArchiveReport:
    """An archive and the position of the tree that was picked from it, if one was."""

    archive: StoredArchive
    picked: int | None = None

    @property
    def records(self) -> list[Record]:
        """Of all trees, or of the one that was picked."""
        records: list[Record] = [
            {"tree": name, **describe(figures, self.archive.fitness), "leaves": figures.leaves, "depth": figures.depth}
            for name, figures in zip(self.archive.files, self.archive.figures, strict=True)
        ]
        return records if self.picked is None else [records[self.picked]]


def describe_archive(folder: str, n_trees: int) -> str:
    """One line about an archive that was written."""
    if not n_trees:
        return f"no tree was judged on held-out rows before the end, so there is none in {folder}"
    what = "1 tree that no other one beats was" if n_trees == 1 else f"{n_trees} trees that no other one beats were"
    return f"{what} written to {folder}"


def _write_table(report: ArchiveReport, table_format: str) -> str:
    archive = report.archive
    if not archive.files:
        return f"{archive.folder}: no trees\n"
    n_rows = archive.figures[0].rows
    n_trees = "1 tree" if len(archive.files) == 1 else f"{len(archive.files)} trees"
    shown = n_trees if report.picked is None else f"1 of {n_trees}"
    head = f"{shown} on {archive.data} ({n_rows} {archive.rows}), {archive.perturbation}"
    return f"{head}\n\n{TABLE_FORMATS[table_format](report.records)}"


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
