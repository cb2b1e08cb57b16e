"""Reports of certified radii. Each format is a function from a report to pieces of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from metasilvae.output.text.headings import Subject, describe_subject
from metasilvae.output.text.tables import as_text, dump_json, finite_or_none, stream_csv, stream_jsonl
from metasilvae.perturbations.norms import SHARED_NORMS
from metasilvae.verification.budget import INTERRUPTED
from metasilvae.verification.curve import QUANTILES, choose_quantile
from metasilvae.verification.radius import Radii
from metasilvae.verification.shards import ShardNote

ROWS_SHOWN = 5


@dataclass(frozen=True)
class RadiusReport:
    """Certified radii of all rows, or of those of a shard."""

    query: Subject
    perturbation: str
    radii: Radii
    shard: ShardNote | None = None

    def rows(self) -> Iterator[dict[str, Any]]:
        """For each row: its number, label, prediction, whether that is correct, and its certified radius.

        A radius that is not known exactly comes with an upper bound and the reason.
        """
        dataset, radii = self.query.dataset, self.radii
        labels = self.query.model.labels
        predictions = [[labels[label] for label in label_set] for label_set in radii.predictions.sets]
        for row, (lower, upper) in enumerate(zip(radii.lower.tolist(), radii.upper.tolist(), strict=True)):
            record = {
                "row": dataset.number_of(row),
                "label": dataset.labels[dataset.y[row]],
                "prediction": predictions[radii.predictions.ids[row]],
                "correct": bool(radii.is_correct[row]),
                "radius": lower,
            }
            if lower != upper:
                record |= {"at_most": upper, "reason": radii.reasons.get(row, "")}
            yield record

    def quantiles(self) -> dict[str, dict[str, float]]:
        """Quantiles of the radii of all rows, and of the correct ones."""
        radii = self.radii
        return {
            name: {
                "all": choose_quantile(radii.lower, percent),
                **(
                    {"correct": choose_quantile(radii.lower[radii.is_correct], percent)}
                    if radii.is_correct.any()
                    else {}
                ),
            }
            for name, percent in QUANTILES.items()
        }

    def summary(self) -> dict[str, Any]:
        query, radii = self.query, self.radii
        return {
            "model": query.model.source,
            "data": query.dataset.source,
            "perturbation": self.perturbation,
            "voting": query.voting,
            "seconds": radii.seconds,
            "rows_exact": int(radii.is_exact.sum()),
            "rows_infinite": int(np.isinf(radii.lower).sum()),
            **({} if self.shard is None else {"shard": asdict(self.shard)}),
            "quantiles": {
                name: {which: finite_or_none(value) for which, value in values.items()}
                for name, values in self.quantiles().items()
            },
        }


def count_interrupted(radii: Radii) -> int:
    """Radii that are not exact because the work was ended early."""
    return sum(reason == INTERRUPTED for reason in radii.reasons.values())


def describe_open(several: Sequence[Radii]) -> str:
    """A line for each reason why radii are not exact, empty if all are."""
    n_open = sum(int((~radii.is_exact).sum()) for radii in several)
    n_interrupted = sum(map(count_interrupted, several))
    reasons = {"the limits did not suffice": n_open - n_interrupted, "the search was interrupted": n_interrupted}
    return "".join(f"{count} radii are lower bounds: {reason}\n" for reason, count in reasons.items() if count)


def describe_distance(perturbation: str) -> str:
    """What radii of a perturbation are: distances if its description begins with a norm, else multiples."""
    is_distance = perturbation.split()[0] in SHARED_NORMS
    return f"{perturbation}, any distance" if is_distance else f"radius times {perturbation}"


def write_text(report: RadiusReport) -> Iterator[str]:
    """Quantiles and the most fragile rows, for people."""
    radii = report.radii
    yield describe_subject(report.query, describe_distance(report.perturbation), report.shard) + "\n"
    yield "certified radius: the largest one at which no perturbation changes the prediction\n\n"
    yield as_text([{"quantile": name, **values} for name, values in report.quantiles().items()])
    # A row about which nothing is known is not called fragile.
    fragile = [row for row in np.lexsort((radii.lower, radii.upper))[:ROWS_SHOWN] if radii.upper[row] < np.inf]
    records = list(report.rows())
    if fragile:
        yield "\nmost fragile rows\n\n"
        yield as_text([_in_words(records[row]) for row in fragile])
    n_infinite = int(np.isinf(radii.lower).sum())
    yield "\n"
    if n_infinite:
        yield f"{n_infinite} rows keep their prediction at every radius\n"
    yield describe_open([radii])
    yield f"verified in {radii.seconds:.3g} s\n"


def _in_words(record: dict[str, Any]) -> dict[str, Any]:
    renamed = {"radius": "certified radius", "at_most": "at most"}
    words = {renamed.get(name, name): value for name, value in record.items()}
    return {**words, "prediction": ",".join(record["prediction"])}


def _json_rows(report: RadiusReport) -> Iterator[dict[str, Any]]:
    for record in report.rows():
        yield {key: finite_or_none(value) if key in ("radius", "at_most") else value for key, value in record.items()}


def write_json(report: RadiusReport) -> Iterator[str]:
    """One document: the summary and a list of rows; an infinite radius is null."""
    yield dump_json({**report.summary(), "rows": list(_json_rows(report))})


def write_jsonl(report: RadiusReport) -> Iterator[str]:
    """One line for each row, the last one with the summary; an infinite radius is null."""
    return stream_jsonl(_json_rows(report), report.summary())


def write_csv(report: RadiusReport) -> Iterator[str]:
    """One line for each row; labels of a tied prediction are joined by commas."""
    names = ["row", "label", "prediction", "correct", "radius", "at_most", "reason"]
    return stream_csv(names, ({**record, "correct": int(record["correct"])} for record in report.rows()))


RADIUS_FORMATS: dict[str, Callable[[RadiusReport], Iterator[str]]] = {
    "text": write_text,
    "json": write_json,
    "jsonl": write_jsonl,
    "csv": write_csv,
}
