"""Results and options of an import: the model, predictions of its library, and names of its labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import ModelError, list_some
from metasilvae.model import Model

FLOAT32_ROUNDING = float(np.finfo(np.float32).eps)
FLOAT64_ROUNDING = float(np.finfo(np.float64).eps)
# Deepest tree for a library that walks trees by recursion. onnxruntime 1.31 overflows a stack of 8 MiB between 5000 and
# 20000 levels.
MOST_LEVELS = 1000


@dataclass(frozen=True)
class LibraryPredictor:
    """The predictions of the source library.

    Attributes
    ----------
    name : str
        Library and version.
    prediction : callable
        From a float64 array of shape (n_samples, n_features) to the position of the label of each sample.
    score : callable or None
        From the same array to the library's score of each label, shape (n_samples, n_labels); None if it reports none.
    rounding : float
        Relative error of one addition in the library.
    is_float32 : bool
        Whether it rounds values to float32 and refuses larger ones.
    """

    name: str
    prediction: Callable[[NDArray[np.float64]], NDArray[np.int64]]
    score: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None
    rounding: float = FLOAT64_ROUNDING
    is_float32: bool = True

    @property
    def largest(self) -> float:
        """Largest absolute value that the library accepts."""
        return float(np.finfo(np.float32 if self.is_float32 else np.float64).max)


@dataclass(frozen=True)
class Imported:
    """A model from another library.

    Attributes
    ----------
    model : Model
    voting : str
        Voting scheme of the library; one of `metasilvae.voting.VOTINGS`.
    origin : str
        Description of the source, for reports.
    load_predictor : callable
        Loads the same source with the library; None if it is not installed.
    extra : str
        The extra that installs the library.
    n_levels : int
        Splits above the deepest leaf of the source, if the library walks trees by recursion; else 0.
    """

    model: Model
    voting: str
    origin: str
    load_predictor: Callable[[], LibraryPredictor | None]
    extra: str
    n_levels: int = 0

    @property
    def is_too_deep(self) -> bool:
        """Whether the source could crash the library."""
        return self.n_levels > MOST_LEVELS


@dataclass(frozen=True)
class ImportOptions:
    """Options of an import.

    Attributes
    ----------
    labels : tuple of str or None
        Names of the labels in the order of the source; None keeps the names, or numbers, of the source.
    leaves : str
        "counts", "scores", or "auto": counts where the source has them.
    trust : bool
        Whether the source may run code when it is loaded.
    """

    labels: tuple[str, ...] | None = None
    leaves: str = "auto"
    trust: bool = False

    def refuse_counts(self, source: str, kind: str = "boosted trees") -> None:
        """Refuse counts for leaves that hold scores."""
        if self.leaves == "counts":
            raise ModelError(f"{source}: the leaves of {kind} hold scores, not counts; use --leaves scores")


def refuse_file(source: str, library: str, error: Exception) -> ModelError:
    """The error for a file that its library does not load."""
    return ModelError(f"{source}: {library} refuses the file: {' '.join(str(error).split())[:150]}")


def name_classes(classes: Iterable[object]) -> list[str]:
    """Classes as they are written in data files: whole numbers without a decimal point."""
    names = []
    for label in classes.tolist() if hasattr(classes, "tolist") else classes:
        is_whole = isinstance(label, float) and label.is_integer()
        names.append(str(int(label)) if isinstance(label, float) and is_whole else str(label))
    return names


def choose_labels(own: Sequence[str], wanted: Sequence[str] | None, source: str) -> tuple[str, ...]:
    """The requested names, or those of the source."""
    if wanted is None:
        return tuple(own)
    if len(wanted) != len(own):
        raise ModelError(
            f"{source}: {len(wanted)} names were given with --labels, the model has {len(own)} labels "
            f"({list_some(own)})"
        )
    return tuple(wanted)
