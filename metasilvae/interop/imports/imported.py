"""Results and options of an import: the model, predictions of its library, and names of its labels."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.encoding import Encoding
from metasilvae.errors import ModelError, list_some, shorten
from metasilvae.model import Model, ModelDescription

if TYPE_CHECKING:
    from metasilvae.interop.imports.comparison import LibraryComparison

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
        From a float64 array of shape (n_samples, n_features) to the position of the label of each sample. Categories
        are numbers (`metasilvae.interop.imports.categories.codes_of`), NaN where they are missing.
    score : callable or None
        From the same array to the library's score of each label, shape (n_samples, n_labels); None if it reports none.
    rounding : float
        Relative error of one addition in the library.
    is_float32 : bool
        Whether it rounds values to float32 and refuses larger ones.
    special : float
        A value that the library treats in its own way, such as a number that stands for a missing value; some of the
        compared rows hold it.
    """

    name: str
    prediction: Callable[[NDArray[np.float64]], NDArray[np.int64]]
    score: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None
    rounding: float = FLOAT64_ROUNDING
    is_float32: bool = True
    special: float = 0.0

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
        The extra that installs the library; empty if no library reads the source.
    n_levels : int
        Splits above the deepest leaf of the source, if the library walks trees by recursion; else 0.
    notes : tuple of str
        What the reader of the report has to know: assumptions, and what is represented in another way.
    comparison : LibraryComparison or None
        The comparison with the library, if there was one.
    """

    model: Model
    voting: str
    origin: str
    load_predictor: Callable[[], LibraryPredictor | None]
    extra: str
    n_levels: int = 0
    notes: tuple[str, ...] = ()
    comparison: LibraryComparison | None = None

    @classmethod
    def of(
        cls,
        model: Model,
        voting: str,
        origin: str,
        feature_names: Sequence[str] | None,
        load_predictor: Callable[[], LibraryPredictor | None],
        extra: str,
        n_levels: int = 0,
        notes: tuple[str, ...] = (),
        encoding: Encoding | None = None,
    ) -> Imported:
        """An import whose model carries the names, the voting (of an ensemble), its origin and its categories."""
        names = None
        if encoding is not None:
            names = encoding.feature_names
            problem = _names_problem([column.name for column in encoding.columns]) or _names_problem(names)
            if problem is not None:
                raise ModelError(f"{model.source}: {problem}; name the features with --feature-names")
        elif feature_names is not None:
            if len(feature_names) != model.n_features:
                raise ModelError(
                    f"{model.source}: {len(feature_names)} names for {model.n_features} features; is it damaged?"
                )
            names = tuple(map(str, feature_names))
            problem = _names_problem(names)
            if problem is not None:
                notes = (*notes, f"{problem}, so the names are left out")
                names = None
        description = ModelDescription(
            feature_names=names,
            voting=voting if model.is_forest else None,
            encoding=None if encoding is None else encoding.as_json(),
            provenance={"imported_from": origin},
        )
        described = replace(model, description=description)
        return cls(described, voting, origin, load_predictor, extra, n_levels, notes)

    @property
    def is_too_deep(self) -> bool:
        """Whether the source could crash the library."""
        return self.n_levels > MOST_LEVELS

    @property
    def why_not_compared(self) -> str:
        """Why there is no comparison with the library."""
        if self.is_too_deep:
            return f"which could crash on trees of more than {MOST_LEVELS} levels; try predict on rows of your own"
        if not self.extra:
            return "which cannot read dumps; check predictions of your own"
        return f"which is not installed; pip install 'metasilvae[{self.extra}]'"


class NeedsOptions(ModelError):
    """A source that is imported only if options are given; `options` are the words to type."""

    def __init__(self, message: str, options: str) -> None:
        super().__init__(message)
        self.options = options


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
    feature_names : tuple of str or None
        Names of the features in their order; None takes those of the source.
    n_features : int or None
        Number of features, for XGBoost's dumps, which do not hold it.
    base_score : tuple of float or None
        XGBoost's base_score, for dumps, which do not hold it.
    """

    labels: tuple[str, ...] | None = None
    leaves: str = "auto"
    trust: bool = False
    feature_names: tuple[str, ...] | None = None
    n_features: int | None = None
    base_score: tuple[float, ...] | None = None

    def refuse_counts(self, source: str, kind: str = "boosted trees") -> None:
        """Refuse counts for leaves that hold scores."""
        if self.leaves == "counts":
            raise ModelError(f"{source}: the leaves of {kind} hold scores, not counts; use --leaves scores")

    def name_features(self, own: Sequence[str] | None, n_features: int, source: str) -> Sequence[str] | None:
        """The requested names of features, or those of the source."""
        if self.feature_names is None:
            return own
        if len(self.feature_names) != n_features:
            raise ModelError(
                f"{source}: {len(self.feature_names)} names were given with --feature-names, the model has "
                f"{n_features} features"
            )
        return self.feature_names


def _names_problem(names: Sequence[str]) -> str | None:
    if len(set(names)) < len(names):
        return "two features have the same name"
    try:
        "".join(names).encode("utf-8")
    except UnicodeEncodeError:
        return "the name of a feature is not Unicode text"
    return None


def position_of_labels(
    predict: Callable[[NDArray[np.float64]], Any], classes: Iterable[Any]
) -> Callable[[NDArray[np.float64]], NDArray[np.int64]]:
    """Predictions of an estimator as positions among its classes; without its warnings about missing names."""
    # By their texts, because CatBoost predicts 'True' for True.
    position = {str(label): number for number, label in enumerate(np.asarray(classes).reshape(-1).tolist())}

    def prediction(X: NDArray[np.float64]) -> NDArray[np.int64]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            found = np.asarray(predict(X)).reshape(-1).tolist()
        return np.array([position[str(label)] for label in found], dtype=np.int64)

    return prediction


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


def number_classes(n_columns: int, classes: Sequence[str] | None, source: str) -> Sequence[str]:
    """Names of the classes of an estimator, or numbers; a single score is that of the second of two classes."""
    n_classes = max(2, n_columns)
    if classes is not None and len(classes) != n_classes:
        raise ModelError(f"{source}: the scores are those of {n_classes} classes, but {len(classes)} are named")
    return [str(number) for number in range(n_classes)] if classes is None else classes


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


def is_off(value: Any) -> bool:
    """Whether an attribute that this version does not know says that nothing of its kind is there."""
    if isinstance(value, np.ndarray):
        return not value.astype(bool).any() if value.dtype.kind in "biuf" else not value.size
    return value is None or value is False or (isinstance(value, str | list | tuple | dict) and not value)


def refuse_unknown(values: dict[str, Any], known: Container[str], where: str) -> None:
    """Refuse what this version does not know and what is not switched off: it might change predictions."""
    for key, value in values.items():
        if key not in known and not is_off(value):
            raise ModelError(
                f"{where} has {shorten(str(key))}, which this version of metasilvae does not know; it may change "
                "predictions, so the model is not imported"
            )
