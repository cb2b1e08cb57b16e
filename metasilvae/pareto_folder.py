"""Archives of trees as folders: a file for each tree, and an index with their figures.

The index comes last, so a folder without one is not complete. It holds numbers of rows, from which all shares are
computed again; the shares in it are for other readers. By the fingerprint of its run it is known who may replace it.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from metasilvae.errors import DataError, OutputError, RequestError
from metasilvae.fitness import Fitness
from metasilvae.formats.silva_models import read_model, write_model
from metasilvae.model import Model
from metasilvae.pareto import Figures, TreeCollector
from metasilvae.run_description import as_json
from metasilvae.staging import discard, naming, settle, staging
from metasilvae.storage import STANDARD_STREAM, TEMPORARY_PREFIX, prepare_folder, read_source, write_output

INDEX = "index.json"
FORMAT = "metasilvae archive 1"
_FILE_NAME = re.compile(r"tree-[0-9]{3,}\.silva")
_COUNTS = tuple(field.name for field in fields(Figures))


@dataclass(frozen=True)
class StoredArchive:
    """What an index says.

    Attributes
    ----------
    data : str
        Name of the data set.
    rows : str
        Which of its rows the figures are of.
    perturbation : str
        In the words of the command line.
    fitness : Fitness
        What was trained for.
    files : list of str
        Names inside the folder.
    figures : list of Figures
    """

    folder: str
    data: str
    rows: str
    perturbation: str
    fitness: Fitness
    files: list[str]
    figures: list[Figures]

    def path(self, position: int) -> str:
        return str(Path(self.folder) / self.files[position])

    def read_tree(self, position: int) -> Model:
        """A tree; it must have the size that the index gives."""
        model, figures = read_model(self.path(position)), self.figures[position]
        if model.is_forest or (model.n_leaves, model.max_depth) != (figures.leaves, figures.depth):
            raise DataError(
                f"{self.path(position)}: is not the tree that {INDEX} describes ({figures.leaves} leaves, depth "
                f"{figures.depth}); one of the two was changed, train again"
            )
        return model


def check_folder(folder: str, run: str | None = None) -> None:
    """Make a folder for an archive; refuse one that cannot be written to, or that holds anything.

    What the run of the given fingerprint wrote may be there.
    """
    if folder in ("", STANDARD_STREAM):
        raise OutputError(f"{folder!r}: an archive is a folder; give the name of a new or an empty one")
    target = prepare_folder(folder)
    _refuse_others(target, run)
    with naming(target), tempfile.TemporaryFile(dir=target):
        pass


def _refuse_others(target: Path, run: str | None) -> None:
    with naming(target):
        own = _find_own(target, run)
        found = min((path.name for path in target.iterdir() if path not in own), default=None)
    if found is not None:
        fitting = "a new or an empty folder" if run is None else "a new or an empty folder, or the one of this run"
        raise OutputError(f"{target}: is not empty ({found}); an archive needs {fitting}")


def _find_own(target: Path, run: str | None) -> list[Path]:
    """What a run wrote to a folder, or left there when it was killed; nothing, unless it is known to be of this run."""
    if run is None:
        return []
    place = target / _name_staging(run)
    is_own = _read_run(target) == run if (target / INDEX).exists() else place.is_dir()
    if not is_own:
        return []
    return [path for path in target.iterdir() if path == place or (_is_part(path.name) and not path.is_dir())]


def _is_part(name: str) -> bool:
    return name == INDEX or _FILE_NAME.fullmatch(name) is not None or name.startswith(TEMPORARY_PREFIX)


def _read_run(target: Path) -> str | None:
    """The run that an archive says it is of."""
    try:
        document = json.loads(read_source(str(target / INDEX)))
    except (DataError, ValueError, RecursionError):
        return None
    run = document.get("run") if isinstance(document, dict) and document.get("format") == FORMAT else None
    return run if isinstance(run, str) else None


def _name_staging(run: str) -> str:
    return f"{TEMPORARY_PREFIX}{run}"


def write_archive(folder: str, collector: TreeCollector) -> int:
    """Write all trees and the index, in the place of an archive of the same run; the number of trees.

    Until all is written, what was there stays as it was.
    """
    target = prepare_folder(folder)
    _refuse_others(target, collector.run)
    with staging(target, _name_staging(collector.run)) as place:
        names = _write_parts(place, collector)
    with naming(target):
        # Without an index, what is there is not taken for an archive.
        (target / INDEX).unlink(missing_ok=True)
        settle(place, [*names, INDEX])
        for path in _find_own(target, collector.run):
            if path.name not in (INDEX, *names):
                discard(path)
    return len(names)


def _write_parts(place: Path, collector: TreeCollector) -> list[str]:
    """Write trees and index; the names of the trees."""
    options = collector.options
    trees: list[dict[str, Any]] = []
    for position, (figures, model) in enumerate(collector.entries):
        name = f"tree-{position:03}.silva"
        write_model(model, str(place / name))
        trees.append({"file": name, **asdict(figures), **describe(figures, options.fitness)})
    document = {
        "format": FORMAT,
        "run": collector.run,
        "data": collector.dataset.source,
        "rows": "held-out rows" if options.validation > 0 else "training rows",
        "perturbation": collector.perturbation.describe(),
        "options": {name: as_json(value) for name, value in asdict(options).items()},
        "trees_seen": collector.n_seen,
        "not_dominated": collector.n_found,
        "trees": trees,
    }
    write_output(str(place / INDEX), json.dumps(document, indent=1) + "\n")
    return [tree["file"] for tree in trees]


def describe(figures: Figures, fitness: Fitness) -> dict[str, float]:
    """Shares of the rows, and what they are worth."""
    return {
        "accuracy": float(figures.accuracy),
        "stability": float(figures.stability),
        "robustness": float(figures.robustness),
        "phi": figures.phi(fitness),
    }


# Reading


def read_archive(folder: str) -> StoredArchive:
    """Read the index of an archive; the trees are read when they are needed."""
    path = Path(folder) / INDEX
    if not Path(folder).is_dir():
        raise DataError(f"{folder}: no such folder; `metasilvae train --pareto {folder}` makes an archive")
    if not path.is_file():
        raise DataError(f"{folder}: holds no {INDEX}, so it is no complete archive of `metasilvae train --pareto`")
    try:
        document = json.loads(read_source(str(path)))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not JSON ({error}); the archive is damaged") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise DataError(f"{path}: is no index of an archive ({FORMAT!r}); name a folder of `train --pareto`")
    try:
        trees = _take(document, "trees", list)
        return StoredArchive(
            folder,
            _take(document, "data", str),
            _take(document, "rows", str),
            _take(document, "perturbation", str),
            _read_fitness(_take(_take(document, "options", dict), "fitness", dict)),
            [_read_name(tree) for tree in trees],
            _read_figures(trees),
        )
    except (ValueError, RequestError) as error:
        raise DataError(f"{path}: {error}; the archive is damaged") from None


def _take(document: Any, key: str, kind: type) -> Any:
    value = document.get(key) if isinstance(document, dict) else None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{key!r} is missing or is not what it should be")
    return value


def _read_fitness(weights: dict[str, Any]) -> Fitness:
    if set(weights) != {field.name for field in fields(Fitness)}:
        raise ValueError("the weights of the fitness are not complete")
    if not all(isinstance(weight, float | int) for weight in weights.values()):
        raise ValueError("a weight of the fitness is not a number")
    return Fitness(**weights)


def _read_name(tree: Any) -> str:
    name: str = _take(tree, "file", str)
    if not _FILE_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a tree")
    return name


def _read_figures(trees: Sequence[Any]) -> list[Figures]:
    all_figures = [Figures(*(_take(tree, name, int) for name in _COUNTS)) for tree in trees]
    if not all(each.is_possible for each in all_figures):
        raise ValueError("the figures of a tree contradict each other")
    return all_figures
