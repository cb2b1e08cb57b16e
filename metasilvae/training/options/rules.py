"""Rules about options that are given together: which kind of model has them, and which ones tuning excludes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from metasilvae.errors import RequestError, RequestWarning

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
}


def public_name(field: str) -> str:
    """The name of an option on the command line."""
    return PUBLIC_NAMES.get(field, field.replace("_", "-"))


def refuse_foreign(kind: str, names: Iterable[str]) -> None:
    """Refuse options that models of this kind, one of the trainers, do not have."""
    for name in names:
        kinds, wanted = KINDS_WITH.get(name, ((kind,), ""))
        if kind not in kinds:
            raise RequestError(f"'{public_name(name)}' is for {wanted}")


def settle_tuning(chosen: dict[str, Any], fixed: Sequence[str]) -> None:
    """Turn tuning off where values are fixed that it would choose; refuse to be asked for both."""
    if not fixed:
        return
    if chosen.get("tune"):
        raise RequestError(f"'tune' and '{public_name(fixed[0])}' exclude each other; leave one of them out")
    chosen["tune"] = False


def warn_of_split(chosen: dict[str, Any], *, is_tuned: bool) -> None:
    """Warn of a way to split the rows where there is no tuning."""
    split = chosen.get("split", "auto")
    if split != "auto" and not is_tuned:
        message = f"'split {split}' has no effect: it is for tuning, which the other options turn off"
        warnings.warn(message, RequestWarning, stacklevel=3)
