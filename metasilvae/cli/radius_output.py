"""``metasilvae verify --radius``: what it does not take, and where its report goes."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import click

from metasilvae.cli.row_work import follow_rows
from metasilvae.forest_verification import Limits
from metasilvae.radius import find_nearest_witnesses, find_radii
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


def report_radii(
    ctx: click.Context,
    question: Question,
    perturbation: str,
    report_format: str,
    path: str,
    counterexamples: str | None,
    counterexamples_format: str | None,
    limits: Limits,
    jobs: int | None,
) -> NoReturn:
    """Find the radii, write the nearest counterexamples and the report; if it goes to a file, people get a summary."""
    with follow_rows(question.dataset.n_samples, is_long=question.model.n_trees > 1, name="radius") as work:
        radii = find_radii(question, jobs, limits=limits, stop=work.stop, on_rows=work.advance)
    if work.is_interrupted:
        click.echo(f"interrupted; {radii.is_exact.sum()} of {radii.n_samples} radii are exact", err=True)
    report = RadiusReport(question, perturbation, radii)
    if counterexamples is not None:
        write = COUNTEREXAMPLE_FORMATS[counterexamples_format or "csv"]
        witnesses = find_nearest_witnesses(question, radii, jobs)
        write_output(counterexamples, write(question.model, question.dataset, witnesses))
    write_output(path, RADIUS_FORMATS[report_format](report))
    if path != STANDARD_STREAM and counterexamples != STANDARD_STREAM:
        write_output(STANDARD_STREAM, RADIUS_FORMATS["text"](report))
    ctx.exit(work.exit_code)
