"""Run the sessions in the documents and write the output of their commands into them.

    python scripts/update_sessions.py [DOCUMENT ...]

Lines with measured times stay unchanged if nothing else changed. Review the difference before committing it: the test
of the sessions compares with the documents, so it cannot detect a wrong output that was written here.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.sessions import DOCUMENTS, find_scripts, find_sessions, run_all, without_times  # noqa: E402


def update(text: str, printed: list[list[str]]) -> str:
    """The text of a document with other lines below its commands."""
    outputs = iter(printed)

    def replace(block: re.Match[str]) -> str:
        pieces = []
        for command, shown in find_sessions(block[0]):
            lines = [line.rstrip() for line in next(outputs)]
            if without_times(lines) == without_times(shown):
                lines = shown
            pieces += [f"$ {command}", *lines]
        return "\n".join(["```console", *pieces, "```"])

    return re.sub(r"^```console\n.*?^```", replace, text, flags=re.DOTALL | re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("documents", nargs="*", metavar="DOCUMENT", default=list(DOCUMENTS))
    for name in parser.parse_args().documents:
        path = ROOT / name
        text = path.read_text()
        with tempfile.TemporaryDirectory() as folder:
            commands = [command for command, _ in find_sessions(text)]
            updated = update(text, run_all(commands, find_scripts(text), Path(folder)))
        if updated != text:
            path.write_text(updated)
            print(f"{name}: updated")


if __name__ == "__main__":
    main()
