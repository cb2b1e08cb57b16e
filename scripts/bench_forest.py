"""Verify forests with metasilvae, silva and Veritas: undecided rows and seconds.

    python scripts/bench_forest.py [--silva PATH] [--data FOLDER] [--golden FOLDER] [--cases NAME...] [--limit SECONDS]

Scikit-learn forests of 50 trees, depth 10, fixed seed, are trained here and written in silva's format; the published
forests come from the golden folder. Every program gets the same forest, the same rows (the first 500 of the test set)
and the same time limit for each row, on one thread. Seconds are processor time of the analysis: silva's as it reports
it, Veritas's without building its trees; the best of three runs where one takes less than a second. The last column
counts rows that metasilvae and the program both decide, but differently. Needs the extra `bench` for scikit-learn and
Veritas; missing programs and data are skipped with a message.

Veritas (`dtai-veritas`) maximizes sums of leaf values; votes are passed to it as one sum for each label pair, so
that ties count as they do here. It compares `x < k`, so thresholds become the next float64.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import math
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import parse_model, read_model, write_model
from metasilvae.model import LeafKind, Model
from metasilvae.perturbations.boxes import Ball
from metasilvae.prediction import predict
from metasilvae.verification.budget import Budget
from metasilvae.verification.query import make_query
from metasilvae.verification.verdicts import Stability
from metasilvae.verification.verifier import verify

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"
N_ROWS = 500
SKLEARN_CASES = {
    "collision-detection": 0.1,
    "sensorless-10k": 0.01,
    "mnist-1-5": 77.0,
    "mnist-2-6": 77.0,
}
PROGRAMS = ("metasilvae", "silva", "veritas")


@dataclass(frozen=True)
class Case:
    """A forest, rows, a radius and a voting scheme."""

    name: str
    model: Model
    dataset: Dataset
    epsilon: float
    voting: str = "max"

    @cached_property
    def predictions(self) -> list[tuple[int, ...]]:
        table = predict(self.model, self.dataset.X, self.voting)
        return [table.sets[number] for number in table.ids]


@dataclass
class Run:
    """What one program found out; stability has values of `Stability`."""

    seconds: float
    stability: list[int] = field(default_factory=list)

    @property
    def n_undecided(self) -> int:
        return self.stability.count(Stability.UNKNOWN)


# Cases


def load(path: Path) -> Dataset:
    with warnings.catch_warnings():
        # The authors' files announce wrong counts; that is no news here.
        warnings.simplefilter("ignore", MetasilvaeWarning)
        return read_dataset(str(path))


def convert_forest(forest: Any, n_features: int) -> Model:
    """A forest of scikit-learn with class counts in its leaves."""
    lines = [f"classifier-forest {len(forest.estimators_)}"]
    for estimator in forest.estimators_:
        tree = estimator.tree_
        lines.append(f"classifier-decision-tree {n_features} {len(forest.classes_)}")
        lines.append(" ".join(map(str, forest.classes_)))
        todo = [0]
        while todo:
            node = todo.pop()
            if tree.children_left[node] < 0:
                counts = np.rint(tree.value[node][0] * tree.weighted_n_node_samples[node]).astype(int)
                lines.append("LEAF " + " ".join(map(str, counts)))
            else:
                lines.append(f"SPLIT {tree.feature[node]} {float(tree.threshold[node])!r}")
                todo += [tree.children_right[node], tree.children_left[node]]
    return parse_model("\n".join(lines).encode(), "<scikit-learn>")


def sklearn_cases(data: Path, names: list[str]) -> Iterator[Case]:
    for name in names:
        folder = data / name
        if not (folder / "train.csv.gz").exists():
            print(f"{name} left out: {folder / 'train.csv.gz'} is missing")
            continue
        if importlib.util.find_spec("sklearn") is None:
            print(f"{name} left out: scikit-learn is missing (extra bench)")
            continue
        from sklearn.ensemble import RandomForestClassifier

        training, test = load(folder / "train.csv.gz"), load(folder / "test.csv.gz")
        labels = np.array(training.labels)[training.y]
        forest = RandomForestClassifier(50, max_depth=10, random_state=0).fit(training.X, labels)
        model = convert_forest(forest, training.n_features)
        rows = test.subset(np.arange(min(N_ROWS, test.n_samples)))
        yield Case(f"{name}, 50 trees", model, rows, SKLEARN_CASES[name])


def golden_cases(golden: Path, data: Path) -> Iterator[Case]:
    if not (golden / "index.tsv").exists():
        print(f"published forests left out: {golden / 'index.tsv'} is missing")
        return
    with (golden / "index.tsv").open() as index:
        lines = list(csv.DictReader(index, delimiter="\t"))
    for line in lines:
        model = read_model(str(golden / "models" / line["model"]))
        if model.n_trees == 1:
            continue
        test = load(data / line["dataset"] / "test.csv.gz")
        X = test.X
        if X.shape[1] < model.n_features:
            # As the C programs read a row that is shorter than announced.
            X = np.ascontiguousarray(np.pad(X, ((0, 0), (0, model.n_features - X.shape[1])), mode="edge"))
        dataset = Dataset(X, test.y, test.labels).subset(np.arange(int(line["rows"])))
        name = line["verdicts"].removesuffix(".tsv").replace(".l_inf-", ", ")
        yield Case(name, model, dataset, float(line["epsilon"]), line["voting"])


# Programs


def run_metasilvae(case: Case, limit: float) -> Run:
    query = make_query(case.model, case.dataset, Ball(case.epsilon), voting=case.voting)
    start = time.process_time()
    outcome = verify(query, jobs=1, budget=Budget(seconds=limit))
    return Run(time.process_time() - start, outcome.stability.tolist())


def run_silva(case: Case, limit: float, silva: Path) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        model, data = Path(folder) / "forest.silva", Path(folder) / "rows.csv"
        write_model(case.model, str(model))
        with data.open("w") as file:
            file.write(f"# {case.dataset.n_samples} {case.dataset.n_features}\n")
            for label, x in zip(case.dataset.y, case.dataset.X.tolist(), strict=True):
                file.write(",".join([case.dataset.labels[label], *map(repr, x)]) + "\n")
        words = ["--perturbation", "l_inf", repr(case.epsilon), "--voting", case.voting]
        report = subprocess.run(
            [str(silva), str(model), str(data), *words, "--sample-timeout", str(math.ceil(limit))],
            check=True, capture_output=True, text=True,
        ).stdout.splitlines()  # fmt: skip
    rows = [line.split() for line in report if not line.startswith(("[SUMMARY]", "Classifier"))]
    meaning = {"ROBUST": 1, "VULNERABLE": 1, "FRAGILE": 0, "BROKEN": 0, "NO-INFO": 2}
    return Run(float(report[-1].split()[2]), [meaning[row[5]] for row in rows])


class VeritasSums:
    """The lead of one label over another as a sum of Veritas's trees, made when first asked for."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._sums: dict[tuple[int, int], Any] = {}
        sets = model.leaf_predictions.sets
        self._votes = [sets[number] for number in model.leaf_predictions.ids]

    def __getitem__(self, contest: tuple[int, int]) -> Any:
        if contest not in self._sums:
            self._sums[contest] = self._add_up(*contest)
        return self._sums[contest]

    def _add_up(self, ahead: int, behind: int) -> Any:
        import veritas

        total = veritas.AddTree(1, veritas.AddTreeType.REGR)
        for root in self._model.roots.tolist():
            tree = total.add_tree()
            todo = [(root, tree.root())]
            while todo:
                ours, theirs = todo.pop()
                threshold, feature, left, right, leaf = self._model.nodes[ours].item()
                if feature < 0:
                    votes = self._votes[leaf]
                    tree.set_leaf_value(theirs, 0, float((ahead in votes) - (behind in votes)))
                else:
                    tree.split(theirs, feature, math.nextafter(threshold, math.inf))
                    todo += [(left, tree.left(theirs)), (right, tree.right(theirs))]
        return total


def run_veritas(case: Case, limit: float) -> Run:
    import veritas

    boxes = Ball(case.epsilon).boxes(case.dataset)
    sums = VeritasSums(case.model)
    run = Run(0.0)
    for row, prediction in enumerate(case.predictions):
        lower, upper = boxes.bounds(row)
        box = [veritas.Interval(a, math.nextafter(b, math.inf)) for a, b in zip(lower, upper, strict=True)]
        one, *others = prediction
        outside = [label for label in range(case.model.n_labels) if label not in prediction]
        # Leads are whole numbers, so that halves tell `level or ahead` from `ahead`.
        contests = [((label, one), -0.5) for label in outside]
        contests += [(pair, 0.5) for label in others for pair in ((label, one), (one, label))]
        leads = [sums[contest] for contest, _ in contests]
        start, processor_start = time.perf_counter(), time.process_time()
        stability = Stability.STABLE
        for lead, (_, least) in zip(leads, contests, strict=True):
            config = veritas.Config(veritas.HeuristicType.MAX_OUTPUT)
            config.ignore_state_when_worse_than = least
            config.stop_when_optimal = False
            config.stop_when_num_solutions_exceeds = 1
            search = config.get_search(lead, box)
            left = limit - (time.perf_counter() - start)
            reason = search.step_for(max(left, 0.0), 100)
            if search.num_solutions() > 0:
                stability = Stability.UNSTABLE
                break
            if reason != veritas.StopReason.NO_MORE_OPEN:
                stability = Stability.UNKNOWN
        run.seconds += time.process_time() - processor_start
        run.stability.append(int(stability))
    return run


def run_program(program: str, case: Case, limit: float, silva: Path | None) -> Run | None:
    if program == "metasilvae":
        return run_metasilvae(case, limit)
    if program == "silva":
        return None if silva is None else run_silva(case, limit, silva)
    # Sums of shares and scores would not be exact there.
    is_fit = case.voting == "max" and case.model.leaf_kind is LeafKind.COUNTS
    return run_veritas(case, limit) if is_fit and importlib.util.find_spec("veritas") else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--silva", type=Path, help="path to the silva program")
    parser.add_argument("--data", type=Path, default=SHARED / "data", help="folder with one folder for each data set")
    parser.add_argument("--golden", type=Path, default=SHARED / "golden", help="folder of published forests")
    parser.add_argument("--cases", nargs="*", default=[*SKLEARN_CASES, "published"], help="data sets, or published")
    parser.add_argument("--programs", nargs="*", default=list(PROGRAMS), choices=PROGRAMS)
    parser.add_argument("--limit", type=float, default=1.0, help="seconds for each row")
    arguments = parser.parse_args()
    print(f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}; one thread, ", end="")
    print(f"limit {arguments.limit:g} s for each row")
    names = ("program", "rows", "stable", "undecided", "seconds", "differ")
    print("{:40} {:>10} {:>5} {:>7} {:>9} {:>8} {:>6}".format("forest, epsilon", *names))
    cases = list(sklearn_cases(arguments.data, [name for name in arguments.cases if name in SKLEARN_CASES]))
    if "published" in arguments.cases:
        cases += golden_cases(arguments.golden, arguments.data)
    for case in cases:
        ours: Run | None = None
        for program in PROGRAMS:
            if program not in arguments.programs:
                continue
            runs = [run_program(program, case, arguments.limit, arguments.silva)]
            while runs[0] is not None and runs[0].seconds < 1.0 and len(runs) < 3:
                runs.append(run_program(program, case, arguments.limit, arguments.silva))
            run = min((found for found in runs if found is not None), key=lambda found: found.seconds, default=None)
            if run is None:
                continue
            ours = ours or run
            pairs = zip(ours.stability, run.stability, strict=True)
            n_differing = sum(a != b and Stability.UNKNOWN not in (a, b) for a, b in pairs)
            name = f"{case.name}, {case.epsilon:g}" if case.name.endswith("trees") else case.name
            print(
                f"{name:40} {program:>10} {case.dataset.n_samples:>5} {run.stability.count(Stability.STABLE):>7} "
                f"{run.n_undecided:>9} {run.seconds:>8.4f} {n_differing:>6}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
