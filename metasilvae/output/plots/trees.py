"""Drawings of trees: a box for each node, with a bar in the colours of the classes of its training rows.

Boxes are placed by the algorithm of Reingold and Tilford (1981), without recursion: each node is centred over its
children, subtrees of the same shape look the same, and boxes of a level never touch. A drawing grows down or to the
right; the direction in which a level extends is called breadth.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.encoding import LARGEST_NUMBER, FeatureNames
from metasilvae.errors import RequestError
from metasilvae.interop.exports.leaves import name_prediction
from metasilvae.model import LeafKind, Model, tell_missing
from metasilvae.output.axes import round_number
from metasilvae.output.plots.canvas import (
    FAINT,
    INK,
    blend,
    colour_names,
    measure_text,
    new_figure,
    say,
    say_entry,
    style,
)
from metasilvae.prediction import align, find_leaves, match_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Children = tuple[int, int] | None


def place_boxes(children: Sequence[Children], breadths: Sequence[float], gap: float) -> list[float]:
    """The centre of each box along the breadth; the smallest edge is at 0.

    Parameters
    ----------
    children : positions of the two children of each node, None for a leaf; children follow their parent
    breadths : how far each box extends
    gap : least distance between two boxes of a level
    """
    n_nodes = len(children)
    shifts = [0.0] * n_nodes
    # Edges of the subtree of a node, level by level, relative to the centre of the node.
    firsts: list[list[float]] = [[] for _ in range(n_nodes)]
    lasts: list[list[float]] = [[] for _ in range(n_nodes)]
    for node in range(n_nodes - 1, -1, -1):
        below = children[node]
        first, last = [-breadths[node] / 2], [breadths[node] / 2]
        if below is not None:
            left, right = below
            levels = zip(lasts[left], firsts[right], strict=False)
            half = max(one - other for one, other in levels) / 2 + gap / 2
            shifts[left], shifts[right] = -half, half
            first += _join(firsts[left], -half, firsts[right], half)
            last += _join(lasts[right], half, lasts[left], -half)
            for child in below:
                firsts[child], lasts[child] = [], []
        firsts[node], lasts[node] = first, last
    centres = [-min(firsts[0])] * n_nodes
    for node, below in enumerate(children):
        for child in below or ():
            centres[child] = centres[node] + shifts[child]
    return centres


def _join(outer: list[float], shift: float, other: list[float], other_shift: float) -> list[float]:
    """One side of two subtrees: the outer one as deep as it goes, then what lies deeper in the other one."""
    return [edge + shift for edge in outer] + [edge + other_shift for edge in other[len(outer) :]]


# Larger drawings would not be readable.
MOST_LEAVES = 500
# What fits on a page: of a larger tree, branches with few rows are folded unless a depth is given.
MOST_ON_A_PAGE = 24


@dataclass(frozen=True)
class NodeFacts:
    """One box of a drawing.

    Attributes
    ----------
    node : int
        Position in the tree.
    children : positions of the children among the boxes, or None
    n_leaves : int
        Leaves of the tree at and below the node.
    values : array, shape (n_labels,), or None
        Class counts of all leaves below, as the model has them; scores only of a leaf.
    rows : int or None
        Rows of the data that reach the node.
    correct_rows : int or None
        Of the rows in a leaf, those that it classifies correctly.
    margin : float or None
        Distance between the threshold and the nearest of these rows.
    near_rows : int or None
        Of these rows, how many the perturbation can carry to either side of the threshold.
    """

    node: int
    children: Children
    n_leaves: int
    values: np.ndarray | None
    rows: int | None = None
    correct_rows: int | None = None
    margin: float | None = None
    near_rows: int | None = None


@dataclass(frozen=True)
class TreeFacts:
    """A tree as far as it is shown: boxes in pre-order, what is folded is one box.

    Attributes
    ----------
    place : the number of the tree in its forest, from 0, and how many trees that has; None for a single tree
    """

    tree: Model
    boxes: list[NodeFacts]
    dataset: Dataset | None = None
    epsilon: float | None = None
    place: tuple[int, int] | None = None

    @property
    def n_folded(self) -> int:
        """Number of leaves that are not drawn."""
        return self.tree.n_leaves - sum(self.is_leaf(box) for box in self.boxes)

    @property
    def names(self) -> FeatureNames:
        known = self.tree.description.feature_names if self.dataset is None else self.dataset.feature_names
        return FeatureNames.of(known, self.tree.n_features, self.tree.encoding)

    def is_leaf(self, box: NodeFacts) -> bool:
        return bool(self.tree.nodes["feature"][box.node] < 0)

    def depth(self, box: NodeFacts) -> int:
        return int(self.tree.depths[box.node])


def gather_facts(
    tree: Model,
    dataset: Dataset | None = None,
    epsilon: float | None = None,
    max_depth: int | None = None,
    place: tuple[int, int] | None = None,
) -> TreeFacts:
    """Collect the facts about a single tree; refuses one that is too large to be readable.

    Parameters
    ----------
    max_depth : int or None
        Nodes below this depth are folded; None folds what does not fit on a page.
    """
    nodes = tree.nodes
    dataset = None if dataset is None else align(tree, dataset)
    leaves = _LeafOrder(tree)
    rows = None if dataset is None else _RowOrder(tree, dataset, leaves)
    if max_depth is None:
        unfolded = _unfold(tree, leaves, rows)
    else:
        unfolded = set(np.flatnonzero((tree.depths < max_depth) & (nodes["feature"] >= 0)).tolist())
    shown = sorted({0, *(int(nodes[side][node]) for node in unfolded for side in ("left", "right"))})
    if len(shown) - len(unfolded) > MOST_LEAVES:
        raise RequestError(
            f"{tree.source}: a drawing of {len(shown) - len(unfolded)} leaves cannot be read, at most {MOST_LEAVES} "
            "are drawn; give a smaller --max-depth, or leave it out"
        )
    position_of = {node: position for position, node in enumerate(shown)}
    boxes = []
    for node in shown:
        _, feature, left, right, leaf = nodes[node].item()
        first, last = leaves.range_of(node)
        values = tree.leaf_values[leaf] if feature < 0 else None
        if tree.leaf_kind is LeafKind.COUNTS:
            values = leaves.values[first:last].sum(axis=0, dtype=np.float64)
        children = (position_of[left], position_of[right]) if node in unfolded else None
        found = (None,) * 4 if rows is None else rows.count(node, first, last, epsilon)
        boxes.append(NodeFacts(node, children, last - first, values, *found))
    return TreeFacts(tree, boxes, dataset, epsilon, place)


def _unfold(tree: Model, leaves: _LeafOrder, rows: _RowOrder | None) -> set[int]:
    """Splits that are shown with what is below them: all, or those with the most rows, as many as fit on a page.

    Rows are those of the data, else those of training, else leaves are counted.
    """
    nodes = tree.nodes
    splits = np.flatnonzero(nodes["feature"] >= 0).tolist()
    if len(splits) < MOST_ON_A_PAGE:
        return set(splits)

    def weigh(node: int) -> tuple[float, int]:
        first, last = leaves.range_of(node)
        if rows is not None:
            return -rows.count(node, first, last, None)[0], node
        if tree.leaf_kind is LeafKind.COUNTS:
            return -float(leaves.values[first:last].sum(dtype=np.float64)), node
        return -float(last - first), node

    found: set[int] = set()
    waiting = [weigh(0)]
    while waiting and len(found) < MOST_ON_A_PAGE - 1:
        node = heapq.heappop(waiting)[1]
        found.add(node)
        for side in ("left", "right"):
            child = int(nodes[side][node])
            if nodes["feature"][child] >= 0:
                heapq.heappush(waiting, weigh(child))
    return found


class _LeafOrder:
    """The leaves from left to right; those below a node follow each other."""

    def __init__(self, tree: Model) -> None:
        right = tree.nodes["right"].tolist()
        is_leaf = tree.nodes["feature"] < 0
        ends = list(range(1, tree.n_nodes + 1))
        for node in np.flatnonzero(~is_leaf)[::-1].tolist():
            ends[node] = ends[right[node]]
        self._ends = ends
        self._n_before = np.concatenate([[0], np.cumsum(is_leaf)])
        self.leaves: NDArray[np.int32] = tree.nodes["leaf"][is_leaf]
        self.values = tree.leaf_values[self.leaves]

    def range_of(self, node: int) -> tuple[int, int]:
        return int(self._n_before[node]), int(self._n_before[self._ends[node]])


class _RowOrder:
    """Rows in the order of their leaves, so that those that come to a node follow each other."""

    def __init__(self, tree: Model, dataset: Dataset, leaves: _LeafOrder) -> None:
        found = find_leaves(tree, dataset.X)[:, 0]
        rank = np.empty(tree.n_leaves, dtype=np.int64)
        rank[leaves.leaves] = np.arange(len(leaves.leaves))
        ranks = rank[found]
        self._order = np.argsort(ranks, kind="stable")
        self._ranks = ranks[self._order]
        self._tree = tree
        self._names = dataset.names
        self._X = dataset.X
        predictions, true_labels = tree.leaf_predictions, match_labels(tree, dataset)
        is_right = (true_labels >= 0) & (predictions.only_label[predictions.ids[found]] == true_labels)
        self._is_right = is_right[self._order]

    def count(
        self, node: int, first: int, last: int, epsilon: float | None
    ) -> tuple[int, int | None, float | None, int | None]:
        start, stop = np.searchsorted(self._ranks, [first, last])
        n_rows = int(stop - start)
        _, feature, _, _, _ = self._tree.nodes[node].item()
        if feature < 0:
            return n_rows, int(self._is_right[start:stop].sum()), None, None
        values = self._X[self._order[start:stop], feature]
        if not self._names.is_number(feature):
            # A category has no distance from a threshold.
            return n_rows, None, None, None
        values = values[~np.isnan(values)]
        threshold = self._tree.nodes["threshold"][node]
        with np.errstate(over="ignore"):
            margin = float(np.abs(values - threshold).min()) if len(values) else None
            near = None
            if epsilon is not None:
                near = int(((values - epsilon <= threshold) & (values + epsilon > threshold)).sum())
        return n_rows, None, margin, near


DOWN, RIGHT = "down", "right"
DIRECTIONS = (DOWN, RIGHT)
# Leaves that fit side by side on a page; more are stacked.
MOST_LEAVES_DOWN = 8
# With more classes, a leaf shows only the count of its prediction, and there is no legend.
MOST_COUNTS, MOST_ENTRIES = 4, 12
# Labels have at most 31 bytes; only ties may have longer names.
LONGEST_PREDICTION = 66
# Inches.
FONT_SIZE = 8.0
LINE = 0.155
PADDING = 0.07
BAR = 0.07
SLIVER = 0.007  # about a pixel
MARGIN = 0.15
GAPS = {DOWN: (0.12, 0.42), RIGHT: (0.09, 0.55)}
NARROWEST = 0.5


@dataclass(frozen=True)
class _Box:
    """A node with its words and its place; x and y are those of the centre, y grows downwards."""

    facts: NodeFacts
    lines: list[str]
    width: float
    height: float
    x: float = 0.0
    y: float = 0.0


@style()
def draw_tree(facts: TreeFacts, direction: str | None = None, title: str | None = None) -> Figure:
    """Draw a tree that grows downwards or to the right; by default the one that fits its size."""
    n_ends = sum(box.children is None for box in facts.boxes)
    direction = direction or (DOWN if n_ends <= MOST_LEAVES_DOWN else RIGHT)
    boxes = _arrange(facts, direction)
    figure = _make_page(facts, boxes, _heading(facts) if title is None else [say(title, 200)])
    axes = figure.axes[0]
    for box in boxes:
        for word, child in zip(_name_branches(facts, box.facts.node), box.facts.children or (), strict=False):
            _draw_edge(axes, facts, box, boxes[child], direction, word)
    colours = colour_names(facts.tree.labels)
    for box in boxes:
        _draw_box(axes, facts, box, colours)
    return figure


def _name_branches(facts: TreeFacts, node: int) -> tuple[str, str]:
    """The words at the branches of a split: with missing values at the one that they take."""
    threshold, feature, _, _, leaf = facts.tree.nodes[node].item()
    direction = tell_missing(facts.names, feature, threshold, leaf) if feature >= 0 else None
    return "yes, missing" if direction == "left" else "yes", "no, missing" if direction == "right" else "no"


def _make_page(facts: TreeFacts, boxes: list[_Box], heading: list[str]) -> Figure:
    """A figure with heading, legend, and room for the boxes, whose places are inches in its axes."""
    entries = _entries(facts)
    breadth, depth = max(box.x + box.width / 2 for box in boxes), max(box.y + box.height / 2 for box in boxes)
    legend_width = sum(measure_text(name, FONT_SIZE) + 0.4 for name, _ in entries)
    headings = [measure_text(line, FONT_SIZE, is_bold=True) for line in heading]
    width = max(breadth, legend_width, *headings) + 2 * MARGIN
    legend_top = MARGIN + LINE * len(heading) + 0.08
    top = legend_top + (0.32 if entries else 0.08)
    height = depth + top + MARGIN
    figure = new_figure(width, height, is_packed=False)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    indent = (width - breadth) / 2
    axes.set(xlim=(-indent, width - indent), ylim=(height - top, -top))
    for number, line in enumerate(heading):
        weight = "normal" if number else "bold"
        place = 1 - (MARGIN + number * LINE) / height
        figure.text(0.5, place, line, ha="center", va="top", fontsize=FONT_SIZE, fontweight=weight, color=INK)
    _draw_legend(figure, entries, 1 - legend_top / height)
    return figure


# Words


def _heading(facts: TreeFacts) -> list[str]:
    tree = facts.tree
    part = "" if facts.place is None else f", tree {facts.place[0]} of {facts.place[1]} (from 0)"
    lines = [
        f"{say(tree.source)}{part}: {tree.n_leaves} lea{'f' if tree.n_leaves == 1 else 'ves'}, depth {tree.max_depth}"
    ]
    if facts.dataset is not None:
        lines.append(f"with the rows of {say(facts.dataset.source)}")
    if facts.n_folded:
        lines.append(f"{facts.n_folded} leaves are folded")
    return lines


def _words(facts: TreeFacts) -> Iterator[list[str]]:
    names = facts.names
    for box in facts.boxes:
        if facts.is_leaf(box):
            prediction = name_prediction(facts.tree, int(facts.tree.nodes["leaf"][box.node]))
            lines = [say(prediction, LONGEST_PREDICTION), _count_words(facts, box)]
            if box.rows is not None:
                right = f", {box.correct_rows} correct" if box.rows else ""
                lines.append(f"{_plural(box.rows, 'row')}{right}")
        elif box.children is None:
            lines = [f"... {box.n_leaves} leaves", _count_words(facts, box)]
            if box.rows is not None:
                lines.append(_plural(box.rows, "row"))
        else:
            threshold, feature, _, _, _ = facts.tree.nodes[box.node].item()
            if names.is_number(feature) and threshold < LARGEST_NUMBER:
                lines = [f"{say(names.names[feature], 28)} \N{LESS-THAN OR EQUAL TO} {_number(facts.tree, box.node)}"]
            else:
                lines = [say(names.describe_test(feature, threshold, signs=("\N{LESS-THAN OR EQUAL TO}", ">"))[0], 36)]
            if box.rows is None:
                lines.append("" if box.values is None else _plural(box.values.sum(), "row"))
            else:
                margin = "" if box.margin is None else f", margin {round_number(box.margin, digits=3)}"
                lines.append(_plural(box.rows, "row") + margin)
            if box.near_rows is not None:
                lines.append(f"{box.near_rows} within {facts.epsilon:g}")
        yield [line for line in lines if line]


def _number(tree: Model, node: int) -> str:
    return round_number(float(tree.nodes["threshold"][node]))


def _plural(count: float, noun: str) -> str:
    return f"{count:.0f} {noun}{'' if count == 1 else 's'}"


def _count_words(facts: TreeFacts, box: NodeFacts) -> str:
    """All counts or scores in the order of the legend; where there are many classes, the largest one."""
    if box.values is None:
        return ""
    is_counted = facts.tree.leaf_kind is LeafKind.COUNTS
    if len(box.values) > MOST_COUNTS:
        most = box.values.max()
        return f"{most:.0f} of {box.values.sum():.0f}" if is_counted else f"score {most:.3g}"
    return " | ".join(f"{value:.0f}" if is_counted else f"{value:.3g}" for value in box.values)


# Places


def _arrange(facts: TreeFacts, direction: str) -> list[_Box]:
    has_bar = facts.tree.leaf_kind is LeafKind.COUNTS
    boxes = []
    for each, lines in zip(facts.boxes, _words(facts), strict=True):
        widths = [measure_text(line, FONT_SIZE, is_bold=number == 0) for number, line in enumerate(lines)]
        height = LINE * len(lines) + 2 * PADDING + (BAR + 0.03 if has_bar else 0)
        boxes.append(_Box(each, lines, max(NARROWEST, max(widths) + 2 * PADDING), height))
    gap, level_gap = GAPS[direction]
    goes_down = direction == DOWN
    breadths = [box.width if goes_down else box.height for box in boxes]
    lengths = [box.height if goes_down else box.width for box in boxes]
    depths = [facts.depth(each) for each in facts.boxes]
    levels = [0.0] * (max(depths) + 1)
    for depth, length in zip(depths, lengths, strict=True):
        levels[depth] = max(levels[depth], length)
    starts = np.concatenate([[0.0], np.cumsum([level + level_gap for level in levels])]).tolist()
    centres = place_boxes([each.children for each in facts.boxes], breadths, gap)
    placed = []
    for box, depth, length, centre in zip(boxes, depths, lengths, centres, strict=True):
        along = starts[depth] + length / 2
        x, y = (centre, along) if goes_down else (along, centre)
        placed.append(replace(box, x=x, y=y))
    return placed


# Marks


def _draw_edge(axes: Axes, facts: TreeFacts, parent: _Box, child: _Box, direction: str, word: str) -> None:
    """A curve from the test to what follows from it; the more rows take it, the thicker it is."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    if direction == DOWN:
        start, end = (parent.x, parent.y + parent.height / 2), (child.x, child.y - child.height / 2)
        middle = (start[1] + end[1]) / 2
        bends = [(start[0], middle), (end[0], middle)]
        goes_up = True
        alignment = "left" if child.x > parent.x else "right"
        place = (end[0] + (0.04 if alignment == "left" else -0.04), end[1] - 0.03)
    else:
        start, end = (parent.x + parent.width / 2, parent.y), (child.x - child.width / 2, child.y)
        middle = start[0] + 0.25
        bends = [(middle, start[1]), (middle, end[1])]
        goes_up = child.y < parent.y
        place, alignment = (end[0] - 0.04, end[1] + (-0.02 if goes_up else 0.02)), "right"
    path = Path([start, *bends, end], [Path.MOVETO, *[Path.CURVE4] * 3])
    axes.add_patch(PathPatch(path, fill=False, edgecolor=FAINT, linewidth=_edge_width(facts, child), capstyle="butt"))
    axes.text(*place, word, ha=alignment, va="bottom" if goes_up else "top", fontsize=FONT_SIZE - 1.5, color=FAINT)


def _edge_width(facts: TreeFacts, box: _Box) -> float:
    root = facts.boxes[0]
    if box.facts.rows is not None and root.rows:
        return 0.7 + 3.3 * box.facts.rows / root.rows
    if box.facts.values is None or root.values is None:
        return 1.0
    return float(0.7 + 3.3 * box.facts.values.sum() / max(root.values.sum(), 1))


def _draw_box(axes: Axes, facts: TreeFacts, box: _Box, colours: dict[str, str]) -> None:
    from matplotlib.patches import FancyBboxPatch

    is_leaf = facts.is_leaf(box.facts)
    fill, line = "white", INK
    if is_leaf:
        tree = facts.tree
        prediction = tree.leaf_predictions.sets[tree.leaf_predictions.ids[tree.nodes["leaf"][box.facts.node]]]
        predictioned = [colours[tree.labels[label]] for label in prediction]
        fill, line = blend(predictioned, 0.62), blend(predictioned)
    left, top = box.x - box.width / 2, box.y - box.height / 2
    axes.add_patch(
        FancyBboxPatch(
            (left, top), box.width, box.height, boxstyle="round,pad=0,rounding_size=0.06", facecolor=fill,
            edgecolor=line, linewidth=1.0, linestyle="--" if not is_leaf and box.facts.children is None else "-",
        )
    )  # fmt: skip
    for number, words in enumerate(box.lines):
        axes.text(
            box.x, top + PADDING + (number + 0.5) * LINE, words, ha="center", va="center", fontsize=FONT_SIZE,
            color=INK, fontweight="bold" if number == 0 else "normal",
        )  # fmt: skip
    if facts.tree.leaf_kind is LeafKind.COUNTS and box.facts.values is not None:
        _draw_bar(axes, box, box.facts.values, [colours[label] for label in facts.tree.labels])


def _draw_bar(axes: Axes, box: _Box, values: np.ndarray, colours: list[str]) -> None:
    """Fractions of the classes among the rows of a node; adjacent slivers are merged, in the colour of the largest."""
    from matplotlib.patches import Rectangle

    left, top = box.x - box.width / 2 + PADDING, box.y + box.height / 2 - PADDING - BAR
    room, total = box.width - 2 * PADDING, max(float(values.sum()), 1.0)
    pieces: list[tuple[float, float, str]] = []  # width, that of its largest fraction, colour
    for value, colour in zip(values.tolist(), colours, strict=True):
        share = room * value / total
        if pieces and share < SLIVER and pieces[-1][0] < SLIVER:
            width, largest, other = pieces.pop()
            pieces.append((width + share, max(largest, share), colour if share > largest else other))
        elif value > 0:
            pieces.append((share, share, colour))
    for width, _, colour in pieces:
        axes.add_patch(Rectangle((left, top), width, BAR, facecolor=colour, edgecolor="none"))
        left += width


def _entries(facts: TreeFacts) -> list[tuple[str, str]]:
    """Labels and their colours, if they are not too many."""
    if facts.tree.n_labels > MOST_ENTRIES:
        return []
    return [(say_entry(label), colour) for label, colour in colour_names(facts.tree.labels).items()]


def _draw_legend(figure: Figure, entries: list[tuple[str, str]], top: float) -> None:
    from matplotlib.patches import Patch

    if not entries:
        return
    figure.legend(
        [Patch(facecolor=colour) for _, colour in entries], [name for name, _ in entries], loc="upper center",
        bbox_to_anchor=(0.5, top), ncols=len(entries), fontsize=FONT_SIZE, handlelength=1.2, handleheight=0.9,
        columnspacing=1.2, handletextpad=0.5, borderpad=0, borderaxespad=0,
    )  # fmt: skip
