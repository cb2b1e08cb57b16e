"""Where fetched data sets are kept on each platform, and what they are called."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.command import ROWS, run, write

from metasilvae.errors import DataError
from metasilvae.io.storage import cache_folder, find_cached


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("METASILVAE_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", None, ".cache/metasilvae"),
        ("linux", "XDG_CACHE_HOME", "chosen/metasilvae"),
        ("darwin", None, "Library/Caches/metasilvae"),
        ("darwin", "XDG_CACHE_HOME", "Library/Caches/metasilvae"),
        ("win32", None, "AppData/Local/metasilvae/Cache"),
        ("win32", "LOCALAPPDATA", "chosen/metasilvae/Cache"),
        ("linux", "METASILVAE_CACHE", "chosen"),
        ("win32", "METASILVAE_CACHE", "chosen"),
    ],
)
def test_folders(
    home: Path, monkeypatch: pytest.MonkeyPatch, platform: str, variable: str | None, expected: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    if variable:
        monkeypatch.setenv(variable, str(home / "chosen"))
    assert cache_folder() == home / expected


def test_relative_and_short_paths(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A relative XDG_CACHE_HOME is to be ignored, says its specification.
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    assert cache_folder() == home / ".cache" / "metasilvae"
    monkeypatch.setenv("METASILVAE_CACHE", "~/data")
    assert cache_folder() == home / "data"


def test_no_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", fail)
    with pytest.raises(DataError, match="set METASILVAE_CACHE to a folder"):
        cache_folder()


def test_names(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("METASILVAE_CACHE", str(home / "kept"))
    path = write(home / "kept", "some/train.csv.zip", ROWS)
    assert find_cached("cache:some/train") == Path(path)
    assert "rows      7" in run("data", "check", "cache:some/train").stdout
    monkeypatch.chdir(tmp_path)
    run("data", "split", "cache:some/train")
    assert (tmp_path / "some-train-train.csv").is_file()


@pytest.mark.parametrize("source", ["cache:wine/train", "cache:wine", "cache:", "cache:../outside/train"])
def test_what_is_not_there(home: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setenv("METASILVAE_CACHE", str(home / "kept"))
    (home / "kept").mkdir()
    write(home, "outside/train.csv.zip", ROWS)
    said = run("data", "check", source, code=1)
    assert "not fetched yet; `metasilvae data fetch" in said.stdout + said.stderr
    if "wine" in source:
        assert "`metasilvae data fetch wine` fetches it" in said.stdout + said.stderr
