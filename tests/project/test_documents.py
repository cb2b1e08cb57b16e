"""The documents name only what exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import metasilvae

ROOT = Path(__file__).parents[2]
GUIDES = sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
DOCUMENTS = [
    "README.md", "FIDELITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "datasets/README.md", *GUIDES,
]  # fmt: skip
NAMED_TESTS = re.findall(r"`((?:\w+/)?test_\w+\.py)::([\w:]+)`", (ROOT / "FIDELITY.md").read_text())


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


def find_anchors(text: str) -> set[str]:
    """What a link with # can name: the headings, in small letters, with hyphens for blanks."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_and_paths_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (ROOT / document).parent / name if name else ROOT / document
        assert path.exists(), target
        assert not anchor or anchor in find_anchors(path.read_text()), target
    for name in re.findall(r"`((?:scripts|metasilvae|tests|cython_ext|datasets)/[\w./-]+\.\w+)`", text):
        assert (ROOT / name).exists(), name


def test_the_readme_leads_to_every_document() -> None:
    readme = (ROOT / "README.md").read_text()
    for document in [*DOCUMENTS, "CITATION.cff"]:
        assert document == "README.md" or f"({document})" in readme, document


def test_the_citation_names_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {metasilvae.__version__}\n" in text


def test_the_source_archive_holds_every_document() -> None:
    manifest = (ROOT / "MANIFEST.in").read_text()
    named = re.findall(r"^include (.*)$", manifest, re.MULTILINE)
    folders = re.findall(r"^recursive-include (\S+) \*$", manifest, re.MULTILINE)
    for document in [*DOCUMENTS, "CITATION.cff"]:
        assert document in " ".join(named).split() or document.split("/")[0] in folders, document


def test_the_targets_of_make_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for document in DOCUMENTS:
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", (ROOT / document).read_text(), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
