"""Ctrl-C during long work on rows: what is known by then is reported, marked as partial."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import signal
import threading
from collections.abc import Iterator

import pytest
from support.command import run
from support.remote_tasks import wait_until

from metasilvae.cli.interrupts import Interrupts, Terminated, raising_terminated
from metasilvae.output.text.terminal import WATCHER, RowBar


@pytest.fixture(autouse=True)
def _row_by_row(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Rows are decided one at a time, and a shell's ignored interrupts are taken again."""
    monkeypatch.setattr("metasilvae.verification.forest.ROWS_PER_CHUNK", 1)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def interrupt_after(monkeypatch: pytest.MonkeyPatch) -> object:
    """Makes the signal come with the given call that announces rows."""

    def prepare(n_calls: int) -> None:
        left = iter(range(n_calls - 1, -1, -1))
        monkeypatch.setattr(
            RowBar, "advance", lambda self, n_rows: signal.raise_signal(signal.SIGINT) if next(left, 1) == 0 else None
        )

    return prepare


def test_evaluate(hard_forest: tuple[str, str], interrupt_after: object) -> None:
    forest, rows = hard_forest
    words = ["evaluate", forest, forest, rows, "--epsilon", 0.2, "--epsilon", 0.5, "--jobs", 1]
    complete = json.loads(run(*words, "--format", "json").stdout)["evaluations"]
    assert not any("complete" in record for record in complete)
    interrupt_after(8)
    found = run(*words, "--format", "json", code=130)
    assert found.stderr == "interrupted; 1 of 4 evaluations are complete\n"
    document = json.loads(found.stdout)
    assert document["partial"] == {"reason": "interrupted", "evaluations_missing": 2}
    first, second = document["evaluations"]
    assert first == {**complete[0], "complete": True}
    assert (second["complete"], second["no_info"]) == (False, 4)
    interrupt_after(8)
    text = run(*words, code=130).stdout
    assert "partial, because it was interrupted: " in text
    assert "; 2 evaluations were not started\n" in text
    interrupt_after(8)
    lines = list(csv.DictReader(io.StringIO(run(*words, "--format", "csv", code=130).stdout)))
    assert [line["complete"] for line in lines] == ["True", "False"]


def test_curve(hard_forest: tuple[str, str], interrupt_after: object) -> None:
    forest, rows = hard_forest
    words = ["evaluate", forest, rows, "--curve", "--jobs", 1]
    interrupt_after(2)
    found = run(*words, code=130)
    assert found.stderr == "interrupted; 2 of 6 radii are exact\n"
    assert found.stdout.endswith("\n4 radii are lower bounds: the search was interrupted\n")
    interrupt_after(2)
    document = json.loads(run(*words, "--format", "json", code=130).stdout)
    assert [(curve["rows_exact"], curve["rows_interrupted"]) for curve in document["curves"]] == [(2, 4)]


def test_drawn_curve(hard_forest: tuple[str, str], interrupt_after: object) -> None:
    pytest.importorskip("matplotlib")
    words = ["plot", "curve", *hard_forest, "--jobs", 1, "-o", "-", "--format", "svg"]
    assert "(at least)" not in run(*words).stdout
    interrupt_after(2)
    found = run(*words, code=130)
    assert found.stderr == "interrupted; 2 of 6 radii are exact\n"
    assert "(at least)" in found.stdout


def test_radius(hard_forest: tuple[str, str], interrupt_after: object) -> None:
    interrupt_after(1)
    found = run("verify", *hard_forest, "--radius", "--jobs", 1, code=130)
    assert found.stderr == "interrupted; 1 of 6 radii are exact\n"
    assert "\n5 radii are lower bounds: the search was interrupted\n" in found.stdout
    assert "limits" not in found.stdout


def test_explain(hard_forest: tuple[str, str], interrupt_after: object) -> None:
    words = ["explain", *hard_forest, "--epsilon", 0.5, "--jobs", 1, "--format", "json"]
    complete = json.loads(run(*words).stdout)
    n_unstable = len(complete["rows"])
    assert n_unstable >= 3
    # All six rows are verified, then the radii of two are found.
    interrupt_after(8)
    found = run(*words, code=130)
    assert found.stderr == f"interrupted; 0 of {n_unstable} unstable rows are fully explained\n"
    document = json.loads(found.stdout)
    assert document["partial"] == {"reason": "interrupted", "rows": n_unstable}
    # The others have the witnesses of their verification, which need not be the nearest ones.
    assert [row["row"] for row in document["rows"]] == [row["row"] for row in complete["rows"]]
    assert [row["point"] for row in document["rows"][:2]] == [row["point"] for row in complete["rows"][:2]]
    assert all(row["point"] is not None for row in document["rows"])
    assert [row["radius"] for row in document["rows"][:2]] == [row["radius"] for row in complete["rows"][:2]]
    assert ["radius_at_most" in row for row in document["rows"]] == [False] * 2 + [True] * (n_unstable - 2)
    assert all(row["freeze"] is None and not row["freeze_is_smallest"] for row in document["rows"])
    # While rows are verified.
    interrupt_after(1)
    text = run(*words[:-2], code=130).stdout
    assert ", 5 undecided\n\npartial, because it was interrupted: " in text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


HINT = "this takes long"


def test_a_hint_where_nothing_is_done_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("metasilvae.output.text.terminal.PATIENCE", 0.01)
    with RowBar(3, hint=HINT) as bar:
        wait_until(lambda: HINT in terminal.getvalue())
        bar.advance(1)
    assert terminal.getvalue().count(HINT) == 1


def test_no_hint_while_rows_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with RowBar(3, hint=HINT) as bar:
        watcher = next(thread for thread in threading.enumerate() if thread.name == WATCHER)
        bar.advance(3)
    watcher.join(60)
    assert not watcher.is_alive()
    assert HINT not in terminal.getvalue()


def test_a_signal_whose_exception_was_dropped_is_raised_again() -> None:
    """Compiled modules may drop it while they are imported."""

    def drop() -> None:
        with contextlib.suppress(Terminated):
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Terminated), raising_terminated():
        drop()
    begun = []

    def begin() -> None:
        with Interrupts():
            begun.append(True)

    def drop_and_begin() -> None:
        with raising_terminated():
            drop()
            begin()

    with pytest.raises(Terminated):
        drop_and_begin()
    assert not begun
    begin()
    assert begun, "nothing of the signal is left"
