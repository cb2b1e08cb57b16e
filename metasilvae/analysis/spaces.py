"""Input spaces: the inputs for which something is proved, by the range and the possible values of each feature.

A space is a box with the constraints that inputs satisfy by themselves: whole numbers, listed values, one-hot groups,
and which values may be missing. Columns of a table are known to the model: a category takes one of its values, a
boolean one of two. Data or a file narrow the space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from metasilvae.analysis.difference import LARGEST, InputBox, list_groups
from metasilvae.dataset import Dataset
from metasilvae.encoding import BOOLEAN
from metasilvae.errors import DataError, ModelError
from metasilvae.model import Model
from metasilvae.perturbations.attack import fit_attack, list_categories
from metasilvae.perturbations.attack_files import AttackRules
from metasilvae.perturbations.domains import FeatureDomains
from metasilvae.perturbations.groups import Group, TableGroups, pack_options

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class InputSpace:
    """A set of inputs of a model; never empty.

    Attributes
    ----------
    lower, upper : float64 arrays, shape (n_features,)
        Finite and possible values; the largest float64 numbers stand for no bound.
    may_be_missing : bool array, shape (n_features,)
        Whether inputs without a value belong to the space.
    groups : TableGroups
        Features of a category, or of a one-hot group of a file, which take joint values only and are never missing.
    allowed : uint64 array, shape (1, n_groups, n_words), or None
        The options of groups that belong to the space; None means all.
    domains : FeatureDomains
    description : str
    """

    lower: FloatArray
    upper: FloatArray
    may_be_missing: NDArray[np.bool_]
    description: str
    groups: TableGroups = field(default_factory=TableGroups)
    domains: FeatureDomains = field(default_factory=FeatureDomains)
    allowed: NDArray[np.uint64] | None = None

    @classmethod
    def of_model(cls, model: Model) -> InputSpace:
        """All inputs of a model."""
        return cls._make(model, InputBox.everything(model.n_features))

    @classmethod
    def between(cls, model: Model, minimum: float, maximum: float) -> InputSpace:
        """Inputs with all numbers in the same range; missing values belong to the space where the model takes them."""
        box = InputBox.between(minimum, maximum, model.n_features)
        if model.encoding is not None:
            # Booleans are no numbers of the table; features of categories have bounds of their own.
            box.lower[model.encoding.is_indicator] = 0.0
            box.upper[model.encoding.is_indicator] = 1.0
        return cls._make(model, box)

    @classmethod
    def around(cls, model: Model, dataset: Dataset) -> InputSpace:
        """Inputs within the range of each feature in a data set; values may be missing where some are."""
        return cls._make(model, InputBox.around(dataset))

    @classmethod
    def of_rules(cls, model: Model, rules: AttackRules) -> InputSpace:
        """Inputs within the limits of an attack file; radii and other changes do not matter here."""
        attack = fit_attack(rules, describe_columns(model), is_region=True)
        is_refused = np.zeros(model.n_features, dtype=np.bool_)
        if attack.droppable is not None:
            is_refused = attack.droppable & ~model.takes_missing
        if is_refused.any():
            raise ModelError(
                f"{model.source} does not say where missing values of {model.names.names[int(np.argmax(is_refused))]} "
                f'go, and {rules.source} lets them appear; write missing = "stays" for this column'
            )
        box = InputBox(
            np.maximum(attack.minimum, -LARGEST),
            np.minimum(attack.maximum, LARGEST),
            f"the limits of {rules.source}",
            np.zeros(model.n_features, dtype=np.bool_) if attack.droppable is None else attack.droppable,
        )
        encoded = {feature for group in list_groups(model.encoding).groups for feature in group.features}
        own = [group for group in attack.groups.groups if encoded.isdisjoint(group.features)]
        categories = list_categories(rules, describe_columns(model))
        for place, is_listed in categories.items():
            assert model.encoding is not None
            if model.encoding.columns[place].kind == BOOLEAN:
                feature = model.encoding.starts[place]
                box.lower[feature], box.upper[feature] = np.flatnonzero(is_listed)[[0, -1]]
        space = cls._make(model, box, own, attack.domains)
        return space._restrict_options(model, categories)

    def _restrict_options(self, model: Model, categories: Mapping[int, NDArray[np.bool_]]) -> InputSpace:
        """The part of the space in which categories take the listed values only."""
        if model.encoding is None or not self.groups.n_groups:
            return self
        allowed = np.full((1, self.groups.n_groups, self.groups.n_words), ~np.uint64(0), dtype=np.uint64)
        if self.allowed is not None:
            allowed[:, : self.allowed.shape[1], : self.allowed.shape[2]] &= self.allowed
        for number, group in enumerate(self.groups.groups):
            is_listed = categories.get(model.encoding.column_of_feature[group.features[-1]])
            if is_listed is not None:
                allowed[0, number] &= pack_options(is_listed[np.newaxis], self.groups.n_words)[0]
        return replace(self, allowed=allowed) if categories else self

    @classmethod
    def _make(
        cls, model: Model, box: InputBox, own: Sequence[Group] = (), domains: FeatureDomains | None = None
    ) -> InputSpace:
        """The part of a box that belongs to a model; `own` are one-hot groups of numbers."""
        box = box.for_models(model)
        assert box.may_be_missing is not None
        lower, upper, may_be_missing = box.lower.copy(), box.upper.copy(), box.may_be_missing.copy()
        whole, listed = (frozenset[int](), {}) if domains is None else (domains.whole, dict(domains.listed))
        groups = TableGroups((*box.groups.groups, *own))
        for group in groups.groups:
            may_be_missing[list(group.features)] = False
            listed |= dict.fromkeys(group.members, (0.0, 1.0))
        encoding = model.encoding
        if encoding is not None:
            booleans = [place for place, column in enumerate(encoding.columns) if column.kind == BOOLEAN]
            listed |= {encoding.starts[place]: (0.0, 1.0) for place in booleans}
        possible = FeatureDomains(whole - listed.keys(), listed)
        with np.errstate(over="ignore"):
            for feature in possible.features:
                # At least as large as the lower bound: above the number before it.
                before = np.nextafter(lower[feature : feature + 1], -np.inf)
                lower[feature] = possible.above(feature, before)[0]
                upper[feature] = possible.up_to(feature, upper[feature : feature + 1])[0]
        is_empty = ~(lower <= upper)
        if is_empty.any():
            name = model.names.names[int(np.argmax(is_empty))]
            raise DataError(f"{box.description}: no value of {name} is possible there; widen the limits")
        return cls(lower, upper, may_be_missing, box.description, groups, possible, box.allowed)

    def list_options(self, number: int) -> NDArray[np.bool_]:
        """Which options of a group belong to the space."""
        group = self.groups.groups[number]
        numbers = np.arange(len(group.table))
        if self.allowed is None:
            return np.ones(len(numbers), dtype=np.bool_)
        words = self.allowed[0, number][numbers // 64]
        return np.asarray((words >> (numbers % 64).astype(np.uint64)) & np.uint64(1) == 1)

    def restrict(self, model: Model) -> Model:
        """The model as kernels search it in this space, with thresholds on possible values; leaves keep their numbers.

        Where no value may be missing, branches that only missing values take are left out.
        """
        return self.domains.restrict(model if self.may_be_missing.any() else model.without_directions).feasible

    def holds(self, X: FloatArray) -> NDArray[np.bool_]:
        """Whether each row belongs to the space."""
        is_missing = np.isnan(X)
        inside = np.where(is_missing, self.may_be_missing, (self.lower <= X) & (self.upper >= X))
        for feature in self.domains.features:
            inside[:, feature] &= is_missing[:, feature] | self.domains.holds(feature, X[:, feature])
        is_inside = np.asarray(inside.all(axis=1))
        for number, group in enumerate(self.groups.groups):
            option = group.find_options(X)
            is_inside &= (option >= 0) & self.list_options(number)[option]
        return is_inside


def describe_columns(model: Model) -> Dataset:
    """A data set without rows that has the columns of a model, to find them by name."""
    return Dataset(
        np.zeros((0, model.n_features)),
        np.zeros(0, dtype=np.int32),
        model.labels,
        model.description.feature_names,
        model.source,
        encoding=model.encoding,
    )
