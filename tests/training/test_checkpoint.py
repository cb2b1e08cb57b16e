"""Runs that end anywhere and are resumed from a checkpoint: the same model, the same steps."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checkpoints import CASES, PLAIN, coarse, describe, make, stored, strip, whole_run, written

from metasilvae.errors import CheckpointError, MetasilvaeWarning
from metasilvae.formats.silva_models import format_model, same_model
from metasilvae.model import join_trees
from metasilvae.perturbations.boxes import Ball
from metasilvae.training.checkpoint import runs as checkpoints
from metasilvae.training.checkpoint.files import pack_models, unpack_individuals, unpack_models
from metasilvae.training.checkpoint.runs import Checkpoint, check_same_run, read_checkpoint
from metasilvae.training.evolution import TreeTrainer
from metasilvae.training.logs import LogPosition, make_record
from metasilvae.training.options import ForestOptions, TrainingOptions, options_for
from metasilvae.training.protocol import Progress, Trainer
from metasilvae.training.results import TrainingResult
from metasilvae.training.runs import make_trainer

pytestmark = pytest.mark.usefixtures("_short_tuning")


def run_in_parts(case: str, lengths: list[int], jobs: int = 1) -> tuple[list[Progress], Trainer]:
    """A run that is killed after each of the given numbers of steps; the last one goes to the end."""
    records: list[Progress] = []
    state = None
    for length in [*lengths, None]:
        trainer = make(case, jobs)
        if state is not None:
            trainer.resume(state)
        running = trainer.run()
        for record in running if length != 0 else ():
            records.append(strip(record))
            state = stored(trainer.state)
            assert state["steps"] == len(records)
            if length is not None and len(records) >= length:
                break
        running.close()
    return records, trainer


# Resuming


@pytest.mark.parametrize("case", CASES)
def test_a_run_killed_after_any_step_and_resumed_ends_as_an_unbroken_one(case: str) -> None:
    records, model, held_out, reason = whole_run(case)
    n_steps = len(records)
    # All of the early and late steps, where phases change, and some in between.
    places = (
        range(n_steps + 1) if n_steps <= 20 else [*range(8), *range(8, n_steps - 8, 9), *range(n_steps - 8, n_steps)]
    )
    for place in places:
        found, trainer = run_in_parts(case, [place])
        assert format_model(trainer.model) == model, place
        assert found == records, place
        assert (trainer.held_out_fitness, trainer.stop_reason) == (held_out, reason), place


@settings(max_examples=25)
@given(st.sampled_from(sorted(CASES)), st.lists(st.integers(0, 60), max_size=6).map(sorted), st.integers(1, 2))
def test_a_run_killed_again_and_again(case: str, lengths: list[int], jobs: int) -> None:
    records, model, _, _ = whole_run(case)
    found, trainer = run_in_parts(case, lengths, jobs)
    assert format_model(trainer.model) == model
    assert found == records


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("case", ["tree", "held out", "tuned", "forest", "independent", "paper"])
def test_a_stop_leaves_a_state_to_resume_from(case: str, jobs: int) -> None:
    """Work that a stop has cut short is in the model of now, and has no part in the state."""
    records, model, _, _ = whole_run(case)
    for place in range(0, len(records), max(1, len(records) // 12)):
        trainer = make(case, jobs)
        reported = 0
        if place == 0:
            trainer.stop()
        for reported, _ in enumerate(trainer.run(), 1):
            if reported == place:
                trainer.stop()
        state = stored(trainer.state)
        assert place - 1 <= state["steps"] <= max(reported, place)
        again = make(case, jobs)
        again.resume(state)
        rest = [strip(record) for record in again.run()]
        assert format_model(again.model) == model
        assert rest == records[state["steps"] :]


def test_trees_to_start_from() -> None:
    forest = join_trees([make_trainer(coarse(), Ball(0.6), options_for("fast", seed=seed)).model for seed in (0, 1)])
    options = options_for("default", **PLAIN, greedy=False)
    trainer = TreeTrainer(coarse(), Ball(0.6), options, forest=forest)
    states = [stored(trainer.state) for _ in trainer.run()]
    for state in states:
        again = TreeTrainer(coarse(), Ball(0.6), options, forest=forest)
        again.resume(state)
        for _ in again.run():
            pass
        assert format_model(again.model) == format_model(trainer.model)


def test_a_resumed_run_has_the_rest_of_its_time() -> None:
    for case in ("tree", "tuned", "forest"):
        trainer = make(case)
        next(trainer.run())
        state = {**trainer.state, "seconds": 1e6}
        if case == "tuned":
            state["initial"]["seconds"] = 1e6
        options = CASES[case]
        limited: TrainingOptions | ForestOptions
        if isinstance(options, ForestOptions):
            limited = dataclasses.replace(options, tree=dataclasses.replace(options.tree, time_limit=10.0))
        else:
            limited = dataclasses.replace(options.tree_options, time_limit=10.0)
        again = make_trainer(coarse(), Ball(0.6), limited)
        again.resume(stored(state))
        assert len(list(again.run())) <= 1
        assert again.stop_reason is not None
        assert again.stop_reason.value == "time limit"


def test_individuals_come_back_with_all_they_know() -> None:
    trainer = make("no elite")
    for _ in trainer.run():
        state = stored(trainer.state)
        workspace = trainer._workspaces.get()
        again = unpack_individuals(state["individuals"], trainer._samples, trainer._objective, workspace)
        trainer._workspaces.put(workspace)
        best = again[state["best"]]
        assert best.counts == trainer._best.counts
        known = zip(*(tree.nodes() + tree.tests() for tree in (best, trainer._best)), strict=True)
        for ours, theirs in known:
            np.testing.assert_array_equal(ours, theirs)


def test_models_come_back() -> None:
    trainer = make("forest")
    for _ in trainer.run():
        pass
    trees = [trainer.model.tree(position) for position in range(trainer.model.n_trees)]
    again = unpack_models(stored(pack_models(trees)), coarse())
    assert all(same_model(one, other) for one, other in zip(trees, again, strict=True))
    assert format_model(join_trees(again)) == format_model(trainer.model)
    assert unpack_models(stored(pack_models([])), coarse()) == []


@pytest.mark.parametrize("count", [-1, 2**53 + 1, 2**62, None])
def test_counts_that_no_model_can_hold_are_refused(count: int | None) -> None:
    trainer = make("cart")
    for _ in trainer.run():
        pass
    document = stored(pack_models([trainer.model]))
    counts = document["counts"] = document["counts"].copy()
    if count is None:
        counts[:3] = 0
    else:
        counts[0] = count
    with pytest.raises(CheckpointError, match="all counts of a leaf are zero" if count is None else "a class count"):
        unpack_models(document, coarse())


# Files


def position_of(case: str, n_steps: int) -> LogPosition:
    reported = LogPosition()
    for progress in whole_run(case)[0][:n_steps]:
        reported = reported.after(make_record(3, progress))
    return reported


def test_a_checkpoint_of_a_file(tmp_path: Any) -> None:
    keeper = Checkpoint(written(tmp_path), describe())
    keeper.resume(read_checkpoint(keeper.path))
    trainer = make("tree")
    assert keeper.resume_trainer(3, trainer) == 4
    assert trainer.seconds > 0
    assert keeper.n_starts == 2
    assert keeper.reported.n_steps == 4
    assert keeper.reported == position_of("tree", 4)
    for progress in trainer.run():
        keeper.note(3, progress, trainer)
    keeper.close(3, dataclasses.replace(TrainingResult.of(trainer), seconds=1.5), trainer)
    keeper.write()
    again = Checkpoint(keeper.path, describe())
    again.resume(read_checkpoint(keeper.path))
    found = again.result(3, trainer.options, coarse())
    assert found is not None
    assert format_model(found.model) == whole_run("tree")[1]
    assert (found.seconds, found.stop_reason) == (1.5, trainer.stop_reason)
    assert again.reported == position_of("tree", len(whole_run("tree")[0]))


def test_checkpoints_go_by_steps_or_by_the_clock(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make("tree")
    record = next(trainer.run())
    for every, clock, expected in ((3, 0.0, [3, 6]), (None, 0.0, []), (None, 4.0, [3, 6])):
        now = [0.0]
        monkeypatch.setattr(checkpoints.time, "monotonic", lambda now=now: now[0])
        keeper = Checkpoint(str(tmp_path / "run.checkpoint"), describe(), every)
        writes = []
        monkeypatch.setattr(checkpoints.storage, "write_output", lambda *_, steps=writes, now=now: steps.append(now[1]))
        now.append(0)
        for step in range(1, 9):
            now[0] += clock
            now[1] = step
            keeper.note(3, record, trainer)
        assert writes == expected


def test_a_full_disk_does_not_end_the_training(tmp_path: Any) -> None:
    keeper = Checkpoint(str(tmp_path / "gone" / "run.checkpoint"), describe(), every=1)
    trainer = make("tree")
    with pytest.warns(MetasilvaeWarning, match="training continues without a new checkpoint"):
        keeper.note(3, next(trainer.run()), trainer)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda run: run["versions"].update(metasilvae="0.0.1"), "was written with metasilvae 0.0.1, this is "),
        (lambda run: run["versions"].update(numpy="1.0"), "was written with numpy 1.0, this is "),
        (lambda run: run["data"].update(rows=7), "was written with data with 7 rows, <memory> has 50; "),
        (lambda run: run["data"].update(fingerprint="x", file="old.csv"), "with other rows (of old.csv), those of "),
        (lambda run: run["perturbation"].update(fingerprint="x"), "l_inf 0.6, this is another one of that name"),
        (lambda run: run.update(perturbation={"description": "l_inf 1"}), "perturbation l_inf 1, this is l_inf 0.6"),
        (lambda run: run.update(start="x"), "with other trees to start from, see --population-generator"),
        (lambda run: run.update(seeds=[1, 2, 3, 4]), "--seeds 1..4, this run has 3"),
        (lambda run: run.update(seeds=[]), "damaged"),
        (lambda run: run["options"].update(elitism=7), "--elitism 7, this run has 2"),
        (lambda run: run["options"].update({"max-leaves": 8}), "--max-leaves 8, this run has none; "),
        (lambda run: run["options"].update({"max-depth": 3}), "--max-depth 3, this run has none; "),
        (
            lambda run: run["options"].update({"allowed-features": 2}),
            "--allowed-features uniform 2, this run has all; ",
        ),
        (lambda run: run.update(seeds=[4]), "with --seed 4, this run has 3"),
        (lambda run: run["options"].update(target=0.5), "--target 0.5, this run has none"),
        (lambda run: run["options"].update(blends=[0.5]), "another --preset, with blends 0.5, this run has 0.3,0.1"),
        (lambda run: run["options"].update(trees=5), "--trees 5, this run has none"),
        (lambda run: run["options"]["weight"].update(robust=1.0), "--weight correct=0.9 stable=0.1 robust=1.0, this"),
        (lambda run: run["options"].pop("time-limit"), "damaged"),
        (lambda run: run.pop("options"), "damaged"),
    ],
)
def test_what_does_not_match_is_refused(change: Any, message: str) -> None:
    found = json.loads(json.dumps(describe()))
    check_same_run(found, describe())
    change(found)
    with pytest.raises(CheckpointError) as caught:
        check_same_run(found, describe())
    assert message in str(caught.value)


def test_what_was_given_and_is_not_any_more() -> None:
    limited = dataclasses.replace(CASES["tree"], max_depth=3)
    with pytest.raises(CheckpointError, match="--max-depth none, this run has 3"):
        check_same_run(describe(), describe(limited))
    limited = dataclasses.replace(CASES["tree"], allowed_features=2)
    with pytest.raises(CheckpointError, match="--allowed-features all, this run has uniform 2"):
        check_same_run(describe(), describe(limited))


def test_only_the_time_limit_of_a_single_run_may_change() -> None:
    limited = dataclasses.replace(CASES["tree"], time_limit=5.0)
    check_same_run(describe(), describe(limited))
    check_same_run(describe(limited), describe())
    with pytest.raises(CheckpointError, match="--time-limit none, this run has 5"):
        check_same_run(describe(seeds=[1, 2]), describe(limited, seeds=[1, 2]))


def test_content_is_what_counts() -> None:
    dataset = coarse()
    renamed = dataclasses.replace(dataset, source="elsewhere.csv", feature_names=("x", "y", "z"))
    check_same_run(describe(), describe(dataset=renamed))
    X = dataset.X.copy()
    X[0, 0] = np.nextafter(X[0, 0], 9)
    with pytest.raises(CheckpointError, match="with other rows"):
        check_same_run(describe(), describe(dataset=dataclasses.replace(dataset, X=X)))
    for other in (Ball(0.7), Ball(0.6, -1.0)):
        with pytest.raises(CheckpointError, match="with perturbation"):
            check_same_run(describe(), describe(perturbation=other))
