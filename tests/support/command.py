"""Runs the command line inside the test process; `test_processes.py` runs it in processes of their own."""

from __future__ import annotations

import inspect
from pathlib import Path

from click.testing import CliRunner, Result

from metasilvae.cli import main

# Splits on two features, and every kind of tie.
TREE = """\
classifier-decision-tree 2 3 a bb c
SPLIT 0 0.5
SPLIT 1 0.25
LEAF 3 0 0
LEAF 2 2 0
SPLIT 1 0.75
LEAF 0 4 4
LEAF 1 1 1
"""
ROWS = """\
# 7 2
a,0.1,0.1
bb,0.45,0.9
c,0.9,0.7
a,0.6,0.9
bb,0.51,0.2
c,0.1,0.1
a,0.45,0.1
"""
FOREST = """\
classifier-forest 2
classifier-decision-tree 2 2 a b
SPLIT 0 0.5
LEAF 1 0
LEAF 0 1
classifier-decision-tree 2 2 a b
LEAF 3 1
"""
# Two pairs of trees that contradict each other, and one that decides: a everywhere, which one step does not show.
HARD_FOREST = "classifier-forest 5\nclassifier-decision-tree 2 2 a b\nLEAF 1 0\n" + "".join(
    f"classifier-decision-tree 2 2 a b\nSPLIT {test}\nLEAF {left}\nLEAF {right}\n"
    for test in ("0 0.5", "1 0.1")
    for left, right in (("1 0", "0 1"), ("0 1", "1 0"))
)


def run(
    *arguments: object, stdin: str | bytes | None = None, code: int | None = 0, may_be_faulty: bool = False
) -> Result:
    """Run a command, check its exit code and that it shows no fault of ours."""
    keeps_apart = "mix_stderr" in inspect.signature(CliRunner).parameters
    runner = CliRunner(mix_stderr=False) if keeps_apart else CliRunner()
    result = runner.invoke(main, [str(argument) for argument in arguments], stdin, prog_name="metasilvae")
    assert may_be_faulty or "Traceback" not in result.stderr
    assert may_be_faulty or "internal error" not in result.stderr
    assert code is None or result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
    return result


def write(folder: Path, name: str, text: str | bytes) -> str:
    """Write a file and return its path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)
