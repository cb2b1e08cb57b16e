"""``metasilvae verify --radius``: what it does not take, and where its report goes."""

from __future__ import annotations

from pathlib import Path

import click

from metasilvae.radius import Radii, find_nearest_witnesses
from metasilvae.report.counterexamples import COUNTEREXAMPLE_FORMATS
from metasilvae.report.radii import RADIUS_FORMATS, RadiusReport
from metasilvae.storage import STANDARD_STREAM, strip_compression, write_output
from metasilvae.verification import Question

# Options that ask for verdicts at one radius, by the names of their parameters.
VERDICT_OPTIONS = {"epsilon": "--epsilon", "requirements": "--require", "scheduler": "--scheduler", "shard": "--shard"}


def choose_radius_format(ctx: click.Context, wanted: str | None, path: str) -> str:
    """The format that was asked for, or the usual one for a path; refuses options that make no sense with radii."""
    for name, option in VERDICT_OPTIONS.items():
        if ctx.params[name]:
            raise click.UsageError(f"--radius finds the radius of each row; it does not go with {option}")
    suffix = Path(strip_compression(path)).suffix.lstrip(".").lower()
    found = wanted or (suffix if path != STANDARD_STREAM and suffix in RADIUS_FORMATS else "text")
    if found not in RADIUS_FORMATS:
        raise click.UsageError(f"--radius writes {', '.join(RADIUS_FORMATS)}, not {found}")
    return found


def write_radii(
    question: Question,
    perturbation: str,
    radii: Radii,
    report_format: str,
    path: str,
    counterexamples: str | None,
    counterexamples_format: str | None,
    jobs: int | None,
) -> None:
    """Write the nearest counterexamples and the report; if it goes to a file, people get a summary."""
    report = RadiusReport(question, perturbation, radii)
    if counterexamples is not None:
        write = COUNTEREXAMPLE_FORMATS[counterexamples_format or "csv"]
        witnesses = find_nearest_witnesses(question, radii, jobs)
        write_output(counterexamples, write(question.model, question.dataset, witnesses))
    write_output(path, RADIUS_FORMATS[report_format](report))
    if path != STANDARD_STREAM and counterexamples != STANDARD_STREAM:
        write_output(STANDARD_STREAM, RADIUS_FORMATS["text"](report))
