"""Data sets that can be fetched: the list of them, and what is done to have one in the cache."""

from __future__ import annotations

import contextlib
import csv
import urllib.parse
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from metasilvae.cache import CACHE_PREFIX, CACHE_SUFFIX, CACHE_VARIABLE, cache_folder
from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, OutputError, RequestError, TransferError
from metasilvae.formats.csv_files import write_csv
from metasilvae.formats.idx_files import read_images
from metasilvae.storage import builtin_folder, open_output
from metasilvae.transfer import Received, RemoteFile, is_intact, transfer

REGISTRY = "downloads.tsv"
# Where files lie; a path of the registry follows, and so it does after the address of a mirror.
HOMES: dict[str, tuple[str, ...]] = {
    "collection": ("https://raw.githubusercontent.com/abstract-machine-learning/data-collection/master/",),
    "mnist": ("https://storage.googleapis.com/cvdf-datasets/", "https://ossci-datasets.s3.amazonaws.com/"),
    "fashion-mnist": ("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/",),
}
# Compression that takes little longer than none.
QUICK = 3
SCHEMES = ("http", "https", "file")


@dataclass(frozen=True)
class RemoteDataset:
    """One part of a data set that can be fetched.

    Attributes
    ----------
    epsilon : float or None
        Size of a perturbation that the paper uses.
    files : dict
        By what they hold: ``rows`` (a zip archive of one CSV file), or ``images`` and ``labels`` (IDX).
    """

    name: str
    split: str
    rows: int
    features: int
    classes: int
    epsilon: float | None
    files: dict[str, RemoteFile]

    @property
    def source(self) -> str:
        return f"{CACHE_PREFIX}{self.name}/{self.split}"

    @property
    def path(self) -> Path:
        """Where it is kept: as it comes, or converted."""
        return cache_folder() / self.name / f"{self.split}{CACHE_SUFFIX}"

    @property
    def is_cached(self) -> bool:
        """Whether it is there; an archive that is kept as it came must be intact."""
        if "rows" in self.files:
            return is_intact(self.path, self.files["rows"].checksum)
        return self.path.is_file()

    @property
    def size(self) -> int | None:
        """Bytes to fetch, if known."""
        sizes = [file.size for file in self.files.values()]
        return None if None in sizes else sum(size for size in sizes if size is not None)


def list_remote_datasets(mirror: str | None = None) -> list[RemoteDataset]:
    """Read the registry; `mirror` is the address to use instead of the homes."""
    path = builtin_folder() / REGISTRY
    homes = dict(HOMES)
    if mirror is not None:
        homes = dict.fromkeys(HOMES, (check_mirror(mirror),))
    try:
        with path.open(newline="") as stream:
            lines = list(csv.DictReader(stream, delimiter="\t"))
        return [
            _assemble(list(group), homes) for _, group in groupby(lines, key=lambda line: (line["name"], line["split"]))
        ]
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"{path}: the list of data sets to fetch cannot be read ({error}); install again") from None


def _assemble(lines: list[dict[str, str]], homes: dict[str, tuple[str, ...]]) -> RemoteDataset:
    first = lines[0]
    files = {
        line["part"]: RemoteFile(
            tuple(home + line["path"] for home in homes[line["home"]]),
            line["checksum"],
            int(line["bytes"]) if line["bytes"] else None,
        )
        for line in lines
    }
    epsilon = float(first["epsilon"]) if first["epsilon"] else None
    rows, features, classes = (int(first[column]) for column in ("rows", "features", "classes"))
    return RemoteDataset(first["name"], first["split"], rows, features, classes, epsilon, files)


def check_mirror(mirror: str) -> str:
    """The address of a mirror with a slash at its end."""
    try:
        scheme = urllib.parse.urlsplit(mirror).scheme
    except ValueError:
        scheme = ""
    if scheme not in SCHEMES or any(character <= " " for character in mirror):
        raise RequestError(f"mirror {mirror!r}: not an address; it looks like https://host/folder")
    return mirror.rstrip("/") + "/"


def choose_datasets(names: tuple[str, ...], mirror: str | None = None) -> list[RemoteDataset]:
    """All parts of the named data sets; ``NAME/SPLIT`` names one part."""
    known = list_remote_datasets(mirror)
    chosen = []
    for name in names:
        wanted = name.removeprefix(CACHE_PREFIX)
        parts = [part for part in known if wanted in (part.name, f"{part.name}/{part.split}")]
        if not parts:
            raise RequestError(
                f"{name!r}: no such data set to fetch; choose among {', '.join(dict.fromkeys(p.name for p in known))}"
            )
        chosen += [part for part in parts if part not in chosen]
    return chosen


def fetch_dataset(dataset: RemoteDataset, *, offline: bool = False, again: bool = False) -> Iterator[Received]:
    """Have a data set in the cache; yield how far the transfer is. Nothing is fetched if it is there.

    Parameters
    ----------
    offline : bool
        Do not use the network; what is not there is an error.
    again : bool
        Fetch it even if it is there.
    """
    if offline:
        if not dataset.is_cached:
            raise TransferError(
                f"{dataset.source}: not in the cache ({cache_folder()}), or damaged; fetch it without --offline"
            )
        return
    if dataset.is_cached and not again:
        return
    folder = dataset.path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot be made: {error.strerror or error}; set {CACHE_VARIABLE} to another folder"
        ) from None
    with _locked(folder / ".lock"):
        # Another process may have fetched it meanwhile.
        if again or not dataset.is_cached:
            yield from _fetch_parts(dataset, folder)


def _fetch_parts(dataset: RemoteDataset, folder: Path) -> Iterator[Received]:
    if "rows" in dataset.files:
        yield from transfer(dataset.files["rows"], dataset.path)
        return
    archives = {part: folder / f"{dataset.split}-{part}.gz" for part in ("images", "labels")}
    for part, archive in archives.items():
        if not is_intact(archive, dataset.files[part].checksum):
            yield from transfer(dataset.files[part], archive)
    converted = read_images(str(archives["images"]), str(archives["labels"]), dataset.source)
    _pack(converted, dataset.path)
    for archive in archives.values():
        archive.unlink()


def _pack(dataset: Dataset, path: Path) -> None:
    """Write CSV text into a zip archive, quickly rather than small."""
    with (
        open_output(str(path)) as stream,
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=QUICK) as archive,
        archive.open("rows.csv", "w") as member,
    ):
        write_csv(dataset, member)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes out, so that two of them do not write one file; where the system knows no locks, hope."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    try:
        lock = path.open("w")
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written: {error.strerror or error}; set {CACHE_VARIABLE} to another folder"
        ) from None
    with lock:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
