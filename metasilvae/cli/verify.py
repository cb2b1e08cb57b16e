"""``metasilvae verify`` and ``metasilvae merge``: verdicts or certified radii of rows, and requirements on them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from metasilvae.cli.commands import COMPATIBILITY, OUTPUT, THREAT_MODEL, Command, option
from metasilvae.cli.inputs import fit_perturbation, load_data_for
from metasilvae.cli.parameters import (
    CountedList,
    ThreatModel,
    budget_options,
    check_files,
    jobs_option,
    model_data_options,
    perturbation_options,
    refuse_two_pipes,
    require_option,
    scheduler_option,
    shard_option,
    shared_options,
    voting_option,
)
from metasilvae.cli.progress import RowWork, follow_rows
from metasilvae.interop.models import load_model
from metasilvae.io.storage import STANDARD_STREAM, display_name, strip_compression, write_output
from metasilvae.output.text.radii import RADIUS_FORMATS, RadiusReport
from metasilvae.output.text.targets import TARGET_FORMATS, TargetReport
from metasilvae.output.text.terminal import Verbosity, get_verbosity, tell
from metasilvae.output.text.verdicts import (
    COUNTEREXAMPLE_FORMATS,
    DEFAULT_PRINT_LENGTH,
    VERDICT_FORMATS,
    VerificationReport,
)
from metasilvae.perturbations.boxes import Ball, Weighted, read_weights
from metasilvae.perturbations.norms import NormBall
from metasilvae.verification.budget import Budget
from metasilvae.verification.query import VerificationQuery, make_query
from metasilvae.verification.radius import Radii, find_nearest_witnesses, find_radii
from metasilvae.verification.requirements import CheckedRequirement, Requirement, check_requirements, combine
from metasilvae.verification.shards import (
    MERGEABLE_FORMATS,
    NEAREST_TARGETS,
    RADII,
    TARGETS,
    VERDICTS,
    Shard,
    ShardNote,
    merge_shards,
    read_shard,
    search_in_pieces,
)
from metasilvae.verification.targets import TargetResults, find_changes, find_label, find_targets
from metasilvae.verification.verdicts import Outcome, RowResults
from metasilvae.verification.verifier import Witness, find_witnesses
from metasilvae.verification.verifier import verify as verify_rows

R = TypeVar("R", bound=RowResults)
# Options that cannot be combined with --radius, by the names of their parameters, and why.
REFUSED_WITH_RADIUS = {
    "epsilon": "radii cover every epsilon; leave --epsilon out",
    "requirements": "requirements are about verdicts; leave --radius or --require out",
}

# The same for --target.
REFUSED_WITH_TARGET = {
    "requirements": "requirements are about verdicts; leave --target or --require out",
}
# The same for shards with radii or targets.
REFUSED_WITHOUT_VERDICTS = {
    "requirements": "requirements are about verdicts, and these shards hold none; leave --require out",
}

report_options = shared_options(
    option(
        "--format",
        "report_format",
        type=click.Choice(list(VERDICT_FORMATS)),
        group=OUTPUT,
        help="Format of the report.  [default: by the suffix of --output; text on a terminal; silva in a pipe; jsonl "
        "for a shard]",
    ),
    option("--output", "-o", metavar="FILE", group=OUTPUT, help="Write the report to a file and print a summary."),
    require_option,
    option(
        "--max-print-length",
        type=click.IntRange(min=-1),
        default=DEFAULT_PRINT_LENGTH,
        group=COMPATIBILITY,
        help="Maximum length of paths in silva's report; -1: no limit.",
    ),
)


@click.command(cls=Command)
@click.argument("model")
@click.argument("data")
@perturbation_options("  [default: l_inf 0]")
@option(
    "--tiers",
    type=CountedList(),
    group=THREAT_MODEL,
    help="One-hot group of each feature, 0 for none; perturbed rows keep one active feature per group.",
)
@option(
    "--feature-weights",
    metavar="FILE",
    group=THREAT_MODEL,
    help="One number per feature that multiplies its radius, and with --norm divides its cost; 0 keeps the feature "
    "fixed.",
)
@option(
    "--radius",
    "wants_radius",
    is_flag=True,
    help="Compute the exact certified radius of each row (the largest one that cannot change its prediction) instead "
    "of verdicts; with --perturbation or --attack, in multiples of its radii, unless --norm makes it a distance.",
)
@option(
    "--target",
    metavar="LABEL",
    help="Decide for each row whether an allowed change gives it this label, instead of verdicts; with --radius, find "
    "the nearest such change (a counterfactual explanation).",
)
@voting_option
@option(
    "--counterexamples",
    metavar="FILE",
    group=OUTPUT,
    help="Write an adversarial example (a perturbed row with another prediction) for each unstable row; with --radius, "
    "the nearest one of each row; with --target, the changed row that gets the label.",
)
@option(
    "--counterexamples-format",
    type=click.Choice(list(COUNTEREXAMPLE_FORMATS)),
    group=OUTPUT,
    help="csv: rows that can be loaded as data; silva: boxes.  [default: csv]",
)
@report_options
@budget_options
@option(
    "--abstraction",
    type=click.Choice(["hyperrectangle", "interval"]),
    default="hyperrectangle",
    metavar="NAME",
    group=COMPATIBILITY,
    show_default=False,
    help="Ignored; kept for compatibility with silva.",
)
@option(
    "--seed",
    type=int,
    default=42,
    group=COMPATIBILITY,
    show_default=False,
    help="Ignored; kept for compatibility with silva.",
)
@jobs_option
@scheduler_option
@shard_option("Verify the I-th of N parts of the rows; `merge` joins the results.")
@model_data_options
@click.pass_context
def verify(
    ctx: click.Context,
    model: str,
    data: str,
    threat: ThreatModel,
    tiers: tuple[int, ...] | None,
    feature_weights: str | None,
    wants_radius: bool,
    target: str | None,
    voting: str | None,
    report_format: str | None,
    output: str | None,
    requirements: tuple[str, ...],
    counterexamples: str | None,
    counterexamples_format: str | None,
    budget: Budget,
    abstraction: str,
    max_print_length: int,
    seed: int,
    jobs: int | None,
    scheduler: str | None,
    shard: Shard | None,
    **data_options: Any,
) -> None:
    """Prove for each row of DATA whether a perturbation can change the prediction of MODEL.

    Verdicts are exact. ROBUST: correct and stable; FRAGILE: correct but unstable; VULNERABLE: consistently wrong
    (stable, incorrect); BROKEN: incorrect and unstable; NO-INFO: not decided within the search budget, which can
    happen with forests. Ctrl-C stops and reports what is decided.

    \b
    Examples:
      metasilvae verify model.silva test.csv --epsilon 0.1 --require 'stability>=0.8'
      metasilvae verify model.silva test.csv --radius --counterexamples nearest.csv
      metasilvae verify model.silva test.csv --norm l1 --epsilon 0.3
      metasilvae verify model.silva test.csv --target virginica --norm l0 --radius
      metasilvae verify model.silva test.csv --epsilon 0.1 --scheduler tcp://host:8786
      metasilvae verify model.silva test.csv --epsilon 0.1 --shard 3/50 -o part-03.jsonl
    """
    if threat.attack is not None and tiers is not None:
        raise click.UsageError("--tiers cannot be combined with --attack; write [[one-hot]] groups into its file")
    if threat.attack is not None and feature_weights is not None:
        raise click.UsageError("--attack gives each column its own radius; leave --feature-weights out")
    if counterexamples_format is not None and counterexamples is None:
        raise click.UsageError("--counterexamples-format needs --counterexamples FILE")
    if target is not None:
        _refuse_options(ctx.params, REFUSED_WITH_TARGET)
    required = [Requirement.parse(text) for text in requirements]
    inputs = [model, data, feature_weights]
    refuse_two_pipes(*inputs, threat.attack)
    if wants_radius:
        _refuse_options(ctx.params)
    else:
        threat.require_epsilon()
    chosen = threat.choose(*inputs)
    if chosen is None and any(requirement.needs_perturbation for requirement in required):
        raise click.UsageError(
            "a requirement on stability or robust accuracy needs --epsilon, --perturbation or --attack; without it "
            "all rows are stable"
        )
    path = STANDARD_STREAM if output is None else output
    check_files([*inputs, threat.attack], [path, counterexamples], chosen)
    formats: Mapping[str, object] = RADIUS_FORMATS if wants_radius else VERDICT_FORMATS
    report_format = _choose_format(report_format, path, shard, formats if target is None else TARGET_FORMATS)

    loaded = load_model(model)
    wanted = None if target is None else find_label(loaded, target)
    dataset = load_data_for(loaded, data, data_options, needs_labels=target is None)
    if chosen is None:
        chosen = NormBall(threat.norm) if threat.has_total and threat.norm else Ball(1 if wants_radius else 0)
    allowed = fit_perturbation(chosen, dataset)
    if feature_weights is not None:
        allowed = Weighted(allowed, read_weights(feature_weights), display_name(feature_weights))
    query = make_query(loaded, dataset, allowed, voting=voting, tiers=tiers)
    described = allowed.describe() + (f" --tiers {len(tiers)} {' '.join(map(str, tiers))}" if tiers else "")
    if wanted is not None and wants_radius and query.boxes.has_endless_radii:
        tell(
            "infinite radii have no multiples, so that all their changes count alike; --norm l1, l2 or l0 measures them"
        )
    note = None
    if shard is not None:
        content = RADII if wants_radius else VERDICTS
        if target is not None:
            content = NEAREST_TARGETS if wants_radius else TARGETS
        note = ShardNote.of(query, shard, budget.as_dict(), content)
        query = query.subset(shard.take_rows(dataset.n_samples))
        dataset = query.dataset
    # A tree is decided at once in the maximum norm; there is nothing to keep when it is interrupted.
    is_long = loaded.n_trees > 1 or scheduler is not None or threat.has_total or wanted is not None
    phase = "searching" if wanted is not None else "computing radii" if wants_radius else "verifying"
    search: Callable[..., Outcome] | Callable[..., Radii] | Callable[..., TargetResults]
    if wanted is not None:
        search = partial(find_targets, target=wanted, is_nearest=wants_radius, budget=budget)
    else:
        search = partial(find_radii if wants_radius else verify_rows, budget=budget)
    with follow_rows(dataset.n_samples, budget, is_long=is_long, phase=phase) as work:
        found = _search_rows(query, search, jobs, scheduler, work)
    report: VerificationReport | RadiusReport | TargetReport
    checked: list[CheckedRequirement] = []
    if isinstance(found, TargetResults):
        done = f"{found.n_samples - len(found.reasons)} of {found.n_samples} rows are decided"
        report = TargetReport.of(query, described, found, note)
        find_points: Callable[[], Iterable[Witness]] = partial(find_changes, query, found)
    elif isinstance(found, Radii):
        done = f"{found.is_exact.sum()} of {found.n_samples} radii are exact"
        report = RadiusReport(query, described, found, note)
        find_points = partial(find_nearest_witnesses, query, found, jobs)
    else:
        assert isinstance(found, Outcome)
        done = f"{found.n_samples - found.counts.no_info} of {found.n_samples} rows are decided"
        checked = check_requirements(required, query, found, query.rank_labels)
        report = VerificationReport(query, described, found, checked, max_print_length, note)
        find_points = partial(find_witnesses, query, found, jobs)
    if work.is_interrupted:
        tell(f"interrupted; {done}")
    if counterexamples is not None:
        write = COUNTEREXAMPLE_FORMATS[counterexamples_format or "csv"]
        write_output(counterexamples, write(loaded, dataset, find_points()))
    _write_report(report, report_format, path, is_stdout_taken=counterexamples == STANDARD_STREAM)
    ctx.exit(work.exit_code or combine(each.result for each in checked))


def _refuse_options(params: Mapping[str, Any], reasons: Mapping[str, str] = REFUSED_WITH_RADIUS) -> None:
    """Refuse options that make no sense with radii, or with a target."""
    for name, reason in reasons.items():
        if params.get(name):
            raise click.UsageError(reason)


def _choose_format(wanted: str | None, path: str, shard: Shard | None, formats: Mapping[str, object]) -> str:
    """The requested format, or the usual one for a path; a shard must be readable by `merge`."""
    suffix = Path(strip_compression(path)).suffix.lstrip(".").lower()
    known = tuple(formats) if shard is None else MERGEABLE_FORMATS
    if shard is not None:
        usual = MERGEABLE_FORMATS[0]
    elif formats is not VERDICT_FORMATS:
        usual = "text"
    else:
        usual = "text" if path == STANDARD_STREAM and sys.stdout.isatty() else "silva"
    found = wanted or (suffix if path != STANDARD_STREAM and suffix in formats else usual)
    if found in known:
        return found
    if shard is None:
        what = "targets" if formats is TARGET_FORMATS else "radii"
        raise click.UsageError(f"{what} are written as {', '.join(known)}, not {found}")
    raise click.UsageError(f"--shard writes {' or '.join(known)} for `merge` to read, not {found}")


def _search_rows(
    query: VerificationQuery, search: Callable[..., R], jobs: int | None, scheduler: str | None, work: RowWork
) -> R:
    if scheduler is None:
        return search(query, jobs=jobs, stop=work.stop, on_rows=work.advance)
    from metasilvae.execution.executors import open_executor

    with open_executor(scheduler) as executor:
        work.on_stop = executor.stop
        if work.is_interrupted:
            executor.stop()
        return search_in_pieces(query, executor, search, work.advance)


def _write_report(
    report: VerificationReport | RadiusReport | TargetReport,
    report_format: str,
    path: str,
    is_stdout_taken: bool = False,
) -> None:
    """Write a report; if it goes to a file, print a summary, or at least which requirements are met."""
    formats: Mapping[str, Any] = VERDICT_FORMATS
    if not isinstance(report, VerificationReport):
        formats = RADIUS_FORMATS if isinstance(report, RadiusReport) else TARGET_FORMATS
    write_output(path, formats[report_format](report))
    is_file = path != STANDARD_STREAM
    if is_file and not is_stdout_taken:
        if get_verbosity() is not Verbosity.QUIET:
            write_output(STANDARD_STREAM, formats["text"](report))
    elif isinstance(report, VerificationReport) and (is_file or report_format != "text"):
        for line in report.explain_requirements():
            tell(line)


@click.command(cls=Command)
@click.argument("shards", nargs=-1, required=True, metavar="SHARD...")
@report_options
@click.pass_context
def merge(
    ctx: click.Context,
    shards: tuple[str, ...],
    report_format: str | None,
    output: str | None,
    requirements: tuple[str, ...],
    max_print_length: int,
) -> None:
    """Merge each SHARD, written by `verify --shard I/N`, into the report of one run over all rows.

    All N shards are needed, in any order; they must belong to the same model, data and perturbation. The time in the
    report is that of all shards together. Radii and targets, of `verify --radius` and `verify --target`, are merged in
    the same way.

    \b
    Examples:
      metasilvae merge part-*.jsonl -o verdicts.csv --require 'stability>=0.8'
      metasilvae merge radii-*.jsonl -o radii.csv
    """
    required = [Requirement.parse(text) for text in requirements]
    path = STANDARD_STREAM if output is None else output
    check_files(shards, [path])
    files = [read_shard(shard) for shard in shards]
    content = files[0].note.content
    formats: Mapping[str, object] = VERDICT_FORMATS
    if content != VERDICTS:
        _refuse_options(ctx.params, REFUSED_WITHOUT_VERDICTS)
        formats = RADIUS_FORMATS if content == RADII else TARGET_FORMATS
    report_format = _choose_format(report_format, path, None, formats)
    merged = merge_shards(files)
    subject, found = (merged.query, merged.perturbation), merged.results
    if isinstance(found, TargetResults):
        _write_report(TargetReport(*subject, found, merged.changes), report_format, path)
        return
    if isinstance(found, Radii):
        _write_report(RadiusReport(*subject, found), report_format, path)
        return
    checked = check_requirements(required, merged.query, found)
    _write_report(VerificationReport(*subject, found, checked, max_print_length), report_format, path)
    ctx.exit(combine(each.result for each in checked))
