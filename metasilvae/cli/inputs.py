"""Loading what a command works on."""

from __future__ import annotations

import warnings
from typing import Any

import click

from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import read_model
from metasilvae.model import Model
from metasilvae.perturbations.attack import fit_attack
from metasilvae.perturbations.attack_files import AttackRules, read_attack
from metasilvae.perturbations.boxes import Perturbation, parse_perturbation
from metasilvae.prediction import check_width


def load_data_for(model: Model, source: str, data_options: dict[str, Any], needs_labels: bool = True) -> Dataset:
    """Read data that a model is to work on; sparse data are as wide as the model."""
    return read_dataset(source, libsvm_width=model.n_features, needs_labels=needs_labels, **data_options)


def load_model_and_data(
    model: str, data: str, data_options: dict[str, Any], needs_labels: bool = True
) -> tuple[Model, Dataset]:
    loaded = read_model(model)
    return loaded, load_data_for(loaded, data, data_options, needs_labels)


def load_feature_names(model: Model, data: str | None, data_options: dict[str, Any]) -> tuple[str, ...] | None:
    """Column names of data that belong to a model, where there are data and they have names."""
    if data is None:
        return None
    dataset = load_data_for(model, data, data_options)
    check_width(model, dataset)
    return dataset.feature_names


def choose_perturbation(
    epsilon: str | None, perturbation: tuple[str, ...] | None, attack: str | None
) -> Perturbation | AttackRules | None:
    """What the one option that is given means, None if none is; the rules of an attack wait for the data."""
    if epsilon is not None and perturbation is not None:
        raise click.UsageError("--epsilon and --perturbation say the same thing; give one of them")
    if attack is not None:
        for name, value in (("--epsilon", epsilon), ("--perturbation", perturbation)):
            if value is not None:
                raise click.UsageError(f"--attack and {name} both say what may be perturbed; give one of them")
        return read_attack(attack)
    if epsilon is not None:
        perturbation = ("l_inf", epsilon)
    return None if perturbation is None else parse_perturbation(perturbation)


def fit_perturbation(chosen: Perturbation | AttackRules, dataset: Dataset) -> Perturbation:
    """A perturbation for the columns of a data set, and of every other one with the same columns."""
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
