"""The options that say for which inputs something is to hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import click

from metasilvae.analysis.spaces import InputSpace
from metasilvae.cli.commands import option
from metasilvae.cli.inputs import load_data_for
from metasilvae.cli.parameters import bundle_options
from metasilvae.model import Model
from metasilvae.perturbations.attack_files import read_attack

RULES_SUFFIX = ".toml"


@dataclass(frozen=True)
class SpaceChoice:
    """The options that say for which inputs something is to hold."""

    domain: str | None = None
    bounds: tuple[float, float] | None = None

    def check(self) -> None:
        if self.domain is not None and self.bounds is not None:
            raise click.UsageError("--domain and --bounds both restrict the inputs; give one of them")

    def read(self, model: Model, data_options: dict[str, Any]) -> tuple[Model, InputSpace]:
        """The inputs, and the model with names of features, if data have some and it has none."""
        if self.bounds is not None:
            return model, InputSpace.between(model, *self.bounds)
        if self.domain is None:
            return model, InputSpace.of_model(model)
        return read_space(model, self.domain, data_options)


def read_space(model: Model, source: str, data_options: dict[str, Any]) -> tuple[Model, InputSpace]:
    """The inputs within the limits of a file of rules, or within the ranges of data."""
    if source.lower().endswith(RULES_SUFFIX):
        return model, InputSpace.of_rules(model, read_attack(source))
    dataset = load_data_for(model, source, data_options, needs_labels=False)
    if model.description.feature_names is None and dataset.n_features == model.n_features:
        model = replace(model, description=replace(model.description, feature_names=dataset.feature_names))
    return model, InputSpace.around(model, dataset)


space_options = bundle_options(
    "space",
    SpaceChoice,
    ("domain", "bounds"),
    option(
        "--domain", metavar="DATA|FILE",
        help="Only inputs within the range of each column in this data, or within the limits of this attack file "
        "(.toml).",
    ),
    option("--bounds", type=float, nargs=2, metavar="MIN MAX", help="Only inputs with all numbers in this range."),
)  # fmt: skip
