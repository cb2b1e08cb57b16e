"""Sessions in the documents: commands with the output they print."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

DOCUMENTS = {
    "README.md": 9, "docs/attack.md": 4, "docs/cluster.md": 6, "docs/fairness.md": 9, "docs/formats.md": 9,
    "docs/insight.md": 11, "docs/method.md": 3, "docs/training.md": 4, "docs/tutorial.md": 17,
}  # fmt: skip


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


def make_environment(programs: Path) -> dict[str, str]:
    """Variables for a shell that finds this metasilvae, and this Python, in a new folder of programs."""
    programs.mkdir()
    for program, options in {"metasilvae": "-m metasilvae", "python3": ""}.items():
        (programs / program).write_text(f'#!/bin/sh\nexec "{sys.executable}" {options} "$@"\n')
        (programs / program).chmod(0o755)
    return os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
