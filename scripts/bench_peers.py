"""Compare models of metasilvae with those of other programs on the same rows; metasilvae verifies all of them.

    python scripts/bench_peers.py [--data FOLDER] [--sets NAME,NAME] [--ours KIND,KIND] [--rounds N] [--preset NAME]
        [--peers NAME,NAME] [--ah19 FOLDER] [--fprdt FOLDER] [--c-program PATH] [--program 'NAME=COMMAND']
        [--trees N] [--goal NAME] [--repeats N] [--split] [--seed N] [--records FILE] [--environment FOLDER | --here]

Ours are a default tree, a forest, a boosted and an additive model (--ours tree,forest,boost,additive). CART (scikit-
learn) and GROOT are installed from the package index into an environment of their own (--environment, .venv-peers by
default), because GROOT needs numpy 1; it is made once. With --here they are imported where this script runs, and left
out if they cannot be. Programs that no package index has take part by the folder of a copy of their repository:

    --ah19 FOLDER   github.com/max-andr/provably-robust-boosting, robust boosting by Andriushchenko and Hein: trees
                    (AH19), stumps with the exact loss (AH19 stumps) and trees without robustness (AH19 plain)
    --fprdt FOLDER  github.com/NotAbleToCode/FPRDTB by Guo and others: single trees (FPRDT) and boosting (PRAdaBoost)

The authors' C program takes part with --c-program. Any other program takes part with --program: COMMAND trains on
{train}, CSV as silva reads it, and writes its tree or forest in silva's format to {model}; {epsilon} and {seed} may be
used too.

Small sets (those with a folds.tsv): the folds given there, of the first --repeats repetitions. Other sets, and with
--split all sets: the test split with the seeds --seed and following, --repeats of them. The options of CANDIDATES below
(size of a tree, rate and number of rounds of boosting) are chosen by the goal on a quarter of the training rows, then
the model is trained on all of them; test rows choose nothing. Other programs run as they are. The columns, on
rows not used for training, are

    phi             0.9 accuracy + 0.1 stability (with --goal robustness: robust accuracy), mean and standard error
    acc / st / rob  accuracy, stability and robust accuracy, means
    leaves          of all trees together
    seconds         processor time of one training, without the choice among candidates, ours with it: the median,
                    because some programs are compiled when they are first used
    ahead           how far each of ours is ahead of the program on the same rows: the mean of the paired differences of
                    phi (robust accuracy) and its standard error

Folds share training rows. Their standard errors are corrected for it (Nadeau and Bengio, Inference for the
Generalization Error, 2003): the variance is multiplied by 1/n + test rows / training rows. GROOT and FPRDT handle two
classes only. All rows are decided exactly; a row that takes more than a second counts as unstable.

--records FILE keeps the figures of the other programs. If only metasilvae or the goal has changed, they, or their
candidates, need not be trained again.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import subprocess
import sys
import tempfile
import time
import venv
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from bench_train import EPSILONS, GOALS, SHARED, Figures, find_commit, iterations_for, join

from metasilvae._version import VERSION
from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning
from metasilvae.formats.datasets import read_dataset, write_dataset
from metasilvae.formats.silva_models import parse_model, read_model
from metasilvae.interop.thresholds import fold_at_most
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Ball
from metasilvae.prediction import predict
from metasilvae.training.options import PRESETS, Options, boosting_options_for, forest_options_for, options_for
from metasilvae.training.protocol import finish
from metasilvae.training.results import take_model
from metasilvae.training.runs import make_trainer
from metasilvae.verification.budget import Budget
from metasilvae.verification.metrics import evaluate

ROOT = Path(__file__).resolve().parent.parent
WORKER = ROOT / "scripts" / "peers" / "worker.py"
ENVIRONMENT = ROOT / ".venv-peers"
# Versions that work together; GROOT does not run with numpy 2. numba is for the programs that are given by a folder.
PACKAGES = ("groot-trees==0.0.17", "numba", "numpy<2", "scikit-learn<1.6")
KINDS = ("tree", "forest", "boost", "additive")
HELD_OUT = 0.25
ROUNDS = (5, 10, 20, 40, 80)

Candidate = dict[str, Any]
# Accuracy, stability and robust accuracy; leaves; seconds.
Measured = tuple[tuple[float, float, float], int, float]


def _list_boosted(
    weak_learner: str, model: str, depths: Sequence[int], rates: Sequence[float], rounds: Sequence[int]
) -> list[Candidate]:
    return [
        {"weak_learner": weak_learner, "model": model, "depth": depth, "rate": rate, "rounds": list(rounds)}
        for depth in depths
        for rate in rates
    ]


# What is chosen among on held-out rows. Of a list of rounds, each beginning of the longest training is a candidate. The
# depths and rates of AH19 are those of its experiments (exps.sh); they have 150 to 300 rounds.
CANDIDATES: dict[str, list[Candidate]] = {
    "CART": [{"max_leaf_nodes": n} for n in (3, 5, 8, 12, 20, 35, 60, 100, 200, None)],
    "GROOT": [{"max_depth": n} for n in (1, 2, 3, 4, 5, 6, 7, 8, 10, None)],
    "AH19": _list_boosted("tree", "robust_bound", (2, 4), (0.01, 0.2), ROUNDS),
    "AH19 stumps": _list_boosted("stump", "robust_exact", (1,), (1.0,), ROUNDS),
    "AH19 plain": _list_boosted("tree", "plain", (2, 4), (0.2,), ROUNDS),
    "FPRDT": [{"depth": n} for n in (1, 2, 3, 4, 5, 6, 7, 8, 10, None)],
    "PRAdaBoost": [{"depth": n, "rounds": list(ROUNDS)} for n in (1, 2, 4, 8, None)],
}
INSTALLED = ("CART", "GROOT")
# The library of the worker, and of those that are given by a folder the option that gives it.
LIBRARIES = {
    "CART": ("CART", None), "GROOT": ("GROOT", None), "AH19": ("AH19", "ah19"), "AH19 stumps": ("AH19", "ah19"),
    "AH19 plain": ("AH19", "ah19"), "FPRDT": ("FPRDT", "fprdt"), "PRAdaBoost": ("FPRDT", "fprdt"),
}  # fmt: skip
BINARY = ("GROOT", "FPRDT", "PRAdaBoost")


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows to judge by; its name among the splits of the set, in records."""

    train: Dataset
    test: Dataset
    seed: int
    name: int | str


@dataclass
class Result:
    """Figures on the test rows of each split."""

    figures: list[Figures] = field(default_factory=list)
    leaves: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, measured: Measured) -> None:
        figures, leaves, seconds = measured
        self.figures.append(Figures(*figures))
        self.leaves.append(leaves)
        self.seconds.append(seconds)

    def values(self, name: str) -> np.ndarray:
        return np.array([getattr(each, name) for each in self.figures])


class Records:
    """What was measured of other programs before, in a file with a line of JSON for each; without a path, nothing."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
        self.known: dict[str, Any] = {json.dumps(key): found for key, found in map(json.loads, lines)}

    def find(self, key: list[Any], measure: Callable[[], Any]) -> Any:
        """What is known, or else what the function measures."""
        name = json.dumps(key)
        if name not in self.known:
            self.known[name] = measure()
            if self.path is not None:
                with self.path.open("a", encoding="utf-8") as file:
                    print(json.dumps([key, self.known[name]]), file=file)
        return self.known[name]


class Unavailable(Exception):
    """A program that cannot take part, and why."""


def judge(model: Model, rows: Dataset, epsilon: float) -> Figures:
    found = evaluate(model, rows, [Ball(epsilon)], budget=Budget(seconds=1.0))[0]
    return Figures(found.accuracy, found.stability or 0.0, found.robust_accuracy or 0.0)


# Programs


class Worker:
    """Trains models of other programs in another Python."""

    def __init__(self, python: str) -> None:
        self.process = subprocess.Popen(
            [python, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
        )
        self.folder = tempfile.TemporaryDirectory()
        self.versions: dict[str, str] = {}

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        self.folder.cleanup()

    def train(
        self, peer: str, path: Path | None, rows: Dataset, epsilon: float, seed: int, options: Candidate
    ) -> tuple[list[list[Any]], float]:
        """The rounds of a model and processor seconds."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        data, library = f"{self.folder.name}/rows.npz", LIBRARIES[peer][0]
        np.savez(data, X=rows.X, y=rows.y)
        request = {
            "library": library, "path": None if path is None else str(path.resolve()), "data": data,
            "epsilon": epsilon, "seed": seed, "options": options,
        }  # fmt: skip
        print(json.dumps(request), file=self.process.stdin, flush=True)
        reply = json.loads(self.process.stdout.readline() or '{"error": "the program of the library has ended"}')
        if "error" in reply:
            raise Unavailable(reply["error"])
        self.versions[library] = reply["version"]
        check_predictions(convert(reply["rounds"], rows, peer), rows, reply["predictions"], peer)
        return reply["rounds"], reply["seconds"]


def convert(rounds: list[list[Any]], rows: Dataset, peer: str) -> Model:
    """A model from the rounds of a worker; scikit-learn rounds values to float32 before it compares them."""
    present = sorted(set(rows.y.tolist()))
    trees = [tree for each in rounds for tree in each] or [[[-1, [0.0] * len(present)]]]
    lines = [] if len(trees) == 1 else [f"classifier-forest {len(trees)}"]
    for tree in trees:
        lines += [f"classifier-decision-tree {rows.n_features} {rows.n_labels}", " ".join(rows.labels)]
        todo = [0]
        while todo:
            node = tree[todo.pop()]
            if node[0] < 0:
                scores = [0.0] * rows.n_labels
                for label, score in zip(present, node[1], strict=True):
                    scores[label] = float(score)
                lines.append("LEAF_LOGARITHMIC " + " ".join(map(repr, scores)))
            else:
                feature, threshold, left, right = node
                if peer == "CART":
                    threshold = float(fold_at_most(np.array([threshold]))[0])
                lines.append(f"SPLIT {feature} {threshold!r}")
                todo += [right, left]
    return parse_model("\n".join(lines).encode(), f"<{peer}>")


def check_predictions(model: Model, rows: Dataset, theirs: list[int], peer: str) -> None:
    """The converted model predicts as the program does, but for ties (and for GROOT rounding of values to float32)."""
    table = predict(model, rows.X)
    n_other = sum(label not in table.sets[number] for number, label in zip(table.ids, theirs, strict=True))
    if n_other > (rows.n_samples / 1000 if peer == "GROOT" else 0):
        raise SystemExit(f"the converted model of {peer} predicts differently for {n_other} of {rows.n_samples} rows")


def make_environment(folder: Path) -> str:
    """The Python of the peers' environment, which is made unless it is there."""
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    done = folder / "complete"
    if not done.exists() or done.read_text() != " ".join(PACKAGES):
        print(f"making {folder} with {', '.join(PACKAGES)}", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        done.write_text(" ".join(PACKAGES))
    return str(python)


def value_of(figures: Figures, goal: str) -> float:
    return figures.phi if goal == "phi" else figures.robust_accuracy


def try_candidates(worker: Worker, peer: str, path: Path | None, split: Split, epsilon: float) -> list[Any]:
    """Options and figures on held-out training rows of each candidate."""
    is_held_out = np.random.default_rng(split.seed).random(split.train.n_samples) < HELD_OUT
    fit, held_out = (split.train.subset(np.flatnonzero(part)) for part in (~is_held_out, is_held_out))
    tried = []
    for options in CANDIDATES[peer]:
        lengths = options.get("rounds")
        longest = options if lengths is None else {**options, "rounds": max(lengths)}
        rounds, _ = worker.train(peer, path, fit, epsilon, split.seed, longest)
        for length in lengths or [None]:
            figures = judge(convert(rounds[:length], fit, peer), held_out, epsilon)
            tried.append((options if length is None else {**options, "rounds": length}, astuple(figures)))
    return tried


def options_of(kind: str, chosen: argparse.Namespace, seed: int) -> Options:
    fitness = GOALS[chosen.goal]
    if kind == "tree":
        return options_for(chosen.preset, seed=seed, fitness=fitness)
    if kind == "forest":
        return forest_options_for(chosen.preset, chosen.trees, seed=seed, fitness=fitness)
    is_additive = kind == "additive"
    return boosting_options_for(chosen.preset, chosen.rounds, seed=seed, fitness=fitness, additive=is_additive)


def train_ours(kind: str, split: Split, epsilon: float, chosen: argparse.Namespace) -> tuple[Model, float]:
    start = time.process_time()
    trainer = make_trainer(split.train, Ball(epsilon), options_of(kind, chosen, split.seed), 1)
    finish(trainer)
    model = take_model(trainer)
    return model, time.process_time() - start


def run_program(command: str, split: Split, epsilon: float, iterations: int) -> tuple[Model, float]:
    """The model of a program that reads and writes silva's files."""
    with tempfile.TemporaryDirectory() as folder:
        train, model = f"{folder}/train.csv", f"{folder}/model.silva"
        write_dataset(split.train, train, "silva")
        # Numbers and paths of our own: nothing in them is special to a shell, and no shell is used.
        words = [
            word.format(train=train, model=model, epsilon=f"{epsilon:g}", seed=split.seed, iterations=iterations)
            for word in shlex.split(command)
        ]
        before = _children_seconds()
        try:
            done = subprocess.run(words, capture_output=True)
        except OSError as error:
            raise Unavailable(str(error)) from None
        if done.returncode or not Path(model).exists():
            raise Unavailable(f"exit code {done.returncode}, {done.stderr.decode(errors='replace').strip()[-200:]}")
        return read_model(model), _children_seconds() - before


def _children_seconds() -> float:
    try:
        import resource
    except ImportError:  # Windows
        return time.perf_counter()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def describe_c_program(path: Path) -> str:
    """The command of the authors' C program, with the paper's weights."""
    weights = "0.9 0 0.1 0 0 0 0 0 0"
    options = "--seed {seed} --max-iteration {iterations}"
    return f"{shlex.quote(str(path))} {{train}} {{model}} --fitness linear {{epsilon}} {weights} {options}"


# Rows


def find_splits(folder: Path, repeats: int, seed: int, uses_folds: bool) -> tuple[list[Split], float]:
    """The splits, and what the variance of a mean over them is multiplied by."""
    train, test = (read_dataset(str(folder / f"{part}.csv.gz")) for part in ("train", "test"))
    has_folds = (folder / "folds.tsv").exists()
    if not uses_folds or not has_folds:
        names = ["test split" if has_folds else number for number in range(repeats)]
        return [Split(train, test, seed + number, name) for number, name in enumerate(names)], 1 / repeats
    whole = join(train, test)
    folds = np.loadtxt(folder / "folds.tsv", skiprows=1, dtype=int)[:, 1 : 1 + repeats]
    splits = [
        Split(
            whole.subset(np.flatnonzero(folds[:, repeat] != fold)),
            whole.subset(np.flatnonzero(folds[:, repeat] == fold)),
            seed,
            number,
        )
        for number, (repeat, fold) in enumerate(
            (repeat, fold) for repeat in range(folds.shape[1]) for fold in range(folds[:, repeat].max() + 1)
        )
    ]
    ratio = splits[0].test.n_samples / splits[0].train.n_samples
    return splits, 1 / len(splits) + ratio


# Tables

VALUES = {"phi": "phi", "robustness": "robust_accuracy"}


def show_mean(values: np.ndarray, factor: float, sign: str = "") -> str:
    """Mean and standard error."""
    if len(values) < 2:
        return f"{values.mean():{sign}.4f}"
    return f"{values.mean():{sign}.4f} ± {np.sqrt(factor * values.var(ddof=1)):.4f}"


def show_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def show_result(
    name: str, program: str, result: Result, ours: dict[str, Result], factor: float, chosen: argparse.Namespace
) -> str:
    """Figures of a program, and how far each of ours is ahead of it; ours of those above it only."""
    value = VALUES[chosen.goal]
    parts = [f"{result.values(part).mean():.3f}" for part in ("accuracy", "stability", "robust_accuracy")]
    cells = [name, program, show_mean(result.values(value), factor), " / ".join(parts)]
    cells += [f"{np.mean(result.leaves):.0f}", f"{np.median(result.seconds):.3f}"]
    for kind in chosen.ours.split(","):
        other = ours.get(name_of(kind, chosen))
        if other is None or other is result:
            cells.append("")
        else:
            cells.append(show_mean(other.values(value) - result.values(value), factor, "+"))
    return show_row(cells)


def name_of(kind: str, chosen: argparse.Namespace) -> str:
    boost = f" --boost {chosen.rounds}"
    extra = {"tree": "", "forest": f" --trees {chosen.trees}", "boost": boost, "additive": f"{boost} --additive"}
    return f"metasilvae{extra[kind]}"


def describe(model: Model, seconds: float, split: Split, epsilon: float) -> Measured:
    """Figures on the test rows of a split, leaves and seconds."""
    return astuple(judge(model, split.test, epsilon)), model.n_leaves, seconds


def measure_ours(name: str, kind: str, splits: Sequence[Split], chosen: argparse.Namespace) -> Result:
    result, epsilon = Result(), EPSILONS[name]
    for split in splits:
        result.add(describe(*train_ours(kind, split, epsilon, chosen), split, epsilon))
    return result


def measure_library(
    peer: str, place: list[Any], split: Split, chosen: argparse.Namespace, worker: Worker, records: Records
) -> Measured:
    """Figures of the candidate that is best on held-out training rows."""
    if peer in BINARY and len(set(split.train.y.tolist())) != 2:
        raise Unavailable("two classes only")
    epsilon, option = EPSILONS[place[0]], LIBRARIES[peer][1]
    path = None if option is None else getattr(chosen, option)
    tried = records.find(
        [*place, "candidates", CANDIDATES[peer]], lambda: try_candidates(worker, peer, path, split, epsilon)
    )
    # The first of those that are equal.
    best, _ = max(tried, key=lambda each: value_of(Figures(*each[1]), chosen.goal))

    def train() -> Measured:
        rounds, seconds = worker.train(peer, path, split.train, epsilon, split.seed, best)
        return describe(convert(rounds, split.train, peer), seconds, split, epsilon)

    measured: Measured = records.find([*place, best], train)
    return measured


def measure_command(command: str, place: list[Any], split: Split, records: Records) -> Measured:
    """Figures of a program that runs as it is."""
    name = place[0]

    def train() -> Measured:
        return describe(*run_program(command, split, EPSILONS[name], iterations_for(name)), split, EPSILONS[name])

    measured: Measured = records.find([*place, command], train)
    return measured


def measure_other(
    name: str, program: str, splits: Sequence[Split], chosen: argparse.Namespace, worker: Worker, records: Records
) -> Result:
    """Figures of another program, on the splits of a set."""
    result, command = Result(), list_commands(chosen).get(program)
    for split in splits:
        place = [name, split.name, split.seed, program]
        if command is None:
            result.add(measure_library(program, place, split, chosen, worker, records))
        else:
            result.add(measure_command(command, place, split, records))
    return result


def compare(
    name: str, splits: Sequence[Split], factor: float, chosen: argparse.Namespace, worker: Worker, records: Records
) -> Iterator[str]:
    """The rows of the table for one set; ours come first."""
    ours: dict[str, Result] = {}
    for kind in chosen.ours.split(","):
        program = name_of(kind, chosen)
        ours[program] = measure_ours(name, kind, splits, chosen)
        yield show_result(name, program, ours[program], ours, factor, chosen)
    for program in [*list_peers(chosen), *list_commands(chosen)]:
        try:
            result = measure_other(name, program, splits, chosen, worker, records)
        except Unavailable as error:
            yield f"| {name} | {program} | left out: {error} |"
            continue
        yield show_result(name, program, result, ours, factor, chosen)


def list_commands(chosen: argparse.Namespace) -> dict[str, str]:
    """Commands of programs that read and write silva's files, by name."""
    commands = dict(each.split("=", 1) for each in chosen.program)
    if chosen.c_program is not None:
        commands["Meta-Silvae"] = describe_c_program(chosen.c_program)
    return commands


def list_peers(chosen: argparse.Namespace) -> list[str]:
    """The libraries asked for; by default those that can be installed and those whose folder is given."""
    if chosen.peers is not None:
        return [each for each in chosen.peers.split(",") if each]
    given = [name for name in ("ah19", "fprdt") if getattr(chosen, name) is not None]
    return [peer for peer in CANDIDATES if peer in INSTALLED or LIBRARIES[peer][1] in given]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED, help="folder with one folder for each set")
    parser.add_argument("--sets", default=",".join(EPSILONS))
    parser.add_argument("--ours", default=",".join(KINDS), help="kinds of our models")
    parser.add_argument("--rounds", type=int, default=100, help="of our boosted models")
    parser.add_argument("--trees", type=int, default=25, help="of our forests")
    parser.add_argument("--preset", default="default", choices=list(PRESETS))
    parser.add_argument("--peers", help="programs to compare with; default: all that can be installed or have a folder")
    parser.add_argument("--ah19", type=Path, help="copy of max-andr/provably-robust-boosting")
    parser.add_argument("--fprdt", type=Path, help="copy of NotAbleToCode/FPRDTB")
    parser.add_argument("--c-program", type=Path, help="path to the authors' trainer")
    parser.add_argument("--program", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--goal", default="phi", choices=list(GOALS), help="what models are trained and chosen for")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions of the folds, or seeds")
    parser.add_argument("--split", action="store_true", help="the test split of small sets too, instead of their folds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--records", type=Path, help="file that keeps the figures of the other programs")
    parser.add_argument("--environment", type=Path, default=ENVIRONMENT, help="where the peers are installed")
    parser.add_argument("--here", action="store_true", help="import the peers here, install nothing")
    chosen = parser.parse_args()
    unknown = [peer for peer in list_peers(chosen) if peer not in CANDIDATES]
    if unknown:
        parser.error(f"--peers {unknown[0]}: known are {', '.join(CANDIDATES)}; --program adds others")
    for peer in list_peers(chosen):
        option = LIBRARIES[peer][1]
        if option is not None and getattr(chosen, option) is None:
            parser.error(f"--peers {peer}: --{option} must give its folder")
    if any("=" not in each for each in chosen.program):
        parser.error("--program is NAME=COMMAND")
    if not set(chosen.ours.split(",")) <= set(KINDS):
        parser.error(f"--ours {chosen.ours}: known are {', '.join(KINDS)}")
    return chosen


def main() -> int:
    chosen = parse_arguments()
    warnings.simplefilter("ignore", MetasilvaeWarning)
    is_needed = list_peers(chosen) and not chosen.here
    worker = Worker(make_environment(chosen.environment) if is_needed else sys.executable)
    machine = f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"
    version = f"metasilvae {VERSION}, commit {find_commit() or 'unknown'}"
    print(f"{machine}; {version}, preset {chosen.preset}, trained for {chosen.goal}, one thread\n")
    aheads = [f"{name_of(kind, chosen)} ahead" for kind in chosen.ours.split(",")]
    value = VALUES[chosen.goal].replace("_", " ")
    head = ("set", "program", value, "acc / st / rob", "leaves", "seconds", *aheads)
    print(f"{show_row(head)}\n|{'---|' * len(head)}", flush=True)
    records = Records(chosen.records)
    try:
        for name in chosen.sets.split(","):
            folder = chosen.data / name
            if not (folder / "train.csv.gz").exists():
                print(f"| {name} | left out: {folder} is missing |")
                continue
            splits, factor = find_splits(folder, chosen.repeats, chosen.seed, not chosen.split)
            for line in compare(name, splits, factor, chosen, worker, records):
                print(line, flush=True)
    finally:
        worker.close()
    print("\n" + ", ".join(f"{library}: {version}" for library, version in worker.versions.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
