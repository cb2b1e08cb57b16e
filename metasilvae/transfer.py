"""Fetching one file over the network: resumed where it broke off, accepted only if its checksum is right.

What has arrived lies in a file ``NAME.part`` beside the target and outlives the process, so that the next attempt asks
for the rest only. The target itself appears when it is complete and checked.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metasilvae._version import VERSION
from metasilvae.errors import OutputError, TransferError

CHUNK = 1 << 16
# Seconds without a byte after which a connection counts as broken.
TIMEOUT = 30.0
# Connections for one file, as long as each of them brings something.
MOST_CONNECTIONS = 8
# Of a file whose size is not known beforehand.
MOST_BYTES = 1 << 30
_RANGE_NOT_SATISFIABLE = 416
_PARTIAL_CONTENT = 206


@dataclass(frozen=True)
class RemoteFile:
    """A file on a server.

    Attributes
    ----------
    urls : tuple of str
        Where it can be had; tried in order.
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
    """How far a transfer is: bytes that are here, and bytes in all if the server told."""

    n_bytes: int
    total: int | None


class _BrokenConnection(TransferError):
    """The connection ended too early; asking for the rest may help."""


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
    """Whether a file is there and has the given checksum."""
    return path.is_file() and compute_checksum(path, checksum.partition(":")[0]) == checksum


def transfer(file: RemoteFile, target: Path) -> Iterator[Received]:
    """Fetch a file; yield how far it is. Leaving the loop early keeps what has arrived for the next attempt.

    Raises
    ------
    TransferError
        None of the addresses gives the right file.
    OutputError
        It cannot be written.
    """
    part = target.with_name(target.name + ".part")
    failures = []
    for url in file.urls:
        try:
            yield from _transfer_from(url, file, part)
        except TransferError as error:
            failures.append(str(error))
            continue
        with _writing(target):
            os.replace(part, target)
        return
    kept = _size_of(part)
    hint = (
        f"{kept} bytes are kept, the same command goes on from there" if kept else "check the network, or try --mirror"
    )
    raise TransferError(f"{'; '.join(failures)}; {hint}")


def _transfer_from(url: str, file: RemoteFile, part: Path) -> Iterator[Received]:
    is_resumed = _size_of(part) > 0
    for connection in range(1, MOST_CONNECTIONS + 1):
        before = _size_of(part)
        try:
            yield from _receive(url, file, part)
            break
        except _BrokenConnection:
            if _size_of(part) <= before or connection == MOST_CONNECTIONS:
                raise
    if is_intact(part, file.checksum):
        return
    n_bytes = _size_of(part)
    part.unlink(missing_ok=True)
    if is_resumed:
        # The beginning may have come from another file.
        yield from _transfer_from(url, file, part)
        return
    raise TransferError(
        f"{url}: what came ({n_bytes} bytes) is not the file expected there, its checksum is wrong; it was thrown away"
    )


def _receive(url: str, file: RemoteFile, part: Path) -> Iterator[Received]:
    """Append what one connection brings to the part."""
    start = _size_of(part)
    if start and start == file.size:
        return
    if start > (MOST_BYTES if file.size is None else file.size):
        part.unlink()
        start = 0
    answer, start = _open_at(url, start)
    with contextlib.closing(answer):
        length = answer.headers.get("Content-Length", "")
        total = start + int(length) if length.isdigit() else file.size
        if file.size is not None and total != file.size:
            raise TransferError(f"{url}: the server offers {total} bytes, the file expected there has {file.size}")
        with _writing(part), part.open("ab" if start else "wb") as stream:
            received = start
            yield Received(received, total)
            while piece := _read(answer, url):
                received += len(piece)
                if received > (MOST_BYTES if total is None else total):
                    raise TransferError(f"{url}: more bytes come than the server announced")
                stream.write(piece)
                yield Received(received, total)
    if total is not None and received < total:
        raise _BrokenConnection(f"{url}: the connection broke after {received} of {total} bytes")


def _open(url: str, start: int) -> Any:
    """The server's answer to a request for the bytes from `start` on; None if it has no such bytes."""
    headers = {"User-Agent": f"metasilvae/{VERSION}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == _RANGE_NOT_SATISFIABLE and start:
            return None
        raise TransferError(f"{url}: the server answers {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise TransferError(f"{url}: cannot be reached ({getattr(reason, 'strerror', None) or reason})") from None


def _open_at(url: str, start: int) -> tuple[Any, int]:
    """The server's answer and the place in the file where it begins: `start` if the server can do that, else 0."""
    answer = _open(url, start)
    if answer is not None and answer.status != _PARTIAL_CONTENT:
        return answer, 0
    if answer is not None:
        if answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            return answer, start
        answer.close()
    return _open(url, 0), 0


def _read(answer: Any, url: str) -> bytes:
    try:
        # What is there at once, so that nothing which has arrived is lost with the connection.
        piece: bytes = answer.read1(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenConnection(f"{url}: the connection broke ({error})") from None
    return piece


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from None
