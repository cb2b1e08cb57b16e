"""The section of the report page about a wanted label: each change is the one that `verify --target` prints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.command import HARD_FOREST, run, write
from support.html_pages import Page, make_page

IRIS, DATA = "builtin:iris/tree.silva", "builtin:iris/test"
CREDITS = """\
decision,income,purpose
no,20,car
no,20,travel
yes,60,car
yes,61,home
no,62,travel
no,25,home
"""


def targets_of(*arguments: object) -> Any:
    return json.loads(run("verify", *arguments, "--format", "json").stdout)


def counts_of(page: Page) -> dict[str, int]:
    return {row[0].split()[0].lower().replace("-", "_"): int(row[1].split()[0]) for row in page.texts("targets-table")}


@pytest.mark.parametrize(
    ("shown", "searched"),
    [
        (["--epsilon", 0.3], []),
        (["--norm", "l1", "--epsilon", 0.3], ["--norm", "l1"]),
        (["--norm", "l0", "--epsilon", 1], ["--norm", "l0"]),
    ],
)
def test_changes_are_those_of_verify(shown: list[object], searched: list[object]) -> None:
    page = make_page(IRIS, DATA, *shown, "--target", "virginica", "--most-fragile", 7)
    wanted = targets_of(IRIS, DATA, *searched, "--target", "virginica", "--radius")
    assert counts_of(page) == {name: count for name, count in wanted["counts"].items() if name != "no_info"}
    reachable = [row for row in wanted["rows"] if row["status"] == "REACHABLE"]
    nearest = sorted(reachable, key=lambda row: (row["distance"], row["row"]))[:7]
    head, *rows = page.tables["changes-0"]
    assert [cell.text for cell in head][-3] == f"distance, {searched[1] if searched else 'linf'}"
    assert [int(row[0].text) for row in rows] == [row["row"] for row in nearest]
    for row, expected in zip(rows, nearest, strict=True):
        assert float(row[-3].value or "") == expected["distance"]
        assert row[-2].text == f"{expected['prediction'][0]} → virginica"
        moves = re.findall(r"^(\w+) (\S+) → (\S+)$", row[-1].text, re.MULTILINE)
        assert {name: [float(old), float(new)] for name, old, new in moves} == {
            name: pytest.approx(values, rel=1e-5) for name, values in expected["changes"].items()
        }
    (section,) = page.find("section", id="changes")
    assert section.text.startswith("Changes to virginica")
    assert f"7 of {len(reachable)} rows" in section.text
    assert not make_page(IRIS, DATA, *shown).find("section", id="changes")


def test_categories_and_rules_are_kept_and_said_in_words(tmp_path: Path) -> None:
    data, model = write(tmp_path, "credits.csv", CREDITS), str(tmp_path / "credits.silva")
    run("train", data, model, "--preset", "cart", "--min-samples-leaf", 1, "--epsilon", 1, "--no-manifest")
    rules = "[default]\nimmutable = true\n[columns]\npurpose = { any = true }\n"
    page = make_page(
        model, data, "--attack", write(tmp_path, "a.toml", rules), "--norm", "l0", "--epsilon", 1, "--target", "yes"
    )
    assert counts_of(page)["reachable"] == 1
    ((*_, move),) = page.texts("changes-0")
    assert re.fullmatch("purpose travel → (car|home)", move.strip())
    assert counts_of(page)["unreachable"] == 3


def test_without_radii_any_change_within_the_boxes_is_shown(tmp_path: Path) -> None:
    tree = write(tmp_path, "t.silva", "classifier-decision-tree 2 2 a b\nSPLIT 0 0.5\nLEAF 1 0\nLEAF 0 1\n")
    boxes = write(tmp_path, "boxes", "[0;1] [0;1]\n[0;0.4] [0;1]\n[0.9;1] [0;1]\n")
    rows = write(tmp_path, "rows.csv", "a,0.1,0\na,0.2,0\nb,0.95,0\n")
    page = make_page(tree, rows, "--perturbation", "from-file", boxes, "--target", "b")
    assert counts_of(page) == {"predicted": 1, "reachable": 1, "unreachable": 1}
    head, row = page.tables["changes-0"]
    assert [cell.text for cell in head] == ["row", "line", "label", "prediction", "changes"]
    assert row[0].text == "0"
    assert "has no radii to compare changes by" in page.source


def test_bounds_of_an_unfinished_search_and_undecided_rows(tmp_path: Path) -> None:
    forest, rows = write(tmp_path, "hard.silva", HARD_FOREST), write(tmp_path, "rows.csv", "a,0.5,0.1\na,0.4,0.1\n")
    options = ["--target", "b", "--sample-steps", 1]
    page = make_page(forest, rows, "--epsilon", 0.2, *options)
    wanted = targets_of(forest, rows, "--radius", *options)["counts"]
    assert wanted["no_info"] == counts_of(page)["no_info"] == 2
    (section,) = page.find("section", id="changes")
    assert f"{rows}: no row is known to get the label by a change" in section.text


def test_all_rows_have_the_label(tmp_path: Path) -> None:
    tree = write(tmp_path, "t.silva", "classifier-decision-tree 2 2 a b\nSPLIT 0 0.5\nLEAF 1 0\nLEAF 0 1\n")
    page = make_page(tree, write(tmp_path, "rows.csv", "a,0.1,0\n"), "--epsilon", 1, "--target", "a")
    assert "no row needs a change" in page.find("section", id="changes")[0].text


def test_a_forest_shows_the_nearest_adversarial_example(tmp_path: Path) -> None:
    forest = str(tmp_path / "forest.silva")
    run("train", "builtin:iris/train", forest, "--epsilon", 0.3, "--trees", 5, "--preset", "cart", "--no-manifest")
    page = make_page(forest, DATA, "--epsilon", 0.5)
    rows = page.tables["fragile-0"][1:]
    assert rows
    for row in rows:
        moves = re.findall(r"^\w+ (\S+) → (\S+)$", row[5].text, re.MULTILINE)
        assert max(abs(float(new) - float(old)) for old, new in moves) == pytest.approx(float(row[3].value or ""))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epsilon", "1", "--target", "virginca"], "did you mean 'virginica'?"),
        (["--epsilon", "1", "--target", ""], "its labels are setosa, versicolor, virginica"),
    ],
)
def test_wrong_targets(options: list[str], message: str, tmp_path: Path) -> None:
    failed = run("report", IRIS, DATA, *options, "-o", tmp_path / "page.html", code=2)
    assert message in failed.stderr
    assert not list(tmp_path.iterdir())


def test_values_that_may_become_missing_are_refused_at_once(tmp_path: Path) -> None:
    attack = write(tmp_path, "a.toml", '[default]\nradius = 0.1\nmissing = "may appear"\n')
    failed = run("report", IRIS, DATA, "--attack", attack, "--target", "setosa", "-o", tmp_path / "p.html", code=1)
    assert 'write missing = "stays"' in failed.stderr
