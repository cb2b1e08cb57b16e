"""Features that take whole numbers or listed values only, and the thresholds of a tree on such features.

A test ``x <= k`` of such a feature is the same as ``x <= v`` with v the largest possible value up to k. With all
thresholds moved onto possible values, and with boxes that end on possible values, every nonempty interval contains a
possible value: its upper end. So the kernels decide exactly although they do not know the domains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from metasilvae.model import Model

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class FeatureDomains:
    """The values that features can take; all other features take any value.

    Attributes
    ----------
    whole : frozenset of int
        Features that take whole numbers.
    listed : mapping from int to tuple of float
        Features that take the given values, in increasing order.
    """

    whole: frozenset[int] = frozenset()
    listed: Mapping[int, tuple[float, ...]] = field(default_factory=dict)

    @property
    def features(self) -> list[int]:
        return sorted(self.whole | set(self.listed))

    @property
    def parts(self) -> tuple[FloatArray, ...]:
        """All domains as arrays: features of whole numbers, and feature and value of each listed value."""
        pairs = [(f, value) for f in sorted(self.listed) for value in self.listed[f]]
        return np.array(sorted(self.whole), dtype=np.float64), np.array(pairs, dtype=np.float64).reshape(-1, 2)

    def renumber(self, new: Mapping[int, int]) -> FeatureDomains:
        """The domains of some features, each under its new number."""
        listed = {new[f]: values for f, values in self.listed.items() if f in new}
        return FeatureDomains(frozenset(new[f] for f in self.whole if f in new), listed)

    def holds(self, feature: int, values: FloatArray) -> NDArray[np.bool_]:
        """Whether the feature can take each of the values."""
        if feature in self.whole:
            return np.asarray(np.floor(values) == values)
        if feature in self.listed:
            return np.isin(values, self.listed[feature])
        return np.ones(len(values), dtype=np.bool_)

    def up_to(self, feature: int, values: FloatArray) -> FloatArray:
        """The largest possible value up to each of the values; a number below all possible ones if there is none."""
        if feature in self.whole:
            return np.floor(values)
        if feature in self.listed:
            steps = np.array([np.nextafter(self.listed[feature][0], -np.inf), *self.listed[feature]])
            return steps[np.searchsorted(steps[1:], values, side="right")]
        return values

    def above(self, feature: int, values: FloatArray) -> FloatArray:
        """The smallest possible value above each of the values, infinity if there is none."""
        following = np.nextafter(values, np.inf)
        if feature in self.whole:
            return np.ceil(following)
        if feature in self.listed:
            steps = np.array([*self.listed[feature], np.inf])
            return steps[np.searchsorted(steps[:-1], values, side="right")]
        return following

    def restrict(self, model: Model) -> Model:
        """A model with the same prediction for all possible samples, and with thresholds on possible values."""
        if not self.features:
            return model
        nodes = model.nodes.copy()
        for feature in self.features:
            tests = np.flatnonzero(nodes["feature"] == feature)
            nodes["threshold"][tests] = self.up_to(feature, nodes["threshold"][tests])
        return replace(model, nodes=nodes)

    def right_starts(self, model: Model) -> FloatArray:
        """For each node the smallest possible value that its test sends to the right."""
        starts: FloatArray = np.nextafter(model.nodes["threshold"], np.inf)
        for feature in self.features:
            tests = np.flatnonzero(model.nodes["feature"] == feature)
            starts[tests] = self.above(feature, model.nodes["threshold"][tests])
        return starts
