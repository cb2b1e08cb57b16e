"""Compare single trees of metasilvae with those of other programs on the same rows; metasilvae verifies all of them.

    python scripts/bench_peers.py [--data FOLDER] [--sets NAME,NAME] [--peers NAME,NAME] [--repeats N] [--preset NAME]
        [--goal NAME] [--c-program PATH] [--program 'NAME=COMMAND'] [--environment FOLDER | --here] [--seed N]

CART (scikit-learn) and GROOT are installed from the package index into an environment of their own (--environment,
.venv-peers by default), because GROOT needs numpy 1; it is made once. With --here they are imported where this script
runs, and left out if they cannot be. The authors' C program takes part with --c-program. Any other program takes part
with --program: COMMAND trains on {train}, CSV as silva reads it, and writes its tree or forest in silva's format to
{model}; {epsilon} and {seed} may be used too.

Small sets (those with a folds.tsv): the folds given there, of the first --repeats repetitions. Other sets: the test
split with the seeds --seed and following, --repeats of them. The number of leaves of CART (3 to 200 or no limit) and
the depth of GROOT (1 to 10 or no limit) are chosen by the goal on a quarter of the training rows, then the tree is
trained on all of them; test rows choose nothing. Other programs run as they are. The columns are

    phi ...       0.9 accuracy + 0.1 stability, accuracy, stability and robust accuracy on rows not used for training:
                  means and the standard error of phi
    ahead         phi of metasilvae minus that of the program, on the same rows: mean difference and its standard error
    robust ahead  the same for robust accuracy
    seconds       processor time of one training, without the choice among candidates

Folds share training rows. Their standard errors are corrected for it (Nadeau and Bengio, Inference for the
Generalization Error, 2003): the variance is multiplied by 1/n + test rows / training rows. GROOT handles two classes
only.
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from bench_train import EPSILONS, GOALS, SHARED, Figures, iterations_for, join, judge

from metasilvae._version import VERSION
from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning
from metasilvae.formats.datasets import read_dataset, write_dataset
from metasilvae.formats.silva_models import parse_model, read_model
from metasilvae.interop.thresholds import fold_at_most
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Ball
from metasilvae.prediction import predict
from metasilvae.training.options import PRESETS, options_for
from metasilvae.training.runs import make_trainer

WORKER = Path(__file__).resolve().parent / "peers" / "worker.py"
ENVIRONMENT = Path(__file__).resolve().parent.parent / ".venv-peers"
# Versions that work together; GROOT does not run with numpy 2.
PACKAGES = ("groot-trees==0.0.17", "numpy<2", "scikit-learn<1.6")
OURS = "metasilvae"
CANDIDATES: dict[str, list[dict[str, Any]]] = {
    "CART": [{"max_leaf_nodes": n} for n in (3, 5, 8, 12, 20, 35, 60, 100, 200, None)],
    "GROOT": [{"max_depth": n} for n in (1, 2, 3, 4, 5, 6, 7, 8, 10, None)],
}
HELD_OUT = 0.25


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows to judge by."""

    train: Dataset
    test: Dataset
    seed: int


@dataclass
class Result:
    """Figures on the test rows of each split."""

    figures: list[Figures] = field(default_factory=list)
    leaves: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, model: Model, split: Split, epsilon: float, seconds: float) -> None:
        self.figures.append(judge(model, split.test, epsilon))
        self.leaves.append(model.n_leaves)
        self.seconds.append(seconds)

    def values(self, name: str) -> np.ndarray:
        return np.array([getattr(each, name) for each in self.figures])


class Unavailable(Exception):
    """A program that cannot take part, and why."""


# Programs


class Worker:
    """Trains trees of libraries in another Python."""

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
        self, library: str, rows: Dataset, epsilon: float, seed: int, options: dict[str, Any]
    ) -> tuple[Model, float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        path = f"{self.folder.name}/rows.npz"
        np.savez(path, X=rows.X, y=rows.y)
        request = {"library": library, "data": path, "epsilon": epsilon, "seed": seed, "options": options}
        print(json.dumps(request), file=self.process.stdin, flush=True)
        reply = json.loads(self.process.stdout.readline() or '{"error": "the program of the library has ended"}')
        if "error" in reply:
            raise Unavailable(reply["error"])
        self.versions[library] = reply["version"]
        model = convert(reply["nodes"], rows, library)
        check_predictions(model, rows, reply["predictions"], library)
        return model, reply["seconds"]


def convert(nodes: list[list[Any]], rows: Dataset, library: str) -> Model:
    """A model from the nodes of a worker; scikit-learn rounds values to float32 before it compares them."""
    present = sorted(set(rows.y.tolist()))
    lines = [f"classifier-decision-tree {rows.n_features} {rows.n_labels}", " ".join(rows.labels)]
    todo = [0]
    while todo:
        node = nodes[todo.pop()]
        if node[0] < 0:
            scores = [0.0] * rows.n_labels
            for label, score in zip(present, node[1], strict=True):
                scores[label] = float(score)
            lines.append("LEAF_LOGARITHMIC " + " ".join(map(repr, scores)))
        else:
            feature, threshold, left, right = node
            if library == "CART":
                threshold = float(fold_at_most(np.array([threshold]))[0])
            lines.append(f"SPLIT {feature} {threshold!r}")
            todo += [right, left]
    return parse_model("\n".join(lines).encode(), f"<{library}>")


def check_predictions(model: Model, rows: Dataset, theirs: list[int], library: str) -> None:
    """The converted model predicts as the library does, but for ties (and for GROOT rounding of values to float32)."""
    table = predict(model, rows.X)
    n_other = sum(label not in table.sets[number] for number, label in zip(table.ids, theirs, strict=True))
    if n_other > (rows.n_samples / 1000 if library == "GROOT" else 0):
        raise SystemExit(f"the converted tree of {library} predicts differently for {n_other} of {rows.n_samples} rows")


def make_environment(folder: Path) -> str:
    """The Python of the peers' environment, which is made unless it is there."""
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if not (folder / "complete").exists():
        print(f"making {folder} with {', '.join(PACKAGES)}", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        (folder / "complete").touch()
    return str(python)


def value_of(figures: Figures, goal: str) -> float:
    return figures.phi if goal == "phi" else figures.robust_accuracy


def train_candidate(worker: Worker, library: str, split: Split, epsilon: float, goal: str) -> tuple[Model, float]:
    """The tree with the options that are best on held-out training rows."""
    if library == "GROOT" and len(set(split.train.y.tolist())) != 2:
        raise Unavailable("two classes only")
    is_held_out = np.random.default_rng(split.seed).random(split.train.n_samples) < HELD_OUT
    fit, held_out = (split.train.subset(np.flatnonzero(part)) for part in (~is_held_out, is_held_out))
    worth = []
    for options in CANDIDATES[library]:
        model, _ = worker.train(library, fit, epsilon, split.seed, options)
        worth.append(value_of(judge(model, held_out, epsilon), goal))
    return worker.train(library, split.train, epsilon, split.seed, CANDIDATES[library][int(np.argmax(worth))])


def train_ours(split: Split, epsilon: float, preset: str, goal: str) -> tuple[Model, float]:
    start = time.process_time()
    trainer = make_trainer(split.train, Ball(epsilon), options_for(preset, seed=split.seed, fitness=GOALS[goal]), 1)
    for _ in trainer.run():
        pass
    return trainer.model, time.process_time() - start


def run_program(command: str, split: Split, epsilon: float) -> tuple[Model, float]:
    """The model of a program that reads and writes silva's files."""
    with tempfile.TemporaryDirectory() as folder:
        train, model = f"{folder}/train.csv", f"{folder}/model.silva"
        write_dataset(split.train, train, "silva")
        # Numbers and paths of our own: nothing in them is special to a shell, and no shell is used.
        words = [
            word.format(train=train, model=model, epsilon=f"{epsilon:g}", seed=split.seed)
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


def describe_c_program(path: Path, name: str) -> str:
    """The command of the authors' C program, with the paper's weights."""
    weights = "0.9 0 0.1 0 0 0 0 0 0"
    options = f"--seed {{seed}} --max-iteration {iterations_for(name)}"
    return f"{shlex.quote(str(path))} {{train}} {{model}} --fitness linear {{epsilon}} {weights} {options}"


# Rows


def find_splits(folder: Path, repeats: int, seed: int) -> tuple[list[Split], float]:
    """The splits, and what the variance of a mean over them is multiplied by."""
    train, test = (read_dataset(str(folder / f"{part}.csv.gz")) for part in ("train", "test"))
    if not (folder / "folds.tsv").exists():
        return [Split(train, test, seed + number) for number in range(repeats)], 1 / repeats
    whole = join(train, test)
    folds = np.loadtxt(folder / "folds.tsv", skiprows=1, dtype=int)[:, 1 : 1 + repeats]
    splits = [
        Split(
            whole.subset(np.flatnonzero(folds[:, repeat] != fold)),
            whole.subset(np.flatnonzero(folds[:, repeat] == fold)),
            seed,
        )
        for repeat in range(folds.shape[1])
        for fold in range(folds[:, repeat].max() + 1)
    ]
    ratio = splits[0].test.n_samples / splits[0].train.n_samples
    return splits, 1 / len(splits) + ratio


# The table


def show_mean(values: np.ndarray, factor: float) -> str:
    """Mean and standard error."""
    if len(values) < 2:
        return f"{values.mean():.4f}"
    return f"{values.mean():.4f} ± {np.sqrt(factor * values.var(ddof=1)):.4f}"


def show_row(name: str, program: str, result: Result, ours: Result, factor: float) -> str:
    parts = [f"{result.values(part).mean():.3f}" for part in ("accuracy", "stability", "robust_accuracy")]
    cells = [name, program, show_mean(result.values("phi"), factor), *parts]
    for part in ("phi", "robust_accuracy"):
        difference = ours.values(part) - result.values(part)
        cells.append("" if program == OURS else show_mean(difference, factor))
    cells += [f"{np.mean(result.leaves):.0f}", f"{np.mean(result.seconds):.3f}"]
    return "| " + " | ".join(cells) + " |"


HEAD = (
    "set",
    "program",
    "phi",
    "accuracy",
    "stability",
    "robust accuracy",
    "ahead",
    "robust ahead",
    "leaves",
    "seconds",
)


def compare(
    name: str, splits: Sequence[Split], factor: float, chosen: argparse.Namespace, worker: Worker
) -> Iterator[str]:
    """The rows of the table for one set; metasilvae comes first."""
    epsilon = EPSILONS[name]
    programs = dict(each.split("=", 1) for each in chosen.program)
    if chosen.c_program is not None:
        programs["Meta-Silvae"] = describe_c_program(chosen.c_program, name)
    ours = Result()
    for split in splits:
        model, seconds = train_ours(split, epsilon, chosen.preset, chosen.goal)
        ours.add(model, split, epsilon, seconds)
    yield show_row(name, OURS, ours, ours, factor)
    for program in [*filter(None, chosen.peers.split(",")), *programs]:
        result = Result()
        try:
            for split in splits:
                if program in programs:
                    model, seconds = run_program(programs[program], split, epsilon)
                else:
                    model, seconds = train_candidate(worker, program, split, epsilon, chosen.goal)
                result.add(model, split, epsilon, seconds)
        except Unavailable as error:
            yield f"| {name} | {program} | left out: {error} |"
            continue
        yield show_row(name, program, result, ours, factor)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED, help="folder with one folder for each set")
    parser.add_argument("--sets", default=",".join(EPSILONS))
    parser.add_argument("--peers", default=",".join(CANDIDATES), help="libraries to compare with")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions of the folds, or seeds")
    parser.add_argument("--preset", default="default", choices=list(PRESETS))
    parser.add_argument("--goal", default="phi", choices=list(GOALS), help="what trees are trained and chosen for")
    parser.add_argument("--c-program", type=Path, help="path to the authors' trainer")
    parser.add_argument("--program", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--environment", type=Path, default=ENVIRONMENT, help="where the peers are installed")
    parser.add_argument("--here", action="store_true", help="import the peers here, install nothing")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    unknown = [peer for peer in filter(None, chosen.peers.split(",")) if peer not in CANDIDATES]
    if unknown:
        parser.error(f"--peers {unknown[0]}: known are {', '.join(CANDIDATES)}; --program adds others")
    if any("=" not in each for each in chosen.program):
        parser.error("--program is NAME=COMMAND")
    warnings.simplefilter("ignore", MetasilvaeWarning)
    is_needed = chosen.peers and not chosen.here
    worker = Worker(make_environment(chosen.environment) if is_needed else sys.executable)
    machine = f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"
    print(f"{machine}; metasilvae {VERSION}, preset {chosen.preset}, trained for {chosen.goal}, one thread\n")
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}", flush=True)
    try:
        for name in chosen.sets.split(","):
            folder = chosen.data / name
            if not (folder / "train.csv.gz").exists():
                print(f"| {name} | left out: {folder} is missing |")
                continue
            splits, factor = find_splits(folder, chosen.repeats, chosen.seed)
            for line in compare(name, splits, factor, chosen, worker):
                print(line, flush=True)
    finally:
        worker.close()
    print("\n" + ", ".join(f"{library}: {version}" for library, version in worker.versions.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
