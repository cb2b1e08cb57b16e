"""``metasilvae prove``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from metasilvae.analysis.proofs import (
    DIRECTIONS,
    OBJECTS,
    Proof,
    ProofStatus,
    prove_constant,
    prove_insensitive,
    prove_monotone,
)
from metasilvae.analysis.spaces import InputSpace, describe_columns
from metasilvae.analysis.stable_share import StableShare, measure_stable_share
from metasilvae.cli.commands import BUDGET, Command, option
from metasilvae.cli.parameters import (
    ColumnList,
    NumberRange,
    PositiveNumber,
    bundle_options,
    check_files,
    format_option,
    model_data_options,
    output_option,
    voting_option,
)
from metasilvae.cli.progress import RowWork, follow_rows
from metasilvae.cli.spaces import SpaceChoice, read_space, space_options
from metasilvae.interop.models import load_model
from metasilvae.io.storage import write_output
from metasilvae.model import Model
from metasilvae.output.text.proofs import PROOF_FORMATS, SHARE_FORMATS
from metasilvae.perturbations.attack import ColumnFinder
from metasilvae.verification.budget import Budget
from metasilvae.verification.requirements import RequirementResult

EXIT_CODES = {
    ProofStatus.PROVED: RequirementResult.HOLDS,
    ProofStatus.REFUTED: RequirementResult.VIOLATED,
    ProofStatus.UNDECIDED: RequirementResult.UNDECIDED,
}


class DirectionList(click.ParamType):
    """Columns with directions, separated by commas, such as ``income=up,debt=down``."""

    name = "directions"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "COL=up|down,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, str]:
        if isinstance(value, dict):
            return value
        found: dict[str, str] = {}
        for part in value.split(","):
            # The name of a column may hold an equals sign.
            name, _, direction = (text.strip() for text in part.rpartition("="))
            if not name or direction not in DIRECTIONS or name in found:
                self.fail(f"{part.strip()!r}: expected a column once and up or down, as in income=up,debt=down.", param)
            found[name] = direction
        return found


@dataclass(frozen=True)
class Question:
    """The options that say what is to be proved."""

    insensitive: tuple[str, ...] | None
    directions: dict[str, str] | None
    region: str | None
    is_share: bool
    margin: float
    target: str | None
    of: str | None
    epsilon: float | None
    at_least: float | None

    def check(self, space: SpaceChoice) -> None:
        asked = [self.is_share, *(each is not None for each in (self.insensitive, self.directions, self.region))]
        if sum(asked) != 1:
            raise click.UsageError("give one of --insensitive-to, --monotone, --stable-on and --stable-share")
        if self.is_share != (self.epsilon is not None) or (self.at_least is not None and not self.is_share):
            raise click.UsageError("--stable-share needs --epsilon E; --epsilon and --at-least belong to it")
        if self.is_share and self.margin:
            raise click.UsageError("--stable-share has no --margin; leave it out")
        if self.directions is None and (self.target is not None or self.of is not None):
            raise click.UsageError("--target and --of belong to --monotone")
        if self.region is not None and (self.margin or space.domain is not None or space.bounds is not None):
            raise click.UsageError("--stable-on FILE gives the inputs; leave --domain, --bounds and --margin out")

    def ask(self, model: Model, space: InputSpace, voting: str | None, budget: Budget, work: RowWork) -> Proof:
        if self.region is not None:
            return prove_constant(model, space, voting=voting, budget=budget, stop=work.stop)
        columns = ColumnFinder(describe_columns(model))

        def find(name: str, option: str) -> list[int]:
            return list(columns.encoding.features_of(columns.find(name, option)))

        if self.insensitive is not None:
            features = [f for name in dict.fromkeys(self.insensitive) for f in find(name, "--insensitive-to")]
            return prove_insensitive(
                model, features, space, margin=self.margin, voting=voting, budget=budget, stop=work.stop,
                on_fraction=work.reach,
            )  # fmt: skip
        assert self.directions is not None
        directions = {f: way for name, way in self.directions.items() for f in find(name, "--monotone")}
        return prove_monotone(
            model, directions, space, target=self.target, of=self.of or OBJECTS[0], margin=self.margin, voting=voting,
            budget=budget, stop=work.stop, on_fraction=work.reach,
        )  # fmt: skip


question_options = bundle_options(
    "question",
    Question,
    ("insensitive_to", "monotone", "stable_on", "stable_share", "margin", "target", "of", "epsilon", "at_least"),
    option(
        "--insensitive-to", type=ColumnList(), help="Inputs that differ only in these columns get the same prediction."
    ),
    option("--monotone", type=DirectionList(), help="Raising (up) or lowering (down) columns never harms a label."),
    option("--stable-on", metavar="FILE", help="All inputs within the limits of this attack file get one prediction."),
    option(
        "--stable-share", is_flag=True,
        help="Share of the inputs, by volume, whose prediction no change of each column by at most --epsilon changes.",
    ),
    option(
        "--margin", type=NumberRange(min=0), default=0.0, metavar="M",
        help="Only pairs in which the predicted label of each input is ahead by M count.",
    ),
    option(
        "--target", metavar="LABEL",
        help="The label of --monotone.  [default: 1, if the labels are 0 and 1, or -1 and 1]",
    ),
    option("--of", type=click.Choice(OBJECTS), help=f"What --monotone is about.  [default: {OBJECTS[0]}]"),
    option("--epsilon", type=NumberRange(min=0), metavar="E", help="Maximum change of each column."),
    option("--at-least", type=NumberRange(0, 1), metavar="S", help="The stable share to be proved."),
)  # fmt: skip


@click.command(cls=Command)
@click.argument("model")
@question_options
@space_options
@voting_option
@format_option(PROOF_FORMATS, "csv holds the two inputs that refute the claim.")
@option(
    "--time-limit", type=PositiveNumber(), default=60, metavar="SECONDS", group=BUDGET,
    help="Time limit of the search; inf for no limit.",
)  # fmt: skip
@option(
    "--max-steps", type=click.IntRange(min=1), group=BUDGET,
    help="Limit of search steps, which is the same on every machine.  [default: none]",
)  # fmt: skip
@output_option
@model_data_options
@click.pass_context
def prove(
    ctx: click.Context,
    model: str,
    question: Question,
    space: SpaceChoice,
    voting: str | None,
    output_format: str,
    time_limit: float,
    max_steps: int | None,
    output: str,
    **data_options: Any,
) -> None:
    """Prove a property of MODEL for all inputs, or find two inputs that refute it.

    --insensitive-to: no two inputs that differ only in these columns get different predictions. --monotone: raising (or
    lowering) columns never changes the prediction away from a label, or never lowers its score (--of score).
    --stable-on: the prediction is constant in a region. --stable-share: how much of the inputs is stable. Exit code 0:
    proved; 3: refuted, the report shows two inputs; 4: undecided within the limits, or after Ctrl-C.

    \b
    Examples:
      metasilvae prove model.silva --insensitive-to age,sex --domain train.csv
      metasilvae prove model.silva --monotone petal_width=up --target virginica
    """
    question.check(space)
    space.check()
    check_files([model, question.region, space.domain], [output])
    loaded = load_model(model)
    if question.region is not None:
        loaded, inputs = read_space(loaded, question.region, data_options)
    else:
        loaded, inputs = space.read(loaded, data_options)
    budget = Budget(time_limit, max_steps)
    if question.epsilon is not None:
        with follow_rows(100, budget, phase="dividing", unit="%") as work:
            share = measure_stable_share(
                loaded, inputs, question.epsilon, voting=voting, budget=budget, stop=work.stop, on_fraction=work.reach
            )
        write_output(output, SHARE_FORMATS[output_format](share))
        ctx.exit(work.exit_code or check_share(share, question.at_least))
    with follow_rows(100, budget, phase="proving", unit="%") as work:
        proof = question.ask(loaded, inputs, voting, budget, work)
    write_output(output, PROOF_FORMATS[output_format](proof))
    ctx.exit(work.exit_code or EXIT_CODES[proof.status])


def check_share(share: StableShare, at_least: float | None) -> RequirementResult:
    """Whether a stable share is as large as it has to be."""
    if at_least is None or share.lower >= at_least:
        return RequirementResult.HOLDS
    return RequirementResult.VIOLATED if share.upper < at_least else RequirementResult.UNDECIDED
