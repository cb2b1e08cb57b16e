"""Draw the curves of the documents: certified robust accuracy on test rows over epsilon, for six models.

    python scripts/draw_curves.py [--data FOLDER] [--sets NAME,...] [--trees N] [--rows N] [--seed N]
                                  [--models FOLDER] [--output FILE]

For each data set six models are trained on the training rows: a tree and a forest by metasilvae, by scikit-learn (CART,
random forest) and by GROOT. Options are the defaults of each program, with two exceptions. All forests have the same
number of trees. The depth of GROOT's tree and forest is chosen among DEPTHS by certified robust accuracy on a quarter
of the training rows, because it matters much and the defaults (5 and unlimited) differ. No test row takes part in any
choice. metasilvae computes the exact certified radius of each test row for each model, and the curves follow from the
radii. At most `--rows` test rows are drawn at random, the same ones for all models. There is no boosted model: exact
radii of one take seconds for each row of mnist-1-5.

A model that is already in the folder of `--models` is read, not trained again. A table of the numbers is printed.
FOLDER has NAME/train.csv.gz and NAME/test.csv.gz for each set; without `--data`, the sets must have been fetched
(`metasilvae data fetch mnist-1-5 cod-rna`). Needs the extras `plot` and `sklearn`. GROOT 0.0.17 (`groot-trees`) does
not run with numpy 2; the committed picture was drawn with numpy 1.26.4 and scikit-learn 1.5.2. Where GROOT cannot be
imported, its curves are left out.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import metasilvae
from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning
from metasilvae.formats.silva_models import parse_model
from metasilvae.interop.imports import ImportOptions
from metasilvae.model import Model
from metasilvae.output.plots.canvas import colour_of, new_figure, put_legend_below, render, style
from metasilvae.verification.curve import Curve

# Training epsilon of the paper.
EPSILONS = {"mnist-1-5": 77.0, "cod-rna": 0.025}
AXES = {"mnist-1-5": "epsilon (pixels range from 0 to 255)"}
# The curves end at this multiple of the training epsilon.
WIDEST = 1.5
# Depths that a GROOT tree or forest may have; None has no limit.
DEPTHS = (3, 5, 7, 10, None)
# Programs in the order of the legend, with their colours.
PROGRAMS = {"metasilvae": 0, "GROOT": 2, "scikit-learn": 5}
KINDS = {"tree": "--", "forest": "-"}


def load(folder: Path | None, name: str, split: str) -> Dataset:
    with warnings.catch_warnings():
        # Some of the authors' files announce wrong counts.
        warnings.simplefilter("ignore", MetasilvaeWarning)
        return metasilvae.read_dataset(f"cache:{name}/{split}" if folder is None else f"{folder}/{name}/{split}.csv.gz")


def draw_rows(dataset: Dataset, n_rows: int, seed: int) -> Dataset:
    """Some rows at random, in their order; all of them if there are no more."""
    if n_rows >= dataset.n_samples:
        return dataset
    chosen = np.sort(np.random.default_rng(seed).choice(dataset.n_samples, n_rows, replace=False))
    return Dataset(dataset.X[chosen], dataset.y[chosen], dataset.labels, dataset.feature_names, dataset.source)


# Training


def train_metasilvae(rows: Dataset, epsilon: float, n_trees: int | None, seed: int) -> Model:
    return metasilvae.train(rows, epsilon, trees=n_trees, seed=seed)


def train_scikit_learn(rows: Dataset, epsilon: float, n_trees: int | None, seed: int) -> Model:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.tree import DecisionTreeClassifier

    fitted = DecisionTreeClassifier(random_state=seed)
    if n_trees is not None:
        fitted = RandomForestClassifier(n_trees, random_state=seed)
    labels = np.array(rows.labels)[rows.y]
    # With scores the leaves need no choice of a voting scheme.
    return metasilvae.import_object(fitted.fit(rows.X, labels), ImportOptions(leaves="scores")).model


def train_groot(rows: Dataset, epsilon: float, n_trees: int | None, seed: int) -> Model:
    depth = _choose_depth(rows, epsilon, n_trees, seed)
    return convert_groot(_fit_groot(rows, epsilon, n_trees, depth, seed), rows)


def _fit_groot(rows: Dataset, epsilon: float, n_trees: int | None, depth: int | None, seed: int) -> Any:
    from groot.model import GrootRandomForestClassifier, GrootTreeClassifier

    options = {"max_depth": depth, "attack_model": [epsilon] * rows.n_features, "random_state": seed}
    fitted = GrootTreeClassifier(**options)
    if n_trees is not None:
        fitted = GrootRandomForestClassifier(n_trees, **options)
    return fitted.fit(rows.X, rows.y)


def _choose_depth(rows: Dataset, epsilon: float, n_trees: int | None, seed: int) -> int | None:
    """The depth with the best certified robust accuracy on held-out training rows."""
    is_held_out = np.random.default_rng(seed).random(rows.n_samples) < 0.25
    fit, held_out = (
        Dataset(rows.X[part], rows.y[part], rows.labels, rows.feature_names, rows.source)
        for part in (~is_held_out, is_held_out)
    )
    robust = {}
    for depth in DEPTHS:
        model = convert_groot(_fit_groot(fit, epsilon, n_trees, depth, seed), fit)
        robust[depth] = metasilvae.verify(model, held_out, epsilon).counts.robust
    best = max(robust, key=lambda depth: robust[depth])
    print(f"GROOT: depth {best}, of {robust} robust rows among {held_out.n_samples} held-out ones", flush=True)
    return best


def convert_groot(fitted: Any, rows: Dataset) -> Model:
    """A tree or forest of GROOT, with the float32 thresholds that its own predictions use."""
    trees = [each.root_ for each in fitted.estimators_] if hasattr(fitted, "estimators_") else [fitted.root_]
    lines = [f"classifier-forest {len(trees)}"] if len(trees) > 1 else []
    for root in trees:
        lines += [f"classifier-decision-tree {rows.n_features} {rows.n_labels}", " ".join(rows.labels)]
        todo = [root]
        while todo:
            node = todo.pop()
            if node.feature < 0:
                lines.append("LEAF_LOGARITHMIC " + " ".join(repr(float(score)) for score in node.value))
            else:
                lines.append(f"SPLIT {node.feature} {float(np.float32(node.threshold))!r}")
                todo += [node.right_child, node.left_child]
    model = parse_model("\n".join(lines).encode(), "<GROOT>")
    _compare(model, fitted, rows)
    return model


def _compare(model: Model, fitted: Any, rows: Dataset) -> None:
    """The converted model predicts as GROOT does, but for ties and for rounding of its sums."""
    table = metasilvae.predict(model, rows.X)
    theirs = fitted.predict(rows.X)
    n_other = sum(int(label) not in table.sets[number] for number, label in zip(table.ids, theirs, strict=True))
    if n_other > rows.n_samples / 1000:
        raise SystemExit(f"the converted GROOT model predicts differently for {n_other} of {rows.n_samples} rows")


TRAINERS: dict[str, Callable[[Dataset, float, int | None, int], Model]] = {
    "metasilvae": train_metasilvae,
    "GROOT": train_groot,
    "scikit-learn": train_scikit_learn,
}


def find_models(name: str, rows: Dataset, chosen: argparse.Namespace) -> Iterator[tuple[str, str, Model]]:
    """Program, kind and model, for each model that is there or can be trained."""
    chosen.models.mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS:
        for kind in KINDS:
            path = chosen.models / f"{name}-{program}-{kind}.silva"
            if not path.exists():
                start = time.perf_counter()
                n_trees = chosen.trees if kind == "forest" else None
                try:
                    model = TRAINERS[program](rows, EPSILONS[name], n_trees, chosen.seed)
                except ImportError as error:
                    print(f"{program} left out: {error}")
                    continue
                metasilvae.write_model(model, str(path))
                print(f"{path.name}: trained in {time.perf_counter() - start:.0f} s")
            yield program, kind, metasilvae.read_model(str(path))


# Curves


def trace_curves(name: str, chosen: argparse.Namespace) -> dict[tuple[str, str], Curve]:
    """The curves of one data set; prints their numbers."""
    rows = load(chosen.data, name, "train")
    test_rows = draw_rows(load(chosen.data, name, "test"), chosen.rows, chosen.seed)
    epsilon = EPSILONS[name]
    marks = (0.0, epsilon / 2, epsilon, 1.25 * epsilon)
    print(f"\n{name}, {test_rows.n_samples} test rows\n\n| model | leaves | accuracy |", end="")
    print("".join(f" robust accuracy at {mark:g} |" for mark in marks[1:]) + "\n|---|---:|---:|---:|---:|---:|")
    found = {}
    for program, kind, model in find_models(name, rows, chosen):
        curve = Curve(metasilvae.find_radii(model, test_rows))
        found[program, kind] = curve
        shares = "".join(f" {curve.robust_accuracy(mark):.3f} |" for mark in marks)
        print(f"| {program} {kind} | {model.n_leaves} |{shares}", flush=True)
    return found


@style()
def draw(curves: dict[str, dict[tuple[str, str], Curve]]) -> Any:
    from matplotlib.lines import Line2D

    figure = new_figure(4.2 * max(len(curves), 1), 3.6)
    panels = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
    for axes, (name, found) in zip(panels, curves.items(), strict=True):
        right = WIDEST * EPSILONS[name]
        for (program, kind), curve in found.items():
            epsilons = np.linspace(0, right, 121)
            shares = [curve.robust_accuracy(epsilon) for epsilon in epsilons]
            axes.plot(epsilons, shares, KINDS[kind], color=colour_of(PROGRAMS[program]), linewidth=1.7)
        axes.axvline(EPSILONS[name], color="#8A8A8A", linewidth=0.8, linestyle=":")
        axes.set(title=name, xlabel=AXES.get(name, "epsilon"), xlim=(0, right), ylim=(0, 1.01))
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("certified robust accuracy, test rows")
    programs = {program for found in curves.values() for program, _ in found}
    handles = [
        Line2D([], [], color=colour_of(colour), linewidth=3, label=program)
        for program, colour in PROGRAMS.items()
        if program in programs
    ]
    handles += [Line2D([], [], color="#222222", linestyle=line, label=kind) for kind, line in KINDS.items()]
    handles += [Line2D([], [], color="#8A8A8A", linestyle=":", label="training epsilon")]
    put_legend_below(figure, handles)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", default=",".join(EPSILONS))
    parser.add_argument("--trees", type=int, default=25)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", type=Path, default=Path("curve-models"))
    parser.add_argument("--output", type=Path, default=Path("docs/curves.svg"))
    chosen = parser.parse_args()
    curves = {name: trace_curves(name, chosen) for name in chosen.sets.split(",")}
    chosen.output.write_bytes(render(draw(curves), chosen.output.suffix.lstrip(".")))


if __name__ == "__main__":
    main()
