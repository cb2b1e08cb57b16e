"""Everything that can be chosen about training a forest, beside what can be chosen about each of its trees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from metasilvae.errors import RequestError
from metasilvae.training_options import PRESETS, REHEARSED, TrainingOptions, options_for

METHODS = ("auto", "reweighted", "independent")
MOST_TREES = 100_000
# Trees are worth growing together only if they differ: from a few features each takes all, from many a part.
ALWAYS_ALL_FEATURES = 16
# Independent trees differ by their rows too.
INDEPENDENT_ROW_SAMPLE = 0.7
# What a preset changes for a tree in a forest. Many cheap trees beat few elaborate ones.
_CHEAP: dict[str, Any] = {"rehearse": True, "generations": 0, "polish": 1, "blends": (0.3,), "caution": 0.2}
# Where samples are few, a short search for each tree costs little and pays.
FEW_SAMPLES = 3000
_SEARCH: dict[str, Any] = {"generations": 10, "population": 12, "initial_population": 12, "elitism": 2}
_SEARCH_BLENDS = (0.3, 0.1, 0.0, 1.0)
FOREST_PRESETS: dict[str, dict[str, Any]] = {
    "default": _CHEAP,
    "fast": {**_CHEAP, "rehearse": False, "polish": 0},
    "best": {**_CHEAP, "generations": 30, "polish": 2, "population": 16, "initial_population": 16},
}


@dataclass(frozen=True)
class ForestOptions:
    """Options of one forest.

    Attributes
    ----------
    tree : TrainingOptions
        Of each tree; its seed is that of the forest, and `rehearse` asks for the rehearsal of the forest, which chooses
        what metasilvae.forest_rehearsal.SETTINGS lists.
    n_trees : int
    numbers : tuple of int or None
        Of the trees to grow, if not all; for a forest that several runs share. Reweighted trees look at those of their
        own run only.
    method : str
        "reweighted": each tree is grown on rows drawn with regard to the forest before it, see `strength` and `focus`.
        "independent": no tree knows of another one. "auto": what the rehearsal chooses, else "reweighted".
    row_sample : float
        Rows drawn for each tree, as a share of all; 0 chooses by the method.
    strength : float
        How fast the weight of a row falls with the margin of votes by which the forest is right about it.
    focus : float
        Share of that weight which looks at the worst point of the row's box; the rest looks at the row itself.
    searches_if_few : bool
        Whether trees are found by a short genetic search if there are few samples.
    """

    tree: TrainingOptions
    n_trees: int = 50
    method: str = "auto"
    row_sample: float = 0.0
    strength: float = 0.2
    focus: float = 1.0
    numbers: tuple[int, ...] | None = None
    searches_if_few: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.n_trees <= MOST_TREES:
            raise RequestError(f"trees is {self.n_trees}, it must be from 1 to {MOST_TREES}")
        if self.method not in METHODS:
            raise RequestError(f"forest-method must be one of {', '.join(METHODS)}")
        if not 0 <= self.row_sample <= 1:
            raise RequestError(f"row-sample is {self.row_sample:g}, it must be more than 0 and at most 1")
        if not 0 <= self.strength <= 100 or not 0 <= self.focus <= 1:
            raise RequestError("strength must be from 0 to 100, focus from 0 to 1")

    @property
    def is_reweighted(self) -> bool:
        return self.method != "independent"

    @property
    def share_of_rows(self) -> float:
        """Rows drawn for each tree, as a share of all."""
        return self.row_sample or (1.0 if self.is_reweighted else INDEPENDENT_ROW_SAMPLE)

    def features_per_tree(self, n_features: int) -> int:
        """Number of features drawn for each tree."""
        if self.tree.allowed_features:
            if self.tree.allowed_features > n_features:
                raise RequestError(
                    f"{self.tree.allowed_features} features are to be drawn for each tree, the data has {n_features}"
                )
            return self.tree.allowed_features
        if not self.tree.greedy:
            return n_features
        return min(n_features, ALWAYS_ALL_FEATURES) + max(0, n_features - ALWAYS_ALL_FEATURES) // 4

    def for_samples(self, n_samples: int) -> ForestOptions:
        """The same, with what depends on the number of samples."""
        if not self.searches_if_few or n_samples > FEW_SAMPLES:
            return self
        blends = tuple(dict.fromkeys((*self.tree.blends, *_SEARCH_BLENDS)))
        return replace(self, tree=replace(self.tree, blends=blends, **_SEARCH))

    def with_setting(self, setting: dict[str, Any]) -> ForestOptions:
        """The same with other values, by name, of the forest or of its trees; a method that is fixed stays."""
        own = {name: value for name, value in setting.items() if name in ("method", "strength", "focus")}
        if self.method != "auto":
            own.pop("method", None)
        others = {name: value for name, value in setting.items() if name in TrainingOptions.__dataclass_fields__}
        return replace(self, tree=replace(self.tree, **others), **own)


def forest_options_for(
    preset: str, n_trees: int, method: str | None = None, row_sample: float | None = None, **changes: Any
) -> ForestOptions:
    """Options of a forest by the name of a preset, with changes for its trees; a change that is None is left out.

    Whoever sets a value that the rehearsal would choose wants no rehearsal, unless it is asked for too.
    """
    chosen = {name: value for name, value in changes.items() if value is not None}
    if REHEARSED & set(chosen):
        chosen.setdefault("rehearse", False)
    tree = options_for(preset, **{**FOREST_PRESETS.get(preset, {}), "rehearse": PRESETS[preset].get("rehearse", True),
                                  **FOREST_PRESETS.get(preset, {}), **chosen})  # fmt: skip
    usual = "auto" if preset in FOREST_PRESETS else "independent"
    searches = preset == "default" and not set(chosen) & {*_SEARCH, "blends"}
    chosen_method = usual if method is None else method
    return ForestOptions(tree, n_trees, chosen_method, row_sample or 0.0, searches_if_few=searches)
