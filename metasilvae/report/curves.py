"""Curves of stability and robustness as tables, CSV and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from metasilvae.curve import QUANTILES, Curve, choose_quantile
from metasilvae.dataset import Dataset
from metasilvae.model import Model
from metasilvae.perturbation import Perturbation
from metasilvae.report.radii import as_json_number, count_interrupted, describe_open
from metasilvae.report.tables import TABLE_FORMATS, Record, as_csv


@dataclass(frozen=True)
class CurveReport:
    """One curve of one model on one data set, over epsilon or over the factor of an attack."""

    model: Model
    dataset: Dataset
    curve: Curve
    attack: Perturbation | None = None

    @property
    def axis(self) -> str:
        return "epsilon" if self.attack is None else "factor"

    @property
    def subject(self) -> dict[str, str]:
        attack = {} if self.attack is None else {"perturbation": self.attack.describe()}
        return {"model": self.model.source, **attack}


def _quantiles(report: CurveReport) -> list[Record]:
    """Radii that parts of the rows do not exceed, and what is left of stability and robustness there."""
    curve, radii = report.curve, report.curve.radii.lower
    records: list[Record] = []
    for name, percent in QUANTILES.items():
        epsilon = choose_quantile(radii, percent)
        records.append(
            {
                **report.subject,
                "quantile": name,
                report.axis: epsilon,
                "stability": curve.stability(epsilon),
                "robustness": curve.robustness(epsilon),
            }
        )
    return records


def _steps(report: CurveReport) -> list[Record]:
    """The whole curve: each value holds for all epsilon after that of the line above, up to and with its own."""
    n_samples = report.curve.n_samples
    return [
        {
            **report.subject,
            report.axis: epsilon,
            "stability": stable / n_samples,
            "robustness": robust / n_samples,
            **({} if report.curve.is_exact else {"complete": False}),
        }
        for epsilon, stable, robust in zip(*(column.tolist() for column in report.curve.steps), strict=True)
    ]


def _document(report: CurveReport) -> dict[str, object]:
    radii, steps = report.curve.radii, _steps(report)
    return {
        **report.subject,
        "data": report.dataset.source,
        "rows": report.curve.n_samples,
        "rows_exact": int(radii.is_exact.sum()),
        **({"rows_interrupted": count_interrupted(radii)} if count_interrupted(radii) else {}),
        "quantiles": {str(record["quantile"]): _finite(record[report.axis]) for record in _quantiles(report)},
        report.axis: [_finite(step[report.axis]) for step in steps],
        "stability": [step["stability"] for step in steps],
        "robustness": [step["robustness"] for step in steps],
    }


def _finite(value: object) -> float | None:
    return as_json_number(value) if isinstance(value, float) else None


def _write_table(reports: Sequence[CurveReport], table_format: str) -> str:
    table = TABLE_FORMATS[table_format]([record for report in reports for record in _quantiles(report)])
    notes = describe_open([report.curve.radii for report in reports])
    return table + (f"\n{notes}" if notes else "")


CURVE_FORMATS: dict[str, Callable[[Sequence[CurveReport]], str]] = {
    "text": lambda reports: _write_table(reports, "text"),
    "markdown": lambda reports: _write_table(reports, "markdown"),
    "json": lambda reports: json.dumps({"curves": list(map(_document, reports))}, indent=1) + "\n",
    "csv": lambda reports: as_csv([record for report in reports for record in _steps(report)]),
}
