"""Where verdicts go and in which form: what ``verify`` and ``merge`` have in common."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from metasilvae.cli.parameters import shared_options
from metasilvae.merging import MERGEABLE_FORMATS
from metasilvae.report.terminal import tell
from metasilvae.report.verdicts import DEFAULT_PRINT_LENGTH, VERDICT_FORMATS, VerificationReport
from metasilvae.sharding import Shard
from metasilvae.storage import STANDARD_STREAM, strip_compression, write_output

verdict_options = shared_options(
    click.option(
        "--format",
        "report_format",
        type=click.Choice(list(VERDICT_FORMATS)),
        help="Form of the report.  [default: by the suffix of --output; text on a terminal; silva in a pipe; jsonl for "
        "a shard]",
    ),
    click.option("--output", "-o", metavar="FILE", help="Write the report to a file and print a summary."),
    click.option(
        "--require",
        "requirements",
        multiple=True,
        metavar="GATE",
        help="Fail unless this holds, for example 'stability>=0.8' (also accuracy, robustness; repeatable). "
        "Exit code 0: all hold, 3: one is violated, 4: one is undecided.",
    ),
    click.option(
        "--max-print-length",
        type=click.IntRange(min=-1),
        default=DEFAULT_PRINT_LENGTH,
        metavar="N",
        help="Longest path in the silva report (at least 8), -1 for no limit.",
    ),
)


def choose_format(wanted: str | None, path: str, shard: Shard | None = None) -> str:
    """The format that was asked for, or the usual one for a path; a shard must be such that it can be merged."""
    suffix = Path(strip_compression(path)).suffix.lstrip(".").lower()
    if shard is not None:
        found = wanted or (suffix if suffix in VERDICT_FORMATS else MERGEABLE_FORMATS[0])
        if found not in MERGEABLE_FORMATS:
            raise click.UsageError(f"--shard writes {' or '.join(MERGEABLE_FORMATS)} for `merge` to read, not {found}")
        return found
    if wanted is None and path == STANDARD_STREAM:
        return "text" if sys.stdout.isatty() else "silva"
    return wanted or (suffix if suffix in VERDICT_FORMATS else "silva")


def write_verdicts(report: VerificationReport, report_format: str, path: str, is_stdout_taken: bool = False) -> None:
    """Write a report; if it goes to a file, people get a summary."""
    write_output(path, VERDICT_FORMATS[report_format](report))
    if path != STANDARD_STREAM and not is_stdout_taken:
        write_output(STANDARD_STREAM, VERDICT_FORMATS["text"](report))
    elif report_format != "text" or path != STANDARD_STREAM:
        for gate, result in report.gates:
            tell(f"required {gate.explain(report.outcome, result)}")
