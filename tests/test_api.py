"""The library as its users see it: what the names are, what they do, and that the document tells the truth."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import metasilvae
from metasilvae import Ball, make_dataset, read_dataset
from metasilvae.errors import DataError, RequestError
from metasilvae.formats.silva_models import same_model
from metasilvae.training.options import ForestOptions, TrainingOptions

DOCUMENT = Path(__file__).parent.parent / "docs" / "api.md"


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_the_document_tells_the_truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    text = DOCUMENT.read_text().replace("```", "")
    examples = doctest.DocTestParser().get_doctest(text, {}, "api.md", str(DOCUMENT), 0)
    assert len(examples.examples) > 25
    report: list[str] = []
    failed, _ = doctest.DocTestRunner(verbose=False).run(examples, out=report.append)
    assert not failed, "".join(report)


def test_the_document_names_everything() -> None:
    text = DOCUMENT.read_text()
    assert [name for name in metasilvae.__all__ if name not in text and name != "__version__"] == []


def test_every_name_leads_somewhere() -> None:
    pytest.importorskip("sklearn")
    for name in metasilvae.__all__:
        assert getattr(metasilvae, name) is not None
    assert set(metasilvae.__all__) <= set(dir(metasilvae))
    assert set(metasilvae._HOMES) | {"__version__"} == set(metasilvae.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = metasilvae.nothing


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, metasilvae; print([n for n in ('numpy', 'click', 'sklearn', 'tqdm') if n in sys.modules])"
    assert run_python(code) == "[]"


def test_the_core_needs_no_scikit_learn() -> None:
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import metasilvae\n"
        "metasilvae.train(metasilvae.read_dataset('builtin:iris/train'), 0.1, preset='fast')\n"
        "try:\n    metasilvae.MetaSilvaeClassifier\n"
        "except ImportError as error:\n    print(error)\n"
    )
    said = run_python(code)
    assert said.startswith("the estimators need scikit-learn 1.6 or newer (")
    assert said.endswith("pip install 'metasilvae[sklearn]'")


class TestDataset:
    def test_labels_in_order_of_appearance(self) -> None:
        dataset = make_dataset([[1, 2], [3, 4], [5, 6]], [7, 3, 7], ["a", "b"])
        assert dataset.labels == ("7", "3")
        assert dataset.y.tolist() == [0, 1, 0]
        assert dataset.X.dtype == np.float64
        assert dataset.feature_names == ("a", "b")

    @pytest.mark.parametrize(
        ("X", "y"), [([1, 2], [1, 2]), ([[1], [2]], [1]), ([[1], [2]], [[1], [2]]), ([[]], [1]), (np.empty((0, 2)), [])]
    )
    def test_shapes(self, X: object, y: object) -> None:
        with pytest.raises(DataError, match="expected \\(n_samples, n_features\\)"):
            make_dataset(X, y)  # type: ignore[arg-type]

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_what_is_no_number(self, value: float) -> None:
        with pytest.raises(DataError, match="infinite or no numbers"):
            make_dataset([[value]], [1])


class TestTraining:
    rows = read_dataset("builtin:iris/train")

    def test_a_radius_is_a_ball(self) -> None:
        one = metasilvae.train(self.rows, 0.1, preset="fast", jobs=1)
        assert same_model(one, metasilvae.train(self.rows, Ball(0.1), preset="fast", jobs=2))
        assert same_model(one, metasilvae.train(self.rows, np.float64(0.1), metasilvae.choose_options("fast")))

    def test_forest(self) -> None:
        forest = metasilvae.train(self.rows, 0.1, trees=3, preset="fast")
        assert forest.n_trees == 3

    def test_options(self) -> None:
        options = metasilvae.choose_options("best", weights={"accuracy": 1.0, "robustness": 2.0}, max_depth=3)
        assert isinstance(options, TrainingOptions)
        assert (options.fitness.correct, options.fitness.robust, options.max_depth) == (1.0, 2.0, 3)
        assert options.generations == 400
        forest = metasilvae.choose_options(trees=7, row_sample=0.5)
        assert isinstance(forest, ForestOptions)
        assert (forest.n_trees, forest.row_sample) == (7, 0.5)

    @pytest.mark.parametrize(
        ("choices", "message"),
        [
            ({"preset": "worst"}, "preset 'worst': choose among default, fast"),
            ({"no_such": 1}, "no such option: no_such"),
            ({"max_leaves": 0}, "max-leaves is 0"),
            ({"trees": 0}, "trees is 0"),
            ({"weights": {"beauty": 1.0}}, "'beauty' has no weight"),
        ],
    )
    def test_wrong_options(self, choices: dict[str, object], message: str) -> None:
        with pytest.raises(RequestError, match=message):
            metasilvae.train(self.rows, 0.1, **choices)  # type: ignore[arg-type]

    def test_options_twice(self) -> None:
        with pytest.raises(RequestError, match="options are given, and so are preset"):
            metasilvae.train(self.rows, 0.1, metasilvae.choose_options(), preset="fast")


def test_an_epsilon_that_is_neither_number_nor_perturbation_is_refused() -> None:
    rows = read_dataset("builtin:iris/test")
    with pytest.raises(RequestError, match="epsilon is 'x'; expected a number"):
        metasilvae.train(rows, "x")  # type: ignore[arg-type]


class TestWrongArguments:
    rows = read_dataset("builtin:iris/test")
    model = metasilvae.read_model("builtin:iris/tree.silva")

    @pytest.mark.parametrize("name", ["verify", "find_witnesses", "find_radii", "evaluate"])
    def test_types(self, name: str) -> None:
        function = getattr(metasilvae, name)
        epsilon = [0.1] if name == "evaluate" else 0.1
        with pytest.raises(RequestError, match="model is a str; expected what read_model or train gives"):
            function("tree.silva", self.rows, epsilon)
        with pytest.raises(RequestError, match="dataset is a ndarray; expected what read_dataset or make_dataset"):
            function(self.model, self.rows.X, epsilon)
        with pytest.raises(RequestError, match=r"budget is a float; expected what Budget\(seconds=1\) gives"):
            function(self.model, self.rows, epsilon, budget=1.0)
        with pytest.raises(RequestError, match="voting 'loud': choose among max, average, softargmax"):
            function(self.model, self.rows, epsilon, voting="loud")
        with pytest.raises(RequestError, match="epsilon is 'x'"):
            function(self.model, self.rows, ["x"] if name == "evaluate" else "x")

    def test_training(self) -> None:
        for function in (metasilvae.train, metasilvae.train_pareto):
            with pytest.raises(RequestError, match="dataset is a ndarray"):
                function(self.rows.X, 0.1)  # type: ignore[operator]

    @pytest.mark.parametrize(
        ("X", "message"),
        [
            ([1.0, 2.0], r"has the shape \(2,\); expected"),
            ([[1.0, 2.0]], "X has 2 features, builtin:iris/tree.silva has 4"),
            ([[1.0, 2.0, np.nan, 4.0]], "infinite or no numbers"),
            ([["a", "b", "c", "d"]], "is no array of numbers"),
        ],
    )
    def test_rows_to_predict(self, X: list, message: str) -> None:
        with pytest.raises(DataError, match=message):
            metasilvae.predict(self.model, X)


def test_archives() -> None:
    rows = read_dataset("builtin:iris/train")
    archive = metasilvae.train_pareto(rows, 0.3, preset="fast", seed=1, jobs=1)
    assert len(archive) > 1
    accuracies = [figures.accuracy for figures, _ in archive]
    assert accuracies == sorted(accuracies, reverse=True)
    for figures, model in archive:
        counts = metasilvae.verify(model, rows, 0.3).counts
        assert (figures.correct, figures.stable, figures.leaves) == (counts.correct, counts.stable, model.n_leaves)
        assert not any(other.covers(figures) for other, _ in archive if other is not figures)
    with pytest.raises(RequestError, match="leave the number of trees out"):
        metasilvae.train_pareto(rows, 0.1, trees=3)
