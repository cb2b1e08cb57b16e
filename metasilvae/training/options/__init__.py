"""Options of training runs and their presets: of single trees, of forests and of boosted models.

All of them have the interface `Options`, so that callers need not distinguish them.
"""

from __future__ import annotations

from metasilvae.training.options.boosting import (
    BOOSTING_FIELDS,
    BOOSTING_PRESETS,
    BOOSTING_TUNED,
    FIRST_TREES,
    GROWN,
    SEARCHED_FOR,
    BoostingOptions,
    boosting_options_for,
)
from metasilvae.training.options.forest import FOREST_PRESETS, METHODS, SINGLE, ForestOptions, forest_options_for
from metasilvae.training.options.rules import PUBLIC_NAMES, public_name
from metasilvae.training.options.tree import (
    BLENDS,
    FEW_SAMPLES,
    FEW_VALUES,
    IMPURITIES,
    LARGEST,
    MOST_BLENDS,
    MUTATION_PROBABILITIES,
    MUTATIONS,
    NO_LIMIT,
    PRESETS,
    SELECTIONS,
    TUNED,
    Options,
    TrainingOptions,
    as_json,
    options_for,
)

__all__ = [
    "BLENDS",
    "BOOSTING_FIELDS",
    "BOOSTING_PRESETS",
    "BOOSTING_TUNED",
    "FEW_SAMPLES",
    "FEW_VALUES",
    "FIRST_TREES",
    "FOREST_PRESETS",
    "GROWN",
    "IMPURITIES",
    "LARGEST",
    "METHODS",
    "MOST_BLENDS",
    "MUTATIONS",
    "MUTATION_PROBABILITIES",
    "NO_LIMIT",
    "PRESETS",
    "PUBLIC_NAMES",
    "SEARCHED_FOR",
    "SELECTIONS",
    "SINGLE",
    "TUNED",
    "BoostingOptions",
    "ForestOptions",
    "Options",
    "TrainingOptions",
    "as_json",
    "boosting_options_for",
    "forest_options_for",
    "options_for",
    "public_name",
]
