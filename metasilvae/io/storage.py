"""Sources and outputs: paths, standard streams, compressed files, builtin and cached data sets.

Readers get a binary stream that is already decompressed. The compression is recognized by the first bytes, not by the
file name, so that it works for standard input too. Writers get a file that appears under its final name only when it is
complete; several files can appear together.
"""

from __future__ import annotations

import bz2
import contextlib
import difflib
import gzip
import io
import lzma
import os
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from metasilvae.errors import DataError, OutputError, RequestError
from metasilvae.io.memory import allowed_memory, describe_allowed

STANDARD_STREAM = "-"
BUILTIN_PREFIX = "builtin:"
CACHE_PREFIX = "cache:"
CACHE_VARIABLE = "METASILVAE_CACHE"
CACHE_SUFFIX = ".csv.zip"
# Prefix of files that are being written; a run that is killed leaves one behind.
TEMPORARY_PREFIX = ".metasilvae-"
# Suffix of an output: its compression. No time and name are stored, so that the same data give the same bytes.
_COMPRESSORS: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": lambda stream: gzip.GzipFile("", "wb", 9, stream, mtime=0),
    ".bz2": lambda stream: bz2.BZ2File(stream, "wb"),
    ".xz": lambda stream: lzma.LZMAFile(stream, "wb"),
}
COMPRESSIONS = tuple(_COMPRESSORS)
# First bytes of a source: its decompression.
_DECOMPRESSORS: dict[bytes, Callable[[BinaryIO], Any]] = {
    b"\x1f\x8b": lambda stream: gzip.GzipFile(fileobj=stream),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}
_ZIP_STARTS = (b"PK\x03\x04", b"PK\x05\x06")
_BROKEN_ARCHIVE = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
_PIECE_BYTES = 16 << 20
# An installed package contains the data sets; a checkout has them beside the package.
_BUILTIN_FOLDERS = (Path(__file__).parents[1] / "_datasets", Path(__file__).parents[2] / "datasets")
# Files that are complete and wait for their names.
_DRAFTS: ContextVar[list[tuple[str, Path]] | None] = ContextVar("drafts", default=None)


def display_name(source: str) -> str:
    """Name of a source in messages."""
    return "<stdin>" if source == STANDARD_STREAM else source


# Builtin and cached data sets


def cache_folder() -> Path:
    """Folder of fetched data sets: METASILVAE_CACHE, or the platform's folder for caches."""
    chosen = os.environ.get(CACHE_VARIABLE)
    try:
        if chosen:
            return Path(chosen).expanduser()
        if sys.platform == "win32":
            return _variable("LOCALAPPDATA", "AppData", "Local") / "metasilvae" / "Cache"
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "metasilvae"
        return _variable("XDG_CACHE_HOME", ".cache") / "metasilvae"
    except RuntimeError:
        raise DataError(f"there is no home folder for fetched data; set {CACHE_VARIABLE} to a folder") from None


def _variable(name: str, *usual: str) -> Path:
    """The folder that an environment variable names if it is absolute, else one in the home folder."""
    named = Path(os.environ.get(name, ""))
    return named if named.is_absolute() else Path.home().joinpath(*usual)


def find_cached(source: str) -> Path:
    """The file of ``cache:NAME/SPLIT``."""
    name = source.removeprefix(CACHE_PREFIX)
    path = _find_inside(cache_folder(), name + CACHE_SUFFIX)
    if path is not None:
        return path
    raise DataError(
        f"{source}: not fetched yet; `metasilvae data fetch {name.split('/')[0] or 'NAME'}` fetches it, "
        "`metasilvae data fetch --list` shows the names, and a name looks like cache:wine/train"
    )


def builtin_folder() -> Path:
    """Folder of the builtin data sets."""
    for folder in _BUILTIN_FOLDERS:
        if folder.is_dir():
            return folder
    raise DataError("the builtin data sets are missing from this installation; install metasilvae again")


def _find_inside(folder: Path, name: str) -> Path | None:
    """A file of a folder, not one outside that a name such as ../x leads to."""
    path = folder / name
    return path if path.is_file() and folder.resolve() in path.resolve().parents else None


def resolve(source: str) -> str:
    """Turn ``builtin:NAME/SPLIT`` and ``cache:NAME/SPLIT`` into a path; leave everything else as it is."""
    if source.startswith(CACHE_PREFIX):
        return str(find_cached(source))
    if not source.startswith(BUILTIN_PREFIX):
        return source
    for suffix in ("", ".csv.gz"):
        path = _find_inside(builtin_folder(), source.removeprefix(BUILTIN_PREFIX) + suffix)
        if path is not None:
            return str(path)
    raise DataError(
        f"{source}: there is no such builtin data set; `metasilvae data list` shows them, "
        "and a name looks like builtin:wine/train"
    )


# Sources


class _PrefixedStream(io.RawIOBase):
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


def _open_raw(source: str) -> BinaryIO:
    if source == STANDARD_STREAM:
        if sys.stdin is None or sys.stdin.closed:
            raise DataError("<stdin>: standard input is closed; give a path or pipe a file in")
        return sys.stdin.buffer
    path = resolve(source)
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise DataError(f"{source}: no such file; {_advise(Path(path))}") from None
    except IsADirectoryError:
        raise DataError(f"{source}: is a folder, a file was expected") from None
    except OSError as error:
        raise DataError(f"{source}: cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise DataError(f"{source!r}: is not a valid path") from None


def _advise(missing: Path) -> str:
    """What to try instead of a missing file."""
    if not missing.parent.is_dir():
        return f"there is no folder {missing.parent}"
    try:
        files = [entry.name for entry in missing.parent.iterdir() if entry.is_file()]
    except OSError:
        files = []
    close = difflib.get_close_matches(missing.name, files, n=1)
    return f"did you mean {missing.parent / close[0]}?" if close else "check the path"


def _open_zip_member(source: str, raw: BinaryIO) -> BinaryIO:
    archive = zipfile.ZipFile(raw if raw.seekable() else io.BytesIO(raw.read()))
    members = [info for info in archive.infolist() if not info.is_dir()]
    if len(members) != 1:
        raise DataError(
            f"{display_name(source)}: the zip archive holds {len(members)} files, exactly one was expected; "
            "unpack it and name the file"
        )
    if members[0].flag_bits & 1:
        raise DataError(f"{display_name(source)}: the zip archive is encrypted; unpack it first")
    try:
        return cast(BinaryIO, archive.open(members[0]))
    except NotImplementedError as error:
        raise DataError(f"{display_name(source)}: {error}; unpack it first") from None


@contextlib.contextmanager
def open_source(source: str) -> Iterator[BinaryIO]:
    """Open a path, ``-``, ``builtin:NAME/SPLIT`` or ``cache:NAME/SPLIT`` for reading decompressed bytes.

    Every failure to read, at opening or later, is a `DataError` that names the source.
    """
    name = display_name(source)
    raw = _open_raw(source)
    try:
        yield _unpack(source, raw)
    except _BROKEN_ARCHIVE as error:
        raise _as_data_error(name, error) from None
    finally:
        if source != STANDARD_STREAM:
            raw.close()


def _unpack(source: str, raw: BinaryIO) -> BinaryIO:
    """The stream itself, or its decompressed content."""
    head = raw.read(6)
    stream = raw
    if raw.seekable():
        raw.seek(-len(head), os.SEEK_CUR)
    else:
        stream = cast(BinaryIO, io.BufferedReader(_PrefixedStream(head, raw), 1 << 20))
    for start, decompress in _DECOMPRESSORS.items():
        if head.startswith(start):
            return cast(BinaryIO, decompress(stream))
    return _open_zip_member(source, stream) if head.startswith(_ZIP_STARTS) else stream


def _as_data_error(name: str, error: BaseException) -> DataError:
    if isinstance(error, OSError) and error.errno is not None:
        return DataError(f"{name}: cannot be read: {error.strerror}")
    return DataError(f"{name}: the compressed file is damaged or cut short ({error})")


def read_source(source: str) -> bytes:
    """All bytes of a source, decompressed."""
    with open_source(source) as stream:
        return _read_all(stream, source)


def _read_all(stream: BinaryIO, source: str) -> bytes:
    """The content of a stream, unless it is endless or exceeds the allowed memory."""
    allowed = allowed_memory()
    content = io.BytesIO()
    while piece := stream.read(_PIECE_BYTES):
        content.write(piece)
        if content.tell() > allowed:
            raise DataError(
                f"{display_name(source)}: holds more than fits into memory: {describe_allowed(allowed)}; "
                "or is it the wrong file?"
            )
    return content.getvalue()


def read_packed(source: str) -> bytes:
    """All bytes of a source, not decompressed."""
    raw = _open_raw(source)
    try:
        return _read_all(raw, source)
    except OSError as error:
        raise _as_data_error(display_name(source), error) from None
    finally:
        if source != STANDARD_STREAM:
            raw.close()


def unpack(content: bytes, source: str) -> bytes:
    """Decompress the bytes of `read_packed`."""
    try:
        return _read_all(_unpack(source, io.BytesIO(content)), source)
    except _BROKEN_ARCHIVE as error:
        raise _as_data_error(display_name(source), error) from None


# Outputs


@contextlib.contextmanager
def error_context(place: Path | str, problem: str = "the folder cannot be used") -> Iterator[None]:
    """Turn errors of the operating system, except closed pipes, into an `OutputError` that names the place."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"{place}: {problem}: {error.strerror or error}") from None


def check_output(path: str) -> None:
    """Refuse an output path that cannot be written, before any work is done for it."""
    if path == STANDARD_STREAM:
        if sys.stdout is None or sys.stdout.closed:
            raise OutputError("standard output is closed; name a file to write to")
        return
    if not path:
        raise OutputError("the output path is empty; give a file name, or - for standard output")
    target = Path(path)
    try:
        if target.is_dir():
            raise OutputError(f"{path}: is a folder; give a file name inside it")
        folder = _final_target(path).parent
        if not folder.is_dir():
            raise OutputError(f"{path}: the folder {folder} does not exist; create it first")
        if target.exists() and not os.access(target, os.W_OK):
            raise OutputError(f"{path}: is write-protected; choose another name")
        if not (target.exists() and not target.is_file()):
            with tempfile.TemporaryFile(dir=folder):
                pass
    except (OSError, ValueError) as error:
        raise OutputError(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}") from None


def check_outputs(outputs: Sequence[str], inputs: Sequence[str]) -> None:
    """Refuse outputs that cannot be written, that are the same, or that would replace an input."""
    for position, output in enumerate(outputs):
        for other in outputs[:position]:
            if output == other == STANDARD_STREAM or is_same_file(output, other):
                name = "standard output" if output == STANDARD_STREAM else output
                raise RequestError(f"two results would be written to {name}; give one of them another file")
        if any(is_same_file(output, source) for source in inputs):
            raise RequestError(f"{output} is read by this command; write the result to another file")
        check_output(output)


def prepare_folder(folder: str) -> Path:
    """Create a folder for results, unless it exists."""
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise OutputError(f"{folder}: is a file, a folder was expected") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputError(f"{folder}: the folder cannot be created: {reason}") from None
    return target


def is_same_file(one: str, other: str) -> bool:
    """Whether two paths name one file on disk; standard streams are never the same."""
    if STANDARD_STREAM in (one, other):
        return False
    try:
        return os.path.realpath(one) == os.path.realpath(other) or os.path.samefile(one, other)
    except (OSError, ValueError):
        return False


def _final_target(path: str) -> Path:
    """The file that a chain of symbolic links ends in."""
    return Path(os.path.realpath(path))


def temporary_prefix(target: Path) -> str:
    """Prefix of temporary files that are to become the target, and of no others."""
    return f"{TEMPORARY_PREFIX}{blake2b(os.fsencode(target.name), digest_size=6).hexdigest()}-"


def _file_mode(target: Path) -> int:
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


@contextlib.contextmanager
def open_output(path: str) -> Iterator[IO[bytes]]:
    """Open an output for writing bytes; the file appears complete or not at all.

    ``-`` is standard output; devices and named pipes are written to directly. Every failure to write is an
    `OutputError`, except that a closed pipe is a `BrokenPipeError`.
    """
    check_output(path)
    with error_context("standard output" if path == STANDARD_STREAM else path, "cannot be written"):
        if path == STANDARD_STREAM:
            sys.stdout.flush()
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "wb") as device:
                yield device
            return
        with _replacing(_final_target(path)) as stream, _compressing(stream, path) as packed:
            yield packed


@contextlib.contextmanager
def _compressing(stream: IO[bytes], path: str) -> Iterator[IO[bytes]]:
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


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    """A temporary file beside the target that replaces it at the end, unless something fails."""
    handle, temporary = tempfile.mkstemp(prefix=temporary_prefix(target), dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, _file_mode(target))
        if (drafts := _DRAFTS.get()) is None:
            os.replace(temporary, target)
        else:
            drafts.append((temporary, target))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def all_or_none() -> Iterator[None]:
    """Files that are written inside appear under their names at the end, unless something fails."""
    drafts: list[tuple[str, Path]] = []
    token = _DRAFTS.set(drafts)
    try:
        yield
        for temporary, target in drafts:
            with error_context(target, "cannot be written"):
                os.replace(temporary, target)
    finally:
        _DRAFTS.reset(token)
        for temporary, _ in drafts:
            Path(temporary).unlink(missing_ok=True)  # without effect for those that were renamed


@contextlib.contextmanager
def open_log(path: str, n_kept: int = 0) -> Iterator[IO[bytes]]:
    """Open a file that grows while it is read; its first `n_kept` bytes are kept, and the caller flushes it.

    ``-`` is standard output.
    """
    if path == STANDARD_STREAM:
        yield sys.stdout.buffer
        return
    check_output(path)
    with error_context(path, "cannot be written"):
        stream = open(path, "r+b" if n_kept else "wb")
        if n_kept:
            stream.truncate(n_kept)
            stream.seek(n_kept)
    try:
        yield stream
    finally:
        # The caller has already seen an error for bytes that could not be flushed.
        with contextlib.suppress(OSError):
            stream.close()


def write_output(path: str, content: str | bytes | Iterable[str]) -> None:
    """Write a text (as UTF-8) as a whole or piece by piece, or a byte string, to an output."""
    pieces = [content] if isinstance(content, str | bytes) else content
    with open_output(path) as stream:
        for piece in pieces:
            # File names need not be valid UTF-8; they are written as they were read.
            stream.write(piece.encode(errors="surrogateescape") if isinstance(piece, str) else piece)


@contextlib.contextmanager
def staging(target: Path, name: str) -> Iterator[Path]:
    """A folder inside `target` to write files to; `commit` moves them. If writing fails, it is removed.

    A killed run leaves it behind; it is emptied when it is opened again under the same name.
    """
    place = target / name
    with error_context(target):
        discard(place)
        place.mkdir()
    try:
        yield place
    except BaseException as error:
        _try_to_discard(place)
        if isinstance(error, OutputError):
            raise OutputError(str(error).replace(f"{place}{os.sep}", f"{target}{os.sep}")) from None
        raise


def commit(place: Path, names: Sequence[str]) -> None:
    """Move all files of a staging folder into the one around it, in the given order."""
    with error_context(place.parent):
        for name in names:
            os.replace(place / name, place.parent / name)
        place.rmdir()


def discard(path: Path) -> None:
    """Remove a file, or a folder with its content, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _try_to_discard(path: Path) -> None:
    with contextlib.suppress(OSError):
        discard(path)
