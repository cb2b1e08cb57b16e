"""``similarity``."""

import json
import random

import numpy as np
import pytest
from click.testing import CliRunner
from support.oracles import classify, make_model, random_model

from metasilvae.analysis.summaries import count_equal_predictions
from metasilvae.cli import main
from metasilvae.dataset import Dataset
from metasilvae.formats.silva_models import write_model

DATA = "a,1,0\nb,2,0\na,3,0\nb,4,0\n"
MODELS = {
    "first": make_model([(0, 2.5, [3, 0], [0, 3])]),
    "swapped labels": make_model([(0, 2.5, [0, 7], [9, 1])], labels=("b", "a")),
    "later": make_model([(0, 3.5, [1, 0], [0, 1])]),
    "tied": make_model([(0, 1.5, [1, 1], [0, 1])]),
    "other labels": make_model([(0, 2.5, [1, 0], [0, 1])], labels=("a", "c")),
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "d.csv").write_text(DATA)
    for name, model in MODELS.items():
        write_model(model, str(tmp_path / name))
    return tmp_path


def run(folder, *names: str, options: tuple[str, ...] = ()):
    return CliRunner().invoke(main, ["similarity", *(str(folder / name) for name in names), *options])


@pytest.mark.parametrize(
    ("other", "expected"),
    [("first", "1"), ("swapped labels", "1"), ("later", "0.75"), ("tied", "0.5"), ("other labels", "0.5")],
)
def test_share_of_equal_predictions(folder, other, expected):
    result = run(folder, "first", other, "d.csv")
    assert result.exit_code == 0, result.output
    assert result.output == f"Similarity: {expected}\n"


def test_six_digits_as_the_c_program_prints_them(tmp_path):
    (tmp_path / "d.csv").write_text("".join(f"{'ab'[x % 2]},{x},0\n" for x in range(3)))
    write_model(MODELS["first"], str(tmp_path / "m1"))
    write_model(make_model([(0, 1.5, [1, 0], [0, 1])]), str(tmp_path / "m2"))
    assert run(tmp_path, "m1", "m2", "d.csv").output == "Similarity: 0.666667\n"


def test_more_than_two_models_give_a_table(folder):
    lines = run(folder, "first", "later", "tied", "d.csv").output.splitlines()
    assert lines[0].split() == ["model", "1", "2", "3"]
    assert [line.split()[-3:] for line in lines[1:]] == [
        ["1", "0.75", "0.5"],
        ["0.75", "1", "0.25"],
        ["0.5", "0.25", "1"],
    ]


def test_json(folder):
    document = json.loads(run(folder, "first", "later", "d.csv", options=("--format", "json")).output)
    assert document["n_rows"] == 4
    assert document["n_equal"] == [[4, 3], [3, 4]]
    assert document["similarity"] == [[1.0, 0.75], [0.75, 1.0]]


def test_broken_requests(folder):
    assert run(folder, "first", "d.csv").exit_code == 2
    assert CliRunner().invoke(main, ["similarity", "-", "-", str(folder / "d.csv")]).exit_code == 2
    write_model(make_model([(4, 1.0, [1, 0], [0, 1])], n_features=5), str(folder / "wide"))
    result = run(folder, "first", "wide", "d.csv")
    assert result.exit_code == 1
    assert "expects 5" in result.stderr


def test_agrees_with_the_oracle():
    rng = random.Random(3)
    for _ in range(50):
        pair = [random_model(rng), random_model(rng)]
        X = np.array([[rng.choice([rng.random() * 4, float(rng.randint(-4, 4))]) for _ in range(2)] for _ in range(40)])
        dataset = Dataset(X, np.zeros(40, dtype=np.int32), ("a",))
        named = [[{model.labels[label] for label in classify(model, x)} for x in X] for model in pair]
        expected = sum(one == other for one, other in zip(*named, strict=True))
        assert count_equal_predictions(pair, dataset).tolist() == [[40, expected], [expected, 40]]
