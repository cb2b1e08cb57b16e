"""Options of training runs for boosted models, and their presets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from metasilvae.datasets.images import ImageSize
from metasilvae.errors import RequestError
from metasilvae.training.options.rules import (
    check_kinds,
    public_name,
    refuse_foreign,
    refuse_unknown,
    settle_tuning,
    warn_of_split,
)
from metasilvae.training.options.tree import (
    ALWAYS_ALL_FEATURES,
    FEW_SAMPLES,
    FEW_VALUES,
    LARGEST,
    PRESETS,
    SHORT_SEARCH,
    TrainingOptions,
)
from metasilvae.verification.shards import Shard

# Options of boosted models. The genetic search and its trees have others.
BOOSTING_FIELDS = (
    "fitness", "seed", "tune", "split", "training_epsilon_factor", "robust_weight", "max_depth", "min_samples_leaf",
    "patience", "target", "time_limit", "validation",
)  # fmt: skip
BOOSTING_PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "fast": {"tune": False},
    "best": {"learning_rate": 0.05},
}
# Options that the tuning of boosting chooses.
BOOSTING_TUNED = frozenset({"training_epsilon_factor", "robust_weight", "max_depth", "tolerance", "first_tree"})
# Additive models keep the depth, which limits their thresholds, and have no first tree to choose.
ADDITIVE_TUNED = BOOSTING_TUNED - {"max_depth", "first_tree"}
# How the first tree of a boosted model is made.
GROWN, SEARCHED_FOR = FIRST_TREES = ("grown", "searched")
# Values of the options above in boosting, where they differ from those of a single tree.
_BOOSTED_TREES: dict[str, Any] = {
    "training_epsilon_factor": 1.0, "robust_weight": 0.25, "max_depth": 6, "min_samples_leaf": 1,
}  # fmt: skip
# Depth of the trees of additive models: each has up to 31 thresholds.
_ADDITIVE_DEPTH = 5
MOST_ROUNDS = 100_000
# Passes that fit the leaves of all boosted trees again. With few rows nothing is gained by them.
REFITS = 3
# A boosted tree is grown on this fraction of the rows, and on all of them if they are few.
BOOSTED_ROW_SAMPLE = 0.3
ALWAYS_ALL_ROWS = 10_000


@dataclass(frozen=True)
class BoostingOptions:
    """Options of a training run for a boosted model.

    Attributes
    ----------
    tree : TrainingOptions
        Those of `BOOSTING_FIELDS` count. `patience` counts rounds and needs rows that `validation` holds out; `tune`
        asks for the tuning of boosting, which chooses among metasilvae.training.boosting.CANDIDATES.
    n_rounds : int
        Maximum number of rounds. A round adds one tree; with more than two classes, one for each class.
    learning_rate : float
        Factor of the scores of each tree (shrinkage).
    row_sample : float
        Fraction of the rows that is drawn for each tree to grow on; 0 chooses by their number.
    feature_sample : float
        Fraction of the features that is drawn for each level of a tree; 0 chooses by their number.
    thresholds : int
        Maximum number of thresholds of each feature.
    score_penalty : float
        L2 penalty on the scores of leaves, as a number of samples.
    tolerance : float
        How far the loss gives up samples that are far from robust: from 0, the logistic loss, to 1.
    refits : int or None
        Passes that fit the leaves of all trees again after the last round; None chooses by the number of rows, and
        tuning by its trials.
    refit_penalty : float or None
        Penalty of these passes, as a number of samples; None is `score_penalty` divided by `learning_rate`, since the
        scores of a tree are smaller by that factor.
    first_tree : str
        "grown" like all others, or "searched" for as a single tree would be, see metasilvae.training.first_tree.
    image_shifts : str or None
        Rows are images of this size, such as ``28x28`` (height and width, then channels if there are several), and each
        of them is learned from also shifted by one pixel in four directions.
    additive : bool
        Whether to train one tree for each feature, whose worst scores in a box add up exactly; see
        metasilvae.training.additive_models. Models for a limit of the total change are additive without it.
    """

    kind: ClassVar[str] = "boosting"
    is_divisible: ClassVar[bool] = False
    is_observable: ClassVar[bool] = False
    count_name: ClassVar[str] = "boost"

    tree: TrainingOptions
    n_rounds: int = 100
    learning_rate: float = 0.1
    row_sample: float = 0.0
    feature_sample: float = 0.0
    thresholds: int = 255
    score_penalty: float = 1.0
    tolerance: float = 0.5
    refits: int | None = None
    refit_penalty: float | None = None
    first_tree: str = GROWN
    image_shifts: str | None = None
    additive: bool = False

    def __post_init__(self) -> None:
        check_kinds(self)
        if self.first_tree not in FIRST_TREES:
            raise RequestError(f"first-tree is {self.first_tree!r}, it must be one of {', '.join(FIRST_TREES)}")
        for name, low, high in (
            ("n_rounds", 1, MOST_ROUNDS), ("learning_rate", 0, 1), ("row_sample", 0, 1), ("feature_sample", 0, 1),
            ("thresholds", 1, 255), ("score_penalty", 0, LARGEST), ("tolerance", 0, 1),
            ("refits", 0, MOST_ROUNDS), ("refit_penalty", 0, LARGEST),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise RequestError(f"{public_name(name)} is {value:g}, it must be from {low} to {high}")
        if not self.learning_rate:
            raise RequestError("learning-rate is 0, it must be more than 0")
        if self.image_shifts is not None:
            ImageSize.parse(self.image_shifts)
        correct, stable, robust = self.tree.fitness.weights
        if correct < 0 or stable + robust < 0:
            raise RequestError(
                "boosting needs weights that reward accuracy, and stability or robust accuracy; leave out 'boost' or "
                "change the weights"
            )

    @property
    def tree_options(self) -> TrainingOptions:
        return self.tree

    @property
    def image_size(self) -> ImageSize | None:
        """Size of the images to be shifted, if rows are any."""
        return None if self.image_shifts is None else ImageSize.parse(self.image_shifts)

    @property
    def loss_weights(self) -> tuple[float, float]:
        """Weights of the natural and of the certified part of the loss; their sum is 1."""
        correct, stable, robust = self.tree.fitness.weights
        moved = self.tree.robust_weight * correct
        total = correct + stable + robust
        return (correct - moved) / total, (stable + robust + moved) / total

    def with_seed(self, seed: int) -> BoostingOptions:
        return replace(self, tree=replace(self.tree, seed=seed))

    def take_shard(self, shard: Shard, seeds: Sequence[int] | None) -> tuple[BoostingOptions, Sequence[int]]:
        """Each job trains the models of some seeds, because each tree of a model depends on those before it."""
        if seeds is None:
            raise RequestError(
                "'shard' divides seeds, or the trees of a forest, and each tree of a boosted model depends on those "
                "before it; give several 'seeds', or leave out 'shard'"
            )
        return self, shard.take_items(seeds, "seeds")

    def describe(self) -> dict[str, Any]:
        of_tree = self.tree.describe()
        names = [public_name(name) for name in BOOSTING_FIELDS if name != "seed"]
        own = {public_name(field.name): getattr(self, field.name) for field in fields(self) if field.name != "tree"}
        return {**{name: of_tree[name] for name in names}, **own}

    def rows_per_tree(self, n_rows: int) -> float:
        """Fraction of the rows drawn for each tree."""
        return self.row_sample or min(1.0, max(BOOSTED_ROW_SAMPLE, ALWAYS_ALL_ROWS / n_rows))

    def refits_for(self, n_rows: int) -> int:
        """Number of passes after the last round."""
        return (REFITS if n_rows > FEW_SAMPLES else 0) if self.refits is None else self.refits

    @property
    def penalty_of_refits(self) -> float:
        """Penalty of the passes after the last round, as a number of samples."""
        return self.score_penalty / self.learning_rate if self.refit_penalty is None else self.refit_penalty

    def first_tree_options(self, n_rows: int, n_features: int, is_trial: bool) -> TrainingOptions:
        """Options of the search for the first tree; trials of tuning search less, least where there are many values."""
        least = max(self.tree.min_samples_leaf, TrainingOptions.min_samples_leaf)
        search: dict[str, Any] = PRESETS["default"]
        if is_trial:
            are_few = n_rows <= FEW_SAMPLES or n_rows * n_features <= FEW_VALUES
            search = {**PRESETS["fast"], **(SHORT_SEARCH if are_few else {})}
        own = {"fitness": self.tree.fitness, "seed": self.tree.seed, "min_samples_leaf": least, "tune": False}
        return TrainingOptions(**{**search, **own})

    def features_per_level(self, n_features: int) -> int:
        """Number of features drawn for each level of a tree."""
        if self.feature_sample:
            return max(1, round(self.feature_sample * n_features))
        return min(n_features, ALWAYS_ALL_FEATURES) + max(0, n_features - ALWAYS_ALL_FEATURES) // 8

    def with_candidate(self, candidate: dict[str, Any]) -> BoostingOptions:
        """The same options with other values of boosting or of its trees."""
        own = {name: value for name, value in candidate.items() if name not in BOOSTING_FIELDS}
        others = {name: value for name, value in candidate.items() if name in BOOSTING_FIELDS}
        return replace(self, tree=replace(self.tree, **others), **own)


def boosting_options_for(preset: str, n_rounds: int, **changes: Any) -> BoostingOptions:
    """Options of a boosted model by the name of a preset, with changes; a change that is None is ignored.

    Setting any of `BOOSTING_TUNED` disables tuning; `tune` must not be set too.
    """
    if preset not in BOOSTING_PRESETS:
        raise RequestError(f"preset {preset!r} is for single trees and forests; leave out 'preset' or 'boost'")
    chosen = {name: value for name, value in changes.items() if value is not None}
    refuse_foreign("boosting", chosen)
    is_additive = bool(chosen.get("additive"))
    settle_tuning(chosen, sorted((ADDITIVE_TUNED if is_additive else BOOSTING_TUNED) & set(chosen)))
    own = {field.name for field in fields(BoostingOptions)} - {"tree", "n_rounds"}
    for name in chosen:
        if name in TrainingOptions.__dataclass_fields__ and name not in BOOSTING_FIELDS:
            public = public_name(name)
            raise RequestError(f"'{public}' is for the search for trees; leave out '{public}' or 'boost'")
    refuse_unknown(chosen, (*own, *BOOSTING_FIELDS))
    usual = {**_BOOSTED_TREES, "max_depth": _ADDITIVE_DEPTH} if is_additive else _BOOSTED_TREES
    values = {**usual, **BOOSTING_PRESETS[preset], **chosen}
    tree = TrainingOptions(**{name: value for name, value in values.items() if name in BOOSTING_FIELDS})
    warn_of_split(chosen, is_tuned=tree.tune)
    return BoostingOptions(tree, n_rounds, **{name: value for name, value in values.items() if name in own})
