"""``metasilvae merge``."""

from __future__ import annotations

import click

from metasilvae.cli.parameters import check_outputs, refuse_two_pipes
from metasilvae.cli.radius_output import choose_radius_format, refuse_verdict_options, write_radii
from metasilvae.cli.verdict_output import choose_format, verdict_options, write_verdicts
from metasilvae.gates import Gate, combine
from metasilvae.merging import RADII, merge_shards, read_shard
from metasilvae.radius import Radii
from metasilvae.report.radii import RadiusReport
from metasilvae.report.verdicts import VerificationReport
from metasilvae.storage import STANDARD_STREAM


@click.command()
@click.argument("shards", nargs=-1, required=True, metavar="SHARD...")
@verdict_options
@click.pass_context
def merge(
    ctx: click.Context,
    shards: tuple[str, ...],
    report_format: str | None,
    output: str | None,
    requirements: tuple[str, ...],
    max_print_length: int,
) -> None:
    """Join each SHARD, a report of `verify --shard I/N`, into the report of one run over all rows.

    All N of them must be there, in any order, and belong to the same model, data and perturbation. The time in the
    report is that of all shards together. Radii, of `verify --radius --shard I/N`, are joined in the same way.

    \b
    Examples:
      metasilvae merge part-*.jsonl -o verdicts.csv --require 'stability>=0.8'
      metasilvae merge radii-*.jsonl -o radii.csv
    """
    gates = [Gate.parse(text) for text in requirements]
    refuse_two_pipes(*shards)
    path = STANDARD_STREAM if output is None else output
    check_outputs([path], shards)
    files = [read_shard(shard) for shard in shards]
    if files[0].note.content == RADII:
        refuse_verdict_options(ctx.params)
        report_format = choose_radius_format(report_format, path)
    else:
        report_format = choose_format(report_format, path)

    question, perturbation, outcome = merge_shards(files)
    if isinstance(outcome, Radii):
        write_radii(RadiusReport(question, perturbation, outcome), report_format, path)
        return
    checked = [(gate, gate.check(outcome)) for gate in gates]
    report = VerificationReport(question, perturbation, outcome, checked, max_print_length)
    write_verdicts(report, report_format, path)
    ctx.exit(combine(result for _, result in checked))
