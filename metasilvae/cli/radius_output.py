"""``metasilvae verify --radius``: what it does not take, and where its report goes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import click

from metasilvae.cli.row_work import follow_rows
from metasilvae.forest_verification import Limits
from metasilvae.merging import MERGEABLE_FORMATS, RADII, ShardNote
from metasilvae.radius import find_nearest_witnesses, find_radii
from metasilvae.report.counterexamples import COUNTEREXAMPLE_FORMATS
from metasilvae.report.radii import RADIUS_FORMATS, RadiusReport
from metasilvae.report.terminal import tell
from metasilvae.sharding import Shard
from metasilvae.storage import STANDARD_STREAM, strip_compression, write_output
from metasilvae.verification import Question

# Options that radii cannot be had with, by the names of their parameters, and why.
REFUSED_OPTIONS = {
    "epsilon": "radii cover every epsilon; leave --epsilon out",
    "requirements": "requirements are about verdicts; leave --radius or --require out",
    "scheduler": "radii are found in this process; leave --scheduler out, or divide the rows by --shard I/N",
}


def refuse_verdict_options(params: Mapping[str, Any]) -> None:
    """Refuse options that make no sense with radii."""
    for name, reason in REFUSED_OPTIONS.items():
        if params.get(name):
            raise click.UsageError(reason)


def choose_radius_format(wanted: str | None, path: str, shard: Shard | None = None) -> str:
    """The format that was asked for, or the usual one for a path; a shard must be such that it can be merged."""
    known, usual = (tuple(RADIUS_FORMATS), "text") if shard is None else (MERGEABLE_FORMATS, MERGEABLE_FORMATS[0])
    suffix = Path(strip_compression(path)).suffix.lstrip(".").lower()
    found = wanted or (suffix if path != STANDARD_STREAM and suffix in RADIUS_FORMATS else usual)
    if found not in known:
        what = "radii are" if shard is None else "a shard of radii is"
        raise click.UsageError(f"{what} written as {', '.join(known)}, not {found}")
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
    shard: Shard | None,
) -> NoReturn:
    """Find the radii of all rows or of a shard, write the nearest counterexamples and the report."""
    note = None
    if shard is not None:
        note = ShardNote.of(question, shard, limits.as_dict(), RADII)
        question = question.subset(shard.take_rows(question.dataset.n_samples))
    with follow_rows(question.dataset.n_samples, limits, is_long=question.model.n_trees > 1, name="radius") as work:
        radii = find_radii(question, jobs, limits=limits, stop=work.stop, on_rows=work.advance)
    if work.is_interrupted:
        tell(f"interrupted; {radii.is_exact.sum()} of {radii.n_samples} radii are exact")
    report = RadiusReport(question, perturbation, radii, note)
    if counterexamples is not None:
        write = COUNTEREXAMPLE_FORMATS[counterexamples_format or "csv"]
        witnesses = find_nearest_witnesses(question, radii, jobs)
        write_output(counterexamples, write(question.model, question.dataset, witnesses))
    write_radii(report, report_format, path, is_stdout_taken=counterexamples == STANDARD_STREAM)
    ctx.exit(work.exit_code)


def write_radii(report: RadiusReport, report_format: str, path: str, is_stdout_taken: bool = False) -> None:
    """Write a report; if it goes to a file, people get a summary."""
    write_output(path, RADIUS_FORMATS[report_format](report))
    if path != STANDARD_STREAM and not is_stdout_taken:
        write_output(STANDARD_STREAM, RADIUS_FORMATS["text"](report))
