"""What an import gives: a model, and the library it came from as the library of it.

What the labels of an imported model are called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import ModelError
from metasilvae.model import Model

FLOAT32_ROUNDING = float(np.finfo(np.float32).eps)
FLOAT64_ROUNDING = float(np.finfo(np.float64).eps)
# Deepest tree that a library is given which walks it by recursion. onnxruntime 1.31 overflows a stack of 8 MiB between
# 5000 and 20000 levels.
MOST_LEVELS = 1000


@dataclass(frozen=True)
class LibraryPredictor:
    """The source library, asked for its own answers.

    Attributes
    ----------
    name : str
        Library and version.
    answer : callable
        From a float64 array of shape (n_samples, n_features) to the position of the label of each sample.
    score : callable or None
        From the same array to the library's score of each label, shape (n_samples, n_labels), where it tells them.
    rounding : float
        Relative error of one addition in the library.
    is_float32 : bool
        Whether it rounds values to float32, and takes none that are too large for it.
    """

    name: str
    prediction: Callable[[NDArray[np.float64]], NDArray[np.int64]]
    score: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None
    rounding: float = FLOAT64_ROUNDING
    is_float32: bool = True

    @property
    def largest(self) -> float:
        """Largest absolute value that the library takes."""
        return float(np.finfo(np.float32 if self.is_float32 else np.float64).max)


@dataclass(frozen=True)
class Imported:
    """A model from another library.

    Attributes
    ----------
    model : Model
    voting : str
        How the library counts its trees; one of `metasilvae.voting.VOTINGS`.
    origin : str
        What the source is, for reports.
    load_predictor : callable
        Loads the library and gives it the same source; None if it is not installed.
    extra : str
        What to install for a library.
    n_levels : int
        Splits above the deepest leaf as the library sees them, if it walks trees by recursion; 0 if it does not.
    """

    model: Model
    voting: str
    origin: str
    load_predictor: Callable[[], LibraryPredictor | None]
    extra: str
    n_levels: int = 0

    @property
    def is_too_deep(self) -> bool:
        """Whether the library could crash if it were given the source."""
        return self.n_levels > MOST_LEVELS


@dataclass(frozen=True)
class ImportOptions:
    """How a source is to be read.

    Attributes
    ----------
    labels : tuple of str or None
        Names of the labels in the order of the source; None keeps the names, or numbers, of the source.
    leaves : str
        "counts", "scores", or "auto": counts where the source has them.
    trust : bool
        Whether the source may run code while it is loaded.
    """

    labels: tuple[str, ...] | None = None
    leaves: str = "auto"
    trust: bool = False


def name_classes(classes: Iterable[object]) -> list[str]:
    """Classes as they are written in data files: whole numbers without a point."""
    names = []
    for label in classes.tolist() if hasattr(classes, "tolist") else classes:
        is_whole = isinstance(label, float) and label.is_integer()
        names.append(str(int(label)) if isinstance(label, float) and is_whole else str(label))
    return names


def choose_labels(own: Sequence[str], wanted: Sequence[str] | None, source: str) -> tuple[str, ...]:
    """The names asked for, or those of the source."""
    if wanted is None:
        return tuple(own)
    if len(wanted) != len(own):
        raise ModelError(
            f"{source}: {len(wanted)} names were given with --labels, the model has {len(own)} labels "
            f"({', '.join(own[:5])}{', ...' if len(own) > 5 else ''})"
        )
    return tuple(wanted)
