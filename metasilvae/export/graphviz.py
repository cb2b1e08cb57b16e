"""A model as a Graphviz drawing: one cluster for each tree of a forest."""

from __future__ import annotations

from collections.abc import Sequence

from metasilvae.export.wording import name_answer, name_features, name_values
from metasilvae.formats.silva_models import shortest_decimals
from metasilvae.model import Model


def write_dot(model: Model, feature_names: Sequence[str] | None = None) -> str:
    """Graphviz text; the left branch of a split is the one on which its test holds."""
    names = name_features(model, feature_names)
    nodes = model.nodes
    thresholds = list(shortest_decimals(nodes["threshold"]))
    lines = ["digraph model {", '  node [shape=box, fontname="sans-serif"];', '  edge [fontname="sans-serif"];']
    ends = [*model.roots[1:].tolist(), model.n_nodes]
    for position, (start, end) in enumerate(zip(model.roots.tolist(), ends, strict=True)):
        if model.is_forest:
            lines.append(f'  subgraph cluster_{position} {{ label="tree {position}";')
        for node in range(start, end):
            _, feature, left, right, leaf = nodes[node].item()
            if feature < 0:
                text = f"{_escape(name_answer(model, leaf))}\\n{_escape(name_values(model, leaf))}"
                lines.append(f'  n{node} [label="{text}", style=rounded];')
            else:
                lines.append(f'  n{node} [label="{_escape(names[feature])} <= {thresholds[node]}"];')
                lines.append(f'  n{node} -> n{left} [label="yes"];')
                lines.append(f'  n{node} -> n{right} [label="no"];')
        if model.is_forest:
            lines.append("  }")
    return "\n".join([*lines, "}", ""])


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
