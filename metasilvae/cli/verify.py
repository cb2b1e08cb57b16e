"""``metasilvae verify``."""

from __future__ import annotations

from typing import Any

import click

from metasilvae.cli.inputs import choose_perturbation, fit_perturbation, load_model_and_data
from metasilvae.cli.parameters import (
    CountedList,
    PhraseCommand,
    check_outputs,
    data_options,
    jobs_option,
    limit_options,
    perturbation_options,
    refuse_two_pipes,
    scheduler_option,
    shard_option,
    voting_option,
)
from metasilvae.cli.radius_output import choose_radius_format, refuse_verdict_options, report_radii
from metasilvae.cli.row_work import RowWork, follow_rows
from metasilvae.cli.verdict_output import choose_format, verdict_options, write_verdicts
from metasilvae.forest_verification import Limits
from metasilvae.formats.weights import read_weights
from metasilvae.gates import Gate, combine
from metasilvae.merging import ShardNote
from metasilvae.outcome import Outcome
from metasilvae.perturbation import Ball, BoxFile, Weighted
from metasilvae.report.counterexamples import COUNTEREXAMPLE_FORMATS
from metasilvae.report.terminal import tell
from metasilvae.report.verdicts import VerificationReport
from metasilvae.sharding import Shard
from metasilvae.storage import STANDARD_STREAM, display_name, write_output
from metasilvae.verification import Question, ask, find_witnesses
from metasilvae.verification import verify as verify_rows


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
@limit_options
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
    gates = [Gate.parse(text) for text in requirements]
    if attack is not None and weights is not None:
        raise click.UsageError("--attack gives each column its own radius; leave --weights out")
    inputs = [model, data, *(path for path in (attack, weights) if path is not None)]
    refuse_two_pipes(*inputs)
    if wants_radius:
        refuse_verdict_options(ctx.params)
    chosen = choose_perturbation(epsilon, perturbation, attack)
    if chosen is None and any(gate.metric != "accuracy" for gate in gates):
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
    question = ask(loaded, dataset, allowed, voting=voting, tiers=tiers)
    limits = Limits(sample_timeout, sample_steps)
    described = allowed.describe() + (f" --tiers {len(tiers)} {' '.join(map(str, tiers))}" if tiers else "")
    if wants_radius:
        report_radii(
            ctx, question, described, report_format, report_path, counterexamples, counterexamples_format, limits, jobs,
            shard,
        )  # fmt: skip
    note = None
    if shard is not None:
        note = ShardNote.of(question, shard, limits.as_dict())
        question = question.subset(shard.take_rows(dataset.n_samples))
        dataset = question.dataset
    # A tree is decided at once; there is nothing to keep when it is interrupted.
    with follow_rows(dataset.n_samples, limits, is_long=loaded.n_trees > 1 or scheduler is not None) as work:
        outcome = _verify_rows(question, jobs, scheduler, limits, work)
    if work.is_interrupted:
        n_decided = outcome.n_samples - outcome.tally.no_info
        tell(f"interrupted; {n_decided} of {outcome.n_samples} rows are decided")
    checked = [(gate, gate.check(outcome)) for gate in gates]
    report = VerificationReport(question, described, outcome, checked, max_print_length, note)

    if counterexamples is not None:
        write = COUNTEREXAMPLE_FORMATS[counterexamples_format or "csv"]
        write_output(counterexamples, write(loaded, dataset, find_witnesses(question, outcome, jobs)))
    write_verdicts(report, report_format, report_path, is_stdout_taken=counterexamples == STANDARD_STREAM)
    ctx.exit(work.exit_code or combine(result for _, result in checked))


def _verify_rows(question: Question, jobs: int | None, scheduler: str | None, limits: Limits, work: RowWork) -> Outcome:
    if scheduler is None:
        return verify_rows(question, jobs, limits=limits, stop=work.stop, on_rows=work.advance)
    from metasilvae.execution import open_executor
    from metasilvae.row_pieces import verify_in_pieces

    with open_executor(scheduler) as executor:
        work.on_stop = executor.stop
        if work.is_interrupted:
            executor.stop()
        return verify_in_pieces(question, executor, limits, work.advance)
