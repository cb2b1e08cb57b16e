"""Checkpoint files that are damaged, or were made to do harm."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checkpoints import CASES, coarse, describe, make, stored, whole_run, written

from metasilvae.errors import CheckpointError, MetasilvaeError
from metasilvae.perturbations.boxes import Ball
from metasilvae.training.checkpoint.files import take, unpack
from metasilvae.training.checkpoint.runs import Checkpoint, read_checkpoint
from metasilvae.training.options import TrainingOptions
from metasilvae.training.pareto import TreeCollector
from metasilvae.training.results import TrainingResult

pytestmark = pytest.mark.usefixtures("_short_tuning")


def check_message(error: MetasilvaeError) -> None:
    assert "\n" not in str(error)


def resume_from(content: dict[str, Any], case: str) -> None:
    """What a command does with the content of a file."""
    keeper = Checkpoint("unused", describe(CASES[case]))
    keeper.resume(content)
    options = CASES[case]
    if keeper.result(3, options.tree_options, coarse()) is None:
        trainer = make(case)
        keeper.resume_trainer(3, trainer)
        for _ in trainer.run():
            pass


@pytest.fixture(scope="module", params=["tree", "tuned", "plain forest", "done"])
def checkpoint_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    case = "tree" if request.param == "done" else request.param
    folder = tmp_path_factory.mktemp(case)
    path = written(folder, case, n_steps=len(whole_run(case)[0]) - 2)
    if request.param == "done":
        keeper = Checkpoint(path, describe())
        keeper.resume(read_checkpoint(path))
        trainer = make("tree")
        keeper.resume_trainer(3, trainer)
        for progress in trainer.run():
            keeper.note(3, progress, trainer)
        keeper.close(3, TrainingResult.of(trainer), trainer)
        keeper.write()
    with open(path, "rb") as stream:
        return case, stream.read()


@settings(max_examples=150)
@given(data=st.data())
def test_mangled_bytes_are_refused(checkpoint_file: tuple[str, bytes], data: st.DataObject) -> None:
    _, content = checkpoint_file
    mangled = bytearray(content)
    kind = data.draw(st.sampled_from(["flip", "cut", "insert", "repeat"]))
    place = data.draw(st.integers(0, len(content) - 1))
    if kind == "flip":
        mangled[place] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del mangled[place:]
    elif kind == "insert":
        mangled[place:place] = data.draw(st.binary(min_size=1, max_size=9))
    else:
        mangled += content[place:]
    if bytes(mangled) == content:
        return
    with pytest.raises(CheckpointError) as caught:
        unpack(bytes(mangled))
    assert "\n" not in str(caught.value)


def sign(body: bytes) -> bytes:
    return b"metasilvae checkpoint 7\n%s\n%s" % (hashlib.sha256(body).hexdigest().encode(), body)


@settings(max_examples=100)
@given(data=st.data())
def test_mangled_bytes_with_a_right_digest_do_no_harm(checkpoint_file: tuple[str, bytes], data: st.DataObject) -> None:
    case, content = checkpoint_file
    body = bytearray(content.split(b"\n", 2)[2])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from(b'0123456789-.,[]{}"')))
    try:
        found = unpack(sign(bytes(body)))
        # Numbers of steps that are huge would only take long.
        resume_from(found, case)
    except MetasilvaeError as error:
        check_message(error)


def all_places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        found += all_places(each, (*path, key))
    return found


ODD_VALUES = [None, True, -1, 0, 3, 2**40, 1e300, -0.5, "", "x", [], {}, [1], {"a": 1}, np.zeros(0, np.int32),
              np.array([-5, 9], np.int32), np.array([2**40], np.int64), np.array([np.nan, 1.0])]  # fmt: skip


@settings(max_examples=150)
@given(data=st.data())
def test_odd_values_in_a_checkpoint_do_no_harm(checkpoint_file: tuple[str, bytes], data: st.DataObject) -> None:
    case, content = checkpoint_file
    document = unpack(content)
    path = data.draw(st.sampled_from(all_places(document)))
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    old = parent[path[-1]]
    if isinstance(old, np.ndarray) and len(old) and data.draw(st.booleans()):
        changed = old.copy()
        changed[data.draw(st.integers(0, len(old) - 1))] = data.draw(st.sampled_from([0, 1, 2, 3, 7, 100]))
        parent[path[-1]] = changed
    elif data.draw(st.booleans()):
        parent[path[-1]] = data.draw(st.sampled_from(ODD_VALUES))
    elif isinstance(parent, dict):
        del parent[path[-1]]
    try:
        resume_from(stored(document), case)
    except MetasilvaeError as error:
        check_message(error)


@settings(max_examples=150)
@given(data=st.data())
def test_odd_values_in_an_archive_do_no_harm(data: st.DataObject) -> None:
    options = CASES["tree"]
    assert isinstance(options, TrainingOptions)
    before, trainer = TreeCollector(coarse(), Ball(0.6), options), make("tree")
    trainer.observe(before)
    next(trainer.run())
    document = stored(before.state)
    place, *rest = data.draw(st.sampled_from(all_places(document)))
    target, key = (document, place) if not rest else (document[place], rest[0])
    numbers = target[key]
    if isinstance(numbers, np.ndarray) and len(numbers) and data.draw(st.booleans()):
        numbers = numbers.copy()
        numbers[data.draw(st.integers(0, len(numbers) - 1))] = data.draw(st.sampled_from([0, 1, 2, 3, 50]))
        target[key] = numbers
    else:
        target[key] = data.draw(st.sampled_from(ODD_VALUES))
    after, trainer = TreeCollector(coarse(), Ball(0.6), options, capacity=4), make("tree")
    trainer.observe(after)
    try:
        after.resume(stored(document))
    except MetasilvaeError as error:
        check_message(error)
    for _ in trainer.run():
        pass
    assert after.entries


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a checkpoint"),
        (b"metasilvae archive 1\n", "is not a checkpoint"),
        (b"metasilvae checkpoint 9\nx\n{}", "in format '9', expected 7"),
        (b"metasilvae checkpoint 7\n", "damaged or cut short"),
        (sign(b"{"), "not JSON"),
        (sign(b"[" * 100_000), "damaged"),
        (sign(b"[]"), "damaged"),
        (sign(b'{"arrays":[["<i4",1]],"content":{}}\n'), "an array is not complete"),
        (sign(b'{"arrays":[["<i4",-1]],"content":{}}\n'), "an array is not complete"),
        (sign(b'{"arrays":[["<i4",4611686018427387904]],"content":{}}\n'), "an array is not complete"),
        (sign(b'{"arrays":[["|O",1]],"content":{}}\n12345678'), "an array is not described"),
        (sign(b'{"arrays":[],"content":{}}\nrest'), "more follows"),
        (sign(b'{"arrays":[],"content":{"x":{"array":0}}}\n'), "an array is missing"),
    ],
)
def test_files_that_are_no_checkpoints(content: bytes, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        unpack(content)


def test_values_are_taken_by_their_kind() -> None:
    assert take({"a": 1}, "a", int) == 1
    assert take({"a": 1}, "a", float) == 1.0
    for value in (True, "1", -1, None, 1.5):
        with pytest.raises(CheckpointError):
            take({"a": value}, "a", int)
    with pytest.raises(CheckpointError):
        take({"a": float("nan")}, "a", float)
    with pytest.raises(CheckpointError):
        take([], "a", int)


def test_a_head_that_is_nested_too_deeply() -> None:
    body = b'{"arrays":[],"content":{"a":' + b"[" * 800 + b"]" * 800 + b"}}\n"
    digest = hashlib.sha256(body).hexdigest().encode()
    with pytest.raises(CheckpointError, match="damaged or cut short"):
        unpack(b"metasilvae checkpoint 7\n" + digest + b"\n" + body)
