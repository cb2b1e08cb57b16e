"""Differences of two models as text and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from metasilvae.comparison import LARGEST, Comparison, Region, Result
from metasilvae.dataset import Dataset
from metasilvae.forest_verification import INTERRUPTED, STEPS, TIMEOUT
from metasilvae.report.headings import describe_model


@dataclass(frozen=True)
class ComparisonReport:
    """A comparison, and for a data set the number of rows with different answers."""

    comparison: Comparison
    dataset: Dataset | None = None
    n_unequal: int | None = None

    def feature_name(self, feature: int) -> str:
        return f"x[{feature}]" if self.dataset is None else self.dataset.feature_name(feature)

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
    domain = report.comparison.domain
    for feature, lower, upper in report.bounds(region):
        name = report.feature_name(feature)
        # A bound that is not one of the domain belongs to a test: the number after its threshold, or the threshold.
        above = "" if lower == domain.lower[feature] else f"{math.nextafter(lower, -math.inf)!r} < "
        below = "" if upper == domain.upper[feature] else f" <= {upper!r}"
        yield f"{name} > {above[:-3]}" if above and not below else f"{above}{name}{below}"


def write_text(report: ComparisonReport) -> str:
    comparison = report.comparison
    lines = [
        f"first   {describe_model(comparison.first)}",
        f"second  {describe_model(comparison.second)}",
        f"domain  {comparison.domain.description}",
        "",
    ]
    if comparison.result is Result.EQUAL:
        lines.append("proved: there is no sample in the domain for which the answers differ")
    elif comparison.n_regions is not None:
        regions = "1 region" if comparison.n_regions == 1 else f"{comparison.n_regions} regions"
        lines.append(f"the answers differ in {regions}, and only there")
    elif comparison.result is Result.DIFFERENT:
        lines.append("the answers differ, for these samples and maybe for others")
    else:
        lines.append(
            f"undecided, {_REASONS.get(comparison.reason or '', 'the search ended early')}: no sample with different "
            "answers was found, nor a proof that none exists"
        )
    for number, region in enumerate(comparison.regions, start=1):
        lines += ["", f"{number}. {','.join(region.first)} | {','.join(region.second)}"]
        if comparison.n_regions is not None:
            lines.append(f"   where {', '.join(_conditions(report, region)) or 'anything in the domain'}")
        lines.append(f"   such as {','.join(map(repr, region.point.tolist()))}")
    if comparison.n_regions is not None and comparison.n_regions > len(comparison.regions):
        lines += ["", f"{comparison.n_regions - len(comparison.regions)} more regions (--max-regions)"]
    if report.dataset is not None and report.n_unequal is not None:
        share = 100 * report.n_unequal / report.dataset.n_samples
        lines += [
            "",
            f"{report.n_unequal} of {report.dataset.n_samples} rows of {report.dataset.source} get different answers "
            f"({share:.2f} %)",
        ]
    return "\n".join(lines) + "\n"


def _bound(value: float) -> float | None:
    return value if abs(value) < LARGEST else None


def write_json(report: ComparisonReport) -> str:
    """One document; bounds are closed, null where there is none."""
    comparison = report.comparison
    document: dict[str, object] = {
        "first": comparison.first.source,
        "second": comparison.second.source,
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
                    }
                    for feature, a, b in report.bounds(region)
                ],
                "point": region.point.tolist(),
            }
            for region in comparison.regions
        ],
    }
    if report.dataset is not None:
        document["data"] = report.dataset.source
        document["rows"] = report.dataset.n_samples
        document["rows_different"] = report.n_unequal
    return json.dumps(document, indent=1) + "\n"


COMPARISON_FORMATS: dict[str, Callable[[ComparisonReport], str]] = {"text": write_text, "json": write_json}
