"""``metasilvae verify``.

``metasilvae verify --radius``: what it does not take, and where its report goes.

Where verdicts go and in which form: what ``verify`` and ``merge`` have in common.

``metasilvae merge``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import click

from metasilvae.cli.inputs import choose_perturbation, fit_perturbation, load_model_and_data
from metasilvae.cli.parameters import (
    CountedList,
    PhraseCommand,
    budget_options,
    check_outputs,
    data_options,
    jobs_option,
    perturbation_options,
    refuse_two_pipes,
    scheduler_option,
    shard_option,
    shared_options,
    voting_option,
)
from metasilvae.cli.progress import RowWork, follow_rows
from metasilvae.io.storage import STANDARD_STREAM, display_name, strip_compression, write_output
from metasilvae.output.text.radii import RADIUS_FORMATS, RadiusReport
from metasilvae.output.text.terminal import tell
from metasilvae.output.text.verdicts import (
    COUNTEREXAMPLE_FORMATS,
    DEFAULT_PRINT_LENGTH,
    VERDICT_FORMATS,
    VerificationReport,
)
from metasilvae.perturbations.boxes import Ball, BoxFile, Weighted, read_weights
from metasilvae.verification.budget import Budget
from metasilvae.verification.query import VerificationQuery, make_query
from metasilvae.verification.radius import Radii, find_nearest_witnesses, find_radii
from metasilvae.verification.requirements import Requirement, combine
from metasilvae.verification.shards import MERGEABLE_FORMATS, RADII, Shard, ShardNote, merge_shards, read_shard
from metasilvae.verification.verdicts import Outcome
from metasilvae.verification.verifier import find_witnesses
from metasilvae.verification.verifier import verify as verify_rows

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
    query: VerificationQuery,
    perturbation: str,
    report_format: str,
    path: str,
    counterexamples: str | None,
    counterexamples_format: str | None,
    budget: Budget,
    jobs: int | None,
    shard: Shard | None,
) -> NoReturn:
    """Find the radii of all rows or of a shard, write the nearest counterexamples and the report."""
    note = None
    if shard is not None:
        note = ShardNote.of(query, shard, budget.as_dict(), RADII)
        query = query.subset(shard.take_rows(query.dataset.n_samples))
    with follow_rows(query.dataset.n_samples, budget, is_long=query.model.n_trees > 1, name="radius") as work:
        radii = find_radii(query, jobs, budget=budget, stop=work.stop, on_rows=work.advance)
    if work.is_interrupted:
        tell(f"interrupted; {radii.is_exact.sum()} of {radii.n_samples} radii are exact")
    report = RadiusReport(query, perturbation, radii, note)
    if counterexamples is not None:
        write = COUNTEREXAMPLE_FORMATS[counterexamples_format or "csv"]
        witnesses = find_nearest_witnesses(query, radii, jobs)
        write_output(counterexamples, write(query.model, query.dataset, witnesses))
    write_radii(report, report_format, path, is_stdout_taken=counterexamples == STANDARD_STREAM)
    ctx.exit(work.exit_code)


def write_radii(report: RadiusReport, report_format: str, path: str, is_stdout_taken: bool = False) -> None:
    """Write a report; if it goes to a file, people get a summary."""
    write_output(path, RADIUS_FORMATS[report_format](report))
    if path != STANDARD_STREAM and not is_stdout_taken:
        write_output(STANDARD_STREAM, RADIUS_FORMATS["text"](report))


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
        for requirement, result in report.requirements:
            tell(f"required {requirement.explain(report.outcome, result)}")


@click.command(cls=PhraseCommand)
@click.argument("model")
@click.argument("data")
@perturbation_options("  [default: l_inf 0]")
@click.option(
    "--tiers", type=CountedList(), help="One-hot group of each feature, 0 for none; perturbed rows keep them."
)
@click.option(
    "--weights",
    metavar="FILE",
    help="One number for each feature by which its radius is multiplied; 0 keeps the feature fixed.",
)
@click.option(
    "--radius",
    "wants_radius",
    is_flag=True,
    help="For each row the exact largest radius at which the answer cannot change, instead of verdicts. "
    "With --perturbation or --attack, in multiples of its radii.",
)
@voting_option
@verdict_options
@click.option(
    "--counterexamples",
    metavar="FILE",
    help="For each unstable row write a perturbed row with another answer; with --radius for each row the nearest one.",
)
@click.option(
    "--counterexamples-format",
    type=click.Choice(list(COUNTEREXAMPLE_FORMATS)),
    help="csv: rows that can be loaded as data; silva: boxes.  [default: csv]",
)
@budget_options
@click.option(
    "--abstraction",
    type=click.Choice(["hyperrectangle", "interval"]),
    default="hyperrectangle",
    help="Accepted for silva's sake: verdicts are exact either way.",
)
@click.option("--seed", type=int, default=42, help="Accepted for silva's sake: nothing here is random.")
@jobs_option
@scheduler_option
@shard_option("verify only this part of the rows; merge joins the parts")
@data_options
@click.pass_context
def verify(
    ctx: click.Context,
    model: str,
    data: str,
    epsilon: str | None,
    perturbation: tuple[str, ...] | None,
    attack: str | None,
    tiers: tuple[int, ...] | None,
    weights: str | None,
    wants_radius: bool,
    voting: str | None,
    report_format: str | None,
    output: str | None,
    requirements: tuple[str, ...],
    counterexamples: str | None,
    counterexamples_format: str | None,
    sample_timeout: float | None,
    sample_steps: int | None,
    abstraction: str,
    max_print_length: int,
    seed: int,
    jobs: int | None,
    scheduler: str | None,
    shard: Shard | None,
    **data_options: Any,
) -> None:
    """Prove for each row of DATA whether a perturbation can change the answer of MODEL.

    A row is ROBUST (correct, cannot change), FRAGILE (correct, can change), VULNERABLE (wrong, cannot change) or
    BROKEN (wrong, can change). The verdicts are exact. A row of a forest can take long; one that is not decided within
    the limits is NO-INFO. Ctrl-C ends the search and reports what is decided.

    \b
    Examples:
      metasilvae verify model.silva test.csv --epsilon 0.1 --require 'stability>=0.8'
      metasilvae verify model.silva test.csv --radius --counterexamples nearest.csv
      metasilvae verify model.silva test.csv --epsilon 0.1 --scheduler tcp://host:8786
      metasilvae verify model.silva test.csv --epsilon 0.1 --shard 3/50 -o part-03.jsonl
    """
    if attack is not None and tiers is not None:
        raise click.UsageError("--tiers cannot be combined with --attack; write [[one-hot]] groups into its file")
    if counterexamples_format is not None and counterexamples is None:
        raise click.UsageError("--counterexamples-format needs --counterexamples FILE")
    required = [Requirement.parse(text) for text in requirements]
    if attack is not None and weights is not None:
        raise click.UsageError("--attack gives each column its own radius; leave --weights out")
    inputs = [model, data, *(path for path in (attack, weights) if path is not None)]
    refuse_two_pipes(*inputs)
    if wants_radius:
        refuse_verdict_options(ctx.params)
    chosen = choose_perturbation(epsilon, perturbation, attack)
    if chosen is None and any(requirement.metric != "accuracy" for requirement in required):
        raise click.UsageError(
            "a requirement on stability or robustness needs --epsilon, --perturbation or --attack; without it all rows "
            "are stable"
        )
    if isinstance(chosen, BoxFile):
        inputs.append(chosen.path)
        refuse_two_pipes(*inputs)
    report_path = STANDARD_STREAM if output is None else output
    check_outputs([report_path, *([] if counterexamples is None else [counterexamples])], inputs)
    if wants_radius:
        report_format = choose_radius_format(report_format, report_path, shard)
    else:
        report_format = choose_format(report_format, report_path, shard)

    loaded, dataset = load_model_and_data(model, data, data_options)
    allowed = fit_perturbation(chosen or Ball(1 if wants_radius else 0), dataset)
    if weights is not None:
        allowed = Weighted(allowed, read_weights(weights), display_name(weights))
    query = make_query(loaded, dataset, allowed, voting=voting, tiers=tiers)
    budget = Budget(sample_timeout, sample_steps)
    described = allowed.describe() + (f" --tiers {len(tiers)} {' '.join(map(str, tiers))}" if tiers else "")
    if wants_radius:
        report_radii(
            ctx, query, described, report_format, report_path, counterexamples, counterexamples_format, budget, jobs,
            shard,
        )  # fmt: skip
    note = None
    if shard is not None:
        note = ShardNote.of(query, shard, budget.as_dict())
        query = query.subset(shard.take_rows(dataset.n_samples))
        dataset = query.dataset
    # A tree is decided at once; there is nothing to keep when it is interrupted.
    with follow_rows(dataset.n_samples, budget, is_long=loaded.n_trees > 1 or scheduler is not None) as work:
        outcome = _verify_rows(query, jobs, scheduler, budget, work)
    if work.is_interrupted:
        n_decided = outcome.n_samples - outcome.counts.no_info
        tell(f"interrupted; {n_decided} of {outcome.n_samples} rows are decided")
    checked = [(requirement, requirement.check(outcome)) for requirement in required]
    report = VerificationReport(query, described, outcome, checked, max_print_length, note)

    if counterexamples is not None:
        write = COUNTEREXAMPLE_FORMATS[counterexamples_format or "csv"]
        write_output(counterexamples, write(loaded, dataset, find_witnesses(query, outcome, jobs)))
    write_verdicts(report, report_format, report_path, is_stdout_taken=counterexamples == STANDARD_STREAM)
    ctx.exit(work.exit_code or combine(result for _, result in checked))


def _verify_rows(
    query: VerificationQuery, jobs: int | None, scheduler: str | None, budget: Budget, work: RowWork
) -> Outcome:
    if scheduler is None:
        return verify_rows(query, jobs, budget=budget, stop=work.stop, on_rows=work.advance)
    from metasilvae.execution.executors import open_executor
    from metasilvae.verification.shards import verify_in_pieces

    with open_executor(scheduler) as executor:
        work.on_stop = executor.stop
        if work.is_interrupted:
            executor.stop()
        return verify_in_pieces(query, executor, budget, work.advance)


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
    required = [Requirement.parse(text) for text in requirements]
    refuse_two_pipes(*shards)
    path = STANDARD_STREAM if output is None else output
    check_outputs([path], shards)
    files = [read_shard(shard) for shard in shards]
    if files[0].note.content == RADII:
        refuse_verdict_options(ctx.params)
        report_format = choose_radius_format(report_format, path)
    else:
        report_format = choose_format(report_format, path)

    query, perturbation, outcome = merge_shards(files)
    if isinstance(outcome, Radii):
        write_radii(RadiusReport(query, perturbation, outcome), report_format, path)
        return
    checked = [(requirement, requirement.check(outcome)) for requirement in required]
    report = VerificationReport(query, perturbation, outcome, checked, max_print_length)
    write_verdicts(report, report_format, path)
    ctx.exit(combine(result for _, result in checked))
