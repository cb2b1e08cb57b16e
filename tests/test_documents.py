"""The documents name only what exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUIDES = ["docs/api.md", "docs/attack.md", "docs/fairness.md", "docs/cluster.md", "docs/import.md"]
DOCUMENTS = ["README.md", "FIDELITY.md", "CONTRIBUTING.md", "CHANGELOG.md", *GUIDES]
NAMED_TESTS = re.findall(r"`(test_\w+\.py)::([\w:]+)`", (ROOT / "FIDELITY.md").read_text())


def names_of_tests(path: Path) -> set[str]:
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
    return {name for name in names if name.split("::")[-1].startswith("test_")}


def test_fidelity_names_tests() -> None:
    assert len(NAMED_TESTS) > 20


@pytest.mark.parametrize(("file", "name"), NAMED_TESTS)
def test_fidelity_names_tests_that_exist(file: str, name: str) -> None:
    path = ROOT / "tests" / file
    assert path.exists(), file
    assert name in names_of_tests(path)


def test_every_difference_names_a_test() -> None:
    text = (ROOT / "FIDELITY.md").read_text()
    items = re.split(r"^- ", text, flags=re.MULTILINE)[1:]
    assert len(items) > 20
    for item in items:
        assert "::test_" in item, item


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_and_paths_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert ((ROOT / document).parent / target).exists(), target
    for path in re.findall(r"`((?:scripts|metasilvae|tests|cython_ext|datasets)/[\w./-]+\.\w+)`", text):
        assert (ROOT / path).exists(), path


def test_the_targets_of_make_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for document in DOCUMENTS:
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", (ROOT / document).read_text(), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
