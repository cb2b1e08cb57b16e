"""docs/commands.md is what the commands say of themselves."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from support.command import run

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "commands.md"


def make_reference() -> str:
    spec = importlib.util.spec_from_file_location(
        "make_command_reference", ROOT / "scripts" / "make_command_reference.py"
    )
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    text: str = script.make_reference()
    return text


@pytest.mark.parametrize("columns", ["40", "300"])
def test_the_reference_is_up_to_date(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert make_reference() == REFERENCE.read_text(encoding="utf-8"), "run scripts/make_command_reference.py"


def test_every_command_has_its_help_in_the_reference() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    paths = re.findall(r"^## metasilvae ?(.*)$", text, re.MULTILINE)
    assert {"", "train", "verify", "data convert", "attack check"} <= set(paths)
    for path in paths:
        words = "".join(run(*path.split(), "-h").stdout.split())
        assert words in "".join(text.split()), path
