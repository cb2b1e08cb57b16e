"""``export``."""

import json
import re
import shutil
import subprocess

import pytest
from click.testing import CliRunner
from hypothesis import given
from support.oracles import make_model, models

from metasilvae.cli import main
from metasilvae.formats.silva_models import same_model, write_model
from metasilvae.interop.exports import EXPORTERS
from metasilvae.interop.exports.documents import DEEPEST_INDENT
from metasilvae.model import LeafKind, Model

TREE = (1, 0.5, [4, 0, 1], (0, 5.0, [2, 2, 0], [0, 0, 7]))
MODEL = make_model([TREE], 2, ("red", "green", "blue"))


def deep_chain(n_splits: int) -> Model:
    tree = [0, 1]
    for i in range(n_splits):
        tree = (0, float(-i), [1, 0], tree)
    return make_model([tree])


def model_of_document(text: str) -> Model:
    document = json.loads(text)

    def nest(nodes: list, place: int) -> tuple | list:
        node = nodes[place]
        if "values" in node:
            return node["values"]
        return (node["feature"], node["threshold"], nest(nodes, node["left"]), nest(nodes, node["right"]))

    kind = {"counts": LeafKind.COUNTS, "scores": LeafKind.SCORES}[document["leaf_kind"]]
    trees = [nest(nodes, 0) for nodes in document["trees"]]
    return make_model(trees, document["n_features"], document["labels"], kind, document["kind"] == "forest")


def test_text():
    assert EXPORTERS["text"](MODEL, ["width", "height"]) == (
        "height <= 0.5\n"
        "  -> red  (red: 4, blue: 1)\n"
        "height > 0.5\n"
        "  width <= 5\n"
        "    -> red or green  (red: 2, green: 2)\n"
        "  width > 5\n"
        "    -> blue  (blue: 7)\n"
    )


def test_text_of_a_forest_without_names():
    forest = make_model([[0.25, -0.5], (1, 2.0, [0.0, 0.0], [1.0, 0.0])], kind=LeafKind.SCORES)
    assert EXPORTERS["text"](forest, None) == (
        "tree 0\n"
        "  -> a  (a: 0.25, b: -0.5)\n"
        "tree 1\n"
        "  x[1] <= 2\n"
        "    -> a or b  (all scores 0)\n"
        "  x[1] > 2\n"
        "    -> a  (a: 1)\n"
    )


def test_text_shows_the_largest_of_many_counts():
    labels = [f"l{i}" for i in range(30)]
    text = EXPORTERS["text"](make_model([list(range(30))], 1, labels), None)
    assert text == "-> l29  (" + ", ".join(f"l{i}: {i}" for i in range(22, 30)) + ", ...)\n"


def test_text_of_a_long_chain_stays_small():
    text = EXPORTERS["text"](deep_chain(20_000), None)
    assert len(text) < 20_000 * 3 * 100
    assert f"\n{'  ' * DEEPEST_INDENT}[20000] -> b  (b: 1)\n" in text


@given(models(simple_labels=False))
def test_json_holds_everything(model):
    assert same_model(model_of_document(EXPORTERS["json"](model, None)), model)


def test_json_of_a_long_chain():
    document = json.loads(EXPORTERS["json"](deep_chain(100_000), ["x", "y"]))
    assert len(document["trees"][0]) == 200_001
    assert document["feature_names"] == ["x", "y"]


def test_json_tells_predictions():
    document = json.loads(EXPORTERS["json"](MODEL, None))
    assert [node["prediction"] for node in document["trees"][0] if "prediction" in node] == [
        ["red"],
        ["red", "green"],
        ["blue"],
    ]


def test_dot():
    text = EXPORTERS["dot"](MODEL, ['a "quoted" name', "back\\slash"])
    assert text.startswith("digraph model {\n")
    assert 'n0 [label="back\\\\slash <= 0.5"];' in text
    assert 'n2 [label="a \\"quoted\\" name <= 5"];' in text
    assert 'n3 [label="red or green\\nred: 2, green: 2", style=rounded];' in text
    assert re.findall(r"n(\d) -> n(\d) \[label=\"(\w+)\"\]", text) == [
        ("0", "1", "yes"), ("0", "2", "no"), ("2", "3", "yes"), ("2", "4", "no"),
    ]  # fmt: skip


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
@pytest.mark.parametrize(
    "model",
    [MODEL, make_model([TREE, TREE, [1, 1, 1]], 2, ('a"b', "c\\", "<d>{e}|f")), make_model([[1, 0]])],
)
def test_graphviz_accepts_it(model):
    text = EXPORTERS["dot"](model, ['n"ame\\', "<b>"])
    drawn = subprocess.run(["dot", "-Tplain"], input=text, capture_output=True, text=True, check=True)
    assert drawn.stderr == ""
    assert drawn.stdout.count("\nnode ") == model.n_nodes


@pytest.mark.parametrize("target", EXPORTERS)
def test_command(target, tmp_path):
    path, output, data = str(tmp_path / "m.silva"), tmp_path / "out", tmp_path / "d.csv"
    write_model(MODEL, path)
    data.write_text("class,width,height\nred,1,2\nblue,3,4\n")
    arguments = ["export", path, "--to", target, "--data", str(data)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert result.output == EXPORTERS[target](MODEL, ["width", "height"])
    assert CliRunner().invoke(main, [*arguments, "--output", str(output)]).exit_code == 0
    assert output.read_text() == result.output


def test_command_needs_a_target(tmp_path):
    assert CliRunner().invoke(main, ["export", "m.silva"]).exit_code == 2
    assert CliRunner().invoke(main, ["export", "m.silva", "--to", "xml"]).exit_code == 2
    result = CliRunner().invoke(main, ["export", "-", "--to", "text", "--data", "-"])
    assert result.exit_code == 2
