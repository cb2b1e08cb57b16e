"""A training run kept in a file, so that it can go on after its process was killed, to the same model byte for byte.

A checkpoint holds what the run depends on (data, options, versions), the models of seeds that are finished, and where
the present seed stands. It is written as a whole, and takes the place of the one before when it is complete.

What a log was told of a run, so that it is known again when the run goes on.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.errors import CheckpointError, MetasilvaeWarning, OutputError
from metasilvae.io import storage
from metasilvae.model import Model, join_trees
from metasilvae.training.checkpoint.files import damaged, pack, pack_models, take, unpack, unpack_models
from metasilvae.training.options import NO_LIMIT, TrainingOptions
from metasilvae.training.pareto import TreeCollector
from metasilvae.training.protocol import Progress, StopReason
from metasilvae.training.provenance import TIME_LIMIT
from metasilvae.training.runs import TrainingResult
from metasilvae.training.trainers import AnyTrainer

# What the same run tells again; seconds are not.
_REPEATED = ("seed", "phase", "step", "fitness", "leaves", "offspring")


@dataclass(frozen=True)
class LogPosition:
    """The number of records of a log, and a digest of them; it is None where it is not known."""

    n_steps: int = 0
    digest: str | None = ""

    @classmethod
    def read(cls, document: dict[str, Any], key: str) -> LogPosition:
        stored = take(document, key, dict)
        return cls(take(stored, "n_steps", int), None if stored.get("digest") is None else take(stored, "digest", str))

    def after(self, seed: int, progress: Progress) -> LogPosition:
        """With one more step."""
        return self.after_record({"seed": seed, **asdict(progress)})

    def after_record(self, record: dict[str, Any]) -> LogPosition:
        """With one more record of a log; a KeyError if it is none."""
        if self.digest is None:
            return LogPosition(self.n_steps + 1, None)
        text = json.dumps([self.digest, *(record[name] for name in _REPEATED)])
        return LogPosition(self.n_steps + 1, blake2b(text.encode(), digest_size=12).hexdigest())


# Unless steps are counted, a checkpoint is written so often, and never takes more than this share of the time.
SECONDS_BETWEEN = 10.0
LARGEST_SHARE = 0.05
# What presets alone decide.
PRESET_ONLY = {"blends", "seed-leaves", "split-by-score", "max-burst", "strength", "focus", "searches-if-few"}
LONGEST_VALUE = 60


class Checkpoint:
    """The file of one training run.

    Parameters
    ----------
    path : str
        Where to write.
    run : dict
        Of `metasilvae.training.provenance.describe_run`.
    every : int or None
        Steps from one writing to the next; None goes by the clock.
    collector : TreeCollector or None
        What observes the trainer, and is kept with it.

    Attributes
    ----------
    told : Told
        What was told before the run goes on.
    n_starts : int
        How often the run was started.
    """

    def __init__(
        self, path: str, run: dict[str, Any], every: int | None = None, collector: TreeCollector | None = None
    ) -> None:
        self.path = path
        self.told = LogPosition()
        self.n_starts = 1
        self._run = run
        self._every = every
        self._collector = collector
        self._found: dict[int, dict[str, Any]] = {}
        self._seed: int | None = None
        self._state: dict[str, Any] | None = None
        # What was told before the present seed, and when its state was taken; what was told last and just before.
        self._before = self._held = LogPosition()
        self._latest = [LogPosition(), LogPosition()]
        self._n_unwritten = 0
        self._due = time.monotonic() + SECONDS_BETWEEN

    # Going on

    def take_over(self, document: dict[str, Any]) -> None:
        """Go on from the content of a checkpoint file; it must be one of the same run."""
        stored = take(document, "run", dict)
        check_same_run(stored, self._run)
        self.told = LogPosition.read(document, "told")
        self.n_starts = take(document, "starts", int) + 1
        self._found = {take(found, "seed", int): found for found in take(document, "found", list)}
        if document.get("state") is not None:
            self._seed = take(document, "seed", int)
            self._state = take(document, "state", dict)
            self._held = LogPosition.read(document, "held")
            found = self._found.get(self._seed)
            if found is not None and _has_more_time(stored["options"], self._run["options"]):
                del self._found[self._seed]
            if self._seed not in self._found:
                self.told = self._held
                n_of_seed = take(self._state, "steps", int)
                self._before = LogPosition(self.told.n_steps - n_of_seed, None)
        self._latest = [self.told, self.told]

    def finding(self, seed: int, options: TrainingOptions, dataset: Dataset) -> TrainingResult | None:
        """What the finished run of a seed has found; None if it is not finished."""
        if seed not in self._found:
            return None
        document = self._found[seed]
        trees = unpack_models(take(document, "trees", dict), dataset)
        if not trees:
            raise damaged("a model has no trees")
        held_out = document.get("held_out_fitness")
        self._inform_collector(document)
        try:
            reason = StopReason(take(document, "stop_reason", str))
        except ValueError:
            raise damaged("a run has ended for an unknown reason") from None
        return TrainingResult(
            options,
            join_trees(trees) if take(document, "is_forest", bool) else trees[0],
            None if held_out is None else take(document, "held_out_fitness", float, float("-inf")),
            take(document, "held_out_rows", int),
            take(document, "seconds", float),
            reason,
        )

    def resume(self, seed: int, trainer: AnyTrainer) -> tuple[int, float]:
        """Bring a trainer where the run of its seed stood; the number of steps and the seconds that it took."""
        if self._state is None or seed != self._seed:
            self._before = self._latest[-1]
            return 0, 0.0
        trainer.resume(self._state)
        self._inform_collector(self._state)
        return take(self._state, "steps", int), take(self._state, "seconds", float)

    # Keeping

    def note(self, seed: int, progress: Progress, trainer: AnyTrainer) -> None:
        """A step was done and told; write if it is time."""
        self._latest = [self._latest[-1], self._latest[-1].after(seed, progress)]
        self._write_if_due(lambda: self._hold(seed, trainer))

    def close(self, seed: int, finding: TrainingResult, trainer: AnyTrainer | None = None) -> None:
        """The run of a seed has ended; if it was interrupted, keep where it stood."""
        is_cut_short = finding.stop_reason in (StopReason.INTERRUPTED, StopReason.TIME_LIMIT)
        if trainer is not None and is_cut_short:
            self._hold(seed, trainer)
        else:
            self._seed = self._state = None
        if finding.stop_reason is not StopReason.INTERRUPTED:
            observed = None if self._collector is None else self._collector.state
            self._found[seed] = {**_pack_finding(seed, finding), "observed": observed}
        self._write_if_due(lambda: None)

    def write(self) -> None:
        """Write what is known now. If that fails, training is worth more than its checkpoint: it is told, once."""
        begin = time.monotonic()
        content = {
            "run": self._run,
            "found": list(self._found.values()),
            "seed": self._seed,
            "state": self._state,
            "held": asdict(self._held),
            "told": asdict(self._latest[-1]),
            "starts": self.n_starts,
        }
        try:
            storage.write_output(self.path, pack(content))
        except OutputError as error:
            warnings.warn(f"{error}; training goes on without a new checkpoint", MetasilvaeWarning, stacklevel=2)
        self._n_unwritten = 0
        now = time.monotonic()
        self._due = now + max(SECONDS_BETWEEN, (now - begin) / LARGEST_SHARE)

    def _inform_collector(self, document: dict[str, Any]) -> None:
        # Before the first tree that it is shown, it knows nothing.
        if self._collector is not None and document.get("observed") is not None:
            self._collector.resume(take(document, "observed", dict))

    def _hold(self, seed: int, trainer: AnyTrainer) -> None:
        self._seed, self._state = seed, trainer.state
        # A step that was cut short was told, but has no part in the state.
        n_steps = self._before.n_steps + self._state["steps"]
        self._held = next((told for told in self._latest if told.n_steps == n_steps), LogPosition(n_steps, None))

    def _write_if_due(self, prepare: Callable[[], None]) -> None:
        self._n_unwritten += 1
        if time.monotonic() >= self._due if self._every is None else self._n_unwritten >= self._every:
            prepare()
            self.write()


def read_checkpoint(path: str) -> dict[str, Any]:
    """The content of a checkpoint file."""
    try:
        return unpack(storage.read_source(path))
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
    for name in dict.fromkeys(["trees", *our_options, *options]):
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
    # Random numbers of numpy may change from one version to another; Python has no part in the result.
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


def _pack_finding(seed: int, finding: TrainingResult) -> dict[str, Any]:
    model: Model = finding.model
    assert finding.stop_reason is not None
    return {
        "seed": seed,
        "trees": pack_models([model.tree(position) for position in range(model.n_trees)]),
        "is_forest": model.is_forest,
        "held_out_fitness": finding.held_out_fitness,
        "held_out_rows": finding.held_out_rows,
        "seconds": finding.seconds,
        "stop_reason": finding.stop_reason.value,
    }
