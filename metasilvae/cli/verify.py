"""``metasilvae verify``."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import click

from metasilvae.cli.inputs import load_model_and_data
from metasilvae.cli.interrupts import Interrupts
from metasilvae.cli.parameters import (
    CountedList,
    Phrase,
    PhraseCommand,
    check_outputs,
    data_options,
    jobs_option,
    limit_options,
    refuse_two_pipes,
    voting_option,
)
from metasilvae.forest_verification import Limits
from metasilvae.gates import Gate, combine
from metasilvae.perturbation import PERTURBATION_ALIASES, PERTURBATIONS, BoxFile, parse_perturbation
from metasilvae.report.counterexamples import COUNTEREXAMPLE_FORMATS
from metasilvae.report.row_bars import RowBar
from metasilvae.report.verdicts import DEFAULT_PRINT_LENGTH, VERDICT_FORMATS, VerificationReport
from metasilvae.storage import STANDARD_STREAM, strip_compression, write_output
from metasilvae.verification import ask, find_witnesses
from metasilvae.verification import verify as verify_rows


@click.command(cls=PhraseCommand)
@click.argument("model")
@click.argument("data")
@click.option("--epsilon", metavar="E", help="Perturb every feature by at most E (the same as --perturbation l_inf E).")
@click.option(
    "--perturbation",
    type=Phrase(PERTURBATIONS, PERTURBATION_ALIASES),
    help="What an attacker may do to a row: a ball of radius E, the same cut to [MIN, MAX], or a box for each row "
    "from a file.  [default: l_inf 0]",
)
@click.option(
    "--tiers", type=CountedList(), help="One-hot group of each feature, 0 for none; perturbed rows keep them."
)
@voting_option
@click.option(
    "--format",
    "report_format",
    type=click.Choice(list(VERDICT_FORMATS)),
    help="Form of the report.  [default: by the suffix of --output; text on a terminal; silva in a pipe]",
)
@click.option("--output", "-o", metavar="FILE", help="Write the report to a file and print a summary.")
@click.option(
    "--require",
    "requirements",
    multiple=True,
    metavar="GATE",
    help="Fail unless this holds, for example 'stability>=0.8' (also accuracy, robustness; repeatable). "
    "Exit code 0: all hold, 3: one is violated, 4: one is undecided.",
)
@click.option(
    "--counterexamples",
    metavar="FILE",
    help="For each unstable row write a perturbed row with another answer.",
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
@click.option(
    "--max-print-length",
    type=click.IntRange(min=-1),
    default=DEFAULT_PRINT_LENGTH,
    metavar="N",
    help="Longest path in the silva report (at least 8), -1 for no limit.",
)
@click.option("--seed", type=int, default=42, help="Accepted for silva's sake: nothing here is random.")
@jobs_option
@data_options
@click.pass_context
def verify(
    ctx: click.Context,
    model: str,
    data: str,
    epsilon: str | None,
    perturbation: tuple[str, ...] | None,
    tiers: tuple[int, ...] | None,
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
    **data_options: Any,
) -> None:
    """Prove for each row of DATA whether a perturbation can change the answer of MODEL.

    A row is ROBUST (correct, cannot change), FRAGILE (correct, can change), VULNERABLE (wrong, cannot change) or
    BROKEN (wrong, can change). The verdicts are exact. A row of a forest can take long; one that is not decided within
    the limits is NO-INFO. Ctrl-C ends the search and reports what is decided.

    \b
    Example:
      metasilvae verify model.silva test.csv --epsilon 0.1 --require 'stability>=0.8'
    """
    if epsilon is not None and perturbation is not None:
        raise click.UsageError("--epsilon and --perturbation say the same thing; give one of them")
    if counterexamples_format is not None and counterexamples is None:
        raise click.UsageError("--counterexamples-format needs --counterexamples FILE")
    gates = [Gate.parse(text) for text in requirements]
    if epsilon is None and perturbation is None and any(gate.metric != "accuracy" for gate in gates):
        raise click.UsageError(
            "a requirement on stability or robustness needs --epsilon or --perturbation; without it all rows are stable"
        )
    attack = parse_perturbation(perturbation or ("l_inf", epsilon if epsilon is not None else "0"))
    inputs = [model, data, *([attack.path] if isinstance(attack, BoxFile) else [])]
    refuse_two_pipes(*inputs)
    report_path = STANDARD_STREAM if output is None else output
    check_outputs([report_path, *([] if counterexamples is None else [counterexamples])], inputs)
    report_format = report_format or _usual_format(report_path)

    loaded, dataset = load_model_and_data(model, data, data_options)
    question = ask(loaded, dataset, attack, voting=voting, tiers=tiers)
    stop = threading.Event()
    with Interrupts() as interrupts, RowBar(dataset.n_samples, loaded.n_trees > 1) as bar:
        # A tree is decided at once; there is nothing to keep when it is interrupted.
        interrupts.stop = stop.set if loaded.n_trees > 1 else None
        outcome = verify_rows(
            question, jobs, limits=Limits(sample_timeout, sample_steps), stop=stop, on_rows=bar.advance
        )
    if interrupts.received:
        n_decided = outcome.n_samples - outcome.tally.no_info
        click.echo(f"interrupted; {n_decided} of {outcome.n_samples} rows are decided", err=True)
    checked = [(gate, gate.check(outcome)) for gate in gates]
    described = attack.describe() + (f" --tiers {len(tiers)} {' '.join(map(str, tiers))}" if tiers else "")
    report = VerificationReport(question, described, outcome, checked, max_print_length)

    if counterexamples is not None:
        write = COUNTEREXAMPLE_FORMATS[counterexamples_format or "csv"]
        write_output(counterexamples, write(loaded, dataset, find_witnesses(question, outcome, jobs)))
    write_output(report_path, VERDICT_FORMATS[report_format](report))
    if report_path != STANDARD_STREAM and counterexamples != STANDARD_STREAM:
        write_output(STANDARD_STREAM, VERDICT_FORMATS["text"](report))
    elif report_format != "text" or report_path != STANDARD_STREAM:
        for gate, result in checked:
            click.echo(f"required {gate.explain(outcome, result)}", err=True)
    ctx.exit(interrupts.exit_code or combine(result for _, result in checked))


def _usual_format(path: str) -> str:
    if path == STANDARD_STREAM:
        return "text" if sys.stdout.isatty() else "silva"
    suffix = Path(strip_compression(path)).suffix.lstrip(".").lower()
    return suffix if suffix in VERDICT_FORMATS else "silva"
