"""The guide to fairness shows what its commands print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parent.parent / "docs" / "fairness.md"
# Lines that hold measured times.
TIMED = re.compile(r"analysed in|training      seed")


def sessions() -> list[tuple[str, list[str]]]:
    """Commands and the lines that follow them."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", GUIDE.read_text(), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def without_times(lines: list[str]) -> list[str]:
    return [line.rstrip() for line in lines if not TIMED.search(line)]


@pytest.mark.skipif(sys.platform == "win32", reason="the commands of the guide are for a POSIX shell")
def test_the_commands_print_what_the_guide_shows(tmp_path: Path) -> None:
    program = f'metasilvae() {{ "{sys.executable}" -m metasilvae "$@"; }}\n'
    commands = sessions()
    assert len(commands) > 8
    for command, shown in commands:
        done = subprocess.run(
            ["sh", "-c", program + command], cwd=tmp_path, capture_output=True, text=True, env=os.environ, check=False
        )
        assert done.returncode == 0, (command, done.stderr)
        assert without_times(done.stdout.splitlines()) == without_times(shown), command
