"""Models, data and perturbations that a command works on."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import click

from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning, ModelError
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import read_model
from metasilvae.model import Model
from metasilvae.perturbations.attack import fit_attack
from metasilvae.perturbations.attack_files import AttackRules, read_attack
from metasilvae.perturbations.boxes import Perturbation, parse_perturbation
from metasilvae.prediction import check_width


def load_data_for(model: Model, source: str, data_options: dict[str, Any], needs_labels: bool = True) -> Dataset:
    """Read data for a model, encoded as its training data were; sparse data are as wide as the model."""
    return read_dataset(
        source, libsvm_width=model.n_features, needs_labels=needs_labels, encoding=model.encoding,
        label_name=model.description.label_name, model_names=model.description.feature_names, maker=model.source,
        **data_options,
    )  # fmt: skip


def load_model_and_data(
    model: str, data: str, data_options: dict[str, Any], needs_labels: bool = True
) -> tuple[Model, Dataset]:
    loaded = read_model(model)
    return loaded, load_data_for(loaded, data, data_options, needs_labels)


def load_models_and_data(models: Sequence[str], data: str, data_options: dict[str, Any]) -> tuple[list[Model], Dataset]:
    """Sparse data are as wide as the widest model; the models are checked against them when they are used."""
    loaded = [read_model(model) for model in models]
    for model in loaded[1:]:
        if model.encoding != loaded[0].encoding:
            raise ModelError(
                f"{loaded[0].source} and {model.source} encode the columns of a table differently; use them one by one"
            )
    return loaded, load_data_for(max(loaded, key=lambda model: model.n_features), data, data_options)


def load_feature_names(model: Model, data: str | None, data_options: dict[str, Any]) -> tuple[str, ...] | None:
    """Column names of the data of a model, if there are any."""
    if data is None:
        return None
    dataset = load_data_for(model, data, data_options)
    check_width(model, dataset)
    return dataset.feature_names


def choose_perturbation(
    epsilon: str | None, perturbation: tuple[str, ...] | None, attack: str | None
) -> Perturbation | AttackRules | None:
    """The perturbation that an option gives, None without one; the rules of an attack are fitted to data later."""
    if epsilon is not None and perturbation is not None:
        raise click.UsageError("--epsilon and --perturbation exclude each other; give one of them")
    if attack is not None:
        for name, value in (("--epsilon", epsilon), ("--perturbation", perturbation)):
            if value is not None:
                raise click.UsageError(f"--attack and {name} exclude each other; give one of them")
        return read_attack(attack)
    if epsilon is not None:
        perturbation = ("l_inf", epsilon)
    return None if perturbation is None else parse_perturbation(perturbation)


def fit_perturbation(chosen: Perturbation | AttackRules, dataset: Dataset) -> Perturbation:
    """A perturbation for a data set, and for every other one with the same columns."""
    if not isinstance(chosen, AttackRules):
        return chosen
    attack = fit_attack(chosen, dataset)
    if attack.is_idle:
        warnings.warn(
            f"{attack.source}: allows no value to change, so every row is stable; give some column a radius",
            MetasilvaeWarning,
            stacklevel=2,
        )
    return attack
