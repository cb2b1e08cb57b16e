"""Summaries, similarities and differences of models as text and JSON, and what an import did."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from metasilvae.analysis.difference import LARGEST, DifferenceStatus, ModelDifference, Region
from metasilvae.analysis.summaries import ModelSummary, Spread
from metasilvae.dataset import Dataset
from metasilvae.encoding import FeatureNames
from metasilvae.errors import list_some, printable
from metasilvae.interop.imports import Imported, LibraryComparison
from metasilvae.model import LeafKind, Model, count_leaves, name_kind
from metasilvae.output.text.headings import describe_model
from metasilvae.output.text.tables import as_text, dump_json
from metasilvae.verification.budget import INTERRUPTED, STEPS, TIMEOUT
from metasilvae.voting import DEFAULT_VOTING, choose_voting

MOST_LABELS_SHOWN = 20
LONGEST_VALUE = 100
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
    lines += _describe_lines(model)
    if feature_names:
        by_use = sorted(tested, key=lambda feature: -summary.feature_frequencies[feature])
        lines += ["Splits by feature:"]
        lines += [
            f"  {summary.feature_frequencies[feature]:>6} {printable(feature_names[feature])}" for feature in by_use
        ]
    return lines


def _describe_lines(model: Model) -> list[str]:
    """What the model says about itself, apart from names of features."""
    description, lines = model.description, []
    if model.is_forest:
        lines.append(f"Voting: {choose_voting(model, None)}")
    if description.label_name is not None:
        lines.append(f"Label column: {printable(description.label_name)}")
    if description.encoding is not None:
        lines.append(f"Encoding: {_shorten_json(description.encoding)}")
    if description.provenance is not None:
        lines.append("Trained with:")
        lines += [f"  {printable(key)}: {_shorten_json(value)}" for key, value in description.provenance.items()]
    return lines


def _shorten_json(value: object) -> str:
    """A value of a description on one line; --format json has all of it."""
    if isinstance(value, dict):
        text = ", ".join(f"{key} {each if isinstance(each, str) else json.dumps(each)}" for key, each in value.items())
    else:
        text = value if isinstance(value, str) else json.dumps(value)
    text = printable(text)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def write_summary_text(
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


def write_summary_json(
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
        "voting": choose_voting(model, None) if model.is_forest else None,
        "label_name": model.description.label_name,
        "encoding": model.description.encoding,
        "trained": model.description.provenance,
        **_document(whole),
    }
    if trees:
        document["trees"] = [_document(tree) for tree in trees]
    return dump_json(document)


SUMMARY_FORMATS: dict[str, Callable[..., str]] = {"text": write_summary_text, "json": write_summary_json}


def write_similarity_text(
    models: Sequence[Model], dataset: Dataset, equal: NDArray[np.int64], voting: str | None = None
) -> str:
    """One line as the C program prints it for two models, a table for more."""
    fractions = equal / dataset.n_samples
    if len(models) == 2:
        return f"Similarity: {fractions[0, 1]:g}\n"
    votings = _list_votings(models, voting)
    return as_text(
        [
            {
                "": str(row + 1),
                "model": model.source,
                **({"voting": votings[row] or ""} if any(votings) else {}),
                **{str(column + 1): float(x) for column, x in enumerate(fractions[row])},
            }
            for row, model in enumerate(models)
        ]
    )


def _list_votings(models: Sequence[Model], voting: str | None) -> list[str | None]:
    """Voting of each forest."""
    return [(voting or choose_voting(model, None)) if model.is_forest else None for model in models]


def write_similarity_json(
    models: Sequence[Model], dataset: Dataset, equal: NDArray[np.int64], voting: str | None = None
) -> str:
    document = {
        "models": [model.source for model in models],
        "votings": _list_votings(models, voting),
        "data": dataset.source,
        "n_rows": dataset.n_samples,
        "n_equal": equal.tolist(),
        "similarity": (equal / dataset.n_samples).tolist(),
    }
    return dump_json(document)


SIMILARITY_FORMATS: dict[str, Callable[..., str]] = {
    "text": write_similarity_text,
    "json": write_similarity_json,
}


@dataclass(frozen=True)
class ComparisonReport:
    """A comparison, and for a data set the number of rows with different predictions."""

    comparison: ModelDifference
    dataset: Dataset | None = None
    n_unequal: int | None = None

    @property
    def names(self) -> FeatureNames:
        return self.comparison.first.names if self.dataset is None else self.dataset.names

    def feature_name(self, feature: int) -> str:
        names = self.comparison.first.description.feature_names or self.comparison.second.description.feature_names
        if self.dataset is not None and (self.dataset.feature_names or names is None):
            return self.dataset.feature_name(feature)
        return f"x[{feature}]" if names is None else printable(names[feature])

    def describe_point(self, point: NDArray[np.float64]) -> str:
        """The cells of a sample, separated by commas."""
        encoding = self.names.encoding
        cells = point.tolist() if encoding is None else encoding.decode(point)
        return ",".join(cell if isinstance(cell, str) else repr(cell) for cell in cells)

    def bounds(self, region: Region) -> Iterator[tuple[int, float, float]]:
        """Features in which a region is narrower than the domain, with closed bounds."""
        domain = self.comparison.domain
        for feature, (lower, upper) in enumerate(zip(region.lower.tolist(), region.upper.tolist(), strict=True)):
            if lower != domain.lower[feature] or upper != domain.upper[feature]:
                yield feature, lower, upper


_REASONS = {
    TIMEOUT: "the time limit was reached (--time-limit)",
    STEPS: "the number of steps was reached (--max-steps)",
    INTERRUPTED: "the search was interrupted",
}


def _conditions(report: ComparisonReport, region: Region) -> Iterator[str]:
    domain, names = report.comparison.domain, report.names
    for feature, lower, upper in report.bounds(region):
        if not names.is_number(feature):
            # A test of an indicator: the part below 1, or the part above 0.
            is_low = upper != domain.upper[feature]
            yield names.describe_test(feature, upper if is_low else math.nextafter(lower, -math.inf))[not is_low]
            continue
        name = report.feature_name(feature)
        if math.isnan(lower):
            yield f"{name} is missing"
            continue
        # A bound inside the domain comes from a test: the number after its threshold, or the threshold.
        above = "" if lower == domain.lower[feature] else f"{math.nextafter(lower, -math.inf)!r} < "
        below = "" if upper == domain.upper[feature] else f" <= {upper!r}"
        yield f"{name} > {above[:-3]}" if above and not below else f"{above}{name}{below}"


def write_difference_text(report: ComparisonReport) -> str:
    comparison = report.comparison
    lines = [
        f"first   {describe_model(comparison.first, comparison.votings[0])}",
        f"second  {describe_model(comparison.second, comparison.votings[1])}",
        f"domain  {comparison.domain.description}",
        "",
    ]
    if comparison.result is DifferenceStatus.EQUAL:
        lines.append("proved: the predictions are equal for every sample in the domain")
    elif comparison.n_regions is not None:
        regions = "1 region" if comparison.n_regions == 1 else f"{comparison.n_regions} regions"
        lines.append(f"the predictions differ in {regions}, and nowhere else")
    elif comparison.result is DifferenceStatus.DIFFERENT:
        lines.append("the predictions differ, for these samples and possibly for others")
    else:
        lines.append(
            f"undecided, {_REASONS.get(comparison.reason or '', 'the search ended early')}: no sample with different "
            "predictions was found, nor a proof that there is none"
        )
    for number, region in enumerate(comparison.regions, start=1):
        lines += ["", f"{number}. {','.join(region.first)} | {','.join(region.second)}"]
        if comparison.n_regions is not None:
            lines.append(f"   where {', '.join(_conditions(report, region)) or 'anything in the domain'}")
        lines.append(f"   such as {report.describe_point(region.point)}")
    if comparison.n_regions is not None and comparison.n_regions > len(comparison.regions):
        lines += ["", f"{comparison.n_regions - len(comparison.regions)} more regions (--max-regions)"]
    if report.dataset is not None and report.n_unequal is not None:
        percent = 100 * report.n_unequal / report.dataset.n_samples
        lines += [
            "",
            f"{report.n_unequal} of {report.dataset.n_samples} rows of {report.dataset.source} have different "
            f"predictions ({percent:.2f} %)",
        ]
    return "\n".join(lines) + "\n"


def _bound(value: float) -> float | None:
    return value if abs(value) < LARGEST else None  # NaN, of a missing value, is not less


def write_difference_json(report: ComparisonReport) -> str:
    """One document; bounds are closed, null where there is none."""
    comparison = report.comparison
    document: dict[str, object] = {
        "first": comparison.first.source,
        "second": comparison.second.source,
        "votings": list(comparison.votings),
        "domain": comparison.domain.description,
        "result": comparison.result.value,
        **({} if comparison.reason is None else {"reason": comparison.reason}),
        "n_regions": comparison.n_regions,
        "regions": [
            {
                "first": list(region.first),
                "second": list(region.second),
                "bounds": [
                    {
                        "feature": feature,
                        "name": report.feature_name(feature),
                        "at_least": _bound(a),
                        "at_most": _bound(b),
                        **({"missing": True} if math.isnan(a) else {}),
                    }
                    for feature, a, b in report.bounds(region)
                ],
                "point": [None if math.isnan(value) else value for value in region.point.tolist()],
            }
            for region in comparison.regions
        ],
    }
    if report.dataset is not None:
        document["data"] = report.dataset.source
        document["rows"] = report.dataset.n_samples
        document["rows_different"] = report.n_unequal
    return dump_json(document)


COMPARISON_FORMATS: dict[str, Callable[[ComparisonReport], str]] = {
    "text": write_difference_text,
    "json": write_difference_json,
}


def describe_import(imported: Imported, output: str, plain: bool = False) -> str:
    """Source, model, voting, features, comparison and notes, one on each line; a plain model has no description."""
    model, comparison = imported.model, imported.comparison
    kind, size = name_kind(model.is_forest, model.n_trees), count_leaves(model.n_leaves)
    lines = [
        f"source    {model.source} ({imported.origin})",
        f"model     {output} ({kind}, {size}, depth {model.max_depth}, {model.n_labels} labels)",
    ]
    if model.is_forest:
        where = "" if plain else ", part of the model"
        if plain and imported.voting != DEFAULT_VOTING[model.leaf_kind]:
            where = f"; other commands need --voting {imported.voting}"
        lines.append(f"voting    {imported.voting}{where}")
    names = None if plain else model.description.feature_names
    if names is not None:
        if model.encoding is not None:
            names = tuple(column.name for column in model.encoding.columns)
        lines.append(f"features  {list_some([printable(name) for name in names])}")
    if comparison is None:
        lines.append("compared  no")
    else:
        lines.append(f"compared  {comparison.n_rows} rows with {comparison.library}: {_describe_rows(comparison)}")
    lines += [f"note      {note}" for note in imported.notes]
    return "\n".join([*lines, ""])


def _describe_rows(comparison: LibraryComparison) -> str:
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
        text += f", {comparison.n_rounded} that depend on the rounding of its sums"
    return text


def _describe_splits(comparison: LibraryComparison) -> str:
    if comparison.n_splits == comparison.n_all_splits:
        return "thresholds"
    per_split = comparison.n_thresholds // max(1, comparison.n_splits)
    is_full = (comparison.n_splits + 1) * per_split > comparison.max_rows
    reason = "chosen at random; --max-rows compares more" if is_full else "the trees are too deep for more"
    return f"{comparison.n_splits} of {comparison.n_all_splits} thresholds ({reason})"
