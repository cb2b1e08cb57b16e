"""Options of training runs for forests, and their presets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from metasilvae.errors import RequestError
from metasilvae.training.options.rules import check_kinds, refuse_foreign, refuse_tuning, settle_tuning, warn_of_split
from metasilvae.training.options.tree import (
    ALWAYS_ALL_FEATURES,
    FEW_SAMPLES,
    PRESETS,
    SHORT_SEARCH,
    TUNED,
    TrainingOptions,
    as_json,
    list_fixed,
    make_tree_options,
)
from metasilvae.verification.shards import Shard

# What a run has once, for a forest and for the single tree that may take its place.
_RUN_FIELDS = ("fitness", "seed", "split", "target", "time_limit", "validation")
# Names of options of a forest on the command line, where they differ from the fields; its trees have the others.
_FOREST_NAMES = {"n_trees": "trees", "method": "forest-method", "row_sample": "row-sample", "numbers": "shard"}
METHODS = ("auto", "reweighted", "independent")
# What tuning chooses where one tree is better than a forest.
SINGLE = "single"
MOST_TREES = 100_000
# Independent trees differ by their rows too.
INDEPENDENT_ROW_SAMPLE = 0.7
# Changes of a preset for a tree in a forest. Many cheap trees beat few elaborate ones.
_CHEAP: dict[str, Any] = {
    "tune": True, "generations": 0, "polish": 1, "blends": (0.3,), "robust_weight": 0.2,
    "training_epsilon_factor": 1.15, "leaf_penalty": 1.0,
}  # fmt: skip
_SEARCH_BLENDS = (0.3, 0.1, 0.0, 1.0)
FOREST_PRESETS: dict[str, dict[str, Any]] = {
    "default": _CHEAP,
    "fast": {**_CHEAP, "tune": False, "polish": 0},
    "best": {**_CHEAP, "generations": 30, "polish": 2, "population": 16, "initial_population": 16},
}


@dataclass(frozen=True)
class ForestOptions:
    """Options of a training run for a forest.

    Attributes
    ----------
    tree : TrainingOptions
        Options of each tree. Its seed is that of the forest, and `tune` asks for the tuning of the forest, which
        chooses among metasilvae.training.forest_tuning.CANDIDATES, and a single tree.
    n_trees : int
        Number of trees.
    method : str
        "reweighted": each tree is grown on rows drawn by the votes of the trees before it, see `strength` and `focus`.
        "independent": no tree depends on another one. "auto": what tuning chooses, otherwise "reweighted"; tuning may
        choose "single", one tree that is searched for as without a forest.
    row_sample : float
        Fraction of the rows drawn for each tree; 0 chooses by the method.
    strength : float
        How fast the weight of a row falls with the margin of votes by which the forest is correct.
    focus : float
        Fraction of that weight that is computed at the worst point of the row's box; the rest is computed at the row.
    numbers : tuple of int or None
        Numbers of the trees to grow, for a forest that several jobs share; None means all. Reweighted trees depend on
        those of their own job only.
    searches_if_few : bool
        Whether trees are found by a short genetic search if there are few samples.
    single : TrainingOptions or None
        Options of a single tree, which is the result if it is better than the forest on rows left out; None compares
        with no tree.
    """

    kind: ClassVar[str] = "forest"
    is_divisible: ClassVar[bool] = True
    is_observable: ClassVar[bool] = False
    count_name: ClassVar[str] = "trees"

    tree: TrainingOptions
    n_trees: int = 50
    method: str = "auto"
    row_sample: float = 0.0
    strength: float = 0.2
    focus: float = 1.0
    numbers: tuple[int, ...] | None = None
    searches_if_few: bool = False
    single: TrainingOptions | None = None

    def __post_init__(self) -> None:
        check_kinds(self)
        if not 1 <= self.n_trees <= MOST_TREES:
            raise RequestError(f"trees is {self.n_trees}, it must be from 1 to {MOST_TREES}")
        if self.method not in (*METHODS, SINGLE):
            raise RequestError(f"forest-method must be one of {', '.join(METHODS)}")
        if not 0 <= self.row_sample <= 1:
            raise RequestError(f"row-sample is {self.row_sample:g}, it must be more than 0 and at most 1")
        if not 0 <= self.strength <= 100 or not 0 <= self.focus <= 1:
            raise RequestError("strength must be from 0 to 100, focus from 0 to 1")

    @property
    def tree_options(self) -> TrainingOptions:
        return self.tree

    def with_seed(self, seed: int) -> ForestOptions:
        return replace(self, tree=replace(self.tree, seed=seed))

    def take_shard(self, shard: Shard, seeds: Sequence[int] | None) -> tuple[ForestOptions, None]:
        """Each job grows some of the trees."""
        if seeds is not None:
            raise RequestError("'shard' divides seeds or the trees of a forest; leave out 'seeds' or 'trees'")
        return replace(self, numbers=tuple(shard.take_items(range(self.n_trees), "trees"))), None

    def describe(self) -> dict[str, Any]:
        own = {
            _FOREST_NAMES.get(field.name, field.name.replace("_", "-")): as_json(getattr(self, field.name))
            for field in fields(self)
            if field.name not in ("tree", "single")
        }
        return {**self.tree.describe(), **own, "compare-with-tree": self.single is not None}

    @property
    def is_single(self) -> bool:
        return self.method == SINGLE

    @property
    def is_reweighted(self) -> bool:
        return self.method not in ("independent", SINGLE)

    @property
    def row_fraction(self) -> float:
        """Fraction of the rows that is drawn for each tree."""
        return self.row_sample or (INDEPENDENT_ROW_SAMPLE if self.method == "independent" else 1.0)

    def features_per_tree(self, n_features: int) -> int:
        """Number of features drawn for each tree."""
        if self.tree.allowed_features:
            if self.tree.allowed_features > n_features:
                raise RequestError(
                    f"{self.tree.allowed_features} features are to be drawn for each tree, the data has {n_features}"
                )
            return self.tree.allowed_features
        if not self.tree.greedy or self.is_single:
            return n_features
        return min(n_features, ALWAYS_ALL_FEATURES) + max(0, n_features - ALWAYS_ALL_FEATURES) // 4

    def for_samples(self, n_samples: int) -> ForestOptions:
        """The same options, with those that depend on the number of samples."""
        if not self.searches_if_few or n_samples > FEW_SAMPLES:
            return self
        blends = tuple(dict.fromkeys((*self.tree.blends, *_SEARCH_BLENDS)))
        return replace(self, tree=replace(self.tree, blends=blends, **SHORT_SEARCH))

    def with_candidate(self, candidate: dict[str, Any]) -> ForestOptions:
        """The same options with other values of the forest or of its trees; a method that is fixed stays."""
        own = {name: value for name, value in candidate.items() if name in ("method", "strength", "focus")}
        if candidate.get("method") == SINGLE:
            assert self.single is not None
            of_run = {name: getattr(self.tree, name) for name in _RUN_FIELDS}
            tree = replace(self.single, **{**of_run, "tune": False, **_tree_part(candidate)})
            return replace(self, method=SINGLE, row_sample=1.0, tree=tree)
        if self.method != "auto":
            own.pop("method", None)
        return replace(self, tree=replace(self.tree, **_tree_part(candidate)), **own)


def _tree_part(candidate: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in candidate.items() if name in TrainingOptions.__dataclass_fields__}


def forest_options_for(
    preset: str, n_trees: int, method: str | None = None, row_sample: float | None = None, **changes: Any
) -> ForestOptions:
    """Options of a forest by the name of a preset, with changes for its trees; a change that is None is ignored.

    Setting any of `TUNED`, or a population that is not grown greedily, disables tuning; `tune` must not be set too. If
    tuning is disabled, the forest is not compared with a single tree.
    """
    chosen = {name: value for name, value in changes.items() if value is not None}
    refuse_foreign("forest", chosen)
    refuse_tuning(chosen, preset, TUNED & set(PRESETS[preset]))
    settle_tuning(chosen, list_fixed(chosen))
    tune = PRESETS[preset].get("tune", True)
    tree = make_tree_options(preset, {"tune": tune, **FOREST_PRESETS.get(preset, {}), **chosen})
    usual = "auto" if preset in FOREST_PRESETS else "independent"
    searches = preset == "default" and not set(chosen) & {*SHORT_SEARCH, "blends"}
    chosen_method = usual if method is None else method
    is_compared = preset in FOREST_PRESETS and chosen_method == "auto" and chosen.get("tune") is not False
    single = make_tree_options(preset, chosen) if is_compared and tree.greedy else None
    warn_of_split(chosen, is_tuned=tree.tune)
    return ForestOptions(tree, n_trees, chosen_method, row_sample or 0.0, searches_if_few=searches, single=single)
