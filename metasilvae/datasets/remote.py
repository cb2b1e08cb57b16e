"""Data sets on the network: the list of them, and the cache that they are fetched into.

A file is fetched to ``NAME.part`` beside its target and moved there when it is complete and its checksum is correct.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import http.client
import os
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from metasilvae._version import VERSION
from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, OutputError, RequestError, TransferError
from metasilvae.formats.binary_files import read_images
from metasilvae.formats.csv_files import write_csv
from metasilvae.io.storage import (
    CACHE_PREFIX,
    CACHE_SUFFIX,
    CACHE_VARIABLE,
    builtin_folder,
    cache_folder,
    error_context,
    open_output,
)

REGISTRY = "downloads.tsv"
# Where files are published; a path of the registry is appended, also to the address of a mirror.
HOMES: dict[str, tuple[str, ...]] = {
    "collection": ("https://raw.githubusercontent.com/abstract-machine-learning/data-collection/master/",),
    "mnist": ("https://storage.googleapis.com/cvdf-datasets/", "https://ossci-datasets.s3.amazonaws.com/"),
    "fashion-mnist": ("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/",),
}
SCHEMES = ("http", "https", "file")
CHUNK = 1 << 16
# Seconds without a byte after which a connection counts as broken, and how often a broken one is tried.
TIMEOUT = 30.0
MOST_ATTEMPTS = 3
# Limit for a file whose size is not known beforehand.
MOST_BYTES = 1 << 30
# Compression that takes little longer than none.
QUICK = 3


@dataclass(frozen=True)
class RemoteFile:
    """A file on a server.

    Attributes
    ----------
    urls : tuple of str
        Addresses, tried in order.
    checksum : str
        ``sha256:HEX``, or ``git-blob:HEX`` for the name under which git keeps the file.
    size : int or None
        Number of bytes, if known.
    """

    urls: tuple[str, ...]
    checksum: str
    size: int | None = None


@dataclass(frozen=True)
class Received:
    """Progress of a transfer: bytes received, and bytes in total if the server reported them."""

    n_bytes: int
    total: int | None


@dataclass(frozen=True)
class RemoteDataset:
    """One part of a data set that can be fetched.

    Attributes
    ----------
    epsilon : float or None
        Perturbation size in the paper.
    files : dict
        By content: ``rows`` (a zip archive of one CSV file), or ``images`` and ``labels`` (IDX).
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
        """Place in the cache, of the file as fetched or converted."""
        return cache_folder() / self.name / f"{self.split}{CACHE_SUFFIX}"

    @property
    def is_cached(self) -> bool:
        """Whether it is in the cache; an archive that is kept as fetched must be intact."""
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
        raise DataError(f"{path}: the list of remote data sets cannot be read ({error}); install again") from None


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


def compute_checksum(path: Path, algorithm: str) -> str:
    """Checksum of a file in the form that `RemoteFile` has it."""
    if algorithm == "sha256":
        digest = hashlib.sha256()
    elif algorithm == "git-blob":
        digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    else:
        raise ValueError(f"no such checksum: {algorithm}")
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return f"{algorithm}:{digest.hexdigest()}"


def is_intact(path: Path, checksum: str) -> bool:
    """Whether a file exists and has the given checksum."""
    return path.is_file() and compute_checksum(path, checksum.partition(":")[0]) == checksum


class _BrokenConnection(TransferError):
    """The connection ended too early; another attempt may help."""


def transfer(file: RemoteFile, target: Path) -> Iterator[Received]:
    """Fetch a file and yield the progress; the target appears only when it is complete and checked.

    Raises
    ------
    TransferError
        None of the addresses gives the expected file.
    OutputError
        It cannot be written.
    """
    part = target.with_name(target.name + ".part")
    failures = []
    try:
        for url in file.urls:
            for attempt in range(1, MOST_ATTEMPTS + 1):
                try:
                    yield from _receive(url, file, part)
                except TransferError as error:
                    if isinstance(error, _BrokenConnection) and attempt < MOST_ATTEMPTS:
                        continue
                    failures.append(str(error))
                    break
                with error_context(target, "cannot be written"):
                    os.replace(part, target)
                return
    finally:
        part.unlink(missing_ok=True)
    raise TransferError(f"{'; '.join(failures)}; check the network, or try --mirror")


def _receive(url: str, file: RemoteFile, part: Path) -> Iterator[Received]:
    """Write what one connection sends to the part, and check it."""
    with contextlib.closing(_open(url)) as response:
        length = response.headers.get("Content-Length", "")
        total = int(length) if length.isdigit() else file.size
        if file.size is not None and total != file.size:
            raise TransferError(f"{url}: the server offers {total} bytes, the expected file has {file.size}")
        with error_context(part, "cannot be written"), part.open("wb") as stream:
            received = 0
            yield Received(received, total)
            while piece := _read(response, url):
                received += len(piece)
                if received > (MOST_BYTES if total is None else total):
                    raise TransferError(f"{url}: the server sends more bytes than expected")
                stream.write(piece)
                yield Received(received, total)
    if total is not None and received < total:
        raise _BrokenConnection(f"{url}: the connection broke after {received} of {total} bytes")
    if not is_intact(part, file.checksum):
        raise TransferError(f"{url}: the checksum of the {received} bytes received is wrong; they were discarded")


def _open(url: str) -> Any:
    headers = {"User-Agent": f"metasilvae/{VERSION}", "Accept-Encoding": "identity"}
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        raise TransferError(f"{url}: the server answers {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise TransferError(f"{url}: cannot be reached ({getattr(reason, 'strerror', None) or reason})") from None


def _read(response: Any, url: str) -> bytes:
    try:
        piece: bytes = response.read1(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenConnection(f"{url}: the connection broke ({error})") from None
    return piece


def fetch_dataset(dataset: RemoteDataset, *, offline: bool = False, again: bool = False) -> Iterator[Received]:
    """Fetch a data set into the cache unless it is there, and yield the progress.

    Parameters
    ----------
    offline : bool
        Do not use the network; a missing data set is an error.
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
        # Another process may have fetched it in the meantime.
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
    """Write CSV text into a zip archive, with quick compression."""
    with (
        open_output(str(path)) as stream,
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=QUICK) as archive,
        archive.open("rows.csv", "w") as member,
    ):
        write_csv(dataset, member)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait until no other process writes the folder; systems without file locks do not wait."""
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
