"""The page of the report command: its numbers are those of the other commands, and no name can do anything in it."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import FOREST, HARD_FOREST, run, write
from html_pages import Page
from oracles import data_of, make_model, nest, random_model

import metasilvae.cli.report as report_command
from metasilvae.assessment import assess
from metasilvae.curve import Curve
from metasilvae.page import curve_chart, document, overview_sections, tree_data
from metasilvae.page.content import PageContent
from metasilvae.page.document import write_page
from metasilvae.page.markup import element, embed_json, join
from metasilvae.perturbation import Ball
from metasilvae.radius import find_radii
from metasilvae.verification import ask

IRIS, IRIS_SETS = "builtin:iris/tree.silva", ["builtin:iris/train", "builtin:iris/test"]


def make_page(*arguments: object, code: int = 0) -> Page:
    result = run("report", *arguments, "-o", "-", code=code)
    return Page(result.stdout)


@pytest.fixture(scope="module")
def iris() -> Page:
    return make_page(IRIS, *IRIS_SETS, "--epsilon", 0.3)


def answer_of(command: str, *arguments: object) -> Any:
    return json.loads(run(command, *arguments, "--format", "json").stdout)


class TestNumbers:
    """Each one as another command prints it."""

    def test_figures(self, iris: Page) -> None:
        table = {row[0].text: row[1:] for row in iris.tables["figures-table"]}
        assert [cell.text for cell in table["figure"]] == IRIS_SETS
        for place, data in enumerate(IRIS_SETS):
            (found,) = answer_of("evaluate", IRIS, data, "--epsilon", 0.3)["evaluations"]
            for name in ("accuracy", "stability", "robustness"):
                assert float(table[name][place].value or "") == found[name]
                assert table[name][place].text == f"{100 * found[name]:.2f} %"
            assert float(table["accuracy / leaves"][place].value or "") == found["acc/leaves"]
            assert float(table["stability / leaves"][place].value or "") == found["st/leaves"]
            phi = float(table["phi"][place].value or "")
            assert phi == pytest.approx(0.9 * found["accuracy"] + 0.1 * found["stability"])
        facts = dict(zip(*(([e.text for e in iris.find(tag)]) for tag in ("dt", "dd")), strict=True))
        assert facts["leaves"] == str(found["leaves"])
        assert facts["depth"] == str(found["depth"])

    def test_verdicts(self, iris: Page) -> None:
        counts = [answer_of("verify", IRIS, data, "--epsilon", 0.3)["counts"] for data in IRIS_SETS]
        assert sum(count["no_info"] for count in counts) == 0
        assert [(row[0], int(row[1]), int(row[3])) for row in iris.texts("verdicts-table")] == [
            (word, *(count[word.lower()] for count in counts)) for word in ("ROBUST", "FRAGILE", "VULNERABLE", "BROKEN")
        ]

    def test_confusion(self, iris: Page) -> None:
        for place, data in enumerate(IRIS_SETS):
            document = json.loads(run("evaluate", IRIS, data, "--confusion", "--format", "json").stdout)
            wanted = {(c["label"], c["answer"]): c["rows"] for c in document["confusions"][0]["counts"]}
            head, *rows = iris.tables[f"confusion-{place}"]
            found = {
                (row[0].text, answer.text): int(cell.text.rstrip(" ✓"))
                for row in rows
                for answer, cell in zip(head[1:], row[1:], strict=True)
            }
            assert {pair: count for pair, count in found.items() if count} == wanted
            marked = {(row[0].text, a.text) for row in rows for a, c in zip(head, row, strict=True) if "✓" in c.text}
            assert marked == {(label, label) for label in ("setosa", "versicolor", "virginica")}

    def test_curve(self, iris: Page) -> None:
        for place, data in enumerate(IRIS_SETS):
            (curve,) = answer_of("evaluate", IRIS, data, "--curve")["curves"]
            found = iris.data("curve-data")["sets"][place]
            assert found["epsilon"] == curve["epsilon"]
            assert [count / found["rows"] for count in found["stable"]] == curve["stability"]
            assert [count / found["rows"] for count in found["robust"]] == curve["robustness"]
            quantiles = {row[0].text: float(row[1].value or "") for row in iris.tables[f"quantiles-{place}"][1:]}
            assert quantiles == curve["quantiles"]

    def test_fragile_rows_and_attribution(self, iris: Page) -> None:
        for place, data in enumerate(IRIS_SETS):
            found = answer_of("explain", IRIS, data, "--epsilon", 0.3, "--most-fragile", 10)
            by_row = {row["row"]: row for row in found["rows"]}
            rows = iris.tables[f"fragile-{place}"][1:]
            assert [int(row[0].text) for row in rows] == found["most_fragile"]
            for row in rows:
                wanted = by_row[int(row[0].text)]
                assert row[2].text == wanted["label"]
                assert float(row[3].value or "") == wanted["radius"]
                assert row[4].text == f"{wanted['answer'][0]} → {wanted['perturbed_answer'][0]}"
                moves = re.findall(r"^(\w+) (\S+) → (\S+)$", row[5].text, re.MULTILINE)
                assert [(name, float(start), float(end)) for name, start, end in moves] == [
                    (move["name"], move["from"], move["to"]) for move in wanted["moved"]
                ]
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
        verdicts = {row[0]: row[1] for row in page.texts("verdicts-table")}
        wanted = answer_of("verify", forest, rows, "--epsilon", 0.2, "--sample-steps", 1)["counts"]
        assert int(verdicts["NO-INFO"]) == wanted["no_info"] > 0
        notes = " ".join(element.text for element in page.find("p"))
        assert f"NO-INFO because of {wanted['no_info']} steps" in notes
        assert "radii are lower bounds" in notes
        assert f"{wanted['no_info']} rows are not decided" in notes

    def test_trees_to_choose(self, forest: str, tmp_path: Path) -> None:
        page = make_page(forest, write(tmp_path, "ab.csv", "a,0.5,0.1\nb,0.9,0.1\n"), "--epsilon", 0.1)
        assert [option.text for option in page.find("option")] == ["tree 1 of 2", "tree 2 of 2"]
        assert [len(tree["nodes"]) for tree in page.data("tree-data")["trees"]] == [3, 1]

    def test_an_interrupt_keeps_what_is_known(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        forest, rows = write(tmp_path, "f.silva", FOREST), write(tmp_path, "ab.csv", "a,0.5,0.1\nb,0.9,0.1\n")

        def assess_interrupted(*arguments: Any, **options: Any) -> Any:
            signal.raise_signal(signal.SIGINT)
            return assess(*arguments, **options)

        monkeypatch.setattr(report_command, "assess", assess_interrupted)
        result = run("report", forest, rows, "--epsilon", 0.1, "-o", "-", code=130)
        assert result.stderr == "interrupted; the page shows what is known\n"
        page = Page(result.stdout)
        assert {row[0]: row[1] for row in page.texts("verdicts-table")}["NO-INFO"] == "2"
        assert "interrupted" in page.find("p", role="status")[0].text

    def test_explanations_stop_between_batches(self) -> None:
        tree = make_model([(0, 1.0, [1, 0], [0, 1])], 2)
        question = ask(tree, data_of([[1.0, 0.0]] * 4, ["a"] * 4), Ball(1))
        stop = threading.Event()
        stop.set()
        found = assess(question, Ball(1), 1, stop=stop)
        assert found.outcome.tally.unstable == 4
        assert found.attribution.n_explained == 0
        content = PageContent(tree, [found], "", {"metasilvae": "0"}, True)
        assert "none of 4 unstable rows was explained" in write_page(content)


class TestHostileNames:
    LABEL, NAME = "</script><b>x&amp;</b>", "\"><img/src=x/onerror='hacked=1'>"

    @pytest.fixture
    def page(self, tmp_path: Path) -> Page:
        model = f"classifier-decision-tree 2 2 {self.LABEL} <!--\nSPLIT 0 0.5\nLEAF 1 0\nLEAF 0 1\n"
        doubled = self.NAME.replace('"', '""')
        rows = f'label,"{doubled}",]]>\n{self.LABEL},0.45,0.1\n<!--,0.9,0.1\n'
        return make_page(
            write(tmp_path, "m<i>&.silva", model), write(tmp_path, "<script>d.csv", rows), "--epsilon", 0.1
        )

    def test_they_are_texts(self, page: Page) -> None:
        assert not page.find("img")
        assert not page.find("b")
        assert not page.find("i")
        assert [row[0] for row in page.texts("features-0")] == [self.NAME]
        assert page.tables["fragile-0"][1][2].text == self.LABEL
        assert page.find("h1")[0].text.endswith("m<i>&.silva")

    def test_they_reach_the_script_as_they_are(self, page: Page) -> None:
        drawing = page.data("tree-data")
        assert drawing["labels"] == {"0": self.LABEL, "1": "<!--"}
        assert drawing["features"] == {"0": self.NAME}
        assert [script.attributes.get("type") for script in page.find("script")] == ["application/json"] * 2 + [None]

    def test_markup(self) -> None:
        assert element("p", "<&>\"'", title="<&>\"'") == (
            '<p title="&lt;&amp;&gt;&quot;&#x27;">&lt;&amp;&gt;&quot;&#x27;</p>'
        )
        assert join("a\x00\udcff\x85b", [element("br"), None, 3]) == "a\ufffd\ufffd\ufffdb<br>3"
        assert "<!--" not in embed_json("x", ["<!--", "</script>", "]]>"])[10:]
        assert embed_json("x", "\u2028<").count("\\u") == 2

    def test_names_that_are_not_utf_8(self, tree: str, rows: str, tmp_path: Path) -> None:
        odd = tmp_path / "odd-\udcff.csv"
        try:
            odd.write_text(Path(rows).read_text())
        except (OSError, UnicodeError):
            pytest.skip("the file system has no such names")
        assert "odd-\ufffd.csv" in write_page(page_of(tree, str(odd)))

    def test_nothing_else_can_run(self, page: Page) -> None:
        (policy,) = (meta for meta in page.find("meta") if meta.attributes.get("http-equiv"))
        rules = dict(rule.strip().split(" ", 1) for rule in (policy.attributes["content"] or "").split(";"))
        assert rules["default-src"] == "'none'"
        for name, text in (("script-src", page.find("script")[-1].text), ("style-src", page.find("style")[0].text)):
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert rules[name] == f"'sha256-{digest}'"
        assert not any(name.startswith("on") or name == "style" for e in page.elements for name in e.attributes)
        assert not any(e.attributes.get("src") or e.tag in ("link", "iframe", "object") for e in page.elements)
        assert all((e.attributes.get("href") or "#").startswith("#") for e in page.elements)


def page_of(model: str, *data: str, epsilon: float = 0.1, jobs: int = 1) -> PageContent:
    from metasilvae.formats.datasets import read_dataset
    from metasilvae.formats.silva_models import read_model

    loaded, allowed = read_model(model), Ball(epsilon)
    found = [assess(ask(loaded, read_dataset(each), allowed), allowed, jobs) for each in data]
    return PageContent(loaded, found, "command", {"metasilvae": "0"})


def test_the_same_page_for_any_number_of_threads() -> None:
    assert write_page(page_of(IRIS, *IRIS_SETS, jobs=1)) == write_page(page_of(IRIS, *IRIS_SETS, jobs=3))


def test_the_same_file_again(tree: str, rows: str, tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    printed = run("report", tree, rows, "--epsilon", 0.1, "-o", output).stdout
    first = output.read_bytes()
    summary = "accuracy 28.57 %, stability 28.57 %, robustness 14.29 %"
    assert printed == f"{rows}: {summary}\nopen {output} in a browser\n"
    run("report", tree, rows, "--epsilon", 0.1, "-o", output)
    assert output.read_bytes() == first


class TestAttacks:
    def test_radii_are_multiples(self, tree: str, rows: str, tmp_path: Path) -> None:
        attack = write(tmp_path, "a.toml", '[default]\nradius = 0.1\n[columns."x[1]"]\nradius = 0.2\n')
        page = make_page(tree, rows, "--attack", attack)
        assert "in multiples of the attack" in page.tables["fragile-0"][0][3].text
        wanted = answer_of("verify", tree, rows, "--attack", attack, "--radius")
        assert page.data("curve-data")["sets"][0]["epsilon"] == sorted({row["radius"] for row in wanted["rows"]})
        (number,) = page.find("input", type="number")
        assert number.attributes["value"] == "1"

    def test_no_radii_no_curve(self, tree: str, tmp_path: Path) -> None:
        attack = write(tmp_path, "a.toml", "[default]\nradius = 1\ninteger = true\n")
        page = make_page(tree, write(tmp_path, "whole.csv", "a,0,0\nbb,1,1\n"), "--attack", attack)
        assert not page.find("script", id="curve-data")
        assert "no curve. a radius needs" in " ".join(p.text for p in page.find("p"))
        assert int(page.texts("verdicts-table")[3][1]) > 0


class TestBounds:
    """The page stays small, and says what it leaves out."""

    def test_a_long_chain(self, tmp_path: Path) -> None:
        chain = "".join(f"SPLIT 0 {k}\nLEAF {k % 2} {1 - k % 2}\n" for k in range(20000))
        model = write(tmp_path, "chain.silva", f"classifier-decision-tree 1 2 a b\n{chain}LEAF 1 0\n")
        page = make_page(model, write(tmp_path, "d.csv", "a,0.2\nb,7.1\n"), "--epsilon", 0.3)
        (tree,) = page.data("tree-data")["trees"]
        assert len(tree["nodes"]) <= tree_data.MOST_NODES_OF_A_TREE < tree["total"] == 40001
        assert len(page.source) < 400_000

    def test_many_trees(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tree_data, "MOST_NODES", 200)
        forest = random_model(random.Random(1), n_trees=100, max_splits=30)
        found = tree_data.describe_trees(forest, None, [])["trees"]
        assert 0 < len(found) < 100
        assert sum(len(tree["nodes"]) for tree in found) <= 200

    def test_many_labels(self, tmp_path: Path) -> None:
        labels = [f"label{number}" for number in range(300)]
        model = (
            f"classifier-decision-tree 1 300 {' '.join(labels)}\nSPLIT 0 0.5\nLEAF 2 {'1 ' * 299}\nLEAF {'1 ' * 300}\n"
        )
        rows = "".join(f"{label},{number % 2}\n" for number, label in enumerate(labels))
        page = make_page(write(tmp_path, "m.silva", model), write(tmp_path, "d.csv", rows), "--epsilon", 0.1)
        assert len(page.tables["confusion-0"]) == 1 + overview_sections.MOST_MISTAKES
        assert len(page.source) < 120_000

    def test_thinned_curves_are_lower_bounds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(curve_chart, "MOST_STEPS", 10)
        rng = np.random.default_rng(3)
        tree = make_model([(0, 0.5, [1, 0], [0, 1])], 2)
        dataset = data_of(rng.random((200, 2)).tolist(), ["a"] * 200)
        curve = Curve(find_radii(ask(tree, dataset, Ball(1)), 1))
        epsilon, stable, _ = curve_chart.thin_out(curve)
        assert len(epsilon) == 10 < len(curve.steps[0])
        for value in rng.random(100):
            place = int(np.searchsorted(epsilon, value))
            shown = 0 if place == len(epsilon) else stable[place] / 200
            assert shown <= curve.stability(value)

    def test_counts_that_cannot_be_added(self) -> None:
        huge = 2**62
        tree = make_model([(0, 0.5, [huge, 1], [1, huge])], 1)
        (found,) = tree_data.describe_trees(tree, None, [])["trees"]
        assert "rows" not in found["nodes"][0]
        assert [node["rows"] for node in found["nodes"][1:]] == [huge + 1, huge + 1]


def sum_of_leaves(nested: Any) -> np.ndarray:
    if isinstance(nested, tuple):
        return sum_of_leaves(nested[2]) + sum_of_leaves(nested[3])
    return np.array(nested)


def test_nodes_of_the_drawing_are_those_of_the_tree() -> None:
    rng = random.Random(5)
    for _ in range(30):
        tree = random_model(rng, max_splits=20)
        (found,) = tree_data.describe_trees(tree, None, [])["trees"]
        nodes, todo = found["nodes"], [(0, nest(tree))]
        assert len(nodes) == found["total"] == tree.n_nodes
        while todo:
            place, nested = todo.pop()
            node, total = nodes[place], sum_of_leaves(nested)
            assert node["rows"] == total.sum()
            assert all(total[label] == count for label, count in node["values"])
            assert len(node["values"]) == min((total > 0).sum(), tree_data.MOST_CLASSES)
            if isinstance(nested, tuple):
                assert (node["feature"], float(node["threshold"])) == nested[:2]
                todo += [(node["left"], nested[2]), (node["right"], nested[3])]
            else:
                assert list(node["answer"]) == [k for k, count in enumerate(nested) if count == max(nested)]


def test_the_drawn_curve_is_the_curve() -> None:
    tree = make_model([(0, 0.5, [1, 0], [0, 1])], 1)
    curve = Curve(find_radii(ask(tree, data_of([[0.25], [0.0], [1.5]], ["a", "a", "a"]), Ball(1)), 1))
    end = curve_chart.choose_end([curve], 0.1)
    assert end == pytest.approx(1.05)
    drawn = curve_chart.draw_curves([(0, "x", curve)], end, 0.1, "epsilon")
    (path,) = re.findall(r'd="([^"]*)" class="stable', drawn)
    steps = [(kind, float(number)) for kind, number in re.findall(r"([MVH])(?:0 )?([\d.]+)", path)]
    assert [number for kind, number in steps if kind in "MV"] == pytest.approx([0, 1000 / 3, 2000 / 3, 1000], abs=0.01)
    radii = [0.25, 0.5, 1.0, end]
    assert [number for kind, number in steps if kind == "H"] == pytest.approx([1000 * r / end for r in radii], abs=0.01)


@pytest.mark.parametrize("end", [1e-12, 0.07, 1.0, 9.9, 255.0, 1e20])
def test_ticks(end: float) -> None:
    ticks = curve_chart.choose_ticks(end)
    assert 3 <= len(ticks) <= curve_chart.N_TICKS + 1
    assert ticks[0] == 0
    assert ticks[-1] <= end


def test_an_axis_for_rows_that_never_change() -> None:
    tree = make_model([[1, 0]], 1)
    curve = Curve(find_radii(ask(tree, data_of([[0.25]], ["a"]), Ball(1)), 1))
    assert curve_chart.choose_end([curve], 0.0) == 1.0


class TestUsage:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["-o", "page.html"], "say what may be perturbed"),
            (["--epsilon", "0.1"], "Missing option '--output'"),
            (["--epsilon", "0.1", "--attack", "x.toml", "-o", "page.html"], "give one of them"),
            (["--epsilon", "-1", "-o", "page.html"], "must be a number that is not negative"),
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


def test_headings_captions_and_names() -> None:
    page = Page(write_page(page_of(IRIS, *IRIS_SETS)))
    headings = [element.tag for element in page.elements if re.fullmatch("h[1-6]", element.tag)]
    assert headings[0] == "h1"
    assert headings.count("h1") == 1
    assert len(page.find("caption")) == len(page.find("table"))
    names = [element.attributes["id"] for element in page.elements if "id" in element.attributes]
    assert len(names) == len(set(names))
    for element_ in page.elements:
        for name in ("aria-labelledby", "href"):
            target = element_.attributes.get(name)
            assert target is None or target.lstrip("#") in names
    for tag in ("header", "nav", "main", "footer"):
        assert len(page.find(tag)) == 1
    assert page.find("html")[0].attributes["lang"] == "en"


def test_every_style_and_script_is_used() -> None:
    folder = Path(document.__file__).parent
    found = {path.name for path in folder.iterdir() if path.suffix in (".css", ".js")}
    assert found == {*document.STYLES, *document.SCRIPTS}
    for name in found:
        text = (folder / name).read_text(encoding="utf-8")
        assert "</s" not in text, "would end the element"
        assert not re.search(r"https?:(?!//www\.w3\.org/2000/svg)|url\(|@import|fetch\(|innerHTML", text)
