"""The sessions in the documents show what their commands print.

The commands of a document run in one shell, in an empty folder, and print to a terminal; what goes to standard error
follows. A command that fails is followed by ``$ echo $?``. A block of shell that starts with the comment ``# NAME.sh``
is a file of that name.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.sessions import DOCUMENTS, LONG, find_scripts, find_sessions, run_all, without_times

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform == "win32", reason="the commands are for a POSIX shell")
@pytest.mark.parametrize(
    "document", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in DOCUMENTS]
)
def test_the_commands_print_what_the_document_shows(document: str, tmp_path: Path) -> None:
    text = (ROOT / document).read_text()
    sessions = find_sessions(text)
    assert len(sessions) >= DOCUMENTS[document]
    printed = run_all([command for command, _ in sessions], find_scripts(text), tmp_path)
    assert len(printed) == len(sessions)
    for (command, shown), lines in zip(sessions, printed, strict=True):
        assert without_times(lines) == without_times(shown), command
