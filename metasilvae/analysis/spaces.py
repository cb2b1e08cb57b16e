"""Input spaces: the inputs for which something is proved, by the range and the possible values of each feature.

A space is a box with the constraints that inputs satisfy by themselves: whole numbers, listed values, one-hot groups,
and which values may be missing. Columns of a table are known to the model: a category takes one of its values, a
boolean one of two. Data or a file narrow the space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from metasilvae.analysis.difference import LARGEST, InputBox
from metasilvae.dataset import Dataset
from metasilvae.encoding import CATEGORY
from metasilvae.errors import DataError, ModelError
from metasilvae.model import Model
from metasilvae.perturbations.attack import fit_attack
from metasilvae.perturbations.attack_files import AttackRules
from metasilvae.perturbations.domains import FeatureDomains
from metasilvae.perturbations.groups import TableGroups

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
        Their members are 0 or 1 and never missing.
    domains : FeatureDomains
    description : str
    """

    lower: FloatArray
    upper: FloatArray
    may_be_missing: NDArray[np.bool_]
    description: str
    groups: TableGroups = field(default_factory=TableGroups)
    domains: FeatureDomains = field(default_factory=FeatureDomains)

    @classmethod
    def of_model(cls, model: Model) -> InputSpace:
        """All inputs of a model."""
        return cls._make(model, InputBox.everything(model.n_features))

    @classmethod
    def between(cls, model: Model, minimum: float, maximum: float) -> InputSpace:
        """Inputs with all numbers in the same range; missing values belong to the space where the model takes them."""
        box = InputBox.between(minimum, maximum, model.n_features)
        if model.encoding is not None and model.encoding.is_indicator.any():
            # Indicators are no numbers of the table.
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
        attack = fit_attack(rules, describe_columns(model))
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
        own = [group for group in attack.groups.lists if not _are_encoded(model, group)]
        return cls._make(model, box, own, attack.domains)

    @classmethod
    def _make(
        cls, model: Model, box: InputBox, groups: Sequence[Sequence[int]] = (), domains: FeatureDomains | None = None
    ) -> InputSpace:
        if model.encoding is not None and model.encoding.has_sets:
            raise ModelError(
                f"{model.source} splits categories by sets, which proofs for all inputs do not know; verify, radii "
                "and diff do"
            )
        box = box.for_models(model)
        assert box.may_be_missing is not None
        lower, upper, may_be_missing = box.lower.copy(), box.upper.copy(), box.may_be_missing.copy()
        whole, listed = (frozenset[int](), {}) if domains is None else (domains.whole, dict(domains.listed))
        all_groups = [list(group) for group in groups]
        encoding = model.encoding
        if encoding is not None:
            listed |= {int(f): (0.0, 1.0) for f in np.flatnonzero(encoding.is_indicator)}
            all_groups += [
                list(encoding.features_of(place))
                for place, column in enumerate(encoding.columns)
                if column.kind == CATEGORY
            ]
        for group in all_groups:
            may_be_missing[group] = False
            listed |= dict.fromkeys(group, (0.0, 1.0))
        possible = FeatureDomains(whole - listed.keys(), listed)
        for feature in possible.features:
            ends = np.array([np.nextafter(lower[feature], -np.inf), upper[feature]])
            lower[feature] = possible.above(feature, ends[:1])[0]
            upper[feature] = possible.up_to(feature, ends[1:])[0]
        is_empty = ~(lower <= upper)
        for group in all_groups:
            is_empty[group[0]] |= not (upper[group] > 0).any() or (lower[group] > 0).sum() > 1
        if is_empty.any():
            name = model.names.names[int(np.argmax(is_empty))]
            raise DataError(f"{box.description}: no value of {name} is possible there; widen the limits")
        return cls(lower, upper, may_be_missing, box.description, TableGroups.of_lists(all_groups), possible)

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
        for group in self.groups.lists:
            is_inside &= X[:, group].sum(axis=1) == 1
        return is_inside


def _are_encoded(model: Model, group: Sequence[int]) -> bool:
    return model.encoding is not None and bool(model.encoding.is_indicator[list(group)].any())


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
