"""metasilvae: decision trees that are accurate and provably stable under perturbations of the input.

The names below are imported when they are first used; docs/api.md shows them at work.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metasilvae._version import VERSION as __version__

if TYPE_CHECKING:
    from metasilvae import scorers
    from metasilvae.api import (
        choose_options,
        evaluate,
        find_radii,
        find_witnesses,
        make_dataset,
        predict,
        train,
        train_pareto,
        verify,
    )
    from metasilvae.attack import load_attack
    from metasilvae.dataset import Dataset
    from metasilvae.errors import MetasilvaeError
    from metasilvae.estimators import MetaSilvaeClassifier, RobustForestClassifier
    from metasilvae.forest_verification import Limits
    from metasilvae.formats.datasets import read_dataset, write_dataset
    from metasilvae.formats.silva_models import read_model, write_model
    from metasilvae.imports import import_file, import_object
    from metasilvae.model import Model
    from metasilvae.perturbation import Ball, BoxFile

# Where each name lives.
_HOMES = {
    "Ball": "perturbation",
    "BoxFile": "perturbation",
    "Dataset": "dataset",
    "Limits": "forest_verification",
    "MetaSilvaeClassifier": "estimators",
    "MetasilvaeError": "errors",
    "Model": "model",
    "RobustForestClassifier": "estimators",
    "choose_options": "api",
    "evaluate": "api",
    "find_radii": "api",
    "find_witnesses": "api",
    "import_file": "imports",
    "import_object": "imports",
    "load_attack": "attack",
    "make_dataset": "api",
    "predict": "api",
    "read_dataset": "formats.datasets",
    "read_model": "formats.silva_models",
    "scorers": "scorers",
    "train": "api",
    "train_pareto": "api",
    "verify": "api",
    "write_dataset": "formats.datasets",
    "write_model": "formats.silva_models",
}

__all__ = [
    "Ball",
    "BoxFile",
    "Dataset",
    "Limits",
    "MetaSilvaeClassifier",
    "MetasilvaeError",
    "Model",
    "RobustForestClassifier",
    "__version__",
    "choose_options",
    "evaluate",
    "find_radii",
    "find_witnesses",
    "import_file",
    "import_object",
    "load_attack",
    "make_dataset",
    "predict",
    "read_dataset",
    "read_model",
    "scorers",
    "train",
    "train_pareto",
    "verify",
    "write_dataset",
    "write_model",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_HOMES[name]}")
    value = module if name == _HOMES[name] else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
