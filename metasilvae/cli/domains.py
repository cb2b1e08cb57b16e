"""Options that say for which samples something is to hold."""

from __future__ import annotations

from typing import Any

import click

from metasilvae.cli.inputs import load_data_for
from metasilvae.cli.parameters import shared_options
from metasilvae.comparison import Domain
from metasilvae.matching import check_width
from metasilvae.model import Model

domain_options = shared_options(
    click.option("--domain", metavar="DATA", help="Only samples in the range that each feature has in this data set."),
    click.option(
        "--margin", type=click.FloatRange(min=0), metavar="E", help="With --domain, ranges wider by E on both sides."
    ),
    click.option(
        "--bounds", type=float, nargs=2, metavar="MIN MAX", help="Only samples with all values in this range."
    ),
)


def check_domain(domain: str | None, margin: float | None, bounds: tuple[float, float] | None) -> None:
    if domain is not None and bounds is not None:
        raise click.UsageError("--domain and --bounds both say which samples count; give one of them")
    if margin is not None and domain is None:
        raise click.UsageError("--margin widens the ranges of --domain DATA; add it")


def read_domain(
    model: Model,
    domain: str | None,
    margin: float | None,
    bounds: tuple[float, float] | None,
    data_options: dict[str, Any],
) -> Domain:
    """The samples that the options describe."""
    if domain is not None:
        dataset = load_data_for(model, domain, data_options)
        check_width(model, dataset)
        return Domain.around(dataset, margin or 0.0)
    if bounds is not None:
        return Domain.between(*bounds, model.n_features)
    return Domain.everything(model.n_features)
