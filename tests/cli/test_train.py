"""``metasilvae train`` inside the test process."""

from __future__ import annotations

import io
import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import run, write
from support.training_requests import request

from metasilvae.cli.interrupts import Interrupts
from metasilvae.cli.training_parameters import SeedList
from metasilvae.formats.silva_models import read_model, same_model
from metasilvae.output.text.trainings import ProgressBar, describe_tuning
from metasilvae.perturbations.boxes import Ball
from metasilvae.training import runs
from metasilvae.training.options import PRESETS, options_for
from metasilvae.training.protocol import Progress
from metasilvae.verification.objective import Fitness

IRIS = "builtin:iris/train"
SHORT = ["--no-tune", "--max-iteration", "3", "--population-max-size", "8", "--population-initial-size", "8"]
# Every option of the C program, with each of its values somewhere.
AS_TYPED_FOR_C = [
    "--fitness", "linear", "0.1", "0.9", "0", "0.1", "0", "0", "0", "0", "0", "0",
    "--select", "roulette-wheel", "--crossover", "one-point", "--mutation", "Z",
    "--mutation-base-probability", "0.9", "--mutation-probability", "constant",
    "--population-initial-size", "6", "--population-max-size", "7", "--population-next-size", "constant",
    "--population-generator", "blank", "--max-iteration", "5", "--elitism", "2", "--seed", "3",
    "--split-search-aggressiveness", "0.5", "--allowed-features", "uniform", "3",
]  # fmt: skip


def words(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_options_as_typed_for_the_c_program() -> None:
    asked = request(*AS_TYPED_FOR_C)
    assert asked.perturbation == Ball(0.1)
    assert asked.all_seeds == [3]
    assert asked.options == options_for(
        "default",
        seed=3,
        fitness=Fitness(correct=0.9, stable=0.1),
        selection="roulette-wheel",
        mutation="grow-or-prune",
        mutation_probability=0.9,
        initial_population=6,
        population=7,
        greedy=False,
        generations=5,
        elitism=2,
        aggressiveness=0.5,
        allowed_features=3,
        tune=False,
    )
    others = request(
        "--epsilon", "1", "--select", "uniform", "--mutation", "none", "--mutation-probability", "encourage-variance",
        "--population-generator", "from-forest", "f.silva", "--allowed-features", "all",
    )  # fmt: skip
    assert (others.options.selection, others.options.mutation) == ("uniform", "none")
    assert others.options.mutation_probability_rule == "encourage-variance"
    assert (others.start, others.options.allowed_features) == ("f.silva", 0)


def test_friendly_options() -> None:
    asked = request(
        "--perturbation", "l_inf-clip-all", "2", "0", "9", "--weight", "accuracy=0.5", "--weight", "robustness=0.5",
        "--preset", "best", "--criterion", "entropy", "--max-leaves", "9", "--seeds", "1..3,7",
    )  # fmt: skip
    assert asked.perturbation == Ball(2.0, 0.0, 9.0)
    assert asked.options == options_for(
        "best", fitness=Fitness(correct=0.5, robust=0.5), impurity="entropy", max_leaves=9
    )
    assert asked.seeds == (1, 2, 3, 7)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_changed_by_given_options_only(preset: str) -> None:
    assert request("--epsilon", "0.1", "--preset", preset).options == options_for(preset)
    changed = request("--epsilon", "0.1", "--preset", preset, "--elitism", "3").options
    assert changed == options_for(preset, elitism=3)


@pytest.mark.parametrize(
    ("arguments", "tunes"),
    [
        ([], True),
        (["--tune"], True),
        (["--no-tune"], False),
        (["--leaf-penalty", "1"], False),
        (["--robust-weight", "0", "--no-tune"], False),
        (["--population-generator", "greedy"], True),
        (["--population-generator", "blank"], False),
        (["--preset", "paper"], False),
        (["--preset", "cart"], False),
    ],
)
def test_what_is_given_is_not_tuned(arguments: list[str], tunes: bool) -> None:
    assert request("--epsilon", "0.1", *arguments).options.tune == tunes


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("1..3", (1, 2, 3)), ("1,2,5", (1, 2, 5)), ("7", (7,)), ("4,1..3", (4, 1, 2, 3)), ("4..4", (4,))],
)
def test_seed_lists(text: str, seeds: tuple[int, ...]) -> None:
    assert SeedList().convert(text, None, None) == seeds


def test_a_tree_is_trained_written_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "iris.silva"
    result = run("train", IRIS, path, "--epsilon", "0.1", "--test", "builtin:iris/test", *SHORT)
    assert result.stderr == ""
    model = read_model(str(path))
    table = run("evaluate", path, IRIS, "--epsilon", "0.1", "--format", "json").stdout
    figures = json.loads(table)["evaluations"][0]
    lines = result.stdout.splitlines()
    assert lines[0] == f"model         {path} (tree, {model.n_leaves} leaves, depth {model.max_depth})"
    assert lines[1] == "perturbation  l_inf 0.1"
    assert re.fullmatch(r"training      seed 0, \d+\.\d\d s, stopped: reached the limit of \d+ generations", lines[2])
    assert lines[4].split() == ["rows", "number", "phi", "accuracy", "stability", "robust", "accuracy"]
    shares = [figures[name] for name in ("accuracy", "stability", "robust_accuracy")]
    phi = 0.9 * shares[0] + 0.1 * shares[1]
    assert lines[5].split() == ["training", "120", *(f"{share:.4g}" for share in (phi, *shares))]
    assert lines[6].split()[:2] == ["test", "30"]


def test_options_of_the_c_program_train(tmp_path: Path) -> None:
    run("train", IRIS, tmp_path / "a.silva", *AS_TYPED_FOR_C)
    run("train", IRIS, tmp_path / "b.silva", *AS_TYPED_FOR_C, "--jobs", "2")
    assert (tmp_path / "a.silva").read_bytes() == (tmp_path / "b.silva").read_bytes()


def test_standard_output_carries_the_model_only() -> None:
    result = run("train", IRIS, "-", "--epsilon", "0.1", *SHORT)
    assert result.stdout.startswith("classifier-decision-tree 4 3\n")
    assert result.stderr.startswith("model         - (tree, ")
    verified = run("verify", "-", IRIS, "--epsilon", "0.1", stdin=result.stdout)
    assert "[SUMMARY]" in verified.stdout


def test_training_data_from_standard_input(tmp_path: Path) -> None:
    rows = "".join(f"{'ab'[number % 2]},{number % 2},{number}\n" for number in range(20))
    run("train", "-", tmp_path / "t.silva", "--epsilon", "0.1", *SHORT, stdin=rows)
    assert read_model(str(tmp_path / "t.silva")).n_leaves == 2


def test_the_log_has_a_record_for_each_step(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    run(
        "train",
        IRIS,
        tmp_path / "t.silva",
        "--epsilon",
        "0.1",
        "--seeds",
        "4,5",
        "--patience",
        "0",
        "--log",
        log,
        *SHORT,
    )
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert {record["seed"] for record in records} == {4, 5}
    for seed in (4, 5):
        own = [record for record in records if record["seed"] == seed]
        assert [record["step"] for record in own if record["phase"] == "generation"] == [0, 1, 2]
        scores = [record["score"] for record in own if record["phase"] not in ("initial tree", "tuning")]
        assert scores == sorted(scores)
    names = {"fitness", "accuracy", "stability", "robust_accuracy", "leaves", "seconds", "offspring", "mean_fitness"}
    assert names <= set(records[0])


def test_a_log_on_standard_output_moves_the_report_aside(tmp_path: Path) -> None:
    result = run("train", IRIS, tmp_path / "t.silva", "--epsilon", "0.1", "--log", "-", *SHORT)
    assert all(json.loads(line) for line in result.stdout.splitlines())
    assert "accuracy" in result.stderr


def test_a_study_over_seeds_keeps_the_best(tmp_path: Path) -> None:
    paper = ["--epsilon", "0.1", "--preset", "paper", "--max-iteration", "8", "--jobs", "1"]
    result = run("train", IRIS, tmp_path / "best.silva", *paper, "--seeds", "1..6")
    found = {}
    for seed in range(1, 7):
        path = tmp_path / f"{seed}.silva"
        text = run("train", IRIS, path, *paper, "--seed", seed).stdout
        found[seed] = (float(text.splitlines()[5].split()[2]), -read_model(str(path)).n_leaves)
    kept = int(
        re.search(
            r"kept the model of seed (\d+), the best by phi on the training rows less the leaf penalty", result.stdout
        )[1]
    )
    assert found[kept] == max(found.values())
    assert (tmp_path / "best.silva").read_bytes() == (tmp_path / f"{kept}.silva").read_bytes()
    table = {line[:14].strip(): line.split() for line in result.stdout.splitlines()[:6]}
    assert list(table) == ["6 seeds", "minimum", "1st quartile", "median", "3rd quartile", "maximum"]
    assert float(table["maximum"][1]) == max(phi for phi, _ in found.values())
    assert float(table["minimum"][1]) == min(phi for phi, _ in found.values())


def test_a_study_with_held_out_rows_is_judged_by_them(tmp_path: Path) -> None:
    arguments = ["--epsilon", "0.1", "--validation", "0.2", "--seeds", "1..3", "--test", "builtin:iris/test"]
    result = run("train", IRIS, tmp_path / "t.silva", *arguments, *SHORT)
    assert "the best by phi on 24 rows held out" in result.stdout
    assert "validation    phi " in result.stdout
    assert "test phi" in result.stdout


def test_start_from_a_forest(tmp_path: Path) -> None:
    first, second = tmp_path / "first.silva", tmp_path / "second.silva"
    run("train", IRIS, first, "--epsilon", "0.1", *SHORT)
    idle = ["--max-iteration", "0", "--polish", "0"]
    run("train", IRIS, second, "--epsilon", "0.1", "--population-generator", "from-forest", first, *idle)
    assert same_model(read_model(str(first)), read_model(str(second)))
    assert read_model(str(second)).description.provenance["start"] == read_model(str(first)).fingerprint


def test_a_time_limit_ends_training(tmp_path: Path) -> None:
    result = run("train", IRIS, tmp_path / "t.silva", "--epsilon", "0.1", "--time-limit", "0.0001")
    assert "stopped: reached the time limit" in result.stdout
    is_leaf = read_model(str(tmp_path / "t.silva")).n_leaves == 1
    assert ("the time limit stopped the training before a tree was grown" in result.stderr) == is_leaf


def test_no_epsilon_is_pointed_out(tmp_path: Path) -> None:
    result = run("train", IRIS, tmp_path / "t.silva", *SHORT)
    assert result.stderr.startswith("warning: no --epsilon is given")
    assert "the tree is trained for accuracy alone" in result.stderr
    assert "perturbation  l_inf 0\n" in result.stdout
    result = run("train", IRIS, tmp_path / "f.silva", "--trees", "2", "--preset", "fast", "--no-tune")
    assert "the forest is trained for accuracy alone" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epsilon", "0.1", "--fitness", "linear", *"0123456789"], "leave --epsilon or --fitness out"),
        (["--weight", "accuracy=1", "--fitness", "linear", *"0123456789"], "leave --weight or --fitness out"),
        (["--perturbation", "l_inf", "1", "--fitness", "linear", *"0123456789"], "leave --perturbation or --fitness"),
        (["--epsilon", "1", "--seeds", "1,1"], "'1,1': names seed 1 twice; the same seed gives the same model"),
        (["--epsilon", "1", "--seeds", "1..5,3"], "names seed 3 twice"),
        (["--tune", "--robust-weight", "0.1"], "--tune and --robust-weight exclude each other"),
        (["--tune", "--population-generator", "blank"], "--tune and --population-generator exclude"),
        (["--epsilon", "1", "--perturbation", "l_inf", "1"], "exclude each other"),
        (["--fitness", "linear", "0", "1"], "expected 'linear E CORRECT WRONG"),
        (["--fitness", "linear", *"012345678x"], "'x' is not a number"),
        (["--fitness", "linear", *"0000000000"], "all trees are equally fit"),
        (["--fitness", "quadratic", "1"], "'quadratic' is not one of linear"),
        (["--epsilon", "-1"], "epsilon is -1"),
        (["--epsilon", "x"], "'x' is not a number"),
        (["--perturbation", "from-file", "x"], "'from-file' is not one of l_inf, l_inf-clip-all"),
        (["--weight", "accuracy"], "expected NAME=NUMBER"),
        (["--weight", "accuracy=x"], "expected NAME=NUMBER"),
        (["--weight", "speed=1"], "'speed' has no weight"),
        (["--weight", "accuracy=1", "--weight", "accuracy=2"], "given twice"),
        (["--weight", "accuracy=1", "--weight", "correct=2"], "given twice"),
        (["--seed", "1", "--seeds", "1..2"], "exclude each other"),
        (["--seed", "-1"], "-1 is not in the range"),
        (["--seeds", "3..1"], "a range goes from a number to a larger one"),
        (["--seeds", "a"], "expected whole numbers"),
        (["--seeds", "1..999999999"], "a range goes"),
        (["--preset", "magic"], "'magic' is not one of"),
        (["--select", "best"], "'best' is not one of"),
        (["--crossover", "two-point"], "two-point"),
        (["--mutation", "X"], "'X' is not one of"),
        (["--mutation-probability", "0.5"], "'0.5' is not one of 'constant'"),
        (["--mutation-base-probability", "2"], "2.0 is not in the range"),
        (["--mutation-base-probability", "nan"], "mutation-base-probability is nan"),
        (["--population-generator", "from-forest"], "expected 'from-forest PATH'"),
        (["--population-generator", "random"], "'random' is not one of greedy, blank, from-forest"),
        (["--population-max-size", "0"], "0 is not in the range"),
        (["--population-max-size", "2"], "elitism is 4, which exceeds the size of the population"),
        (["--elitism", "99"], "elitism is 99"),
        (["--max-iteration", "9999999999"], "max-iteration is"),
        (["--split-search-aggressiveness", "0"], "0.0 is not in the range"),
        (["--allowed-features", "uniform", "0"], "expected a whole number from 1 on"),
        (["--allowed-features", "uniform", "x"], "expected a whole number from 1 on"),
        (["--allowed-features", "some"], "'some' is not one of all, uniform"),
        (["--allowed-features", "uniform", "5"], "5 features are to be drawn"),
        (["--validation", "1"], "1.0 is not in the range"),
        (["--time-limit", "0"], "0.0 is not in the range"),
        (["--time-limit", "nan"], "'nan' is not a number"),
        (["--target", "nan"], "target is not a number"),
        (["--test", "-"], None),
    ],
)
def test_wrong_usage(arguments: list[str], message: str | None, tmp_path: Path) -> None:
    data = "-" if message is None else IRIS
    result = run("train", data, tmp_path / "t.silva", *arguments, code=2)
    assert (message or "standard input (-) can be used for one") in words(result.stderr)
    assert re.fullmatch(r"(warning: no --epsilon .*\n)?error: .* See metasilvae train -h\n", result.stderr)
    assert not (tmp_path / "t.silva").exists()


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("training began")

    monkeypatch.setattr(runs, "make_trainer", refuse)


@pytest.mark.usefixtures("no_training")
class TestBeforeTraining:
    """What is refused before any work."""

    def test_labels_that_a_model_cannot_hold(self, tmp_path: Path) -> None:
        rows = write(tmp_path, "rows.csv", f"{'x' * 40},1,2\nb,2,3\n")
        result = run("train", rows, tmp_path / "t.silva", "--epsilon", "1", code=1)
        assert "the model cannot be written" in result.stderr
        assert len(result.stderr.splitlines()) == 1

    @pytest.mark.parametrize("option", [[], ["--log"]])
    def test_outputs_that_cannot_be_written(self, option: list[str], tmp_path: Path) -> None:
        bad = tmp_path / "absent" / "file"
        names = [tmp_path / "t.silva", *option, bad] if option else [bad]
        assert "does not exist; create it first" in run("train", IRIS, *names, "--epsilon", "1", code=1).stderr

    def test_outputs_that_are_inputs(self, tmp_path: Path, tree: str, rows: str) -> None:
        assert "is read by this command" in run("train", rows, rows, "--epsilon", "1", code=2).stderr
        arguments = ["--epsilon", "1", "--population-generator", "from-forest", tree]
        assert "is read by this command" in run("train", rows, tree, *arguments, code=2).stderr
        found = run("train", IRIS, tmp_path / "t", "--epsilon", "1", "--test", rows, "--log", rows, code=2)
        assert "is read by this command" in found.stderr

    def test_two_results_in_one_file(self, tmp_path: Path) -> None:
        path = tmp_path / "t"
        assert (
            "two results would be written" in run("train", IRIS, path, "--epsilon", "1", "--log", path, code=2).stderr
        )
        assert "standard output" in run("train", IRIS, "-", "--epsilon", "1", "--log", "-", code=2).stderr

    def test_test_rows_of_other_data(self, tmp_path: Path) -> None:
        wide = run("train", IRIS, tmp_path / "t", "--epsilon", "1", "--test", "builtin:wine/test", code=1)
        assert "builtin:wine/test: lacks 4 of the 4 columns of builtin:iris/train: 'sepal_length'" in wide.stderr
        plain = write(tmp_path, "plain.csv", "setosa,1,2,3,4,5\n")
        wide = run("train", IRIS, tmp_path / "t", "--epsilon", "1", "--test", plain, code=1)
        assert "has 5 features" in wide.stderr
        rows = write(tmp_path, "rows.csv", "u,1,2,3,4\nv,1,2,3,4\n")
        other = run("train", IRIS, tmp_path / "t", "--epsilon", "1", "--test", rows, code=1)
        assert "none of its labels" in other.stderr

    def test_files_that_do_not_exist(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)  # where no file has a similar name
        for arguments in (
            ["absent.csv", tmp_path / "t", "--epsilon", "1"],
            [IRIS, tmp_path / "t", "--epsilon", "1", "--test", "absent.csv"],
            [IRIS, tmp_path / "t", "--epsilon", "1", "--population-generator", "from-forest", "absent.silva"],
        ):
            result = run("train", *arguments, code=1)
            assert re.fullmatch(r"error: absent\.\w+: no such file; check the path\n", result.stderr)


def test_a_model_that_scores_otherwise_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.silva"
    usual = runs.write_model

    def write_and_spoil(model, name: str, *, plain: bool) -> None:
        usual(model, name, plain=plain)
        text = Path(name).read_text()
        Path(name).write_text(re.sub(r"SPLIT (\d+) \S+", r"SPLIT \1 -1", text, count=1))

    monkeypatch.setattr(runs, "write_model", write_and_spoil)
    result = run("train", IRIS, path, "--epsilon", "0.1", *SHORT, code=1)
    assert result.stderr == f"error: {path}: the written model has other metrics than the trained one; do not use it\n"


def test_one_class_is_nothing_to_learn(tmp_path: Path) -> None:
    rows = write(tmp_path, "rows.csv", "a,1\na,2\n")
    assert "holds one class only" in run("train", rows, tmp_path / "t", "--epsilon", "1", code=1).stderr


def test_the_bar_shows_the_phase_and_the_best_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    bar = ProgressBar(min_seconds=0.0)
    bar.start(2, "seed 0")
    bar.show(Progress("initial population", 2, 0.1, 0.9375, 0.95, 0.825, 0.8, 17, 1, 0.9, 0.9, 1.15))
    bar.show(Progress("generation", 0, 0.2, 0.9375, 0.95, 0.825, 0.8, 17, 1, 0.9, 0.9))
    bar.close()
    shown = terminal.getvalue()
    assert "seed 0, initial population: tree 3 |" in shown
    assert "phi 0.9375, accuracy 0.9500, stability 0.8250 at 1.15 epsilon, 17 leaves" in shown
    assert "seed 0, generation 1 |" in shown
    assert "phi 0.9375, accuracy 0.9500, stability 0.8250, 17 leaves" in shown


@pytest.fixture
def _usual_signals() -> Iterator[None]:
    """A shell makes background jobs ignore interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_usual_signals")
def test_the_first_signal_asks_and_the_second_one_ends() -> None:
    asked = []
    with Interrupts() as interrupts:
        interrupts.stop = lambda: asked.append(True)
        signal.raise_signal(signal.SIGINT)
        assert (asked, interrupts.received, interrupts.exit_code) == ([True], signal.SIGINT, 130)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert asked == [True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("_usual_signals")
def test_a_signal_before_there_is_anything_to_keep() -> None:
    with pytest.raises(KeyboardInterrupt), Interrupts():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def files_of(path: Path) -> dict[str, bytes]:
    """Models and archives under a folder; manifests hold times."""
    return {
        str(each.relative_to(path)): each.read_bytes()
        for each in path.rglob("*")
        if each.is_file() and not each.name.endswith(".manifest.json")
    }


KINDS_OF_RUNS = {
    "tree": SHORT,
    "tree with an archive": [*SHORT, "--pareto", "archive"],
    "forest": ["--trees", "3", "--preset", "fast"],
    "forest in a norm": ["--trees", "3", "--preset", "fast", "--norm", "l2"],
    "shard": ["--trees", "4", "--preset", "fast", "--shard", "1/2"],
    "seeds": [*SHORT, "--seeds", "1..3"],
}


@pytest.mark.usefixtures("_usual_signals")
@pytest.mark.parametrize("words", KINDS_OF_RUNS.values(), ids=KINDS_OF_RUNS.keys())
@pytest.mark.parametrize("step", ["write_model", "score_result", "judge", "describe_models"])
def test_a_signal_after_the_training_costs_nothing(
    step: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, n_calls = getattr(runs, step), []

    def interrupted(*arguments: object, **settings: object) -> object:
        if not n_calls:
            signal.raise_signal(signal.SIGINT)
        n_calls.append(1)
        return usual(*arguments, **settings)

    for name in ("usual", "interrupted"):
        (tmp_path / name).mkdir()
    command = ["train", IRIS, "m.silva", "--epsilon", "0.3", *words]
    monkeypatch.chdir(tmp_path / "usual")
    run(*command)
    monkeypatch.chdir(tmp_path / "interrupted")
    monkeypatch.setattr(runs, step, interrupted)
    found = run(*command, code=130)
    assert n_calls
    assert "written to m.silva" in found.stderr
    assert Path("m.silva.manifest.json").exists()
    if "--seeds" not in words or step in ("judge", "write_model", "describe_models"):
        assert files_of(tmp_path / "interrupted") == files_of(tmp_path / "usual")


@pytest.mark.usefixtures("_usual_signals")
@pytest.mark.parametrize("words", [SHORT, KINDS_OF_RUNS["shard"]], ids=["tree", "shard"])
def test_a_second_signal_while_models_are_scored_does_not_cost_them(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> object:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        raise AssertionError

    command = ["train", IRIS, "m.silva", "--epsilon", "0.3", *words]
    monkeypatch.chdir(tmp_path)
    run(*command)
    usual = Path("m.silva").read_bytes()
    Path("m.silva").unlink()
    monkeypatch.setattr(runs, "score_result", interrupted)
    run(*command, code=130)
    assert Path("m.silva").read_bytes() == usual


@pytest.mark.usefixtures("_usual_signals")
def test_a_signal_ends_the_scoring_of_several_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were scored before it are compared as usual, and lower bounds of the others count."""
    usual, stops = runs.score_result, []

    def interrupted(*arguments: object) -> object:
        stops.append(arguments[-1].is_set())
        if len(stops) == 2:
            signal.raise_signal(signal.SIGINT)
        return usual(*arguments)

    monkeypatch.setattr(runs, "score_result", interrupted)
    monkeypatch.chdir(tmp_path)
    words = ["--trees", "3", "--preset", "fast", "--norm", "l2", "--seeds", "1..3", "--table", "seeds.json"]
    run("train", IRIS, "m.silva", "--epsilon", "0.3", *words, code=130)
    assert stops == [False, False, True]
    records = json.loads(Path("seeds.json").read_text())
    assert [record["stability"] == 0 for record in records] == [False, True, True]
    manifest = json.loads(Path("m.silva.manifest.json").read_text())
    assert manifest["model"]["seeds"] == [1]


@pytest.mark.parametrize("kind", [[], ["--trees", "2"], ["--boost", "2"]], ids=["tree", "forest", "boost"])
def test_a_split_without_tuning_is_told(kind: list[str], tmp_path: Path) -> None:
    rest = [IRIS, tmp_path / "m.silva", "--epsilon", "0.1", "--preset", "fast", *kind]
    assert "--split blocks has no effect" in run("train", *rest, "--split", "blocks").stderr
    assert "--split" not in run("train", *rest, "--split", "auto").stderr


def test_minus_zero_is_shown_as_zero(tmp_path: Path) -> None:
    found = run("train", IRIS, tmp_path / "m.silva", "--epsilon", "-0.0", "--preset", "fast")
    assert "perturbation  l_inf 0\n" in found.stdout


def test_the_error_of_a_single_split_is_not_shown() -> None:
    tuning = {"chosen": {"leaf_penalty": 2}, "score": 0.9, "error": 0.0, "splits": 1, "split": "random", "rows": 9}
    assert describe_tuning(tuning) == "leaf penalty 2; phi 0.9000 on 1 random split of 9 rows"
    several = {**tuning, "splits": 2, "split": "blocks", "error": 0.01}
    assert describe_tuning(several) == "leaf penalty 2; phi 0.9000 ± 0.0100 on 2 splits into blocks of 9 rows"


@pytest.mark.parametrize("kind", [[], ["--trees", "3"], ["--boost", "3"]], ids=["tree", "forest", "boost"])
@pytest.mark.parametrize("labels", ["abab", "ba", "abcabc"])
def test_a_model_without_splits_predicts_one_label(kind: list[str], labels: str, tmp_path: Path) -> None:
    rows = write(tmp_path, "rows.csv", "".join(f"{label},1,1\n" for label in labels))
    model = tmp_path / "m.silva"
    run("train", rows, model, "--epsilon", "0.1", *kind)
    accuracy = json.loads(run("evaluate", model, rows, "--format", "json").stdout)["evaluations"][0]["accuracy"]
    assert accuracy == 1 / len(set(labels))
