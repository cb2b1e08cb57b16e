"""Rules about options that are given together: which kind of model has them, and which ones tuning excludes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from numbers import Integral, Real
from typing import Any

import numpy as np

from metasilvae.errors import RequestError, RequestWarning
from metasilvae.verification.objective import Fitness

# Names of options on the command line, where they differ from the fields.
PUBLIC_NAMES = {
    "population": "population-max-size",
    "initial_population": "population-initial-size",
    "generations": "max-iteration",
    "crossover": "crossover-probability",
    "mutation_probability": "mutation-base-probability",
    "mutation_probability_rule": "mutation-probability",
    "selection": "select",
    "impurity": "criterion",
    "aggressiveness": "split-search-aggressiveness",
    "fitness": "weight",
    "greedy": "population-generator",
    "method": "forest-method",
    "n_rounds": "boost",
}
# Options that only some kinds of models have: the kinds, and what they ask for.
_FORESTS = ("forest",), "forests; give the number of trees with 'trees'"
_BOOSTING = ("boosting",), "boosting; give the number of rounds with 'boost'"
KINDS_WITH: dict[str, tuple[tuple[str, ...], str]] = {
    "method": _FORESTS,
    "row_sample": (("forest", "boosting"), "ensembles; give 'trees' or 'boost'"),
    "feature_sample": _BOOSTING,
    "learning_rate": _BOOSTING,
    "thresholds": _BOOSTING,
    "score_penalty": _BOOSTING,
    "tolerance": _BOOSTING,
    "refits": _BOOSTING,
    "refit_penalty": _BOOSTING,
    "first_tree": _BOOSTING,
    "image_shifts": _BOOSTING,
    "additive": _BOOSTING,
}

# What values of fields must be, by their annotation, and what makes plain values of them.
_KINDS: dict[str, tuple[type | tuple[type, ...], str, Callable[[Any], Any]]] = {
    "int": (Integral, "a whole number", int),
    "float": (Real, "a number", float),
    "bool": ((bool, np.bool_), "True or False", bool),
    "str": (str, "a word", str),
    "Fitness": (Fitness, "a Fitness", lambda fitness: fitness),
}
_NUMBERS = "tuple[float, ...]"


def public_name(field: str) -> str:
    """The name of an option on the command line."""
    return PUBLIC_NAMES.get(field, field.replace("_", "-"))


def refuse_foreign(kind: str, names: Iterable[str]) -> None:
    """Refuse options that models of this kind, one of the trainers, do not have."""
    for name in names:
        kinds, wanted = KINDS_WITH.get(name, ((kind,), ""))
        if kind not in kinds:
            raise RequestError(f"'{public_name(name)}' is for {wanted}")


def refuse_unknown(names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse options that there are not."""
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise RequestError(f"no such option: {', '.join(unknown)}")


def check_kinds(options: Any) -> None:
    """Refuse values of another kind than the fields of these options, a frozen dataclass, are annotated with.

    Numbers of numpy, and whole numbers for others, become plain ones of the right kind.
    """
    for field in fields(options):
        value = getattr(options, field.name)
        name, _, may_be_none = str(field.type).partition(" | ")
        if value is None and may_be_none:
            continue
        if name == _NUMBERS:
            numbers = tuple(value) if isinstance(value, Iterable) else (value, None)
            if not all(isinstance(each, Real) for each in numbers):
                raise RequestError(f"{public_name(field.name)} is {value!r}, it must be a list of numbers")
            object.__setattr__(options, field.name, tuple(map(float, numbers)))
        elif name in _KINDS:
            kinds, what, plain = _KINDS[name]
            if not isinstance(value, kinds) or (isinstance(value, bool) and name != "bool"):
                raise RequestError(f"{public_name(field.name)} is {value!r}, it must be {what}")
            object.__setattr__(options, field.name, plain(value))


def settle_tuning(chosen: dict[str, Any], fixed: Sequence[str]) -> None:
    """Turn tuning off where values are fixed that it would choose; refuse to be asked for both."""
    if not fixed:
        return
    if chosen.get("tune"):
        raise RequestError(f"'tune' and '{public_name(fixed[0])}' exclude each other; leave one of them out")
    chosen["tune"] = False


def refuse_tuning(chosen: dict[str, Any], preset: str, tuned: Iterable[str]) -> None:
    """Refuse to be asked for the tuning of options that the preset fixes."""
    if chosen.get("tune") and list(tuned):
        raise RequestError(f"'tune' and 'preset {preset}' exclude each other; leave one of them out")


def warn_of_split(chosen: dict[str, Any], *, is_tuned: bool, quick_from: int | None = None) -> None:
    """Warn of a way to split the rows where there is no tuning, or just a quick choice from so many rows on."""
    split = chosen.get("split", "auto")
    if split != "auto" and not is_tuned:
        which = "" if quick_from is None else f" up to {quick_from} rows"
        message = f"'split {split}' has no effect{which}: it is for tuning, which the other options turn off"
        warnings.warn(message, RequestWarning, stacklevel=3)
