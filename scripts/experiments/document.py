"""The document about the paper's experiments: text and tables, made from results only."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import words
from experiments.published import META_SILVAE, PAPER_TEST_ROWS, ROBUST_BOOSTING, Quoted
from experiments.reader import FEWEST_SEEDS, Reader, median, show_pair
from experiments.store import Bundle
from experiments.tasks import (
    CRITERIA,
    GRID,
    MOST_HELD_OUT,
    OUR_TREES,
    PAPER_EPSILONS,
    PRESET,
    PUBLISHED_PRESET,
    STEPS_PER_ROW,
    phi,
    share,
)

DOCUMENT = Path("docs/paper.md")
WIDTH = 120
NONE = "-"


def _paragraph(text: str, **numbers: object) -> list[str]:
    lines = textwrap.wrap(text.strip().format(**numbers), WIDTH, break_long_words=False, break_on_hyphens=False)
    return [*lines, ""]


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown; a column whose name ends in : is one of numbers. Nothing without rows."""
    body = [f"| {' | '.join(row)} |" for row in rows]
    line = "".join("---:|" if name.endswith(":") else "---|" for name in names)
    return [f"| {' | '.join(name.rstrip(':') for name in names)} |", f"|{line}", *body, ""] if body else []


def _picture(title: str, path: str) -> list[str]:
    return [f"![{title}]({path})", ""]


def _show_quoted(found: Quoted | None) -> list[str]:
    """Accuracy and stability, phi, leaves."""
    if found is None:
        return [NONE] * 3
    return [f"{found.accuracy:.1f} / {found.stability:.1f}", f"{found.phi:.3f}", str(found.leaves)]


def _write_data(reader: Reader, figures: str) -> list[str]:
    rows = []
    for task, data in reader.find("data", "data"):
        name, comments = task.dataset, []
        if data["test"] != PAPER_TEST_ROWS.get(name, data["test"]):
            comments.append(f"the paper's test set had {PAPER_TEST_ROWS[name]} rows")
        if data["test_classes"] < data["classes"]:
            comments.append(f"the test split holds {data['test_classes']} of {data['classes']} classes")
        if name == "sensorless-10k":
            comments.append("the paper's 10000 test rows, split 80:20; the paper trains on 48509 others")
        sizes = [str(data[part]) for part in ("train", "test", "features", "classes")]
        majority = f"{100 * data['majority'] / data['test']:.1f}"
        rows.append([name, *sizes, f"{PAPER_EPSILONS[name]:g}", majority, "; ".join(comments)])
    numbers = ("training rows:", "test rows:", "features:", "classes:", "epsilon:", "largest class, %:")
    return [
        *_paragraph(words.DATA),
        *_table(("set", *numbers, "comment"), rows),
    ]


def _write_training(reader: Reader, figures: str) -> list[str]:
    rows = []
    for name in reader.sets:
        trees = reader.trees(name)
        if trees is None:
            continue
        cells = [str(len(trees.results)), trees.show_pair(), f"{trees.phi:.3f}", f"{trees.median('leaves'):.0f}"]
        cells += [f"{trees.median('processor'):.1f}", *_show_quoted(META_SILVAE.get(name))]
        rows.append([name, *cells])
    sensorless, _, leaves = _show_quoted(META_SILVAE["sensorless"])
    ours = ("seeds:", "ours: acc / st", "phi:", "leaves:", "seconds:")
    theirs = ("paper: acc / st", "phi:", "leaves:")
    return [
        *_paragraph(words.TRAINING, sensorless=sensorless, leaves=leaves),
        *_table(("set", *ours, *theirs), rows),
    ]


def _write_weights(reader: Reader, figures: str) -> list[str]:
    sets = [name for name in reader.mode.weight_sets if name in reader.sets]
    rows = []
    for weight in reader.mode.weights:
        found = [reader.trees(name, weight) for name in sets]
        if any(found):
            rows.append([f"{weight:g}", *(trees.show_pair() if trees else NONE for trees in found)])
    n_seeds = reader.mode.weight_seeds
    return [
        *_paragraph(words.WEIGHTS, seeds=f"median of {n_seeds} seeds" if n_seeds > 1 else "one seed"),
        *(_picture("Accuracy and stability over the weight of accuracy", f"{figures}/weights.svg") if rows else []),
        *_table(("w:", *(f"{name}: acc / st" for name in sets)), rows),
    ]


def _write_convergence(reader: Reader, figures: str) -> list[str]:
    rows = []
    for task, log in reader.find("convergence", "convergence"):
        values = log["fitness"]
        goal = values[0] + 0.99 * (max(values) - values[0])
        reached = next(step for step, value in enumerate(values, 1) if value >= goal)
        phis = [f"{value:.4f}" for value in (values[0], max(values), values[-1])]
        rows.append([task.dataset, task["preset"], str(len(values)), *phis, str(reached), str(log["leaves"][-1])])
    numbers = ("steps:", "initial phi:", "largest phi:", "final phi:", "99 % of the gain at step:", "leaves:")
    return [
        *_paragraph(words.CONVERGENCE, published=PUBLISHED_PRESET, preset=PRESET),
        *(_picture("phi, accuracy, stability and leaves, step by step", f"{figures}/convergence.svg") if rows else []),
        *_table(("set", "preset", *numbers), rows),
    ]


def _write_variance(reader: Reader, figures: str) -> list[str]:
    rows, has_boxes = [], False
    for name in reader.sets:
        trees = reader.trees(name)
        if trees is None:
            continue
        phis, leaves = trees.phis, [result["leaves"] for result in trees.results]
        cells = [str(len(phis)), *(f"{value:.3f}" for value in np.quantile(phis, (0, 0.25, 0.5, 0.75, 1)))]
        cells.append(f"{min(leaves)} to {max(leaves)}")
        if name in META_SILVAE:
            published = META_SILVAE[name].phi
            # The published figures are rounded to a tenth of a per cent.
            n_reached = sum(value >= published - 5e-4 for value in phis)
            cells += [f"{published:.3f}", f"{n_reached} of {len(phis)}"]
        else:
            cells += [NONE] * 2
        rows.append([name, *cells])
        has_boxes |= len(phis) >= FEWEST_SEEDS
    numbers = ("seeds:", "minimum:", "1st quartile:", "median:", "3rd quartile:", "maximum:", "leaves:", "paper:")
    return [
        *_paragraph(words.VARIANCE, fewest=FEWEST_SEEDS),
        *(
            _picture("Accuracy, stability, phi and leaves over the seeds", f"{figures}/variance.svg")
            if has_boxes
            else []
        ),
        *_table(("set", *numbers, "seeds that reach the paper:"), rows),
    ]


def _write_forests(reader: Reader, figures: str) -> list[str]:
    rows, n_undecided = [], 0
    for name in reader.sets:
        trees, chosen, forest = reader.trees(name), reader.chosen_forest(name), reader.forest(name)
        if chosen is None and forest is None:
            continue
        cells = [NONE] * 2
        if chosen is not None:
            task = chosen[0]
            size = f"{task['trees']} trees, depth {task['depth']}, {task['criterion']}"
            cells = [size, f"{phi(reader.held_out(task)):.3f}"]
        single = [trees.show_pair(), f"{trees.phi:.3f}", f"{trees.median('leaves'):.0f}"] if trees else [NONE] * 3
        ensembles = [chosen[1] if chosen else None, forest]
        n_undecided += sum(each["test"]["no_info"] for each in ensembles if each)
        random_forest, ours = (_show_forest(each) for each in ensembles)
        rows.append([name, *cells, *random_forest, *single, *ours])
    depths, undecided = reader.mode.depths, "was none" if n_undecided == 0 else f"were {n_undecided}"
    figure = ("acc / st", "phi:", "leaves:")
    header = ("set", "chosen random forest", "phi, held out:", *figure, f"our tree: {figure[0]}", *figure[1:])
    return [
        *_paragraph(
            words.FORESTS,
            trees=_enumerate(GRID),
            depths=_enumerate(depths),
            criteria=" and ".join(CRITERIA),
            n_forests=len(GRID) * len(depths) * len(CRITERIA),
            most_held_out=MOST_HELD_OUT,
            steps=STEPS_PER_ROW,
            undecided=undecided,
        ),
        *_table((*header, f"our forest of {OUR_TREES}: {figure[0]}", *figure[1:]), rows),
        *_write_large_forests(reader),
    ]


def _show_forest(result: dict[str, Any] | None) -> list[str]:
    """Accuracy and stability, phi, leaves."""
    if result is None:
        return [NONE] * 3
    return [show_pair(result["test"]), f"{phi(result['test']):.3f}", str(result["leaves"])]


def _enumerate(numbers: Sequence[int]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} or {numbers[-1]}"


def _write_large_forests(reader: Reader) -> list[str]:
    """Forests that take long run only on request."""
    names = ("mnist", "fashion-mnist")
    quoted = {name: _show_quoted(META_SILVAE[name]) for name in names}
    figures = [f"{name} {pair} with {leaves} leaves" for name, (pair, _, leaves) in quoted.items()]
    lines = _paragraph(words.LARGE_FORESTS, forests=", ".join(figures))
    missing = [name for name in names if reader.forest(name) is None]
    if missing:
        lines += _paragraph(words.MISSING_FORESTS, sets=" and ".join(missing))
        lines += [f"    python scripts/paper.py --only boosting --sets {','.join(missing)}", ""]
    return lines


def _write_efficiency(reader: Reader, figures: str) -> list[str]:
    rows: list[list[str]] = []
    for name in reader.sets:
        models: list[tuple[str, float, float, float, float | None]] = []
        trees, chosen, forest = reader.trees(name), reader.chosen_forest(name), reader.forest(name)
        if trees:
            shares = trees.share("correct"), trees.share("stable")
            spent = median(_micros_per_row(result["test"]) for result in trees.results)
            models.append(("our tree", *shares, trees.median("leaves"), spent))
            if name in META_SILVAE:
                found = META_SILVAE[name]
                models.append(("paper's tree", found.accuracy / 100, found.stability / 100, found.leaves, None))
        for kind, result in (("our forest", forest), ("random forest", chosen and chosen[1])):
            if result:
                counts, leaves = result["test"], result["leaves"]
                shares = share(counts, "correct"), share(counts, "stable")
                models.append((kind, *shares, leaves, _micros_per_row(counts)))
        for kind, accuracy, stability, leaves, micros in models:
            efficiencies = [f"{100 * value / leaves:.3g}" for value in (accuracy, stability)]
            rows.append([name, kind, f"{leaves:.0f}", *efficiencies, NONE if micros is None else f"{micros:.1f}"])
    numbers = ("leaves:", "accuracy for each leaf:", "stability for each leaf:", "verification, microseconds a row:")
    return [
        *_paragraph(words.EFFICIENCY),
        *_table(("set", "model", *numbers), rows),
    ]


def _micros_per_row(counts: dict[str, float]) -> float:
    return 1e6 * counts["processor"] / counts["size"]


def _write_boosting(reader: Reader, figures: str) -> list[str]:
    rows = []
    for name, (accuracy, robust_accuracy) in ROBUST_BOOSTING.items():
        trees, forest = reader.trees(name), reader.forest(name)
        if trees or forest:
            cells = [f"{accuracy:.1f} / {robust_accuracy:.1f}"]
            cells += [trees.show_pair("robust"), f"{trees.median('leaves'):.0f}"] if trees else [NONE] * 2
            cells += [show_pair(forest["test"], "robust"), str(forest["leaves"])] if forest else [NONE] * 2
            rows.append([name, *cells])
    return [
        *_paragraph(words.BOOSTING),
        *_table(
            ("set", "boosting: acc / rob", "our tree: acc / rob", "leaves:", "our forest: acc / rob", "leaves:"), rows
        ),
    ]


SECTIONS: dict[str, tuple[str, Callable[[Reader, str], list[str]]]] = {
    "data": ("Data", _write_data),
    "training": ("Training", _write_training),
    "weights": ("Weights", _write_weights),
    "convergence": ("Convergence", _write_convergence),
    "variance": ("Variance over seeds", _write_variance),
    "forests": ("Random forests", _write_forests),
    "efficiency": ("Leaves and efficiency", _write_efficiency),
    "boosting": ("Robust boosting", _write_boosting),
}


def render(bundle: Bundle, figures: str) -> str:
    """The whole document; `figures` is the folder of the pictures, seen from it."""
    reader = Reader(bundle)
    mode = bundle.request.mode.name
    lines = [
        "# The experiments of the paper, repeated",
        "",
        *_paragraph(words.INTRODUCTION, mode=mode, seed=bundle.request.seed, figures=figures),
    ]
    for experiment, (title, write) in SECTIONS.items():
        lines += [f"## {title}", "", *write(reader, figures), *reader.describe_gaps(experiment)]
    lines += ["## Provenance", ""]
    for number, origin in enumerate(reader.origins, 1):
        machine = f"{origin['machine']}; {origin['libraries']}; {origin['date']}"
        version = origin["version"] + (f", commit {origin['commit']}" if "commit" in origin else "")
        lines.append(f"{number}. metasilvae {version}, {mode} mode; {machine}")
    return "\n".join(lines) + "\n"
