"""Compressed files: recognized by their first bytes when they are read, by their name when they are written.

A small archive can unpack to more than the memory of the machine. The content is therefore passed on in pieces, and
what the unpacking itself needs (the dictionary of an xz file, the directory of a zip archive) is limited.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from metasilvae.io.memory import allowed_memory, describe_allowed, describe_bytes

# Suffix of an output: its compression. No time and name are stored, so that the same data give the same bytes.
_COMPRESSORS: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": lambda stream: gzip.GzipFile("", "wb", 9, stream, mtime=0),
    ".bz2": lambda stream: bz2.BZ2File(stream, "wb"),
    ".xz": lambda stream: lzma.LZMAFile(stream, "wb"),
}
COMPRESSIONS = tuple(_COMPRESSORS)


class ContentError(Exception):
    """What is wrong with the content of a source that is read; whoever knows its name makes a `DataError` of it."""


BROKEN_ARCHIVE = (ContentError, EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
# `xz -9` needs 65 MiB to unpack; it works whatever METASILVAE_MEMORY says.
XZ_BYTES = 80 << 20
# Directory of a zip archive of one file.
ZIP_DIRECTORY_BYTES = 1 << 20
_PIECE_BYTES = 1 << 16
_ZIP_STARTS = (b"PK\x03\x04", b"PK\x05\x06")


class PrefixedStream(io.RawIOBase):
    """A stream whose first bytes were already read to recognize its format."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        # Reads only what is available, if the stream can: interrupts are handled between two reads.
        self._read = getattr(rest, "read1", rest.read)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer)).cast("B")
        piece = self._head[: len(view)] if self._head else self._read(len(view))
        self._head = self._head[len(piece) :]
        view[: len(piece)] = piece
        return len(piece)


class _XzStream(io.RawIOBase):
    """The content of an xz file, unpacked with a limit of memory, which `lzma.LZMAFile` does not have."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._limit = max(allowed_memory(), XZ_BYTES)
        self._unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, self._limit)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer)).cast("B")
        while len(view):
            if self._unpacker.eof and not self._next_stream():
                break
            piece = self._packed.read(_PIECE_BYTES) if self._unpacker.needs_input else b""
            if self._unpacker.needs_input and not piece:
                raise EOFError("Compressed file ended before the end-of-stream marker was reached")
            try:
                content = self._unpacker.decompress(piece, len(view))
            except lzma.LZMAError as error:
                if "emory" in str(error):
                    needed = f"more than {describe_bytes(self._limit)}"
                    raise ContentError(f"unpacking needs {needed}; unpack it first") from None
                raise
            if content:
                view[: len(content)] = content
                return len(content)
        return 0

    def _next_stream(self) -> bool:
        """Begin the next of several streams in one file; padding of NUL bytes may stand between and behind them."""
        rest = self._unpacker.unused_data.lstrip(b"\0")
        while not rest:
            piece = self._packed.read(_PIECE_BYTES)
            if not piece:
                return False
            rest = piece.lstrip(b"\0")
        self._packed = cast(BinaryIO, PrefixedStream(rest, self._packed))
        self._unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, self._limit)
        return True


class _BoundedReads:
    """A seekable stream that refuses to read much at once: the directory of a zip archive is read as a whole."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.most: int | None = ZIP_DIRECTORY_BYTES

    def read(self, size: int = -1) -> bytes:
        if self.most is None:
            return self._stream.read(size)
        content = self._stream.read(self.most + 1 if size < 0 else min(size, self.most + 1))
        if len(content) > self.most:
            raise ContentError("the directory of the zip archive is too large for one file; unpack it first")
        return content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


# First bytes of a source: its decompression.
_DECOMPRESSORS: dict[bytes, Callable[[BinaryIO], Any]] = {
    b"\x1f\x8b": lambda stream: gzip.GzipFile(fileobj=stream),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lambda stream: io.BufferedReader(_XzStream(stream), 1 << 20),
}


def unpack_stream(raw: BinaryIO) -> BinaryIO:
    """The stream itself, or its decompressed content; a `ContentError` if there is none."""
    head = raw.read(6)
    stream = raw
    if raw.seekable():
        raw.seek(-len(head), os.SEEK_CUR)
    else:
        stream = cast(BinaryIO, io.BufferedReader(PrefixedStream(head, raw), 1 << 20))
    for start, decompress in _DECOMPRESSORS.items():
        if head.startswith(start):
            return cast(BinaryIO, decompress(stream))
    return _open_zip_member(stream) if head.startswith(_ZIP_STARTS) else stream


def _open_zip_member(raw: BinaryIO) -> BinaryIO:
    bounded = _BoundedReads(raw if raw.seekable() else io.BytesIO(read_within(raw, allowed_memory())))
    archive = zipfile.ZipFile(cast(Any, bounded))
    bounded.most = None
    members = [info for info in archive.infolist() if not info.is_dir()]
    if len(members) != 1:
        raise ContentError(
            f"the zip archive holds {len(members)} files, exactly one was expected; unpack it and name the file"
        )
    if members[0].flag_bits & 1:
        raise ContentError("the zip archive is encrypted; unpack it first")
    try:
        return cast(BinaryIO, archive.open(members[0]))
    except NotImplementedError as error:
        raise ContentError(f"{error}; unpack it first") from None


def read_within(stream: BinaryIO, most: int) -> bytes:
    """The content of a stream, unless it is endless or has more than so many bytes."""
    content = io.BytesIO()
    # Small files are read at once, large ones in pieces that do not exceed the limit by much.
    while piece := stream.read(max(_PIECE_BYTES, min(16 << 20, most // 8))):
        content.write(piece)
        if content.tell() > most:
            raise ContentError(
                f"holds more than fits into memory: {describe_allowed(allowed_memory())}; or is it the wrong file?"
            )
    return content.getvalue()


@contextlib.contextmanager
def compressing(stream: IO[bytes], path: str) -> Iterator[IO[bytes]]:
    """Compress what is written to a name that ends in .gz, .bz2 or .xz."""
    compress = _COMPRESSORS.get(Path(path).suffix.lower())
    if compress is None:
        yield stream
        return
    with compress(stream) as packed:
        yield packed


def strip_compression(path: str) -> str:
    """A path without the suffix of its compression."""
    suffix = Path(path).suffix
    return path.removesuffix(suffix) if suffix.lower() in COMPRESSIONS else path
