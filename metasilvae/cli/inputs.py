"""Models, data and perturbations that a command works on."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from metasilvae._core.parsing.number_text import parse_number
from metasilvae.dataset import Dataset
from metasilvae.errors import MetasilvaeWarning, ModelError, RequestError, shorten
from metasilvae.formats.datasets import read_dataset
from metasilvae.interop.models import load_model
from metasilvae.model import Model, place_features, share_encoding, unify_features
from metasilvae.perturbations.attack import fit_attack
from metasilvae.perturbations.attack_files import AttackRules, read_attack
from metasilvae.perturbations.boxes import Perturbation, parse_perturbation
from metasilvae.perturbations.norms import LINF, NormBall
from metasilvae.prediction import align, align_names, find_columns


def load_data_for(model: Model, source: str, data_options: dict[str, Any], needs_labels: bool = True) -> Dataset:
    """Read data for a model, encoded as its training data were, with the features in its order.

    Sparse data are as wide as the model.
    """
    return align(model, _read_data(model, source, data_options, needs_labels))


def _read_data(model: Model, source: str, data_options: dict[str, Any], needs_labels: bool = True) -> Dataset:
    return read_dataset(
        source, libsvm_width=model.n_features, needs_labels=needs_labels, encoding=model.encoding,
        label_name=model.description.label_name, model_names=model.description.feature_names, maker=model.source,
        **data_options,
    )  # fmt: skip


def load_model_and_data(
    model: str, data: str, data_options: dict[str, Any], needs_labels: bool = True
) -> tuple[Model, Dataset]:
    loaded = load_model(model)
    return loaded, load_data_for(loaded, data, data_options, needs_labels)


def load_models_and_data(models: Sequence[str], data: str, data_options: dict[str, Any]) -> tuple[list[Model], Dataset]:
    """Models and data with the same features in the same order.

    If all models have names of features, the order is that of the first model. If some have none, these need the data
    as they stand, and the order is that of the data. Sparse data are as wide as the widest model; models without names
    are checked against the data when they are used.
    """
    loaded = [load_model(model) for model in models]
    for place in range(1, len(loaded)):
        loaded[0], loaded[place] = share_encoding(loaded[0], loaded[place])
    loaded = [share_encoding(loaded[0], model)[1] for model in loaded]
    for model in loaded[1:]:
        if model.encoding != loaded[0].encoding:
            raise ModelError(
                f"{loaded[0].source} and {model.source} encode the columns of a table differently; use them one by one"
            )
    dataset = _read_data(max(loaded, key=lambda model: model.n_features), data, data_options)
    if dataset.feature_names is None:
        return loaded, dataset
    named = [(model.description.feature_names, model.source) for model in loaded]
    has_all_names = all(names is not None for names, _ in named)
    for names, name in named:
        if names is not None:
            find_columns(names, name, dataset, warns_of_others=not has_all_names)
    if not has_all_names:
        return [place_features(model, dataset.feature_names) for model in loaded], dataset
    loaded = unify_features(loaded)
    names = loaded[0].description.feature_names
    assert names is not None
    return loaded, align_names(names, " and ".join(dict.fromkeys(name for _, name in named)), dataset)


def load_feature_names(model: Model, data: str | None, data_options: dict[str, Any]) -> tuple[str, ...] | None:
    """Names of the features of a model: its own, or the column names of its data."""
    dataset = None if data is None else load_data_for(model, data, data_options)
    return model.description.feature_names or (None if dataset is None else dataset.feature_names)


@dataclass(frozen=True)
class NormChoice:
    """A limit of the total change within the rules of an attack, which are fitted to data later."""

    norm: str
    epsilon: float
    rules: AttackRules


# What may be perturbed; rules have to be fitted to data.
Chosen = Perturbation | AttackRules | NormChoice


def choose_perturbation(
    epsilon: str | None, perturbation: tuple[str, ...] | None, attack: str | None, norm: str | None = None
) -> Chosen | None:
    """The perturbation that an option gives, None without one; the rules of an attack are fitted to data later."""
    if norm is not None and norm != LINF:
        if perturbation is not None:
            raise click.UsageError(
                f"--norm {norm} limits the total change to --epsilon, within what --attack allows; leave "
                "--perturbation out"
            )
        return choose_norm(norm, epsilon, None if attack is None else read_attack(attack))
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


def choose_norm(norm: str, epsilon: str | None, rules: AttackRules | None) -> Chosen | None:
    """A limit of the total change; no epsilon is no limit, and None if nothing else is said."""
    size = math.inf
    if epsilon is not None:
        number = parse_number(epsilon.encode(errors="surrogateescape"))
        if number is None:
            raise RequestError(f"--epsilon {shorten(epsilon)}: is not a number; expected a finite one, 0 or more")
        size = number
    if rules is not None:
        NormBall(norm, size)
        return NormChoice(norm, size, rules)
    return None if epsilon is None else NormBall(norm, size)


def fit_perturbation(chosen: Chosen, dataset: Dataset) -> Perturbation:
    """A perturbation for a data set, and for every other one with the same columns."""
    if isinstance(chosen, NormChoice):
        return NormBall(chosen.norm, chosen.epsilon, fit_perturbation(chosen.rules, dataset))
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
