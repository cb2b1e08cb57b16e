"""The list of data sets that ship with the project."""

from __future__ import annotations

import csv
from dataclasses import dataclass

from metasilvae.errors import DataError
from metasilvae.io.storage import BUILTIN_PREFIX, builtin_folder

INDEX = "index.tsv"


@dataclass(frozen=True)
class BuiltinDataset:
    """One part of a shipped data set.

    Attributes
    ----------
    epsilon : float
        Recommended size of a perturbation.
    sha256 : str
        Checksum of the compressed file.
    """

    name: str
    split: str
    rows: int
    features: int
    classes: int
    epsilon: float
    sha256: str

    @property
    def source(self) -> str:
        return f"{BUILTIN_PREFIX}{self.name}/{self.split}"


def list_builtin_datasets() -> list[BuiltinDataset]:
    """Read the index of the shipped data sets."""
    path = builtin_folder() / INDEX
    try:
        with path.open(newline="") as stream:
            return [
                BuiltinDataset(
                    row["name"],
                    row["split"],
                    int(row["rows"]),
                    int(row["features"]),
                    int(row["classes"]),
                    float(row["epsilon"]),
                    row["sha256"],
                )
                for row in csv.DictReader(stream, delimiter="\t")
            ]
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"{path}: the list of shipped data sets cannot be read ({error}); install again") from None
