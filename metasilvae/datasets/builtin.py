"""The builtin data sets."""

from __future__ import annotations

import csv
from dataclasses import dataclass

from metasilvae.errors import DataError
from metasilvae.io.storage import BUILTIN_PREFIX, builtin_folder

INDEX = "index.tsv"


@dataclass(frozen=True)
class BuiltinDataset:
    """One part of a builtin data set.

    Attributes
    ----------
    epsilon : float
        Recommended perturbation size.
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
    """Read the index of the builtin data sets."""
    path = builtin_folder() / INDEX
    try:
        with path.open(newline="") as stream:
            rows = list(csv.DictReader(stream, delimiter="\t"))
        return [
            BuiltinDataset(
                name=row["name"],
                split=row["split"],
                rows=int(row["rows"]),
                features=int(row["features"]),
                classes=int(row["classes"]),
                epsilon=float(row["epsilon"]),
                sha256=row["sha256"],
            )
            for row in rows
        ]
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"{path}: the list of builtin data sets cannot be read ({error}); install again") from None
