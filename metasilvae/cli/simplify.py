"""``metasilvae simplify``."""

from __future__ import annotations

from typing import Any

import click

from metasilvae.cli.domains import check_domain, domain_options, read_domain
from metasilvae.cli.parameters import check_outputs, data_options, output_option, refuse_two_pipes, voting_option
from metasilvae.formats.silva_models import read_model, write_model
from metasilvae.model import count_leaves
from metasilvae.simplification import simplify as simplify_model
from metasilvae.storage import STANDARD_STREAM


@click.command()
@click.argument("model")
@domain_options
@voting_option
@output_option
@data_options
def simplify(
    model: str,
    domain: str | None,
    margin: float | None,
    bounds: tuple[float, float] | None,
    voting: str | None,
    output: str,
    **data_options: Any,
) -> None:
    """Remove branches of MODEL that are unreachable, redundant or outside a domain, without changing one answer.

    That the answers stay the same is proved for all samples, or for all samples of the domain; `metasilvae diff` with
    the same options repeats the proof. For a forest, --voting says what must stay the same: with average, leaves are
    joined only if their distributions are equal.

    \b
    Examples:
      metasilvae simplify model.silva -o small.silva
      metasilvae simplify model.silva -o small.silva --domain train.csv --margin 0.1
    """
    check_domain(domain, margin, bounds)
    inputs = [name for name in (model, domain) if name is not None]
    refuse_two_pipes(*inputs)
    check_outputs([output], inputs)
    loaded = read_model(model)
    within = read_domain(loaded, domain, margin, bounds, data_options)
    simple = simplify_model(loaded, within, voting=voting)
    write_model(simple, output)
    before, after = (f"{count_leaves(each.n_leaves)}, depth {each.max_depth}" for each in (loaded, simple))
    click.echo(
        f"{before} -> {after}; the answers are proved equal for {within.description}",
        err=output == STANDARD_STREAM,
    )
