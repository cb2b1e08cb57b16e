"""Imports point down only, package by package."""

import ast
from pathlib import Path

import pytest

import metasilvae

PACKAGE = Path(metasilvae.__file__).parent
# A module may import from its own package and from those before it.
ORDER = [
    "_version", "_core", "errors", "notebook", "extras", "io", "execution", "encoding", "dataset", "model", "voting",
    "prediction", "perturbations", "formats", "verification", "datasets", "interop", "analysis", "training", "api",
    "sklearn", "output", "displays", "cli", "__main__", "__init__",
]  # fmt: skip
EDGE_ONLY = {"click", "tqdm"}
MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS_FOLDER = Path(__file__).parents[1]
TESTS = sorted(TESTS_FOLDER.rglob("*.py"))


def place_of(name: str) -> int:
    assert name in ORDER, f"{name} has no place: add it to ORDER in {Path(__file__).name}"
    return ORDER.index(name)


def imported_names(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    own = place_of(path.relative_to(PACKAGE).parts[0].removesuffix(".py"))
    for name in imported_names(path):
        package, _, rest = name.partition(".")
        if package == "metasilvae" and rest:
            target = rest.split(".")[0]
            if (PACKAGE / target).exists() or (PACKAGE / f"{target}.py").exists():
                assert place_of(target) <= own, f"{path.name} imports {name}, which comes after it"
        if package in EDGE_ONLY:
            assert own >= place_of("output"), f"{path.name} imports {package}, which belongs to the edge"


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(TESTS_FOLDER)))
def test_tests_import_support_only(path: Path) -> None:
    for name in imported_names(path):
        assert not name.split(".")[0].startswith("test_"), f"{path.name} imports {name}; move it to tests/support"
