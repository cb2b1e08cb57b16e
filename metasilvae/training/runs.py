"""Whole training runs, from data to files.

`run_training` does what ``metasilvae train`` does: it trains one model for each seed, on threads of this process or on
a Dask cluster, writes checkpoints on the way, chooses the best model, writes it, reads it back, scores it again, and
writes manifest and archive. A `TrainingMonitor` follows the run and can stop it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from metasilvae.dataset import Dataset
from metasilvae.datasets.summary import describe_identifiers, describe_labels
from metasilvae.errors import DataError, MetasilvaeWarning, ModelError, OutputError, RequestError
from metasilvae.execution.executors import TaskExecutor, open_executor, should_stop
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import check_labels, format_model, parse_model, read_model, write_model
from metasilvae.io.storage import STANDARD_STREAM, check_outputs, is_file_output, open_log, write_output
from metasilvae.model import Model, join_trees, place_features
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.prediction import align_names, find_columns
from metasilvae.training.additive_boosting import make_boosting_trainer
from metasilvae.training.checkpoint.runs import Checkpoint, CheckpointFiles
from metasilvae.training.forest import ForestTrainer, Submit
from metasilvae.training.large import make_single_tree_trainer
from metasilvae.training.logs import ProgressLog, find_end
from metasilvae.training.options import Options
from metasilvae.training.pareto import TreeCollector, TreeMetrics, check_folder, write_archive
from metasilvae.training.protocol import Progress, StopReason, Trainer
from metasilvae.training.provenance import (
    describe_models,
    describe_run,
    describe_trained,
    fingerprint_run,
    format_manifest,
    name_manifest,
)
from metasilvae.training.results import (
    TrainedModel,
    TrainingResult,
    choose_best,
    decide,
    judge,
    score_result,
    tabulate,
)
from metasilvae.training.weights import ClassWeight, weigh
from metasilvae.verification.metrics import Evaluation
from metasilvae.verification.shards import Shard

# Time for exact metrics of a forest, on the training rows and again on the test rows.
REPORT_SECONDS = 10.0
IN_MEMORY = "<memory>"
# Makes the trainer for each kind of options.
TRAINERS: dict[str, Callable[..., Trainer]] = {
    "tree": make_single_tree_trainer,
    "forest": ForestTrainer,
    "boosting": make_boosting_trainer,
}


def make_trainer(
    dataset: Dataset,
    perturbation: Perturbation,
    options: Options,
    jobs: int | None = 1,
    start: Model | None = None,
    submit: Submit | None = None,
) -> Trainer:
    """The trainer that the options ask for.

    Parameters
    ----------
    start : Model or None
        Trees from which the search for one tree starts.
    submit : function or None
        Runs the tasks of a divisible run elsewhere, see `metasilvae.training.forest.ForestTrainer`.
    """
    special = {"start": start, "submit": submit}
    given = {name: value for name, value in special.items() if value is not None}
    return TRAINERS[options.kind](dataset, perturbation, options, jobs, **given)


def train_once(
    dataset: Dataset, perturbation: Perturbation, options: Options, start: Model | None = None
) -> TrainingResult:
    """One training run on one thread, as a task for an executor."""
    trainer = make_trainer(dataset, perturbation, options, 1, start)
    for _ in trainer.run():
        if should_stop():
            trainer.stop()
    return TrainingResult.of(trainer)


# Requests


@dataclass(frozen=True)
class TrainingRequest:
    """What to train, and which files to write; `metasilvae.api.run_training` describes the fields that it has.

    Attributes
    ----------
    perturbation : Perturbation or function
        The perturbation that the model should withstand, or a function that makes it for the training rows.
    reading : dict
        Options of `read_dataset` for sources of data.
    other_inputs, other_outputs : sequences of str
        Further files of the caller, which must not be the same as those of the run.
    command : str or None
        Command line, for the manifest.
    whole_options : Options or None
        Options of the run that a shard is a part of; None if they are `options`.
    class_weight, sample_weight
        Weights of classes and rows, see `metasilvae.training.weights.weigh`. Test rows have those of their classes.
    """

    data: Dataset | str
    perturbation: Perturbation | Callable[[Dataset], Perturbation]
    options: Options
    output: str | None = None
    seeds: Sequence[int] | None = None
    start: Model | str | None = None
    test: Dataset | str | None = None
    log: str | None = None
    pareto: str | None = None
    checkpoint: str | None = None
    every: int | None = None
    resume: str | None = None
    manifest: bool = True
    scheduler: str | None = None
    shard: Shard | None = None
    jobs: int | None = None
    reading: dict[str, Any] = field(default_factory=dict)
    plain: bool = False
    other_inputs: Sequence[str] = ()
    other_outputs: Sequence[str] = ()
    command: str | None = None
    whole_options: Options | None = None
    class_weight: ClassWeight | None = None
    sample_weight: ArrayLike | None = None

    @property
    def all_seeds(self) -> list[int]:
        return [self.options.tree_options.seed] if self.seeds is None else [int(seed) for seed in self.seeds]

    @property
    def checkpoint_files(self) -> CheckpointFiles:
        return CheckpointFiles.choose(self.checkpoint, self.every, self.resume)

    @property
    def manifest_file(self) -> str | None:
        return name_manifest(self.output) if self.manifest and self.output is not None else None

    def checked(self) -> TrainingRequest:
        """The request with its shard applied; refuses contradictions and outputs that cannot be written."""
        if self.seeds is not None and not 0 < len(set(self.all_seeds)) == len(self.seeds):
            raise RequestError("seeds must be different numbers, at least one")
        if self.scheduler is not None and self.log is not None:
            raise RequestError("'log' follows a training in this process; leave out 'log' or 'scheduler'")
        if self.start is not None and not self.options.is_observable:
            name = self.options.count_name
            raise RequestError(f"'start' is for the search for one tree; leave out 'start' or '{name}'")
        files = self.checkpoint_files
        named = [self.output, self.log, *self.other_outputs, *files.outputs]
        outputs = [path for path in named if path is not None]
        if self.pareto is not None:
            self._check_archive(self.pareto, outputs)
        request = self
        if self.shard is not None:
            options, seeds = self.options.take_shard(self.shard, self.seeds)
            request = replace(self, options=options, seeds=seeds, whole_options=self.options)
        sources = [source for source in (self.data, self.test, self.start) if isinstance(source, str)]
        manifests = [] if self.manifest_file is None else [self.manifest_file]
        check_outputs([*outputs, *manifests], [*sources, *self.other_inputs, *files.inputs])
        return request

    def _check_archive(self, folder: str, outputs: Sequence[str]) -> None:
        others = {"seeds": self.seeds, "shard": self.shard, "scheduler": self.scheduler}
        clashes = [name for name, value in others.items() if value is not None]
        if clashes or not self.options.is_observable:
            name = (clashes or [self.options.count_name])[0]
            raise RequestError(
                f"'pareto' keeps the trees of one run for one tree in this process; leave out 'pareto' or '{name}'"
            )
        place = Path(os.path.realpath(folder))
        for output in outputs:
            target = Path(os.path.realpath(output))
            if output != STANDARD_STREAM and (target.parent == place or target in (place, *place.parents)):
                raise RequestError(f"{folder} is for the trees of 'pareto'; write {output} somewhere else")


class TrainingMonitor:
    """Follows a run and can stop it; subclasses override what they need. Training happens inside ``with monitor:``.

    Attributes
    ----------
    is_stopped : bool
        Whether `stop` was called.
    """

    def __init__(self) -> None:
        self.is_stopped = False
        self._stop: Callable[[], object] | None = None

    def __enter__(self) -> TrainingMonitor:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stop(self) -> None:
        """End the run soon with the best model so far; may be called at any time, also from a signal handler."""
        self.is_stopped = True
        if self._stop is not None:
            self._stop()

    def attach(self, stop: Callable[[], object] | None) -> None:
        """Training calls this with what stops the present work; None between two seeds."""
        self._stop = stop
        if self.is_stopped and stop is not None:
            stop()

    def start(self, n_steps: int, title: str, n_done: int = 0) -> None:
        """A trainer starts, or seeds are sent to a cluster; so many steps were done before a resume."""

    def report(self, seed: int, progress: Progress) -> None:
        """A trainer has done a step."""

    def advance(self) -> None:
        """A cluster has finished a seed."""

    def end(self) -> None:
        """What `start` announced has ended."""

    @contextlib.contextmanager
    def follow_rows(self, n_rows: int, seconds: float) -> Iterator[tuple[threading.Event, Callable[[int], object]]]:
        """For a verification of rows: an event that ends it early, and a function that counts the rows done."""
        yield threading.Event(), lambda n_done: None


@dataclass(frozen=True)
class TrainingOutcome:
    """What a run has trained and written.

    Attributes
    ----------
    runs : list of TrainedModel
        One for each seed that was trained; empty if the run was stopped before.
    kept : list of TrainedModel
        The best one; all of a shard.
    n_seeds : int
        Number of seeds that were asked for.
    output : str or None
        File of the model.
    checkpoint : str or None
        File to resume from.
    archive : list of (TreeMetrics, Model)
        The trees of the pareto archive, the most accurate first.
    is_interrupted : bool
        Whether the monitor has stopped the run.
    """

    runs: list[TrainedModel]
    kept: list[TrainedModel]
    n_seeds: int
    output: str | None
    checkpoint: str | None
    archive: list[tuple[TreeMetrics, Model]]
    is_interrupted: bool

    @property
    def model(self) -> Model:
        """The model that was kept; of a shard, the trees of all its models as one forest."""
        if not self.kept:
            raise ModelError("the run was stopped before there was a model; resume it, or train again")
        return _join(self.kept, self.output or IN_MEMORY)

    @property
    def records(self) -> list[dict[str, Any]]:
        """A record with the metrics of each seed, as in the table of ``metasilvae train --table``."""
        return tabulate(self.runs)


# Runs


def run_training(request: TrainingRequest, monitor: TrainingMonitor | None = None) -> TrainingOutcome:
    """Train, and write what the request asks for."""
    started = datetime.now(UTC)
    request = request.checked()
    files = request.checkpoint_files
    with files.locked():
        stored = files.load()
        run = _Run(request, monitor or TrainingMonitor())
        run.checkpoint = files.open(run.description, stored)
        n_bytes = 0
        if request.log is not None and run.checkpoint is not None:
            n_bytes = find_end(request.log, run.checkpoint.reported, run.checkpoint.path)
        if request.pareto is not None and run.collector is not None:
            check_folder(request.pareto, None if stored is None else run.collector.run)
        with contextlib.ExitStack() as stack:
            stack.enter_context(run.monitor)
            if request.log is not None:
                run.log = ProgressLog(stack.enter_context(open_log(request.log, n_bytes)))
            with files.error_context():
                results = run.train()
            if run.checkpoint is not None and results:
                run.checkpoint.write()
            # A signal that comes from here on must not cost the model.
            models, kept = run.write(results, started)
        return run.end(models, kept)


class _Run:
    """A request with its data loaded."""

    def __init__(self, request: TrainingRequest, monitor: TrainingMonitor) -> None:
        self.request = request
        self.monitor = monitor
        self.log: ProgressLog | None = None
        self.checkpoint: Checkpoint | None = None
        self.dataset = _load(request.data, request.reading)
        check_labels(self.dataset.labels, self.dataset.source)
        self.test = None if request.test is None else _load_test(request.test, self.dataset, request.reading)
        unweighted, self.dataset = self.dataset, weigh(self.dataset, request.class_weight, request.sample_weight)
        if self.test is not None:
            self.test = weigh(self.test, request.class_weight, of=unweighted)
        asked = request.perturbation
        self.perturbation = asked(self.dataset) if callable(asked) else asked
        for rows in (self.dataset, *([] if self.test is None else [self.test])):
            self.perturbation.boxes(rows)  # refuses what does not fit before the training, not after it
        self._refuse_missing()
        for sentence in [*describe_identifiers(self.dataset), *describe_labels(self.dataset.labels)]:
            warnings.warn(f"{self.dataset.source}: {sentence}", MetasilvaeWarning, stacklevel=2)
        self.start = read_model(request.start) if isinstance(request.start, str) else request.start
        if self.start is not None and self.start.description.feature_names and self.dataset.feature_names:
            find_columns(self.start.description.feature_names, self.start.source, self.dataset)
            self.start = place_features(self.start, self.dataset.feature_names)
        self.description = describe_run(self.dataset, self.perturbation, request.options, request.all_seeds, self.start)
        self.description["options"]["pareto"] = request.pareto is not None
        self.collector: TreeCollector | None = None
        if request.pareto is not None:
            digest = fingerprint_run(self.description)
            self.collector = TreeCollector(self.dataset, self.perturbation, request.options.tree_options, run=digest)
        self.name = request.output or IN_MEMORY

    def _refuse_missing(self) -> None:
        """Refuse missing values that the model could not take once it is trained, or once it is written."""
        request, test = self.request, self.test
        is_learned = self.dataset.has_missing
        for rows in (self.dataset, *([] if test is None else [test])):
            may_drop = self.perturbation.boxes(rows).droppable is not None
            is_learned = is_learned or may_drop
            if not rows.has_missing and not may_drop:
                continue
            if request.plain and (request.output is not None or request.pareto is not None):
                where = _describe_first_missing(rows) if rows.has_missing else f"{rows.source}: values may be dropped"
                raise RequestError(
                    f"{where}, and a file without its last line does not hold the directions of missing values; leave "
                    "out 'plain', or fill the missing values in"
                )
            if not is_learned:
                raise DataError(
                    f"{_describe_first_missing(rows)}, and no value of {self.dataset.source} is, so that the model "
                    "cannot learn where to send missing values; fill them in, or leave these rows out"
                )

    def describe(self, model: Model, seed: int, tuning: dict[str, Any] | None = None) -> Model:
        """The model with its description; the trees of a shard have that of the whole run."""
        options = (self.request.whole_options or self.request.options).describe()
        return describe_trained(model, self.dataset, {**self.description, "options": options}, seed, tuning)

    @property
    def archived(self) -> list[tuple[TreeMetrics, Model]]:
        """The trees of the archive, which belong to a single seed."""
        entries = [] if self.collector is None else self.collector.entries
        return [(metrics, self.describe(model, self.request.all_seeds[0])) for metrics, model in entries]

    # Training

    def train(self) -> list[TrainingResult]:
        """A result for each seed, as far as nothing stops the run."""
        seeds = self.request.all_seeds
        known = {seed: self._recall(seed) for seed in seeds}
        if self.request.scheduler is not None and not all(known.values()):
            with open_executor(self.request.scheduler) as executor:
                if self.request.options.is_divisible and len(seeds) == 1:
                    return [self._train_on(executor, seeds[0])]
                return self._train_seeds(executor, known)
        results = []
        for seed, result in known.items():
            if result is None and not self.monitor.is_stopped:
                trainer = self._make_trainer(seed, self.request.jobs)
                result = None if self.monitor.is_stopped else self._follow(trainer, seed, f"seed {seed}")
            if result is not None:
                results.append(result)
        return results

    def _make_trainer(self, seed: int, jobs: int | None, submit: Submit | None = None) -> Trainer:
        options = self.request.options.with_seed(seed)
        trainer = make_trainer(self.dataset, self.perturbation, options, jobs, self.start, submit)
        if self.collector is not None:
            trainer.observe(self.collector)
        return trainer

    def _train_on(self, executor: TaskExecutor, seed: int) -> TrainingResult:
        """One run whose tasks are done by a cluster."""
        rows, perturbation = executor.share(self.dataset), self.perturbation
        trainer = self._make_trainer(
            seed, None, lambda work, *arguments: executor.submit(work, rows, perturbation, *arguments)
        )
        return self._follow(trainer, seed, "trees")

    def _train_seeds(self, executor: TaskExecutor, known: dict[int, TrainingResult | None]) -> list[TrainingResult]:
        """Each seed is a task of a cluster; after a stop, those that are done."""
        rows, options = executor.share(self.dataset), self.request.options
        self.monitor.attach(executor.stop)
        tasks = {
            seed: executor.submit(train_once, rows, self.perturbation, options.with_seed(seed), self.start)
            for seed, result in known.items()
            if result is None
        }
        self.monitor.start(len(known), "seeds", len(known) - len(tasks))
        try:
            for seed, task in tasks.items():
                try:
                    known[seed] = self._keep(seed, task.result())
                except CancelledError:
                    if not self.monitor.is_stopped:
                        raise
                self.monitor.advance()
        finally:
            self.monitor.end()
        self.monitor.attach(None)
        return [result for result in known.values() if result is not None]

    def _follow(self, trainer: Trainer, seed: int, title: str) -> TrainingResult:
        """Run a trainer to its end, from its checkpoint if there is one."""
        n_done = 0 if self.checkpoint is None else self.checkpoint.resume_trainer(seed, trainer)
        self.monitor.attach(trainer.stop)
        self.monitor.start(trainer.n_steps, title, n_done)
        try:
            for progress in trainer.run():
                self.monitor.report(seed, progress)
                if self.log is not None:
                    self.log.write(seed, progress)
                if self.checkpoint is not None:
                    self.checkpoint.note(seed, progress, trainer)
        finally:
            self.monitor.end()
        observers = [] if self.collector is None else [self.collector]
        result = self._keep(seed, TrainingResult.of(trainer, observers), trainer)
        # Between two seeds there is nothing to stop, but there is a result to keep.
        self.monitor.attach(None)
        return result

    def _recall(self, seed: int) -> TrainingResult | None:
        if self.checkpoint is None:
            return None
        result = self.checkpoint.result(seed, self.request.options.with_seed(seed).tree_options, self.dataset)
        if result is not None and self.collector is not None:
            for state in result.observed:
                self.collector.resume(state)
        return result

    def _keep(self, seed: int, result: TrainingResult, trainer: Trainer | None = None) -> TrainingResult:
        if self.checkpoint is not None:
            self.checkpoint.close(seed, result, trainer)
        return result

    # Writing

    def write(
        self, results: Sequence[TrainingResult], started: datetime
    ) -> tuple[list[TrainedModel], list[TrainedModel]]:
        """Write what was trained; returns all models with their metrics, and those that were kept.

        Where there is nothing to choose, the model is written before it is scored, which may take long.
        """
        # Which model is the best one is only known after all shards.
        is_chosen = self.request.shard is None and len(results) > 1
        described = [
            replace(result, model=replace(self.describe(result.model, result.seed, result.tuning), source=self.name))
            for result in results
        ]
        if described:
            # A run that was complete in its checkpoint had nothing to stop so far.
            self.monitor.attach(None)
        if described and not is_chosen:
            self._write_models(described)
        with self._scoring() as stop:
            parts = self.dataset, self.perturbation, self.test, self.request.jobs, stop
            runs = [score_result(result, *parts) for result in described]
            kept = [choose_best(runs)] if is_chosen else runs
            if is_chosen:
                self._write_models(kept)
            if kept and self.request.output is not None:
                self._check_model(self.request.output, kept, stop)
                self._write_manifest(self.request.output, runs, kept, started)
        return runs, kept

    def end(self, runs: list[TrainedModel], kept: list[TrainedModel]) -> TrainingOutcome:
        """What was trained, with the metrics for the report."""
        if len(kept) == 1 and kept[0].model.is_forest and not self.monitor.is_stopped:
            best = kept[0]
            test = None if best.test is None else self._decide(best.test)
            kept = [replace(best, training=self._decide(best.training), test=test)]
        self._warn_of_leaves(kept)
        request = self.request
        resumable = None if self.checkpoint is None else self.checkpoint.path
        n_seeds = len(request.all_seeds)
        return TrainingOutcome(runs, kept, n_seeds, request.output, resumable, self.archived, self.monitor.is_stopped)

    @contextlib.contextmanager
    def _scoring(self) -> Iterator[threading.Event]:
        """An event that ends the scoring of models; rows that are undecided then count as not stable.

        After a training that was stopped, a clock sets it: models can only be compared by some of their rows.
        """
        stop = threading.Event()
        if self.monitor.is_stopped:
            with _setting_after(REPORT_SECONDS, stop):
                yield stop
            return
        self.monitor.attach(stop.set)
        yield stop

    def _write_models(self, kept: Sequence[TrainingResult]) -> None:
        """Write the model, or the models of a shard, and the archive of the run."""
        request = self.request
        try:
            if request.output is not None:
                _write_or_rescue(_join(kept, request.output), request.output, request.plain)
        finally:
            if request.pareto is not None and self.collector is not None:
                write_archive(request.pareto, self.collector, self.archived, plain=request.plain)

    def _check_model(self, output: str, kept: Sequence[TrainedModel], stop: threading.Event) -> None:
        """What was written must have the metrics of what was trained, as far as no stop has cut them short."""
        is_file = is_file_output(output)
        again = read_model(output) if is_file else parse_model(format_model(_join(kept, output)).encode(), output)
        for run, part in zip(kept, _split(again, kept), strict=True):
            assert run.training.perturbation is not None
            found = judge(part, run.training.dataset, run.training.perturbation, self.request.jobs, stop)
            if found.counts != run.training.counts and not stop.is_set():
                raise OutputError(f"{output}: the written model has other metrics than the trained one; do not use it")

    def _write_manifest(
        self, output: str, runs: Sequence[TrainedModel], kept: Sequence[TrainedModel], started: datetime
    ) -> None:
        request = self.request
        manifest, former = request.manifest_file, name_manifest(output)
        if manifest is not None:
            n_starts = 1 if self.checkpoint is None else self.checkpoint.n_starts
            document = describe_models(
                output, self.description, runs, kept, self.test, request.command, started, n_starts
            )
            write_output(manifest, format_manifest(document))
        elif former is not None and os.path.exists(former):
            message = f"{former}: describes the model that was here before; remove it, or write a new manifest"
            warnings.warn(message, MetasilvaeWarning, stacklevel=2)

    def _decide(self, evaluation: Evaluation) -> Evaluation:
        """Exact metrics of a forest for the report, unless they take too long or the run is stopped."""
        n_rows = evaluation.dataset.n_samples
        with self.monitor.follow_rows(n_rows, REPORT_SECONDS) as (stop, on_rows), _setting_after(REPORT_SECONDS, stop):
            return decide(evaluation, self.request.jobs, stop=stop, on_rows=on_rows)

    def _warn_of_leaves(self, kept: Sequence[TrainedModel]) -> None:
        for each in kept:
            hints = {
                StopReason.TIME_LIMIT: ("the time limit stopped the training", f"more than {each.seconds:.3g} s"),
                StopReason.INTERRUPTED: ("the training was interrupted", "more time"),
            }
            if each.stop_reason in hints and each.model.n_leaves == each.model.n_trees:
                cause, advice = hints[each.stop_reason]
                message = f"{self.name}: is a single leaf: {cause} before a tree was grown; give it {advice}"
                warnings.warn(message, MetasilvaeWarning, stacklevel=2)


@contextlib.contextmanager
def _setting_after(seconds: float, stop: threading.Event) -> Iterator[None]:
    """Set an event after some time, unless the work is done before."""
    timer = threading.Timer(seconds, stop.set)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _load(data: Dataset | str, reading: dict[str, Any]) -> Dataset:
    return read_dataset(data, **reading) if isinstance(data, str) else data


def _load_test(data: Dataset | str, dataset: Dataset, reading: dict[str, Any]) -> Dataset:
    known = {"encoding": dataset.encoding, "label_name": dataset.label_name, "model_names": dataset.feature_names}
    test = _load(data, {**reading, "libsvm_width": dataset.n_features, "maker": dataset.source, **known})
    if dataset.feature_names is not None:
        test = align_names(dataset.feature_names, dataset.source, test)
    if test.n_features != dataset.n_features:
        raise DataError(
            f"{test.source} has {test.n_features} features, {dataset.source} has {dataset.n_features}; "
            "check that they belong together"
        )
    if not set(test.labels) & set(dataset.labels):
        raise DataError(
            f"{test.source}: none of its labels occurs in {dataset.source}; check that they belong together"
        )
    return test


def _describe_first_missing(dataset: Dataset) -> str:
    row, feature = np.argwhere(np.isnan(dataset.X))[0]
    return f"{dataset.source}: row {dataset.number_of(int(row))}: {dataset.feature_name(int(feature))} is missing"


def _join(runs: Sequence[TrainingResult], name: str) -> Model:
    return runs[0].model if len(runs) == 1 else join_trees([run.model for run in runs], name)


def _split(joined: Model, runs: Sequence[TrainingResult]) -> Iterator[Model]:
    """The models of several runs from the one that joins them."""
    if len(runs) == 1:
        yield joined
        return
    first = 0
    for run in runs:
        last = first + run.model.n_trees
        yield joined.take_trees(first, last) if run.model.is_forest else joined.tree(first)
        first = last


def _write_or_rescue(model: Model, output: str, plain: bool) -> None:
    """Write a model; if that has become impossible during the training, write it elsewhere and say where."""
    try:
        write_model(model, output, plain=plain)
    except OutputError as error:
        name = "model.silva" if output == STANDARD_STREAM else Path(output).name
        try:
            path = str(Path(tempfile.mkdtemp(prefix="metasilvae-")) / name)
            write_model(model, path, plain=plain)
        except (OSError, OutputError):
            raise error from None
        raise OutputError(f"{error}; the model was saved as {path}") from None
