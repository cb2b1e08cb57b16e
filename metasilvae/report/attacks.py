"""What an attack allows, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator

from metasilvae.attack import Attack
from metasilvae.dataset import Dataset

# Values that are listed one by one.
_SHOWN_VALUES = 8


def describe_attack(attack: Attack, dataset: Dataset) -> Iterator[str]:
    """A line for each column and each group."""
    members = {feature for group in attack.groups.lists for feature in group}
    names = [dataset.feature_name(feature) for feature in range(attack.n_features)]
    reach = attack.reach.T.tolist()
    width = max((len(name) for feature, name in enumerate(names) if feature not in members), default=0)
    for feature, name in enumerate(names):
        if feature not in members:
            yield f"{name:{width}}  {describe_column(attack, feature, *reach[feature])}\n"
    for group in attack.groups.lists:
        yield f"exactly one of {', '.join(names[feature] for feature in group)} is 1, any of them may become it\n"
    yield f"\nall {dataset.n_samples} rows of {dataset.source} obey these rules\n"
    if attack.is_idle:
        yield "no value can change: every model is stable under this attack\n"


def describe_column(attack: Attack, feature: int, down: float, up: float) -> str:
    """What may become of a column that is in no group, and whose values may fall and rise by so much."""
    if feature in attack.domains.listed:
        return _describe_values(attack.domains.listed[feature], down, up)
    if down == up == 0:
        return "stays as it is"
    unit = "whole numbers, " if feature in attack.domains.whole else ""
    if down == up:
        moves = "any value" if math.isinf(up) else f"up or down by at most {up:g}"
    elif down == 0 or up == 0:
        way, length = ("up", up) if down == 0 else ("down", down)
        moves = f"{way} only" + ("" if math.isinf(length) else f", by at most {length:g}")
    else:
        moves = f"down by at most {down:g}, up by at most {up:g}"
    low, high = float(attack.minimum[feature]), float(attack.maximum[feature])
    limits = [f"not below {low:g}"] * math.isfinite(low) + [f"not above {high:g}"] * math.isfinite(high)
    return unit + ", ".join([moves, *limits])


def _describe_values(values: tuple[float, ...], down: float, up: float) -> str:
    shown = [f"{value:g}" for value in values]
    if len(shown) > _SHOWN_VALUES:
        shown = [*shown[: _SHOWN_VALUES - 1], "...", shown[-1]]
    way = {(False, True): ", up only", (True, False): ", down only"}.get((down > 0, up > 0), "")
    if down == up == 0:
        return f"stays as it is, one of {', '.join(shown)}"
    return f"any of the {len(values)} values {', '.join(shown)}{way}"
