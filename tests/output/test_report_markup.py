"""The report page as a document: no name does anything in it, it stays small, and what is drawn is what there is."""

from __future__ import annotations

import base64
import hashlib
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command import write
from support.html_pages import Page, make_page, page_of
from support.oracles import data_of, make_model, nest, random_model

from metasilvae.output.axes import Axis, choose_axis
from metasilvae.output.html import curves, document, overview
from metasilvae.output.html import model as model_section
from metasilvae.output.html.content import order_labels, shorten_sources
from metasilvae.output.html.document import write_page
from metasilvae.output.html.markup import element, embed_json, join
from metasilvae.perturbations.boxes import Ball
from metasilvae.verification.curve import QUANTILES, Curve, choose_quantile
from metasilvae.verification.query import make_query
from metasilvae.verification.radius import find_radii

IRIS, IRIS_SETS = "builtin:iris/tree.silva", ["builtin:iris/train", "builtin:iris/test"]


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


class TestBounds:
    """The page stays small, and says what it leaves out."""

    def test_a_long_chain(self, tmp_path: Path) -> None:
        chain = "".join(f"SPLIT 0 {k}\nLEAF {k % 2} {1 - k % 2}\n" for k in range(20000))
        model = write(tmp_path, "chain.silva", f"classifier-decision-tree 1 2 a b\n{chain}LEAF 1 0\n")
        page = make_page(model, write(tmp_path, "d.csv", "a,0.2\nb,7.1\n"), "--epsilon", 0.3)
        (tree,) = page.data("tree-data")["trees"]
        assert len(tree["nodes"]) <= model_section.MOST_NODES_OF_A_TREE < tree["total"] == 40001
        assert len(page.source) < 400_000

    def test_many_trees(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(model_section, "MOST_NODES", 200)
        forest = random_model(random.Random(1), n_trees=100, max_splits=30)
        found = model_section.describe_trees(forest, None, [])["trees"]
        assert 0 < len(found) < 100
        assert sum(len(tree["nodes"]) for tree in found) <= 200

    def test_many_labels(self, tmp_path: Path) -> None:
        labels = [f"label{number}" for number in range(300)]
        model = (
            f"classifier-decision-tree 1 300 {' '.join(labels)}\nSPLIT 0 0.5\nLEAF 2 {'1 ' * 299}\nLEAF {'1 ' * 300}\n"
        )
        rows = "".join(f"{label},{number % 2}\n" for number, label in enumerate(labels))
        page = make_page(write(tmp_path, "m.silva", model), write(tmp_path, "d.csv", rows), "--epsilon", 0.1)
        assert len(page.tables["confusion-0"]) == 1 + overview.MOST_MISTAKES
        assert len(page.source) < 120_000

    def test_thinned_curves_are_lower_bounds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(curves, "MOST_STEPS", 10)
        rng = np.random.default_rng(3)
        tree = make_model([(0, 0.5, [1, 0], [0, 1])], 2)
        dataset = data_of(rng.random((200, 2)).tolist(), ["a"] * 200)
        curve = Curve(find_radii(make_query(tree, dataset, Ball(1)), 1))
        marked = float(curve.steps[0][77])
        epsilon, stable, robust = curves.thin_out(curve, marked)
        assert 10 <= len(epsilon) <= 10 + 1 + len(QUANTILES) < len(curve.steps[0])
        exact = [marked, *(choose_quantile(curve.radii.lower, percent) for percent in QUANTILES.values())]
        for value in exact:
            place = int(np.searchsorted(epsilon, value))
            assert stable[place] / 200 == curve.stability(value)
            assert robust[place] / 200 == curve.robust_accuracy(value)
        assert len(curves.thin_out(curve, 1e6)[0]) <= len(epsilon)
        for value in rng.random(100):
            place = int(np.searchsorted(epsilon, value))
            shown = 0 if place == len(epsilon) else stable[place] / 200
            assert shown <= curve.stability(value)

    def test_counts_that_cannot_be_added(self) -> None:
        huge = 2**62
        tree = make_model([(0, 0.5, [huge, 1], [1, huge])], 1)
        (found,) = model_section.describe_trees(tree, None, [])["trees"]
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
        (found,) = model_section.describe_trees(tree, None, [])["trees"]
        nodes, todo = found["nodes"], [(0, nest(tree))]
        assert len(nodes) == found["total"] == tree.n_nodes
        while todo:
            place, nested = todo.pop()
            node, total = nodes[place], sum_of_leaves(nested)
            assert node["rows"] == total.sum()
            assert all(total[label] == count for label, count in node["values"])
            assert len(node["values"]) == min((total > 0).sum(), model_section.MOST_CLASSES)
            if isinstance(nested, tuple):
                assert (node["feature"], float(node["threshold"])) == nested[:2]
                todo += [(node["left"], nested[2]), (node["right"], nested[3])]
            else:
                assert list(node["prediction"]) == [k for k, count in enumerate(nested) if count == max(nested)]


def test_the_drawn_curve_is_the_curve() -> None:
    tree = make_model([(0, 0.5, [1, 0], [0, 1])], 1)
    curve = Curve(find_radii(make_query(tree, data_of([[0.25], [0.0], [1.5]], ["a", "a", "a"]), Ball(1)), 1))
    axis = choose_axis([curve], 0.1)
    end = axis.end
    assert (axis.start, end, axis.is_log) == (0, pytest.approx(1.05), False)
    drawn = curves.draw_curves([(0, "x", curve)], axis, 0.1, "epsilon")
    (path,) = re.findall(r'd="([^"]*)" class="stable', drawn)
    steps = [(kind, float(number)) for kind, number in re.findall(r"([MVH])(?:0 )?([\d.]+)", path)]
    assert [number for kind, number in steps if kind in "MV"] == pytest.approx([0, 1000 / 3, 2000 / 3, 1000], abs=0.01)
    radii = [0.25, 0.5, 1.0, end]
    assert [number for kind, number in steps if kind == "H"] == pytest.approx([1000 * r / end for r in radii], abs=0.01)


def test_an_axis_ends_where_the_curve_does_not_far_beyond() -> None:
    tree = make_model([(0, 0.5, [1, 0], [0, 1])], 1)
    curve = Curve(find_radii(make_query(tree, data_of([[0.25], [0.0], [1.5]], ["a", "a", "a"]), Ball(1)), 1))
    assert choose_axis([curve], 1.5).end == pytest.approx(1.05 * 3)
    axis = choose_axis([curve], 1e6)
    assert axis.end == pytest.approx(1.05)
    assert 'class="mark"' not in curves.draw_curves([(0, "x", curve)], axis, 1e6, "epsilon")
    content = page_of(IRIS, IRIS_SETS[1], epsilon=1e6)
    assert "The verified epsilon, 1000000, is far beyond" in write_page(content)


def test_an_axis_for_rows_that_never_change() -> None:
    tree = make_model([[1, 0]], 1)
    curve = Curve(find_radii(make_query(tree, data_of([[0.25]], ["a"]), Ball(1)), 1))
    assert choose_axis([curve], 0.0) == Axis(0.0, 1.0)


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


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        (["0", "1", "10", "9", "-2.5"], ["-2.5", "0", "1", "9", "10"]),
        (["1", "1.0", "01"], ["01", "1", "1.0"]),
        (["class-10", "class-9", "Class-1", "a"], ["a", "Class-1", "class-9", "class-10"]),
        (["10", "9", "none", "\udcff"], ["9", "10", "none", "\udcff"]),
        ([], []),
    ],
)
def test_order_of_labels(labels: list[str], wanted: list[str]) -> None:
    assert order_labels(labels) == wanted


@pytest.mark.parametrize(
    ("sources", "wanted"),
    [
        (["/data/iris/train.csv.gz", "/data/iris/test.csv.gz"], ["train.csv.gz", "test.csv.gz"]),
        (["a/x/d.csv", "b/x/d.csv"], ["a/x/d.csv", "b/x/d.csv"]),
        (["/r/a/x/d.csv", "/r/b/x/d.csv"], ["a/x/d.csv", "b/x/d.csv"]),
        (["one/d.csv", "one/d.csv"], ["d.csv", "d.csv"]),
        (["builtin:iris/train", "folder/train"], ["builtin:iris/train", "train"]),
        (["d.csv"], ["d.csv"]),
    ],
)
def test_short_names(sources: list[str], wanted: list[str]) -> None:
    assert shorten_sources(sources) == wanted


def test_every_style_and_script_is_used() -> None:
    folder = Path(document.__file__).parent
    found = {path.name for path in folder.iterdir() if path.suffix in (".css", ".js")}
    assert found == {*document.STYLES, *document.SCRIPTS}
    for name in found:
        text = (folder / name).read_text(encoding="utf-8")
        assert "</s" not in text, "would end the element"
        assert not re.search(r"https?:(?!//www\.w3\.org/2000/svg)|url\(|@import|fetch\(|innerHTML", text)
