"""Running commands as processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COMMAND = [sys.executable, "-m", "metasilvae"]


def start(*arguments: str, cwd: Path | str, environment: dict[str, str] | None = None, **options) -> subprocess.Popen:
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen([*COMMAND, *arguments], cwd=cwd, env={**os.environ, **(environment or {})}, **options)


def finish(process: subprocess.Popen, stdin: str | None = None) -> tuple[int, str, str]:
    out, err = process.communicate(stdin, timeout=120)
    return process.returncode, out, err
