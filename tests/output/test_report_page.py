"""The report command: each number in its page is the one that another command prints."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command import FOREST, HARD_FOREST, run, write
from support.html_pages import Page, make_page, page_of
from support.oracles import data_of, make_model

import metasilvae.cli.report as report_command
from metasilvae.analysis.assessment import assess
from metasilvae.output.html import threat_model
from metasilvae.output.html.content import PageContent
from metasilvae.output.html.document import write_page
from metasilvae.perturbations.boxes import Ball
from metasilvae.verification.query import make_query

IRIS, IRIS_SETS = "builtin:iris/tree.silva", ["builtin:iris/train", "builtin:iris/test"]


@pytest.fixture(scope="module")
def iris() -> Page:
    return make_page(IRIS, *IRIS_SETS, "--epsilon", 0.3)


def counts_of_verdicts(page: Page) -> dict[str, list[int]]:
    """Rows with each verdict, one number for each data set."""
    return {row[0].split()[0]: [int(cell.split()[0]) for cell in row[1:]] for row in page.texts("verdicts-table")}


def prediction_of(command: str, *arguments: object) -> Any:
    return json.loads(run(command, *arguments, "--format", "json").stdout)


class TestNumbers:
    """Each one as another command prints it."""

    def test_figures(self, iris: Page) -> None:
        table = {row[0].text: row[1:] for row in iris.tables["figures-table"]}
        assert [cell.text for cell in table["metric"]] == IRIS_SETS
        for place, data in enumerate(IRIS_SETS):
            (found,) = prediction_of("evaluate", IRIS, data, "--epsilon", 0.3)["evaluations"]
            for name in ("accuracy", "stability", "robust accuracy"):
                value = found[name.replace(" ", "_")]
                assert float(table[name][place].value or "") == value
                assert table[name][place].text == f"{100 * value:.2f} %"
            assert float(table["accuracy / leaves"][place].value or "") == found["acc/leaves"]
            assert float(table["stability / leaves"][place].value or "") == found["st/leaves"]
            (found,) = prediction_of("evaluate", IRIS, data, "--epsilon", 0.3, "--ceiling")["evaluations"]
            assert float(table["ceiling of robust accuracy"][place].value or "") == found["ceiling"] <= 1
            share = float(table["share of the ceiling"][place].value or "")
            assert share == pytest.approx(found["share_of_ceiling"])
            phi = float(table["phi"][place].value or "")
            assert phi == pytest.approx(0.9 * found["accuracy"] + 0.1 * found["stability"])
        facts = dict(zip(*(([e.text for e in iris.find(tag)]) for tag in ("dt", "dd")), strict=True))
        assert facts["leaves"] == str(found["leaves"])
        assert facts["depth"] == str(found["depth"])

    def test_classes(self, iris: Page) -> None:
        for place, data in enumerate(IRIS_SETS):
            document = prediction_of("evaluate", IRIS, data, "--epsilon", 0.3, "--per-class")
            head, *rows = iris.tables[f"classes-{place}"]
            names = [cell.text for cell in head]
            assert names == ["label", "rows", "recall", "precision", "F1", "stability", "robust accuracy", "ROC AUC"]
            for row, wanted in zip(rows, document["classes"][0]["classes"], strict=True):
                assert (row[0].text, row[1].text) == (wanted["label"], str(wanted["rows"]))
                for name, cell in zip(names[2:], row[2:], strict=True):
                    assert float(cell.value or "") == wanted[name.lower().replace(" ", "_")]
            table = {row[0].text: row[1 + place] for row in iris.tables["figures-table"]}
            (summary,) = document["evaluations"]
            for name in ("balanced accuracy", "balanced robust accuracy", "ROC AUC"):
                assert float(table[name].value or "") == summary[name.lower().replace(" ", "_")]

    def test_verdicts(self, iris: Page) -> None:
        counts = [prediction_of("verify", IRIS, data, "--epsilon", 0.3)["counts"] for data in IRIS_SETS]
        assert sum(count["no_info"] for count in counts) == 0
        wanted = {
            word: [count[word.lower()] for count in counts] for word in ("ROBUST", "FRAGILE", "VULNERABLE", "BROKEN")
        }
        assert counts_of_verdicts(iris) == wanted
        head, *rows = iris.tables["verdicts-table"]
        assert [cell.text for cell in head] == ["verdict", *IRIS_SETS]
        totals = [sum(column) for column in zip(*wanted.values(), strict=True)]
        for row in rows:
            found = wanted[row[0].text.split()[0]]
            shares = [count / total for count, total in zip(found, totals, strict=True)]
            assert [float(cell.value or "") for cell in row[1:]] == shares

    def test_confusion(self, iris: Page) -> None:
        for place, data in enumerate(IRIS_SETS):
            document = json.loads(run("evaluate", IRIS, data, "--confusion", "--format", "json").stdout)
            wanted = {(c["label"], c["prediction"]): c["rows"] for c in document["confusions"][0]["counts"]}
            head, *rows = iris.tables[f"confusion-{place}"]
            found = {
                (row[0].text, prediction.text): int(cell.text.rstrip(" ✓"))
                for row in rows
                for prediction, cell in zip(head[1:], row[1:], strict=True)
            }
            assert {pair: count for pair, count in found.items() if count} == wanted
            marked = {(row[0].text, a.text) for row in rows for a, c in zip(head, row, strict=True) if "✓" in c.text}
            assert marked == {(label, label) for label in ("setosa", "versicolor", "virginica")}

    def test_curve(self, iris: Page) -> None:
        for place, data in enumerate(IRIS_SETS):
            (curve,) = prediction_of("evaluate", IRIS, data, "--curve")["curves"]
            found = iris.data("curve-data")["sets"][place]
            assert found["epsilon"] == curve["epsilon"]
            assert [count / found["rows"] for count in found["stable"]] == curve["stability"]
            assert [count / found["rows"] for count in found["robust"]] == curve["robust_accuracy"]
            quantiles = {row[0].text: float(row[1].value or "") for row in iris.tables[f"quantiles-{place}"][1:]}
            assert quantiles == curve["quantiles"]

    def test_fragile_rows_and_attribution(self, iris: Page) -> None:
        for place, data in enumerate(IRIS_SETS):
            found = prediction_of("explain", IRIS, data, "--epsilon", 0.3, "--most-fragile", 10)
            by_row = {row["row"]: row for row in found["rows"]}
            rows = iris.tables[f"fragile-{place}"][1:]
            assert [int(row[0].text) for row in rows] == found["most_fragile"]
            for row in rows:
                wanted = by_row[int(row[0].text)]
                assert row[2].text == wanted["label"]
                assert float(row[3].value or "") == wanted["radius"]
                assert row[4].text == f"{wanted['prediction'][0]} → {wanted['perturbed_prediction'][0]}"
                moves = re.findall(r"^(\w+) (\S+) → (\S+)$", row[5].text, re.MULTILINE)
                # Rounded for people, but never to the value before.
                assert [(name, float(start), float(end)) for name, start, end in moves] == [
                    (move["name"], pytest.approx(move["from"], rel=1e-5), pytest.approx(move["to"], rel=1e-5))
                    for move in wanted["moved"]
                ]
                assert all(start != end for _, start, end in moves)
            moved = {row[0].text: (int(row[1].text), int(row[3].text)) for row in iris.tables[f"features-{place}"][1:]}
            assert moved == {f["name"]: (f["rows_moved"], f["rows_frozen"]) for f in found["features"]}
            tests = {row[0].text: int(row[1].text) for row in iris.tables[f"tests-{place}"][1:]}
            assert tests == {f"{t['name']} ≤ {t['threshold']:g}": t["rows"] for t in found["tests"]}

    def test_origin(self, iris: Page) -> None:
        (command,) = iris.find("pre")
        assert command.text == f"metasilvae report {IRIS} {' '.join(IRIS_SETS)} --epsilon 0.3 -o -"
        versions = dict(iris.texts("versions-table"))
        assert versions["numpy"] == np.__version__
        assert f"metasilvae {versions['metasilvae']}" == run("--version").stdout.strip()

    def test_crossings_in_the_drawing(self, iris: Page) -> None:
        found = Counter()
        for node in iris.data("tree-data")["trees"][0]["nodes"]:
            for place, count in enumerate(node.get("crossed", [])):
                found[place] += count
        for place in (0, 1):
            assert found[place] == sum(int(row[1]) for row in iris.texts(f"tests-{place}"))


class TestForests:
    def test_open_rows_and_their_reasons(self, tmp_path: Path) -> None:
        forest, rows = write(tmp_path, "hard.silva", HARD_FOREST), write(tmp_path, "rows.csv", "a,0.5,0.1\nb,0.4,0.1\n")
        page = make_page(forest, rows, "--epsilon", 0.2, "--sample-steps", 1)
        wanted = prediction_of("verify", forest, rows, "--epsilon", 0.2, "--sample-steps", 1)["counts"]
        assert counts_of_verdicts(page)["NO-INFO"] == [wanted["no_info"]]
        assert wanted["no_info"] > 0
        notes = " ".join(element.text for element in page.find("p"))
        assert f"NO-INFO because of {wanted['no_info']} steps" in notes
        assert "radii are lower bounds" in notes
        assert f"{wanted['no_info']} rows are not decided" in notes

    def test_a_boosted_model_opens_on_a_tree_with_splits(self, tmp_path: Path) -> None:
        stump = "SPLIT 0 1039.9999389648438 LEAF_LOGARITHMIC 0 1 LEAF_LOGARITHMIC 0 -2"
        trees = [f"classifier-decision-tree 1 2 a b {tree}\n" for tree in ("LEAF_LOGARITHMIC 0 -0.5", stump, stump)]
        model = write(tmp_path, "boosted.silva", f"classifier-forest 3\n{''.join(trees)}")
        page = make_page(model, write(tmp_path, "ab.csv", "b,1000\na,1100\n"), "--epsilon", 70)
        options = page.find("option")
        assert [option.text for option in options] == ["tree 1 of 3: base score", "tree 2 of 3", "tree 3 of 3"]
        assert ["selected" in option.attributes for option in options] == [False, True, False]
        assert page.data("tree-data")["first"] == 1
        assert page.tables["tests-0"][1][0].text == "x[0] ≤ 1040"
        assert "1039.99" not in page.tables["fragile-0"][1][-2].text

    def test_of_several_labels_it_opens_on_a_tree_that_tells_them_apart(self, tmp_path: Path) -> None:
        leaves = [("0.1 0 0", "0.2 0 0"), ("0 0.3 0", "0 -0.1 0"), ("0 0 -0.1", "0 0 0.2")]
        trees = "".join(
            f"classifier-decision-tree 1 3 a b c SPLIT 0 1 LEAF_LOGARITHMIC {left} LEAF_LOGARITHMIC {right}\n"
            for left, right in leaves
        )
        model = write(tmp_path, "boosted.silva", f"classifier-forest 3\n{trees}")
        page = make_page(model, write(tmp_path, "abc.csv", "b,0\na,2\nc,3\n"), "--epsilon", 0.1)
        assert page.data("tree-data")["first"] == 1

    def test_trees_to_choose(self, forest: str, tmp_path: Path) -> None:
        page = make_page(forest, write(tmp_path, "ab.csv", "a,0.5,0.1\nb,0.9,0.1\n"), "--epsilon", 0.1)
        assert [option.text for option in page.find("option")] == ["tree 1 of 2", "tree 2 of 2: one leaf"]
        assert [len(tree["nodes"]) for tree in page.data("tree-data")["trees"]] == [3, 1]

    def test_triangles_count_by_node(self, tmp_path: Path) -> None:
        test = "SPLIT 0 0.5\nLEAF 1 0\nLEAF 0 1\n"
        tree = f"classifier-decision-tree 2 2 a b\nSPLIT 1 0\n{test}{test}"
        model = write(tmp_path, "f.silva", f"classifier-forest 2\n{tree}{tree}")
        page = make_page(model, write(tmp_path, "d.csv", "a,0.45,-1\na,0.45,1\na,0.48,1\n"), "--epsilon", 0.1)
        assert page.texts("tests-0")[0][1] == "3"
        for tree in page.data("tree-data")["trees"]:
            assert [node.get("crossed") for node in tree["nodes"]] == [None, [1], [2], None, None, None, None]

    def test_an_interrupt_keeps_what_is_known(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        forest, rows = write(tmp_path, "f.silva", FOREST), write(tmp_path, "ab.csv", "a,0.5,0.1\nb,0.9,0.1\n")

        def assess_interrupted(*arguments: Any, **options: Any) -> Any:
            signal.raise_signal(signal.SIGINT)
            return assess(*arguments, **options)

        monkeypatch.setattr(report_command, "assess", assess_interrupted)
        result = run("report", forest, rows, "--epsilon", 0.1, "-o", "-", code=130)
        assert result.stderr == "interrupted; the page shows what is known\n"
        page = Page(result.stdout)
        assert counts_of_verdicts(page)["NO-INFO"] == [2]
        assert "interrupted" in page.find("p", role="status")[0].text

    def test_explanations_stop_between_batches(self) -> None:
        tree = make_model([(0, 1.0, [1, 0], [0, 1])], 2)
        query = make_query(tree, data_of([[1.0, 0.0]] * 4, ["a"] * 4), Ball(1))
        stop = threading.Event()
        stop.set()
        found = assess(query, Ball(1), 1, stop=stop)
        assert found.outcome.counts.unstable == 4
        assert found.attribution.n_explained == 0
        content = PageContent(tree, [found], "", {"metasilvae": "0"}, True)
        assert "none of 4 unstable rows was explained" in write_page(content)


def test_the_same_page_for_any_number_of_threads() -> None:
    assert write_page(page_of(IRIS, *IRIS_SETS, jobs=1)) == write_page(page_of(IRIS, *IRIS_SETS, jobs=3))


def test_the_same_file_again(tree: str, rows: str, tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    printed = run("report", tree, rows, "--epsilon", 0.1, "-o", output, "--date", "2026-01-01").stdout
    first = output.read_bytes()
    summary = "accuracy 28.57 %, stability 28.57 %, robust accuracy 14.29 %"
    assert printed == f"{rows}: {summary}\nopen {output} in a browser\n"
    run("report", tree, rows, "--epsilon", 0.1, "-o", output, "--date", "2026-01-01")
    assert output.read_bytes() == first


def test_the_date(tree: str, rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def date_of(*words: str) -> list[str]:
        return re.findall("<time>(.*?)</time>", run("report", tree, rows, "--epsilon", 0.1, "-o", "-", *words).stdout)

    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    (today,) = date_of()
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", today)
    assert date_of("--date", "none") == []
    assert date_of("--date", "<May>") == ["&lt;May&gt;"]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert date_of() == ["1970-01-02"]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "soon")
    assert "SOURCE_DATE_EPOCH is 'soon'" in run("report", tree, rows, "--epsilon", 0.1, "-o", "-", code=None).stderr


def test_requirements_stand_on_top(tree: str, rows: str, tmp_path: Path) -> None:
    other = write(tmp_path, "other.csv", "a,0.1,0.1\nbb,0.9,0.9\n")
    words = ["report", tree, rows, other, "--epsilon", 0.1, "-o", "-", "--require", "accuracy>=0.5"]
    result = run(*words, "--require", "recall[a]>=0.5", code=3)
    header = result.stdout.partition("<header>")[2].partition("</header>")[0]
    texts = [" ".join(re.sub("<.*?>", "", item).split()) for item in re.findall("<li>(.*?)</li>", header)]
    assert texts == [
        "violated accuracy&gt;=0.5 on rows.csv: accuracy is 0.285714",
        "holds recall[a]&gt;=0.5 on rows.csv: recall[a] is 0.666667",
        "holds accuracy&gt;=0.5 on other.csv: accuracy is 0.5",
        "holds recall[a]&gt;=0.5 on other.csv: recall[a] is 1",
    ]
    assert f"{rows}: required accuracy>=0.5: violated (accuracy is 0.285714)" in result.stderr
    assert run(*words[:-1], "accuracy>=0.1").exit_code == 0


class TestAttacks:
    def test_radii_are_multiples(self, tree: str, rows: str, tmp_path: Path) -> None:
        attack = write(tmp_path, "a.toml", '[default]\nradius = 0.1\n[columns."x[1]"]\nradius = 0.2\n')
        page = make_page(tree, rows, "--attack", attack)
        assert "in multiples of the attack" in page.tables["fragile-0"][0][3].text
        wanted = prediction_of("verify", tree, rows, "--attack", attack, "--radius")
        assert page.data("curve-data")["sets"][0]["epsilon"] == sorted({row["radius"] for row in wanted["rows"]})
        (number,) = page.find("input", type="number")
        assert number.attributes["value"] == "1"

    def test_they_are_said_in_words(self, tree: str, rows: str, tmp_path: Path) -> None:
        rules = '[default]\nradius = 0.1\n[columns."x[1]"]\nup = 0.2\nmax = 9\n'
        attack, other = (
            write(tmp_path, name, rules.replace("0.2", up)) for name, up in (("a.toml", "0.2"), ("b.toml", "0.3"))
        )
        page, changed = (make_page(tree, rows, rows, "--attack", file) for file in (attack, other))
        checked = run("attack", "check", attack, rows).stdout
        found = page.texts("attack-0")
        assert [row[0] for row in found] == ["x[0]", "x[1]"]
        assert all(f"{name}  {words}\n" in checked for name, words in found)
        assert "attack-1" not in page.tables
        assert changed.texts("attack-0") != found
        marks, other_marks = ([row for row in p.texts("inputs-table") if row[0] == "attack"] for p in (page, changed))
        assert [row[1] for row in marks + other_marks] == [attack, other]
        assert marks[0][2] != other_marks[0][2]
        assert not make_page(tree, rows, "--epsilon", 0.1).find("section", id="perturbation")

    def test_columns_with_the_same_rule_share_a_line(self, tmp_path: Path) -> None:
        model = write(tmp_path, "m.silva", "classifier-decision-tree 60 2 a b\nSPLIT 6 1\nLEAF 1 0\nLEAF 0 1\n")
        data = write(tmp_path, "d.csv", "a,1,0" + ",1" * 58 + "\n")
        groups = '[[one-hot]]\ncolumns = ["x[0]", "x[1]"]\n'
        page = make_page(model, data, "--attack", write(tmp_path, "a.toml", f"[default]\nradius = 1\n{groups}"))
        assert page.texts("attack-0") == [
            ["x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9] and 50 more", "up or down by at most 1"],
            ["x[0], x[1]", "exactly one of them is 1; which one may change"],
        ]
        radii = "".join(f'[columns."x[{k}]"]\nradius = {k}\n' for k in range(2, 60))
        page = make_page(model, data, "--attack", write(tmp_path, "b.toml", radii + groups))
        assert len(page.texts("attack-0")) == threat_model.MOST_RULES
        assert f"{threat_model.MOST_RULES} of 59 rules" in page.source

    def test_whole_numbers_have_a_curve(self, tree: str, tmp_path: Path) -> None:
        attack = write(tmp_path, "a.toml", "[default]\nradius = 1\ninteger = true\n")
        rows = write(tmp_path, "whole.csv", "a,0,0\nbb,1,1\n")
        page = make_page(tree, rows, "--attack", attack)
        wanted = prediction_of("verify", tree, rows, "--attack", attack, "--radius")
        assert page.data("curve-data")["sets"][0]["epsilon"] == sorted({row["radius"] for row in wanted["rows"]})
        assert counts_of_verdicts(page)["BROKEN"][0] > 0

    def test_no_radii_no_curve(self, tree: str, tmp_path: Path) -> None:
        boxes = write(tmp_path, "boxes.txt", "[0;1] [0;1]\n[0;1] [0;1]\n")
        page = make_page(tree, write(tmp_path, "r.csv", "a,0,0\nbb,1,1\n"), "--perturbation", "from-file", boxes)
        assert not page.find("script", id="curve-data")
        (told,) = page.find("section", id="perturbation")
        assert "2 of 2 columns can change in some row" in told.text
        (kind, name, _) = page.texts("inputs-table")[2]
        assert (kind, name) == ("boxes", boxes)
        assert "no curve. boxes from a file, radii relative to the value" in " ".join(p.text for p in page.find("p"))


class TestUsage:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["-o", "page.html"], "say what may be perturbed"),
            (["--epsilon", "0.1"], "Missing option '--output'"),
            (["--epsilon", "0.1", "--attack", "x.toml", "-o", "page.html"], "give one of them"),
            (["--epsilon", "-1", "-o", "page.html"], "must be finite and not negative"),
        ],
    )
    def test_wrong_options(self, tree: str, rows: str, options: list[str], message: str) -> None:
        assert message in run("report", tree, rows, *options, code=2).stderr

    def test_boxes_belong_to_one_data_set(self, tree: str, rows: str, tmp_path: Path) -> None:
        options = ["--perturbation", "from-file", write(tmp_path, "boxes", ""), "-o", tmp_path / "page.html"]
        assert "give one DATA" in run("report", tree, rows, rows, *options, code=2).stderr

    def test_the_output_is_checked_first(self, tree: str, rows: str, tmp_path: Path) -> None:
        assert "is read by this command" in run("report", tree, rows, "--epsilon", 1, "-o", rows, code=2).stderr
        missing = tmp_path / "no" / "page.html"
        assert "does not exist" in run("report", "no.silva", rows, "--epsilon", 1, "-o", missing, code=1).stderr

    def test_nothing_is_left_after_an_error(self, rows: str, tmp_path: Path) -> None:
        model = write(tmp_path, "m.silva", "classifier-decision-tree 7 2 a b\nSPLIT 6 1\nLEAF 1 0\nLEAF 0 1\n")
        run("report", model, rows, "--epsilon", 1, "-o", tmp_path / "page.html", code=1)
        assert not (tmp_path / "page.html").exists()


def test_a_tree_of_one_leaf_and_stable_rows(rows: str, tmp_path: Path) -> None:
    page = make_page(write(tmp_path, "m.silva", "classifier-decision-tree 2 2 a c\nLEAF 1 1\n"), rows, "--epsilon", 1)
    assert "no row is unstable" in page.source
    assert page.data("curve-data")["sets"][0]["epsilon"] == [None]


def test_no_notes_about_what_is_not_there(tmp_path: Path) -> None:
    labels = [f"label{number}" for number in range(30)]
    splits = "".join(f"SPLIT 0 {k + 0.5}\nLEAF {'0 ' * k}1{' 0' * (29 - k)}\n" for k in range(29))
    model = write(tmp_path, "m.silva", f"classifier-decision-tree 1 30 {' '.join(labels)}\n{splits}LEAF {'0 ' * 29}1\n")
    rows = write(tmp_path, "d.csv", "".join(f"{label},{number}\n" for number, label in enumerate(labels)))
    page = make_page(model, rows, "--epsilon", 0.1)
    assert "confusion-0" not in page.tables
    texts = {section.attributes["id"]: section for section in page.find("section")}
    assert texts["confusion"].text == f"Confusion matrix{rows}: no mistakes in 30 rows"
    assert texts["fragile"].text == f"Most fragile rows{rows}: no row is unstable"
    assert texts["attribution"].text == f"Features driving instability{rows}: no row is unstable"
    unstable = make_page(model, rows, "--epsilon", 0.6)
    assert "Each row is shown with an adversarial example" in unstable.source
    assert "Changed: unstable rows whose" in unstable.source


def test_labels_are_in_order(tmp_path: Path) -> None:
    leaves = "SPLIT 0 2\nLEAF 1 0 0\nSPLIT 0 9.5\nLEAF 0 1 0\nLEAF 0 1 1\n"
    model = write(tmp_path, "m.silva", f"classifier-decision-tree 1 3 10 9 2\n{leaves}")
    page = make_page(model, write(tmp_path, "d.csv", "10,1\n2,9\n1.5,9\n9,11\n"), "--epsilon", 0.1)
    head, *rows = page.tables["confusion-0"]
    assert [cell.text for cell in head][1:4] == ["2", "9", "10"]
    assert [row[0].text for row in rows] == ["2", "9", "10", "1.5"]
    assert len(head) == 5, "a tie has a column of its own"
    assert "3: 2, 9, 10" in [element.text for element in page.find("dd")]
    assert page.data("tree-data")["legend"] == [2, 1, 0]


def test_headings_have_short_names(tree: str, rows: str, tmp_path: Path) -> None:
    copies = []
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        copies.append(write(tmp_path / folder, "rows.csv", Path(rows).read_text()))
    page = make_page(tree, *copies, rows, "--epsilon", 0.1)
    names = ["first/rows.csv", "second/rows.csv", f"{Path(rows).parent.name}/{Path(rows).name}"]
    for table in ("figures-table", "verdicts-table"):
        assert [cell.text for cell in page.tables[table][0]][1:] == names
    assert [found["name"] for found in page.data("curve-data")["sets"]] == names
    assert [row[1] for row in page.texts("inputs-table")] == [tree, *copies, rows]


def test_boosted_leaves_have_scores(tmp_path: Path) -> None:
    model = (
        "classifier-forest 1\nclassifier-decision-tree 1 2 a b\nSPLIT 0 0.5\n"
        "LEAF_LOGARITHMIC 0.25 -1.5\nLEAF_LOGARITHMIC 0 0\n"
    )
    page = make_page(write(tmp_path, "m.silva", model), write(tmp_path, "d.csv", "a,0.2\nb,0.9\n"), "--epsilon", 0.1)
    split, first, second = page.data("tree-data")["trees"][0]["nodes"]
    assert "rows" not in split
    assert first["values"] == [[0, 0.25], [1, -1.5]]
    assert second["values"] == []


def test_under_limits_the_curve_keeps_what_the_verdicts_prove(tmp_path: Path) -> None:
    forest = str(tmp_path / "forest.silva")
    run("train", "builtin:iris/train", forest, "--epsilon", 0.3, "--trees", 20, "--preset", "cart", "--no-manifest")
    limited = ["--sample-steps", 2]
    page = make_page(forest, "builtin:iris/test", "--epsilon", 0.3, *limited)
    counts = prediction_of("verify", forest, "builtin:iris/test", "--epsilon", 0.3, *limited)["counts"]
    (curve,) = page.data("curve-data")["sets"]
    steps = zip(curve["epsilon"], curve["stable"], strict=True)
    assert next(stable for epsilon, stable in steps if epsilon is None or epsilon >= 0.3) == counts["stable"] > 0
    bounds = [row for row in page.texts("fragile-0") if row[3].startswith("\u2265")]
    assert counts["unstable"] > 0
    assert bounds
