"""Sessions in the documents: commands with the output they print."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

SHOW_CODE = "echo $?"
DONE = "=== the command has ended ==="

DOCUMENTS = {
    "README.md": 9, "docs/attack.md": 4, "docs/cluster.md": 6, "docs/fairness.md": 9, "docs/formats.md": 9,
    "docs/insight.md": 11, "docs/method.md": 3, "docs/monotonicity.md": 2,
    "docs/norms.md": 8, "docs/regions.md": 3, "docs/sensitivity.md": 2, "docs/sufficient.md": 1, "docs/targets.md": 9,
    "docs/training.md": 4, "docs/tutorial.md": 17,
}  # fmt: skip
LONG = ("docs/cluster.md", "docs/fairness.md", "docs/insight.md", "docs/training.md", "docs/tutorial.md")


def find_sessions(text: str) -> list[tuple[str, list[str]]]:
    """Commands and the lines that follow them."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def without_times(lines: list[str]) -> list[str]:
    """Lines in which no measured time stands."""
    shown = [re.sub(r"\d[\d.e-]* s\b", "T s", line.rstrip()) for line in lines]
    return [re.sub(r"^(\[SUMMARY\] +\d+) +[\d.e-]+", r"\1 T", line) for line in shown]


def make_environment(programs: Path) -> dict[str, str]:
    """Variables for a shell that finds this metasilvae, and this Python, in a new folder of programs."""
    programs.mkdir()
    for program, options in {"metasilvae": "-m metasilvae", "python3": ""}.items():
        (programs / program).write_text(f'#!/bin/sh\nexec "{sys.executable}" {options} "$@"\n')
        (programs / program).chmod(0o755)
    return os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}


def find_scripts(text: str) -> dict[str, str]:
    """Names and contents of the files that a document shows."""
    return {
        name: script
        for script, name in re.findall(
            r"^```(?:sh|toml)\n(# (\w+\.(?:sh|toml)).*?)^```", text, re.DOTALL | re.MULTILINE
        )
    }


def run_all(commands: list[str], scripts: dict[str, str], folder: Path) -> list[list[str]]:
    """Lines that each command prints; a code other than 0 that no ``echo $?`` shows is added to them."""
    work = folder / "work"
    work.mkdir()
    environment = make_environment(folder / "programs")
    for name, script in scripts.items():
        (work / name).write_text(script)
    lines = ["code=0"]
    for command, following in zip(commands, [*commands[1:], ""], strict=True):
        lines += ["(exit $code)", f"{{ {command}", "} 2> ../errors", "code=$?", "cat ../errors"]
        if following != SHOW_CODE:
            lines += ['test $code = 0 || echo "exit code $code"']
        lines += [f"echo '{DONE}'"]
    text = run_on_terminal("\n".join(lines), work, environment)
    return [part.splitlines() for part in text.split(f"{DONE}\n")[:-1]]


def run_on_terminal(script: str, folder: Path, environment: dict[str, str]) -> str:
    """What the script writes to its standard output, which is a terminal."""
    ours, theirs = os.openpty()
    pieces = []
    with subprocess.Popen(["sh", "-c", script], cwd=folder, stdin=subprocess.DEVNULL, stdout=theirs, env=environment):
        os.close(theirs)
        # A terminal that nobody writes to any more is an error on Linux and an empty read elsewhere.
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 1 << 16):
                pieces.append(piece)
    os.close(ours)
    return b"".join(pieces).decode().replace("\r\n", "\n")
