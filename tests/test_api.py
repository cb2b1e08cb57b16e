"""The library as its users see it: what the names are, what they do, and that the document tells the truth."""

from __future__ import annotations

import doctest
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command import run as command
from support.remote_tasks import Cluster

import metasilvae
from metasilvae import Ball, make_dataset, read_dataset
from metasilvae.errors import DataError, ModelError, RequestError
from metasilvae.formats.silva_models import same_model
from metasilvae.model import join_trees
from metasilvae.training.options import ForestOptions, TrainingOptions
from metasilvae.training.protocol import Progress

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

    def test_infinite_values(self) -> None:
        with pytest.raises(DataError, match="X holds infinite values; expected finite ones"):
            make_dataset([[np.inf]], [1])

    def test_missing_values(self) -> None:
        dataset = make_dataset([[1.0, np.nan], [1e308, 1e308]], [1, 2])
        assert dataset.has_missing
        assert not make_dataset([[1e308, 1e308], [-1e308, 1e308]], [1, 2]).has_missing


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
            ([[1.0, 2.0, np.inf, 4.0]], "infinite values"),
            ([["a", "b", "c", "d"]], "is no array of numbers"),
        ],
    )
    def test_rows_to_predict(self, X: list, message: str) -> None:
        with pytest.raises(DataError, match=message):
            metasilvae.predict(self.model, X)

    def test_missing_values_to_predict(self) -> None:
        with pytest.raises(ModelError, match=r"X: row 0: .* is missing, and builtin:iris/tree.silva takes none"):
            metasilvae.predict(self.model, [[1.0, 2.0, np.nan, 4.0]])


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


class Steps(metasilvae.TrainingMonitor):
    """Notes the steps of a run, and stops it after some of them."""

    def __init__(self, n_steps: float = math.inf) -> None:
        super().__init__()
        self.n_steps = n_steps
        self.seen: list[tuple[int, str, int]] = []

    def report(self, seed: int, progress: Progress) -> None:
        self.seen.append((seed, progress.phase, progress.step))
        if len(self.seen) == self.n_steps:
            self.stop()


STUDY: dict[str, Any] = {
    "seeds": [1, 2, 3], "validation": 0.2, "tune": False, "generations": 6, "population": 8, "initial_population": 8,
}  # fmt: skip
STUDY_AS_TYPED = [
    "--seeds", "1..3", "--validation", "0.2", "--no-tune", "--max-iteration", "6", "--population-max-size", "8",
    "--population-initial-size", "8",
]  # fmt: skip


class TestWholeRuns:
    """`run_training` has everything that the command has."""

    rows = read_dataset("builtin:iris/train")
    test_rows = read_dataset("builtin:iris/test")

    @pytest.fixture(autouse=True)
    def _here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

    def test_the_files_are_those_of_the_command(self) -> None:
        words = ["builtin:iris/train", "expected.silva", "--epsilon", "0.1", "--log", "expected.log"]
        command("train", *words, *STUDY_AS_TYPED)
        outcome = metasilvae.run_training(self.rows, 0.1, "model.silva", **STUDY, test=self.test_rows, log="model.log")
        assert Path("model.silva").read_bytes() == Path("expected.silva").read_bytes()
        assert same_model(outcome.model, metasilvae.read_model("model.silva"))
        logs = [Path(name).read_text().splitlines() for name in ("model.log", "expected.log")]
        ours, theirs = ([{**json.loads(line), "seconds": 0} for line in log] for log in logs)
        assert ours == theirs
        manifest = json.loads(Path("model.silva.manifest.json").read_text())
        assert (manifest["command"], manifest["seeds"], manifest["test_data"]["rows"]) == (None, [1, 2, 3], 30)
        assert [record["seed"] for record in outcome.records] == [1, 2, 3]
        assert all(0 < record["test_accuracy"] <= 1 for record in outcome.records)
        (kept,) = outcome.kept
        assert kept.held_out_fitness == max(run.held_out_fitness or 0.0 for run in outcome.runs)

    def test_nothing_is_written_unless_it_is_named(self) -> None:
        outcome = metasilvae.run_training("builtin:iris/train", 0.1, preset="fast", test="builtin:iris/test")
        assert outcome.model.n_trees == 1
        assert outcome.output is outcome.checkpoint is None
        assert list(Path().iterdir()) == []

    @pytest.mark.parametrize("choices", [STUDY, {"trees": 5, "preset": "fast"}], ids=["seeds", "forest"])
    def test_a_stopped_run_is_resumed(self, choices: dict[str, Any]) -> None:
        whole = Steps()
        expected = metasilvae.run_training(self.rows, 0.1, monitor=whole, **choices).model
        first = Steps(4)
        outcome = metasilvae.run_training(self.rows, 0.1, checkpoint="run.ck", every=2, monitor=first, **choices)
        assert outcome.is_interrupted
        assert outcome.checkpoint == "run.ck"
        second = Steps()
        resumed = metasilvae.run_training(self.rows, 0.1, checkpoint="run.ck", resume="auto", monitor=second, **choices)
        assert same_model(resumed.model, expected)
        assert not resumed.is_interrupted
        # What the stop has cut short is repeated.
        assert list(dict.fromkeys([*first.seen, *second.seen])) == whole.seen
        assert len(second.seen) < len(whole.seen)

    def test_a_cluster(self, cluster: Cluster) -> None:
        for name, choices in {"study": STUDY, "forest": {"trees": 4, "preset": "fast"}}.items():
            here = metasilvae.run_training(self.rows, 0.1, f"{name}-here.silva", **choices)
            there = metasilvae.run_training(
                self.rows, 0.1, f"{name}-there.silva", **choices, scheduler=cluster.address, checkpoint=f"{name}.ck"
            )
            assert same_model(here.model, there.model)
            assert Path(f"{name}-here.silva").read_bytes() == Path(f"{name}-there.silva").read_bytes()
            # All is in the checkpoint: nobody need answer at that address.
            again = metasilvae.run_training(self.rows, 0.1, **choices, scheduler="nobody:1", resume=f"{name}.ck")
            assert same_model(again.model, here.model)

    def test_shards(self) -> None:
        whole = metasilvae.run_training(self.rows, 0.1, trees=4, preset="fast", method="independent").model
        parts = [
            metasilvae.run_training(self.rows, 0.1, trees=4, preset="fast", method="independent", shard=f"{n}/2").model
            for n in (1, 2)
        ]
        assert same_model(join_trees(parts), whole)
        seeds = metasilvae.run_training(self.rows, 0.1, preset="fast", seeds=range(1, 5), shard="2/2")
        assert ([run.seed for run in seeds.kept], seeds.model.n_trees) == ([3, 4], 2)

    def test_an_archive(self) -> None:
        outcome = metasilvae.run_training(self.rows, 0.3, preset="fast", seed=1, pareto=Path("trees"))
        expected = metasilvae.train_pareto(self.rows, 0.3, preset="fast", seed=1)
        assert [metrics for metrics, _ in outcome.archive] == [metrics for metrics, _ in expected]
        assert len(list(Path("trees").glob("tree-*.silva"))) == len(expected)

    def test_trees_to_start_from(self) -> None:
        first = metasilvae.train(self.rows, 0.1, preset="fast")
        idle = {"generations": 0, "polish": 0, "tune": False}
        assert same_model(metasilvae.run_training(self.rows, 0.1, start=first, **idle).model, first)
        with pytest.raises(RequestError, match="leave out"):
            metasilvae.run_training(self.rows, 0.1, start=first, trees=3)

    @pytest.mark.parametrize(
        ("choices", "message"),
        [
            ({"every": 3}, "'every' is for checkpoints"),
            ({"resume": "auto"}, "'resume auto' uses the file of 'checkpoint'"),
            ({"seeds": []}, "seeds must be different numbers"),
            ({"seeds": [1, 1]}, "seeds must be different numbers"),
            ({"shard": "1/2"}, "'shard' divides seeds or trees"),
            ({"shard": "x"}, "shard 'x' is not understood"),
            ({"pareto": "trees", "seeds": [1, 2]}, "leave out 'pareto' or 'seeds'"),
            ({"pareto": "trees", "trees": 3}, "leave out 'pareto' or 'trees'"),
            ({"log": "log.jsonl", "scheduler": "x:1"}, "leave out 'log' or 'scheduler'"),
            ({"output": "a", "log": "a"}, "two results would be written to a"),
        ],
    )
    def test_contradictions(self, choices: dict[str, Any], message: str) -> None:
        with pytest.raises(RequestError, match=message):
            metasilvae.run_training(self.rows, 0.1, **choices)
        assert list(Path().iterdir()) == []

    def test_a_run_that_is_stopped_before_it_begins(self) -> None:
        monitor = Steps()
        monitor.stop()
        outcome = metasilvae.run_training(self.rows, 0.1, "model.silva", preset="fast", monitor=monitor)
        assert (outcome.runs, outcome.is_interrupted) == ([], True)
        assert list(Path().iterdir()) == []
        with pytest.raises(ModelError, match="stopped before there was a model"):
            _ = outcome.model

    def test_wrong_data(self) -> None:
        with pytest.raises(RequestError, match="data is a ndarray; expected"):
            metasilvae.run_training(self.rows.X, 0.1)  # type: ignore[arg-type]
