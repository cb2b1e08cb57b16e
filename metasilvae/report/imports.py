"""What an import did, as text."""

from __future__ import annotations

import shlex

from metasilvae.imports import Comparison, Imported
from metasilvae.model import count_leaves, name_kind
from metasilvae.storage import STANDARD_STREAM
from metasilvae.voting import DEFAULT_VOTING


def describe_import(imported: Imported, comparison: Comparison | None, output: str) -> str:
    """Source, model, voting and comparison, one on each line."""
    model = imported.model
    kind, size = name_kind(model.is_forest, model.n_trees), count_leaves(model.n_leaves)
    lines = [
        f"source    {model.source} ({imported.origin})",
        f"model     {output} ({kind}, {size}, depth {model.max_depth}, {model.n_labels} labels)",
    ]
    if model.is_forest:
        is_usual = imported.voting == DEFAULT_VOTING[model.leaf_kind]
        lines.append(f"voting    {imported.voting}" + ("" if is_usual else ", which other commands must be told:"))
        if not is_usual:
            name = "MODEL" if output == STANDARD_STREAM else output
            lines.append(f"          metasilvae verify {shlex.quote(name)} DATA --epsilon E --voting {imported.voting}")
    if comparison is None:
        lines.append("compared  no")
    else:
        lines.append(f"compared  {comparison.n_rows} rows with {comparison.judge}: {_describe_rows(comparison)}")
    return "\n".join([*lines, ""])


def _describe_rows(comparison: Comparison) -> str:
    parts = [
        f"{comparison.n_data} of data" if comparison.n_data else "",
        f"{comparison.n_random} random",
        f"{comparison.n_thresholds} beside {_describe_splits(comparison)}",
    ]
    text = ", ".join(part for part in parts if part)
    equal = comparison.n_rows - comparison.n_rounded
    text += f"; {equal} equal"
    if comparison.n_ties:
        text += f" ({comparison.n_ties} of them ties, where the library takes one label of several)"
    if comparison.n_rounded:
        text += f", {comparison.n_rounded} decided by the rounding of its sums"
    return text


def _describe_splits(comparison: Comparison) -> str:
    if comparison.n_splits == comparison.n_all_splits:
        return "thresholds"
    return f"{comparison.n_splits} of {comparison.n_all_splits} thresholds (the trees are too deep for more)"
