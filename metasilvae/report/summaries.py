"""Summaries of models as text and JSON. The text begins with what tree-info of the C programs prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

from metasilvae.model import LeafKind
from metasilvae.model_summary import ModelSummary, Spread

MOST_LABELS_SHOWN = 20
KIND_NAMES = {LeafKind.COUNTS: "counts", LeafKind.SCORES: "scores"}


def _spread_lines(title: str, spread: Spread | None) -> list[str]:
    if spread is None:
        return [f"{title}: none, boosted leaves hold scores instead of counts"]
    rows = (
        ("min", spread.minimum),
        ("1st quartile", spread.first_quartile),
        ("median", spread.median),
        ("mean", spread.mean),
        ("3rd quartile", spread.third_quartile),
        ("max", spread.maximum),
        ("variance", spread.variance),
    )
    return [f"{title}:", *(f"  {name + ':':<13} {value:g}" for name, value in rows)]


def _tree_info_lines(summary: ModelSummary) -> list[str]:
    frequencies = " ".join(map(str, summary.feature_frequencies.tolist()))
    return [
        f"Tree Info: {summary.n_leaves} leaves / {summary.model.n_nodes} nodes",
        *_spread_lines("Heights", summary.heights),
        *_spread_lines("Number of samples per leaf", summary.samples),
        *_spread_lines("Entropy on leaves", summary.entropy),
        f"Feature frequencies: [ {frequencies} ]",
    ]


def _further_lines(summary: ModelSummary, feature_names: Sequence[str] | None) -> list[str]:
    model = summary.model
    shown = " ".join(model.labels[:MOST_LABELS_SHOWN])
    if model.n_labels > MOST_LABELS_SHOWN:
        shown += f" ... ({model.n_labels - MOST_LABELS_SHOWN} more)"
    tested = summary.feature_frequencies.nonzero()[0].tolist()
    lines = [
        f"Labels: {model.n_labels} ({shown})",
        f"Features: {model.n_features}, {len(tested)} of them tested",
        f"Leaves hold: {KIND_NAMES[model.leaf_kind]} ({model.leaf_kind.value})",
        f"Leaves behind contradictory tests: {summary.n_unreachable}",
    ]
    if feature_names:
        by_use = sorted(tested, key=lambda feature: -summary.feature_frequencies[feature])
        lines += ["Splits by feature:"]
        lines += [f"  {summary.feature_frequencies[feature]:>6} {feature_names[feature]}" for feature in by_use]
    return lines


def write_text(
    whole: ModelSummary, trees: Sequence[ModelSummary] = (), feature_names: Sequence[str] | None = None
) -> str:
    lines = []
    if whole.model.is_forest:
        lines.append(f"Forest Info: {whole.model.n_trees} trees")
    lines += [*_tree_info_lines(whole), *_further_lines(whole, feature_names)]
    for number, tree in enumerate(trees):
        lines += ["", f"Tree {number}", *_tree_info_lines(tree)]
    return "\n".join(lines) + "\n"


def _document(summary: ModelSummary) -> dict[str, object]:
    return {
        "n_leaves": summary.n_leaves,
        "n_nodes": summary.model.n_nodes,
        "heights": asdict(summary.heights),
        "samples_per_leaf": summary.samples and asdict(summary.samples),
        "entropy_on_leaves": summary.entropy and asdict(summary.entropy),
        "feature_frequencies": summary.feature_frequencies.tolist(),
        "n_unreachable_leaves": summary.n_unreachable,
    }


def write_json(
    whole: ModelSummary, trees: Sequence[ModelSummary] = (), feature_names: Sequence[str] | None = None
) -> str:
    model = whole.model
    document: dict[str, object] = {
        "model": model.source,
        "kind": "forest" if model.is_forest else "tree",
        "n_trees": model.n_trees,
        "n_features": model.n_features,
        "feature_names": list(feature_names) if feature_names else None,
        "labels": list(model.labels),
        "leaf_kind": KIND_NAMES[model.leaf_kind],
        **_document(whole),
    }
    if trees:
        document["trees"] = [_document(tree) for tree in trees]
    return json.dumps(document, indent=2) + "\n"


SUMMARY_FORMATS: dict[str, Callable[..., str]] = {"text": write_text, "json": write_json}
