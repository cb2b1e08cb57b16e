"""Scaling of features to [0, 1]: fitted to one data set, saved in a file, applied to others."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, list_some, shorten
from metasilvae.io.memory import JSON_EXPANSION
from metasilvae.io.storage import display_name, read_source, write_output

KIND = "minmax"


@dataclass(frozen=True)
class Scale:
    """Range of each feature, mapped onto [0, 1]; a constant feature becomes 0.

    Attributes
    ----------
    minimum, maximum : float64 arrays, shape (n_features,)
    feature_names : tuple of str or None
    """

    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]
    feature_names: tuple[str, ...] | None = None

    @classmethod
    def fit(cls, dataset: Dataset) -> Scale:
        """The scale of the ranges in a data set."""
        minimum, maximum = np.fmin.reduce(dataset.X), np.fmax.reduce(dataset.X)
        if np.isnan(minimum).any():
            feature = dataset.feature_name(int(np.isnan(minimum).argmax()))
            raise DataError(f"{dataset.source}: all values of {feature} are missing, so it has no range; leave it out")
        return cls(minimum, maximum, dataset.feature_names)

    def apply(self, dataset: Dataset) -> Dataset:
        """The scaled data set; values outside the fitted range are mapped outside [0, 1], missing ones stay missing."""
        if self.feature_names and dataset.feature_names and self.feature_names != dataset.feature_names:
            return self._follow(dataset).apply(dataset)
        if dataset.n_features != len(self.minimum):
            raise DataError(
                f"{dataset.source}: {dataset.n_features} features found, the scale has {len(self.minimum)}; "
                "use the scale that was saved for these data"
            )
        with np.errstate(over="ignore"):
            width = self.maximum - self.minimum
            # If the width of a range exceeds the largest float64, everything is halved.
            factor = np.where(np.isfinite(width), 1.0, 0.5)
            width = self.maximum * factor - self.minimum * factor
            width[width == 0] = math.inf
            X = dataset.X * factor
            X -= self.minimum * factor
            X /= width
        if np.isinf(X).any():
            raise DataError(f"{dataset.source}: a value is too far outside the scale; is it the correct scale?")
        return dataclasses.replace(dataset, X=X)

    def _follow(self, dataset: Dataset) -> Scale:
        """The scale for the columns of a data set, which must be the same in any order."""
        own, names = self.feature_names or (), dataset.feature_names or ()
        different = [name for name in (*own, *names) if own.count(name) != 1 or names.count(name) != 1]
        if different:
            raise DataError(
                f"{dataset.source}: its columns are not those of the scale; they differ in "
                f"{list_some([shorten(name) for name in dict.fromkeys(different)])}; correct the names, or use the "
                "scale that was saved for these data"
            )
        order = [own.index(name) for name in names]
        return Scale(self.minimum[order], self.maximum[order], names)

    def save(self, path: str) -> None:
        """Write the scale as JSON."""
        content = {
            "scale": KIND,
            "feature_names": list(self.feature_names) if self.feature_names else None,
            "minimum": self.minimum.tolist(),
            "maximum": self.maximum.tolist(),
        }
        write_output(path, json.dumps(content, indent=1) + "\n")

    @classmethod
    def load(cls, source: str) -> Scale:
        """Read a scale that `save` wrote."""
        try:
            content = json.loads(read_source(source, JSON_EXPANSION))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{display_name(source)}: not a scale file, JSON was expected: {error}") from None
        try:
            return cls._from_content(content)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"{display_name(source)}: not a scale file ({error}); "
                "create one with `metasilvae data convert --scale minmax --save-scale`"
            ) from None

    @classmethod
    def _from_content(cls, content: Any) -> Scale:
        if not isinstance(content, dict) or content.get("scale") != KIND:
            raise ValueError(f'"scale": "{KIND}" was expected')
        minimum, maximum = (np.array([float(value) for value in content[key]]) for key in ("minimum", "maximum"))
        if not len(minimum) or len(minimum) != len(maximum):
            raise ValueError("minimum and maximum must be lists of the same length")
        if not (np.isfinite(minimum).all() and np.isfinite(maximum).all() and (minimum <= maximum).all()):
            raise ValueError("every minimum must be a finite number not above its maximum")
        names = content.get("feature_names")
        if names is not None and (len(names) != len(minimum) or not all(isinstance(name, str) for name in names)):
            raise ValueError("feature_names must name every feature")
        return cls(minimum, maximum, tuple(names) if names else None)
