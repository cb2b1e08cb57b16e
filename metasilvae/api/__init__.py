"""The library in a few functions; docs/api.md shows examples.

They combine what the modules below them offer, and check their arguments.
"""

from __future__ import annotations

from metasilvae.api.data import as_perturbation, encode_frame, make_dataset, name_columns, name_series
from metasilvae.api.proofs import (
    find_sufficient,
    measure_stable_share,
    prove_constant,
    prove_insensitive,
    prove_monotone,
)
from metasilvae.api.training import choose_options, run_training, train, train_pareto
from metasilvae.api.verification import (
    evaluate,
    find_ceiling,
    find_counterfactuals,
    find_radii,
    find_targets,
    find_witnesses,
    predict,
    predict_proba,
    verify,
)

__all__ = [
    "as_perturbation",
    "choose_options",
    "encode_frame",
    "evaluate",
    "find_ceiling",
    "find_counterfactuals",
    "find_radii",
    "find_sufficient",
    "find_targets",
    "find_witnesses",
    "make_dataset",
    "measure_stable_share",
    "name_columns",
    "name_series",
    "predict",
    "predict_proba",
    "prove_constant",
    "prove_insensitive",
    "prove_monotone",
    "run_training",
    "train",
    "train_pareto",
    "verify",
]
