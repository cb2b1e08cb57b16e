"""metasilvae: decision trees that are accurate and provably stable under perturbations of the input.

The names below are imported when they are first used; docs/api.md shows them at work.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metasilvae._version import VERSION as __version__

if TYPE_CHECKING:
    from metasilvae.api import (
        choose_options,
        evaluate,
        find_ceiling,
        find_counterfactuals,
        find_radii,
        find_sufficient,
        find_targets,
        find_witnesses,
        make_dataset,
        predict,
        predict_proba,
        prove_constant,
        prove_insensitive,
        prove_monotone,
        run_training,
        train,
        train_pareto,
        verify,
    )
    from metasilvae.dataset import Dataset
    from metasilvae.displays import RobustnessCurveDisplay
    from metasilvae.encoding import Encoding
    from metasilvae.errors import MetasilvaeError
    from metasilvae.formats.datasets import read_dataset, write_dataset
    from metasilvae.formats.silva_models import read_model, write_model
    from metasilvae.formats.tables import TableOptions
    from metasilvae.interop.imports import import_file, import_object
    from metasilvae.model import Model
    from metasilvae.perturbations.attack import load_attack
    from metasilvae.perturbations.attack_files import read_attack
    from metasilvae.perturbations.boxes import Ball, BoxFile
    from metasilvae.perturbations.norms import NormBall
    from metasilvae.sklearn import (
        MetaSilvaeClassifier,
        RobustBoostingClassifier,
        RobustForestClassifier,
        fitness_scorer,
        robust_accuracy_scorer,
        stability_scorer,
    )
    from metasilvae.training.runs import TrainingMonitor
    from metasilvae.verification.budget import Budget

# The module that defines each public name.
_HOMES = {
    "Ball": "perturbations.boxes",
    "BoxFile": "perturbations.boxes",
    "Dataset": "dataset",
    "Budget": "verification.budget",
    "Encoding": "encoding",
    "MetaSilvaeClassifier": "sklearn",
    "MetasilvaeError": "errors",
    "Model": "model",
    "NormBall": "perturbations.norms",
    "RobustBoostingClassifier": "sklearn",
    "RobustForestClassifier": "sklearn",
    "RobustnessCurveDisplay": "displays",
    "TableOptions": "formats.tables",
    "TrainingMonitor": "training.runs",
    "choose_options": "api",
    "evaluate": "api",
    "find_ceiling": "api",
    "find_counterfactuals": "api",
    "find_radii": "api",
    "find_sufficient": "api",
    "find_targets": "api",
    "find_witnesses": "api",
    "fitness_scorer": "sklearn",
    "import_file": "interop.imports",
    "import_object": "interop.imports",
    "load_attack": "perturbations.attack",
    "make_dataset": "api",
    "predict": "api",
    "predict_proba": "api",
    "prove_constant": "api",
    "prove_insensitive": "api",
    "prove_monotone": "api",
    "read_attack": "perturbations.attack_files",
    "read_dataset": "formats.datasets",
    "read_model": "formats.silva_models",
    "robust_accuracy_scorer": "sklearn",
    "run_training": "api",
    "stability_scorer": "sklearn",
    "train": "api",
    "train_pareto": "api",
    "verify": "api",
    "write_dataset": "formats.datasets",
    "write_model": "formats.silva_models",
}

__all__ = [
    "Ball",
    "BoxFile",
    "Budget",
    "Dataset",
    "Encoding",
    "MetaSilvaeClassifier",
    "MetasilvaeError",
    "Model",
    "NormBall",
    "RobustBoostingClassifier",
    "RobustForestClassifier",
    "RobustnessCurveDisplay",
    "TableOptions",
    "TrainingMonitor",
    "__version__",
    "choose_options",
    "evaluate",
    "find_ceiling",
    "find_counterfactuals",
    "find_radii",
    "find_sufficient",
    "find_targets",
    "find_witnesses",
    "fitness_scorer",
    "import_file",
    "import_object",
    "load_attack",
    "make_dataset",
    "predict",
    "predict_proba",
    "prove_constant",
    "prove_insensitive",
    "prove_monotone",
    "read_attack",
    "read_dataset",
    "read_model",
    "robust_accuracy_scorer",
    "run_training",
    "stability_scorer",
    "train",
    "train_pareto",
    "verify",
    "write_dataset",
    "write_model",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
