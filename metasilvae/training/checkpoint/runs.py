"""Checkpoints of training runs: a killed run can be resumed to the same model, byte for byte.

A checkpoint holds what the run depends on (data, options, versions), the models of seeds that are finished, and the
state of the seed in training. It is written as a whole and replaces the one before when it is complete.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.errors import CheckpointError, MetasilvaeWarning, OutputError, RequestError
from metasilvae.io import storage
from metasilvae.io.locks import lock
from metasilvae.io.memory import JSON_EXPANSION
from metasilvae.model import join_trees
from metasilvae.training.checkpoint.files import damaged, pack, pack_models, take, unpack, unpack_models
from metasilvae.training.logs import LogPosition, make_record
from metasilvae.training.options import NO_LIMIT, TrainingOptions
from metasilvae.training.protocol import Progress, StopReason, Trainer
from metasilvae.training.provenance import TIME_LIMIT
from metasilvae.training.results import TrainingResult

# Unless it is written every N steps, a checkpoint is written at this interval, in at most this fraction of the time.
SECONDS_BETWEEN = 10.0
LARGEST_FRACTION = 0.05
# Resume from the file of the checkpoint, if it exists.
AUTOMATIC = "auto"
# Options that only presets set.
PRESET_ONLY = {
    "blends",
    "seed-leaves",
    "split-by-score",
    "max-burst",
    "strength",
    "focus",
    "searches-if-few",
}
LONGEST_VALUE = 60
# Fields of the options of a tree that no tuning changes.
SETTLED = ("fitness", "seed", "target", "time_limit")


@dataclass(frozen=True)
class CheckpointFiles:
    """Where a run is stored and where it resumes from.

    Attributes
    ----------
    target : str or None
        File to write checkpoints to.
    source : str or None
        File to resume from; it may be the same.
    every : int or None
        Steps from one checkpoint to the next; None goes by the clock.
    """

    target: str | None
    source: str | None
    every: int | None

    @classmethod
    def choose(cls, checkpoint: str | None, every: int | None, resume: str | None) -> CheckpointFiles:
        """The files that a user asks for; refuses contradictions."""
        if checkpoint is None and resume is None:
            if every is not None:
                raise RequestError("'every' is for checkpoints; name a file for them with 'checkpoint'")
            return cls(None, None, None)
        if storage.STANDARD_STREAM in (checkpoint, resume):
            raise RequestError("a checkpoint is written repeatedly; give the name of a file, not -")
        if "" in (checkpoint, resume):
            raise RequestError("the name of the checkpoint is empty; give the name of a file")
        if resume == AUTOMATIC:
            if checkpoint is None:
                raise RequestError("'resume auto' uses the file of 'checkpoint'; name one")
            resume = checkpoint if Path(checkpoint).exists() else None
        if checkpoint is None or (resume is not None and storage.is_same_file(checkpoint, resume)):
            checkpoint = resume
        return cls(checkpoint, resume, every)

    @property
    def outputs(self) -> list[str]:
        return [] if self.target is None else [self.target]

    @property
    def inputs(self) -> list[str]:
        return [] if self.source is None or self.source == self.target else [self.source]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs away from the checkpoint; refuse to replace one unless the run resumes from it."""
        if self.target is None:
            yield
            return
        target = Path(self.target)
        if target.exists() and not target.is_file():
            raise OutputError(f"{self.target}: is a device or a pipe; give the checkpoint the name of a file")
        with lock(self.target):
            if self.source != self.target and target.exists():
                raise OutputError(
                    f"{self.target}: exists already; resume it with --resume auto, or give the checkpoint another name"
                )
            yield

    def load(self) -> dict[str, Any] | None:
        """The content of the checkpoint to resume from, if there is one."""
        return None if self.source is None else read_checkpoint(self.source, is_kept=self.source != self.target)

    def open(self, run: dict[str, Any], stored: dict[str, Any] | None) -> Checkpoint | None:
        """The checkpoint of the run that is described, which resumes from what was loaded."""
        if self.target is None:
            return None
        checkpoint = Checkpoint(self.target, run, self.every)
        if stored is not None:
            with self.error_context():
                checkpoint.resume(stored)
        return checkpoint

    @contextlib.contextmanager
    def error_context(self) -> Iterator[None]:
        """Name the file in errors about its content."""
        try:
            yield
        except CheckpointError as error:
            raise CheckpointError(f"{self.source}: {error}") from None


class Checkpoint:
    """The checkpoint of one run, which may have several seeds.

    Parameters
    ----------
    path : str
        File to write to.
    run : dict
        What `metasilvae.training.provenance.describe_run` returns.
    every : int or None
        Steps from one checkpoint to the next; None goes by the clock.

    Attributes
    ----------
    reported : LogPosition
        The steps that were reported before the run was resumed.
    n_starts : int
        How often the run was started.
    """

    def __init__(self, path: str, run: dict[str, Any], every: int | None = None) -> None:
        self.path = path
        self.reported = LogPosition()
        self.n_starts = 1
        self._run = run
        self._every = every
        self._results: dict[int, dict[str, Any]] = {}
        # The seed in training and the state of its trainer.
        self._seed: int | None = None
        self._state: dict[str, Any] | None = None
        # Positions of the log: before this seed, at its state, and after the last two steps.
        self._before = self._at_state = LogPosition()
        self._latest = [LogPosition(), LogPosition()]
        self._n_unwritten = 0
        self._due = time.monotonic() + SECONDS_BETWEEN

    # Resuming

    def resume(self, document: dict[str, Any]) -> None:
        """Continue from the content of a checkpoint file, which must be one of the same run."""
        stored = take(document, "run", dict)
        check_same_run(stored, self._run)
        self.reported = LogPosition.read(document, "reported")
        self.n_starts = take(document, "starts", int) + 1
        self._results = {take(result, "seed", int): result for result in take(document, "results", list)}
        if document.get("state") is not None:
            self._seed = take(document, "seed", int)
            self._state = take(document, "state", dict)
            self._at_state = LogPosition.read(document, "at_state")
            if self._seed in self._results and _has_more_time(stored["options"], self._run["options"]):
                del self._results[self._seed]
            if self._seed not in self._results:
                self.reported = self._at_state
                self._before = LogPosition(self.reported.n_steps - take(self._state, "steps", int), None)
        self._latest = [self.reported, self.reported]

    def result(self, seed: int, options: TrainingOptions, dataset: Dataset) -> TrainingResult | None:
        """The result of a seed; None if it is not finished."""
        if seed not in self._results:
            return None
        document = self._results[seed]
        trees = unpack_models(take(document, "trees", dict), dataset)
        if not trees:
            raise damaged("a model has no trees")
        held_out = document.get("held_out_fitness")
        try:
            reason = StopReason(take(document, "stop_reason", str))
        except ValueError:
            raise damaged("a run has ended for an unknown reason") from None
        return TrainingResult(
            _read_options(document, options),
            join_trees(trees) if take(document, "is_forest", bool) else trees[0],
            None if held_out is None else take(document, "held_out_fitness", float, float("-inf")),
            take(document, "held_out_rows", int),
            take(document, "seconds", float),
            reason,
            take(document, "observed", list),
            None if document.get("tuning") is None else take(document, "tuning", dict),
        )

    def resume_trainer(self, seed: int, trainer: Trainer) -> int:
        """Bring a trainer to the stored state of its seed; returns the number of steps that are done."""
        if self._state is None or seed != self._seed:
            self._before = self._latest[-1]
            return 0
        trainer.resume(self._state)
        return take(self._state, "steps", int)

    # Writing

    def note(self, seed: int, progress: Progress, trainer: Trainer) -> None:
        """A step was done and reported; write if it is time."""
        self._latest = [self._latest[-1], self._latest[-1].after(make_record(seed, progress))]
        if self._is_due():
            self._take_state(seed, trainer)
            self.write()

    def close(self, seed: int, result: TrainingResult, trainer: Trainer | None = None) -> None:
        """The run of a seed has ended; if it was cut short, keep the state of its trainer."""
        if trainer is not None and result.stop_reason in (StopReason.INTERRUPTED, StopReason.TIME_LIMIT):
            self._take_state(seed, trainer)
        else:
            self._seed = self._state = None
        if result.stop_reason is not StopReason.INTERRUPTED:
            self._results[seed] = _pack_result(seed, result)
        if self._is_due():
            self.write()

    def write(self) -> None:
        """Write what is known now; if that fails, warn and let the training continue."""
        begin = time.monotonic()
        content = {
            "run": self._run,
            "results": list(self._results.values()),
            "seed": self._seed,
            "state": self._state,
            "at_state": asdict(self._at_state),
            "reported": asdict(self._latest[-1]),
            "starts": self.n_starts,
        }
        try:
            storage.write_output(self.path, pack(content))
        except OutputError as error:
            warnings.warn(f"{error}; training continues without a new checkpoint", MetasilvaeWarning, stacklevel=2)
        self._n_unwritten = 0
        now = time.monotonic()
        self._due = now + max(SECONDS_BETWEEN, (now - begin) / LARGEST_FRACTION)

    def _take_state(self, seed: int, trainer: Trainer) -> None:
        self._seed, self._state = seed, trainer.state
        # A step that was cut short was reported, but is not part of the state.
        n_steps = self._before.n_steps + self._state["steps"]
        known = (position for position in self._latest if position.n_steps == n_steps)
        self._at_state = next(known, LogPosition(n_steps, None))

    def _is_due(self) -> bool:
        self._n_unwritten += 1
        return time.monotonic() >= self._due if self._every is None else self._n_unwritten >= self._every


def read_checkpoint(path: str, is_kept: bool = True) -> dict[str, Any]:
    """The content of a checkpoint file; unless it is kept, it may be replaced by a later one."""
    try:
        return unpack(storage.read_source(path, JSON_EXPANSION, is_kept))
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None


def check_same_run(stored: dict[str, Any], ours: dict[str, Any]) -> None:
    """Refuse a checkpoint that is not one of this run, and name the first difference."""
    if _holds_array(stored):
        raise damaged("an array is where none should be")
    _check_versions(take(stored, "versions", dict), ours["versions"])
    data, our_data = take(stored, "data", dict), ours["data"]
    for what in ("rows", "features", "classes"):
        if data.get(what) != our_data[what]:
            raise _other(f"data with {_show(data.get(what))} {what}", f"{our_data['file']} has {our_data[what]}")
    if data.get("fingerprint") != our_data["fingerprint"]:
        raise _other(f"other rows (of {_show(data.get('file'))})", f"those of {our_data['file']} differ")
    perturbation, our_perturbation = take(stored, "perturbation", dict), ours["perturbation"]
    if perturbation.get("fingerprint") != our_perturbation["fingerprint"]:
        found, given = _show(perturbation.get("description")), our_perturbation["description"]
        raise _other(f"perturbation {found}", f"this is {given if given != found else 'another one of that name'}")
    if stored.get("start") != ours["start"]:
        raise _other("other trees to start from", "see --population-generator")
    seeds = take(stored, "seeds", list)
    if not seeds or not all(type(seed) is int for seed in seeds):
        raise damaged("its seeds are not numbers")
    if seeds != ours["seeds"]:
        option = "--seed" if len(seeds) == len(ours["seeds"]) == 1 else "--seeds"
        raise _other(f"{option} {_show_seeds(seeds)}", f"this run has {_show_seeds(ours['seeds'])}")
    options, our_options = take(stored, "options", dict), ours["options"]
    # The kind of the model comes first: it makes other options differ, too.
    for name in dict.fromkeys(["boost", "trees", *our_options, *options]):
        if name == TIME_LIMIT and len(ours["seeds"]) == 1:
            continue
        if options.get(name) != our_options.get(name):
            option = f"--{_show(name)}" if name not in PRESET_ONLY else f"another --preset, with {name}"
            found, given = _show_option(name, options.get(name)), _show_option(name, our_options.get(name))
            raise _other(f"{option} {found}", f"this run has {given}")
    if set(options) != set(our_options):
        raise damaged("its options are not complete")


def _holds_array(value: Any) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, np.ndarray) or any(map(_holds_array, parts))


def _check_versions(stored: dict[str, Any], ours: dict[str, str]) -> None:
    # Random numbers of numpy may change from one version to another; the version of Python does not matter.
    for package in ("metasilvae", "numpy"):
        if stored.get(package) != ours[package]:
            raise _other(f"{package} {_show(stored.get(package))}", f"this is {ours[package]}")


def _has_more_time(stored: dict[str, Any], ours: dict[str, Any]) -> bool:
    if stored[TIME_LIMIT] is None:
        return False
    return ours[TIME_LIMIT] is None or bool(ours[TIME_LIMIT] > take(stored, TIME_LIMIT, float))


def _other(found: str, ours: str) -> CheckpointError:
    return CheckpointError(
        f"was written with {found}, {ours}; give the data and options of that run, or train from the start"
    )


def _show_option(name: str, value: Any) -> str:
    """The value of an option as it is typed, or a word for one that is not given."""
    if name == "allowed-features" and type(value) is int:
        return f"uniform {value}" if value else "all"
    if value == NO_LIMIT and name in ("max-depth", "max-leaves"):
        return "none"
    return _show(value)


def _show(value: Any) -> str:
    if isinstance(value, dict):
        text = " ".join(f"{name}={weight}" for name, weight in value.items() if weight)
    elif isinstance(value, list):
        text = ",".join(map(str, value))
    elif value is None or isinstance(value, bool):
        text = {None: "none", True: "yes", False: "no"}[value]
    else:
        text = " ".join(str(value).split())
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."


def _show_seeds(seeds: list[int]) -> str:
    is_range = len(seeds) > 2 and seeds == list(range(seeds[0], seeds[0] + len(seeds)))
    return f"{seeds[0]}..{seeds[-1]}" if is_range else _show(seeds)


def _pack_options(options: TrainingOptions) -> dict[str, Any]:
    """The options that tuning may have changed."""
    return {each.name: getattr(options, each.name) for each in fields(options) if each.name not in SETTLED}


def _read_options(document: dict[str, Any], options: TrainingOptions) -> TrainingOptions:
    """The options that were asked for, with the stored values."""
    stored = take(document, "options", dict)
    found: dict[str, Any] = {}
    for name, value in _pack_options(options).items():
        found[name] = tuple(take(stored, name, list)) if isinstance(value, tuple) else take(stored, name, type(value))
    try:
        if not all(type(blend) in (int, float) for blend in found["blends"]):
            raise damaged("criteria of growth are no numbers")
        return replace(options, **found)
    except (OverflowError, RequestError):
        raise damaged("the options of a result are not what they should be") from None


def _pack_result(seed: int, result: TrainingResult) -> dict[str, Any]:
    model = result.model
    assert result.stop_reason is not None
    return {
        "seed": seed,
        "options": _pack_options(result.options),
        "trees": pack_models([model.tree(position) for position in range(model.n_trees)]),
        "is_forest": model.is_forest,
        "held_out_fitness": result.held_out_fitness,
        "held_out_rows": result.held_out_rows,
        "seconds": result.seconds,
        "stop_reason": result.stop_reason.value,
        "observed": result.observed,
        "tuning": result.tuning,
    }
