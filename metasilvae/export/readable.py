"""A model as indented text for people."""

from __future__ import annotations

from collections.abc import Sequence

from metasilvae.export.wording import name_answer, name_features, name_values
from metasilvae.formats.silva_models import shortest_decimals
from metasilvae.model import Model

INDENT = "  "
# Deeper lines say their depth instead, so that a long chain stays readable and its text small.
DEEPEST_INDENT = 24


def write_text(model: Model, feature_names: Sequence[str] | None = None) -> str:
    """Each test on a line of its own, what follows from it below and further to the right."""
    names = name_features(model, feature_names)
    thresholds = list(shortest_decimals(model.nodes["threshold"]))
    lines: list[str] = []
    for position, root in enumerate(model.roots.tolist()):
        if model.is_forest:
            lines.append(f"tree {position}")
        # Texts are printed, nodes are turned into texts and nodes.
        todo: list[tuple[int, str | int]] = [(int(model.is_forest), root)]
        while todo:
            depth, item = todo.pop()
            if isinstance(item, str):
                lines.append(_indent(depth) + item)
                continue
            _, feature, left, right, leaf = model.nodes[item].item()
            if feature < 0:
                lines.append(f"{_indent(depth)}-> {name_answer(model, leaf)}  ({name_values(model, leaf)})")
                continue
            test = (names[feature], thresholds[item])
            todo += [(depth + 1, right), (depth, " > ".join(test)), (depth + 1, left), (depth, " <= ".join(test))]
    return "\n".join([*lines, ""])


def _indent(depth: int) -> str:
    return INDENT * depth if depth <= DEEPEST_INDENT else f"{INDENT * DEEPEST_INDENT}[{depth}] "
