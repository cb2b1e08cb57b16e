"""Readers given anything: a short run of what scripts/fuzz does at length."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

import pytest
import targets
from hypothesis import given
from hypothesis import strategies as st
from mutation import mutate
from targets import TARGETS, Finding, seeds, try_one

from metasilvae.formats import text


@pytest.fixture(autouse=True, scope="module")
def _small_limits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("METASILVAE_MEMORY", "16M")
        patch.setattr(text, "CHUNK_BYTES", text.CHUNK_BYTES)  # put back what the targets change
        yield


def test_every_target_has_seeds() -> None:
    assert {path.name for path in targets.CORPUS.iterdir()} == set(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_some_seeds_are_valid(target: str) -> None:
    assert any(try_one(target, content) for content in seeds(target))


@pytest.mark.parametrize("target", TARGETS)
def test_changed_files(target: str) -> None:
    for content in islice(mutate(random.Random(1), seeds(target)), 300):
        try_one(target, content)


@given(st.sampled_from(list(TARGETS)), st.data())
def test_anything(target: str, data: st.DataObject) -> None:
    seed = st.sampled_from(seeds(target))
    parts = st.lists(st.binary(max_size=20) | seed.map(lambda text: text[: len(text) // 2]) | seed, max_size=4)
    try_one(target, b"".join(data.draw(parts)))


@pytest.mark.parametrize("fault", [ValueError("odd"), Finding("wrong"), RecursionError()])
def test_what_is_no_clear_error_is_a_finding(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(content: bytes) -> None:
        raise fault

    monkeypatch.setitem(TARGETS, "model", fail)
    with pytest.raises(type(fault)):
        try_one("model", b"")


def test_a_message_of_two_lines_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(content: bytes) -> None:
        raise targets.MetasilvaeError("one\ntwo")

    monkeypatch.setitem(TARGETS, "model", fail)
    with pytest.raises(Finding, match="not one line"):
        try_one("model", b"")
