"""``metasilvae train``.

The training runs of one command: a model for each seed, here or on a cluster, watched and kept.

The options of ``metasilvae train`` that keep a run for later, and the files behind them.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from metasilvae.cli.commands import Command, command_line
from metasilvae.cli.interrupts import Interrupts
from metasilvae.cli.parameters import check_outputs, refuse_two_pipes
from metasilvae.cli.progress import follow_rows
from metasilvae.cli.training_parameters import TrainingRequest, read_request, run_options, training_options
from metasilvae.dataset import Dataset
from metasilvae.errors import CheckpointError, DataError, MetasilvaeWarning, OutputError
from metasilvae.execution.executors import TaskExecutor, open_executor
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import check_labels, format_model, parse_model, read_model, write_model
from metasilvae.formats.training_records import choose_table_format
from metasilvae.io.locks import lock
from metasilvae.io.storage import STANDARD_STREAM, is_same_file, open_log, write_output
from metasilvae.model import Model, join_trees, name_kind
from metasilvae.output.text.tables import TABLE_FORMATS
from metasilvae.output.text.terminal import print_summary, tell
from metasilvae.output.text.trainings import (
    ProgressBar,
    ProgressLog,
    describe_archive,
    describe_study,
    describe_training,
    tabulate_study,
)
from metasilvae.training.checkpoint.runs import Checkpoint, LogPosition, read_checkpoint
from metasilvae.training.forest import ForestTrainer
from metasilvae.training.options import ForestOptions, TrainingOptions
from metasilvae.training.pareto import TreeCollector, check_folder, write_archive
from metasilvae.training.protocol import StopReason
from metasilvae.training.provenance import (
    describe_models,
    describe_run,
    fingerprint_run,
    format_manifest,
    name_manifest,
)
from metasilvae.training.runs import TrainedModel, TrainingResult, choose_best, decide, finish, judge, train_once
from metasilvae.training.trainers import AnyTrainer, make_trainer
from metasilvae.verification.budget import Budget
from metasilvae.verification.metrics import Evaluation
from metasilvae.verification.shards import Shard


@dataclass
class Runs:
    """What all runs of a command have in common.

    Attributes
    ----------
    forest : Model or None
        Trees to start from.
    """

    request: TrainingRequest
    dataset: Dataset
    forest: Model | None
    interrupts: Interrupts
    log: ProgressLog | None = None
    checkpoint: Checkpoint | None = None
    bar: ProgressBar = field(default_factory=ProgressBar)

    def train_here(self, jobs: int | None, collector: TreeCollector | None) -> list[TrainingResult]:
        """One model for each seed, as far as no signal interrupts."""
        findings: list[TrainingResult] = []
        for seed in self.request.seeds:
            known = self._recall(seed)
            if known is not None:
                findings.append(known)
                continue
            options = self.request.options_of(seed)
            started = time.perf_counter()
            trainer = make_trainer(self.dataset, self.request.perturbation, options, jobs, self.forest)
            if collector is not None and not isinstance(trainer, ForestTrainer):
                trainer.observe, trainer.observed = collector.observe, lambda: collector.state
            if self.interrupts.received:
                break
            findings.append(self._follow(trainer, seed, f"seed {seed}", started))
            if self.interrupts.received:
                break
        return findings

    def train_on_cluster(self, scheduler: str) -> list[TrainingResult]:
        """One model for each seed, a task each; those that are done when a signal comes."""
        known = {seed: self._recall(seed) for seed in self.request.seeds}
        if all(known.values()):
            return [found for found in known.values() if found is not None]
        with open_executor(scheduler) as executor:
            options = self.request.options_of(self.request.seeds[0])
            if isinstance(options, ForestOptions) and len(self.request.seeds) == 1:
                return [self._train_forest(executor, options)]
            return self._train_seeds(executor, known)

    def _train_forest(self, executor: TaskExecutor, options: ForestOptions) -> TrainingResult:
        rows, attack = executor.share(self.dataset), self.request.perturbation
        started = time.perf_counter()
        trainer = ForestTrainer(
            self.dataset, attack, options, None, lambda work, *rest: executor.submit(work, rows, attack, *rest)
        )
        return self._follow(trainer, options.tree.seed, "trees", started)

    def _train_seeds(self, executor: TaskExecutor, known: dict[int, TrainingResult | None]) -> list[TrainingResult]:
        rows, perturbation = executor.share(self.dataset), self.request.perturbation
        self.interrupts.stop = executor.stop
        tasks = {
            seed: executor.submit(train_once, rows, perturbation, self.request.options_of(seed), self.forest)
            for seed, found in known.items()
            if found is None
        }
        self.bar.start(len(known), "seeds", len(known) - len(tasks))
        try:
            for seed, task in tasks.items():
                try:
                    known[seed] = task.result()
                except CancelledError:
                    if not self.interrupts.received:
                        raise
                else:
                    self._keep(seed, known[seed])
                self.bar.advance()
        finally:
            self.bar.close()
        self.interrupts.stop = lambda: None
        return [found for found in known.values() if found is not None]

    def _follow(self, trainer: AnyTrainer, seed: int, title: str, started: float) -> TrainingResult:
        """Run a trainer to its end, from where a checkpoint left it; tell and keep what it does.

        Its time counts from `started`, when its samples began to be prepared, as its time limit does.
        """
        n_done, seconds = (0, 0.0) if self.checkpoint is None else self.checkpoint.resume(seed, trainer)
        self.interrupts.stop = trainer.stop
        self.bar.start(trainer.n_steps, title, n_done)
        try:
            for progress in trainer.run():
                self.bar.show(progress)
                if self.log is not None:
                    self.log.write(seed, progress)
                if self.checkpoint is not None:
                    self.checkpoint.note(seed, progress, trainer)
        finally:
            self.bar.close()
        found = TrainingResult.of(trainer, seconds + time.perf_counter() - started)
        self._keep(seed, found, trainer)
        # Between two runs there is nothing to stop, but a result to keep.
        self.interrupts.stop = lambda: None
        return found

    def _recall(self, seed: int) -> TrainingResult | None:
        if self.checkpoint is None:
            return None
        options = self.request.options_of(seed)
        tree = options.tree if isinstance(options, ForestOptions) else options
        return self.checkpoint.finding(seed, tree, self.dataset)

    def _keep(self, seed: int, found: TrainingResult | None, trainer: AnyTrainer | None = None) -> None:
        if self.checkpoint is not None and found is not None:
            self.checkpoint.close(seed, found, trainer)


AUTOMATIC = "auto"
# Bytes of a line of a log; what is longer is something else.
LONGEST_RECORD = 1 << 16


@dataclass(frozen=True)
class KeepingRequest:
    """What the options ask for.

    Attributes
    ----------
    target : str or None
        Where to write checkpoints.
    source : str or None
        Where the run to go on with is.
    every : int or None
    """

    target: str | None
    source: str | None
    every: int | None

    @property
    def outputs(self) -> list[str]:
        return [] if self.target is None else [self.target]

    @property
    def inputs(self) -> list[str]:
        return [] if self.source is None or self.source == self.target else [self.source]

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Keep other runs away from the checkpoint; refuse to replace one unless the run goes on from it."""
        if self.target is None:
            yield
            return
        target = Path(self.target)
        if target.exists() and not target.is_file():
            raise OutputError(f"{self.target}: is a device or a pipe; give the checkpoint the name of a file")
        with lock(self.target):
            if self.source != self.target and target.exists():
                raise OutputError(
                    f"{self.target}: is there already; go on with it by --resume auto, or give the checkpoint another "
                    "name"
                )
            yield

    def load(self) -> dict[str, Any] | None:
        """The checkpoint to go on from, if there is one."""
        return None if self.source is None else read_checkpoint(self.source)

    def open(
        self, run: dict[str, Any], stored: dict[str, Any] | None, collector: TreeCollector | None
    ) -> Checkpoint | None:
        """The checkpoint of the run that is described, which goes on from what was loaded."""
        if self.target is None:
            return None
        checkpoint = Checkpoint(self.target, run, self.every, collector)
        if stored is not None:
            with self.naming():
                checkpoint.take_over(stored)
        return checkpoint

    @contextlib.contextmanager
    def naming(self) -> Iterator[None]:
        """Name the file where something in it turns out to be wrong."""
        try:
            yield
        except CheckpointError as error:
            raise CheckpointError(f"{self.source}: {error}") from None


def read_keeping(checkpoint: str | None, every: int | None, resume: str | None) -> KeepingRequest:
    """Turn the values of `checkpoint_options` into a request."""
    if checkpoint is None and resume is None:
        if every is not None:
            raise click.UsageError("--every is for checkpoints; name a file for them with --checkpoint")
        return KeepingRequest(None, None, None)
    if STANDARD_STREAM in (checkpoint, resume):
        raise click.UsageError("a checkpoint is written again and again; give the name of a file, not -")
    if "" in (checkpoint, resume):
        raise click.UsageError("the name of the checkpoint is empty; give the name of a file")
    if resume == AUTOMATIC:
        if checkpoint is None:
            raise click.UsageError("--resume auto goes on from the file of --checkpoint; name one")
        resume = checkpoint if Path(checkpoint).exists() else None
    if checkpoint is None or (resume is not None and is_same_file(checkpoint, resume)):
        checkpoint = resume
    return KeepingRequest(checkpoint, resume, every)


def find_end_of_log(path: str | None, checkpoint: Checkpoint | None) -> int:
    """How many bytes of a log tell of the steps before a checkpoint; those that tell of later steps come again."""
    if path in (None, STANDARD_STREAM) or checkpoint is None or checkpoint.told.n_steps == 0:
        return 0
    assert path is not None
    told = checkpoint.told
    if not Path(path).exists():
        message = f"{path}: is not there; the log begins after the {told.n_steps} steps of {checkpoint.path}"
        warnings.warn(message, MetasilvaeWarning, stacklevel=2)
    if not Path(path).is_file():
        return 0
    found, n_bytes = _read_told(path, told.n_steps)
    if found.digest is None or found != told:
        raise OutputError(
            f"{path}: is not the log of the run in {checkpoint.path}, whose first {told.n_steps} steps it should "
            "hold; give --log another file"
        )
    return n_bytes


def _read_told(path: str, n_steps: int) -> tuple[LogPosition, int]:
    """What the first records of a log tell, as far as they are records, and how many bytes they are."""
    told, n_bytes = LogPosition(), 0
    with open(path, "rb") as stream:
        while told.n_steps < n_steps and (line := stream.readline(LONGEST_RECORD)).endswith(b"\n"):
            try:
                told = told.after_record(json.loads(line))
            except (ValueError, TypeError, KeyError, RecursionError):
                break
            n_bytes += len(line)
    return told, n_bytes


# For exact figures of a forest in the report, on the training rows and again on the test rows.
REPORT_SECONDS = 10.0


@click.command(cls=Command)
@click.argument("training_set")
@click.argument("output")
@training_options
@run_options
@click.pass_context
def train(
    ctx: click.Context,
    training_set: str,
    output: str,
    test: str | None,
    log: str | None,
    table: str | None,
    pareto: str | None,
    checkpoint: str | None,
    every: int | None,
    resume: str | None,
    no_manifest: bool,
    jobs: int | None,
    scheduler: str | None,
    shard: Shard | None,
    input_format: str,
    label_column: str,
    header: bool | None,
    n_features: int | None,
    **options: Any,
) -> None:
    """Train a decision tree or a forest on TRAINING_SET and write it to OUTPUT.

    Maximizes phi, a weighted sum of accuracy and stability: the fraction of rows that are classified correctly, and
    the fraction whose prediction provably no allowed perturbation changes. Greedily grown trees start a genetic
    search that evaluates every change exactly. Defaults are those of --preset default: fast only grows and improves
    trees, best searches longer, paper is the published algorithm, cart an ordinary decision tree. Ctrl-C writes the
    best model so far.

    \b
    Examples:
      metasilvae train builtin:wine/train wine.silva --epsilon 0.1 --test builtin:wine/test
      metasilvae train data.csv forest.silva --epsilon 0.1 --trees 50 --time-limit 600
      metasilvae train data.csv - --epsilon 0.1 | metasilvae verify - test.csv --epsilon 0.1
      metasilvae train data.csv best.silva --epsilon 0.1 --seeds 1..10 --table seeds.csv
      metasilvae train data.csv tree.silva --epsilon 0.1 --checkpoint tree.checkpoint --resume auto
    """
    started = datetime.now(UTC)
    refuse_two_pipes(training_set, test, options["attack"])
    request = read_request(**options)
    table_format = None if table is None else choose_table_format(table)
    outputs = [output, *(path for path in (log, table) if path is not None)]
    if scheduler is not None and log is not None:
        raise click.UsageError("--log follows a training in this process; leave --log or --scheduler out")
    keeping = read_keeping(checkpoint, every, resume)
    outputs += keeping.outputs
    if pareto is not None:
        others = {"--trees": options["trees"], "--seeds": options["seeds"], "--shard": shard, "--scheduler": scheduler}
        _check_archive(pareto, others, outputs)
    if shard is not None:
        request = _take_part(request, shard, has_seeds=options["seeds"] is not None)
    inputs = [name for name in (training_set, test, request.forest, options["attack"]) if name is not None]
    refuse_two_pipes(*inputs)
    manifest = None if no_manifest else name_manifest(output)
    manifests = [] if manifest is None else [manifest]
    check_outputs([*outputs, *manifests], [*inputs, *keeping.inputs])
    ctx.with_resource(keeping.holding())
    stored = keeping.load()
    reading = {"input_format": input_format, "label_column": label_column, "header": header, "n_features": n_features}
    dataset = read_dataset(training_set, **reading)  # type: ignore[arg-type]
    check_labels(dataset.labels, dataset.source)
    test_rows = None if test is None else _read_test(test, dataset, reading)
    request = request.fit(dataset)
    for rows in (dataset, *([] if test_rows is None else [test_rows])):
        request.perturbation.boxes(rows)  # what does not fit them is better known before training than after it
    forest = None if request.forest is None else read_model(request.forest)
    run = describe_run(dataset, request.perturbation, request.options, request.seeds, forest)
    run["options"]["pareto"] = pareto is not None

    collector = None
    if pareto is not None:
        collector = TreeCollector(dataset, request.perturbation, _tree_options(request), run=fingerprint_run(run))
    kept_run = keeping.open(run, stored, collector)
    n_kept = find_end_of_log(log, kept_run)
    if pareto is not None and collector is not None:
        check_folder(pareto, None if stored is None else collector.run)
    with contextlib.ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        steps = None if log is None else ProgressLog(stack.enter_context(open_log(log, n_kept)))
        all_runs = Runs(request, dataset, forest, interrupts, steps, kept_run)
        with keeping.naming():
            findings = (
                all_runs.train_here(jobs, collector) if scheduler is None else all_runs.train_on_cluster(scheduler)
            )
        if kept_run is not None and findings:
            kept_run.write()
        runs = [finish(found, dataset, request.perturbation, test_rows, jobs, output) for found in findings]
    if not runs:
        raise click.Abort()
    # Which one is the best, only all shards together could tell.
    kept = runs if shard is not None else [choose_best(runs)]
    try:
        _write_or_rescue(_as_one(kept, output), output)
        _check_figures(kept, output, jobs)
        if manifest is not None:
            n_starts = 1 if kept_run is None else kept_run.n_starts
            document = describe_models(output, run, runs, kept, test_rows, command_line(ctx), started, n_starts)
            write_output(manifest, format_manifest(document))
        elif (former := name_manifest(output)) is not None and os.path.exists(former):
            message = f"{former}: tells of the model that was here before; remove it, or leave --no-manifest out"
            warnings.warn(message, MetasilvaeWarning, stacklevel=1)
    finally:
        n_archived = 0 if pareto is None or collector is None else write_archive(pareto, collector)
    if table is not None and table_format is not None:
        write_output(table, TABLE_FORMATS[table_format](tabulate_study(runs)))
    if len(kept) == 1 and kept[0].model.is_forest and not interrupts.received:
        best = kept[0]
        test_figures = None if best.test is None else _decide_rows(best.test, jobs)
        kept = [replace(best, training=_decide_rows(best.training, jobs), test=test_figures)]

    to_stderr = STANDARD_STREAM in (output, log)
    if len(request.seeds) > 1:
        print_summary(describe_study(runs, kept) + "\n", err=to_stderr)
    if len(kept) == 1:
        print_summary(describe_training(kept[0]), err=to_stderr)
    if pareto is not None:
        print_summary(describe_archive(pareto, n_archived), err=to_stderr)
    for each in kept:
        if each.stop_reason is StopReason.TIME_LIMIT and each.model.n_leaves == each.model.n_trees:
            message = f"{output}: holds one leaf only, the time limit ended the training before a tree was grown"
            warnings.warn(f"{message}; give it more than {each.seconds:.3g} s", MetasilvaeWarning, stacklevel=1)
    if interrupts.received:
        name = "standard output" if output == STANDARD_STREAM else output
        after = f" after {len(runs)} of {len(request.seeds)} seeds" if len(request.seeds) > 1 else ""
        what = "the best tree so far was" if shard is None else "the trees so far were"
        if len(kept) == 1 and kept[0].model.is_forest:
            what = f"the {name_kind(True, kept[0].model.n_trees)} so far was"
        onward = "" if kept_run is None else f"; --resume {kept_run.path} goes on"
        tell(f"interrupted{after}; {what} written to {name}{onward}")
    ctx.exit(interrupts.exit_code)


def _check_archive(folder: str, others: dict[str, Any], outputs: Sequence[str]) -> None:
    """Refuse what an archive of the trees of one run cannot be combined with."""
    for name, value in others.items():
        if value is not None:
            raise click.UsageError(f"--pareto keeps trees of one run in this process; leave --pareto or {name} out")
    place = Path(os.path.realpath(folder))
    for output in outputs:
        target = Path(os.path.realpath(output))
        if output != STANDARD_STREAM and (target.parent == place or target in (place, *place.parents)):
            raise click.UsageError(f"{folder} is for the trees of --pareto; write {output} somewhere else")


def _tree_options(request: TrainingRequest) -> TrainingOptions:
    options = request.options_of(request.seeds[0])
    assert isinstance(options, TrainingOptions)
    return options


def _take_part(request: TrainingRequest, shard: Shard, has_seeds: bool) -> TrainingRequest:
    """The trees or the seeds of one shard."""
    forest = request.options
    if isinstance(forest, ForestOptions):
        if has_seeds:
            raise click.UsageError("--shard divides the trees of a forest or seeds; leave --trees or --seeds out")
        numbers = shard.take_items(range(forest.n_trees), "trees")
        return replace(request, options=replace(forest, numbers=tuple(numbers)))
    if not has_seeds:
        raise click.UsageError("--shard divides seeds or trees among jobs; give --seeds A..B or --trees N")
    return replace(request, seeds=tuple(shard.take_items(request.seeds, "seeds")))


def _read_test(source: str, dataset: Dataset, reading: dict[str, Any]) -> Dataset:
    test = read_dataset(source, libsvm_width=dataset.n_features, **reading)
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


def _write_or_rescue(model: Model, output: str) -> None:
    """Write a model; where that has become impossible during the training, write it elsewhere and say where."""
    try:
        write_model(model, output)
    except OutputError as error:
        rescued = _rescue(model, "model.silva" if output == STANDARD_STREAM else Path(output).name)
        if rescued is None:
            raise
        raise OutputError(f"{error}; the model was saved as {rescued}") from None


def _rescue(model: Model, name: str) -> str | None:
    with contextlib.suppress(OSError, OutputError):
        path = Path(tempfile.mkdtemp(prefix="metasilvae-")) / name
        write_model(model, str(path))
        return str(path)
    return None


def _check_figures(runs: Sequence[TrainedModel], output: str, jobs: int | None) -> None:
    """What was written must be as good as what was trained."""
    is_file = output != STANDARD_STREAM and Path(output).is_file()
    again = read_model(output) if is_file else parse_model(format_model(_as_one(runs, output)).encode(), output)
    for position, run in enumerate(runs):
        assert run.training.perturbation is not None
        part = again if len(runs) == 1 else again.tree(position)
        figures = judge(part, run.training.dataset, run.training.perturbation, jobs)
        if figures.counts != run.training.counts:
            raise OutputError(f"{output}: what was written does not score as it did in training; do not use it")


def _decide_rows(evaluation: Evaluation, jobs: int | None) -> Evaluation:
    """Exact figures of a forest for the report, unless they take too long or a signal comes."""
    with follow_rows(evaluation.dataset.n_samples, Budget(REPORT_SECONDS)) as work:
        timer = threading.Timer(REPORT_SECONDS, work.stop.set)
        timer.daemon = True
        timer.start()
        try:
            return decide(evaluation, jobs, stop=work.stop, on_rows=work.advance)
        finally:
            timer.cancel()


def _as_one(runs: Sequence[TrainedModel], name: str) -> Model:
    return runs[0].model if len(runs) == 1 else join_trees([run.model for run in runs], name)
