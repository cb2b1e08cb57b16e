"""What a release is made of: the source archive, a wheel made from it, and the workflows that make and publish both."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import metasilvae

pytestmark = pytest.mark.slow

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
COMPILED = (".so", ".pyd", ".pyc", ".o", ".c")
# What a working tree holds besides the sources; the compiled kernels are left among them, for the archive to leave out.
NOT_SOURCES = (".git", ".venv*", "build", "dist", "*.egg-info", "*-output", "__pycache__", ".hypothesis", ".*_cache")
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def run(*words: str | Path, folder: Path, **settings: str) -> str:
    """What a command prints, run without the settings of this environment."""
    others = {name: text for name, text in os.environ.items() if not name.startswith(("METASILVAE_", "PYTHON"))}
    found = subprocess.run([*map(str, words)], cwd=folder, env=others | settings, capture_output=True, text=True)
    assert found.returncode == 0, f"{words}\n{found.stdout[-3000:]}\n{found.stderr[-3000:]}"
    return found.stdout


def build(what: str, folder: Path, output: Path, **settings: str) -> Path:
    """Build ``sdist`` or ``wheel`` with the setuptools and the Cython that are installed, so without the network."""
    output.mkdir()
    printed = run(sys.executable, "-c", BUILD, f"build_{what}", output, folder=folder, **settings)
    return output / printed.splitlines()[-1]


def check_names_of_sdist(names: list[str]) -> None:
    """All sources are there, and nothing that was made from them."""
    assert not [name for name in names if name.endswith(COMPILED)]
    for folder, kinds in {
        "cython_ext": (".pyx", ".pxd"), "metasilvae": (".py", ".pyi", ".css", ".js"), "docs": (".md", ".svg"),
        "tests": (".py",), "scripts": (".py", ".sh"), "datasets": (".csv.gz", ".tsv", ".silva"),
    }.items():  # fmt: skip
        sources = [path for path in (ROOT / folder).rglob("*") if path.name.endswith(kinds)]
        assert sources
        assert {path.relative_to(ROOT).as_posix() for path in sources} <= set(names)
    assert {"LICENSE", "README.md", "CHANGELOG.md", "Makefile", "setup.py", "pyproject.toml", ".ci/run"} <= set(names)
    assert {path.relative_to(ROOT).as_posix() for path in WORKFLOWS} <= set(names)


def check_names_of_wheel(names: list[str]) -> None:
    """A kernel for each of the sources, the data sets, and no sources of kernels."""
    kernels = {Path(name).name.split(".")[0] for name in names if re.search(r"/_core/.*\.(so|pyd)$", name)}
    assert kernels - {"_shared"} == {path.stem for path in (ROOT / "cython_ext").rglob("*.pyx")}
    assert {"metasilvae/py.typed", "metasilvae/_datasets/index.tsv"} <= set(names)
    assert not [name for name in names if name.endswith((".pyx", ".pxd", ".c")) or name.startswith("tests/")]


@pytest.mark.skipif(not (find_spec("setuptools") and find_spec("Cython")), reason="needs setuptools and Cython")
def test_a_wheel_from_the_source_archive_works_in_an_empty_environment(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(*NOT_SOURCES))
    (tree / "metasilvae" / "_core" / "leftover.so").touch()
    (tree / "cython_ext" / "leftover.c").touch()
    # Cython translates only what has changed; the archive has none of it.
    if (ROOT / "build" / "cython").exists():
        shutil.copytree(ROOT / "build" / "cython", tree / "build" / "cython")
    sdist = build("sdist", tree, tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        check_names_of_sdist([name.partition("/")[2] for name in archive.getnames()])
        archive.extractall(tmp_path / "unpacked", filter="data")
    [unpacked] = (tmp_path / "unpacked").iterdir()
    assert unpacked.name == f"metasilvae-{metasilvae.__version__}"

    # To optimize would take most of the time, and says nothing about the package.
    wheel = build("wheel", unpacked, tmp_path / "wheel", METASILVAE_DEBUG="1")
    with zipfile.ZipFile(wheel) as archive:
        check_names_of_wheel(archive.namelist())

    outside = tmp_path / "outside"
    outside.mkdir()
    run(sys.executable, "-m", "venv", outside / "venv", folder=outside)
    programs = outside / "venv" / ("Scripts" if os.name == "nt" else "bin")
    run(programs / "python", "-m", "pip", "install", "--quiet", wheel, folder=outside)
    command = programs / "metasilvae"
    assert metasilvae.__version__ in run(command, "--version", folder=outside)
    where = run(programs / "python", "-c", "import metasilvae; print(metasilvae.__file__)", folder=outside)
    assert Path(where.strip()).is_relative_to(outside)
    words = ("--epsilon", "0.1", "--preset", "fast", "--seed", "1")
    run(command, "train", "builtin:iris/train", "tree.silva", *words, folder=outside)
    assert "stable" in run(command, "verify", "tree.silva", "builtin:iris/test", "--epsilon", "0.1", folder=outside)


def find_program(name: str) -> str:
    """Path of a program of this environment, or of any; skips the test without one."""
    found = shutil.which(name, path=Path(sys.executable).parent) or shutil.which(name)
    return found or pytest.skip(f"{name} is not installed")


def test_the_workflows_can_be_read() -> None:
    yaml = pytest.importorskip("yaml")
    found = {path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in WORKFLOWS}
    assert set(found) == {"tests.yml", "wheels.yml"}
    assert found["tests.yml"]["jobs"]["tests"]["strategy"]["matrix"]["python"] == list(VERSIONS)
    jobs = found["wheels.yml"]["jobs"]
    writing = [name for name, job in jobs.items() if "write" in (job.get("permissions") or {}).values()]
    assert writing == ["publish"]
    assert "tag" in jobs["publish"]["if"]
    assert set(jobs["publish"]["needs"]) == {"sdist", "wheels"}


def test_actionlint_finds_nothing() -> None:
    run(find_program("actionlint"), *WORKFLOWS, folder=ROOT)


def test_the_versions_of_python_are_the_same_everywhere() -> None:
    project = SETTINGS["project"]
    assert project["requires-python"] == f">={VERSIONS[0]}"
    named = [re.search(r"Python :: (3\.\d+)$", text) for text in project["classifiers"]]
    assert [match[1] for match in named if match] == list(VERSIONS)
    assert SETTINGS["tool"]["mypy"]["python_version"] == VERSIONS[0]
    assert SETTINGS["tool"]["ruff"]["target-version"] == "py" + VERSIONS[0].replace(".", "")
    short = [f"cp{version.replace('.', '')}-*" for version in VERSIONS]
    assert SETTINGS["tool"]["cibuildwheel"]["build"] == short


@pytest.mark.parametrize(
    ("platform", "machine", "suffix"),
    [("linux", "x86_64", "manylinux_x86_64"), ("macos", "arm64", "macosx_arm64"), ("windows", "AMD64", "win_amd64")],
)
def test_cibuildwheel_builds_a_wheel_for_every_version(platform: str, machine: str, suffix: str) -> None:
    words = ("--print-build-identifiers", "--platform", platform, "--archs", machine, ROOT)
    found = run(find_program("cibuildwheel"), *words, folder=ROOT).split()
    assert found == [f"cp{version.replace('.', '')}-{suffix}" for version in VERSIONS]
