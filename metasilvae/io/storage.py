"""Sources and outputs: paths, standard streams, compressed files, builtin and cached data sets.

Readers get a binary stream that is already decompressed. The compression is recognized by the first bytes, not by the
file name, so that it works for standard input too. Writers get a file that appears under its final name only when it is
complete; several files can appear together.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from hashlib import blake2b
from pathlib import Path
from typing import IO, BinaryIO

try:
    import fcntl
except ImportError:  # Windows, where open files have no names
    fcntl = None  # type: ignore[assignment]

from metasilvae.errors import DataError, OutputError, RequestError
from metasilvae.io.compression import BROKEN_ARCHIVE, ContentError, compressing, read_within, unpack_stream
from metasilvae.io.compression import strip_compression as strip_compression
from metasilvae.io.inputs import describe_input, is_input, record_input, record_output, refuse_input
from metasilvae.io.memory import allowed_memory

STANDARD_STREAM = "-"
BUILTIN_PREFIX = "builtin:"
CACHE_PREFIX = "cache:"
CACHE_VARIABLE = "METASILVAE_CACHE"
CACHE_SUFFIX = ".csv.zip"
# Prefix of files that are being written; a run that is killed leaves one behind.
TEMPORARY_PREFIX = ".metasilvae-"
# An installed package contains the data sets; a checkout has them beside the package.
_BUILTIN_FOLDERS = (Path(__file__).parents[1] / "_datasets", Path(__file__).parents[2] / "datasets")
# Names of the standard streams as files.
_DESCRIPTORS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
# Links to follow until something other than a link must come.
_MOST_LINKS = 40
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


def _open_raw(source: str, is_kept: bool = True) -> BinaryIO:
    if source == STANDARD_STREAM:
        if sys.stdin is None or sys.stdin.closed:
            raise DataError("<stdin>: standard input is closed; give a path or pipe a file in")
        with contextlib.suppress(AttributeError, OSError):  # a stream in memory has no descriptor
            record_input(sys.stdin.fileno(), None)
        return sys.stdin.buffer
    path = resolve(source)
    try:
        stream = open(path, "rb")
        if is_kept:
            record_input(stream.fileno(), path)
        return stream
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


@contextlib.contextmanager
def open_source(source: str) -> Iterator[BinaryIO]:
    """Open a path, ``-``, ``builtin:NAME/SPLIT`` or ``cache:NAME/SPLIT`` for reading decompressed bytes.

    Every failure to read, at opening or later, is a `DataError` that names the source.
    """
    name = display_name(source)
    raw = _open_raw(source)
    try:
        yield unpack_stream(raw)
    except BROKEN_ARCHIVE as error:
        raise _as_data_error(name, error) from None
    finally:
        if source != STANDARD_STREAM:
            raw.close()


def _as_data_error(name: str, error: BaseException) -> DataError:
    if isinstance(error, ContentError):
        return DataError(f"{name}: {error}")
    if isinstance(error, OSError) and error.errno is not None:
        return DataError(f"{name}: cannot be read: {error.strerror}")
    return DataError(f"{name}: the compressed file is damaged or cut short ({error})")


def read_source(source: str, expansion: int = 1, is_kept: bool = True) -> bytes:
    """All bytes of a source, decompressed, unless they take more memory than an input may take.

    Parameters
    ----------
    expansion : bytes of memory that each byte of the content takes at most when it is parsed
    is_kept : whether the file is an input, which no output may replace
    """
    raw = _open_raw(source, is_kept)
    return _read_named(raw, source, lambda stream: read_within(unpack_stream(stream), allowed_memory() // expansion))


def read_packed(source: str) -> bytes:
    """All bytes of a source, not decompressed."""
    return _read_named(_open_raw(source), source, lambda stream: read_within(stream, allowed_memory()))


def unpack(content: bytes, source: str) -> bytes:
    """Decompress the bytes of `read_packed`."""
    return _read_named(io.BytesIO(content), source, lambda raw: read_within(unpack_stream(raw), allowed_memory()))


def _read_named(raw: BinaryIO, source: str, read: Callable[[BinaryIO], bytes]) -> bytes:
    """Read a stream and close it; errors name the source."""
    try:
        return read(raw)
    except BROKEN_ARCHIVE as error:
        raise _as_data_error(display_name(source), error) from None
    finally:
        if source != STANDARD_STREAM:
            raw.close()


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
    refuse_input(path)
    if (descriptor := find_descriptor(path)) is not None:
        with error_context(path, "cannot be written"):
            if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
                raise OutputError(f"{path}: is open for reading only")
        return
    target = Path(path)
    try:
        if target.is_dir():
            raise OutputError(f"{path}: is a folder; give a file name inside it")
        if _final_target(path).is_symlink():
            raise OutputError(f"{path}: is a link that leads to itself; remove it or choose another name")
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
            if is_standard_output(output) and is_standard_output(other):
                raise RequestError("two results would be written to standard output; give one of them another file")
            if is_same_file(output, other):
                raise RequestError(f"two results would be written to {output}; give one of them another file")
        # Some inputs, such as a schema, are read before all of them are known.
        if any(_is_source(output, source) for source in inputs) or (output != STANDARD_STREAM and is_input(output)):
            raise RequestError(describe_input(output))
        check_output(output)


def _is_source(output: str, source: str) -> bool:
    """Whether a path names the file that a source is read from; standard input may be one, by ``< FILE``."""
    if output == STANDARD_STREAM:
        return False
    try:
        if source != STANDARD_STREAM:
            return is_same_file(output, resolve(source))
        found = os.fstat(sys.stdin.fileno())
        return stat.S_ISREG(found.st_mode) and os.path.samestat(found, os.stat(output))
    except (AttributeError, DataError, OSError, ValueError):
        return False


def is_standard_output(path: str) -> bool:
    """Whether an output is standard output, under any of its names."""
    return path == STANDARD_STREAM or find_descriptor(path) == 1


def is_file_output(path: str) -> bool:
    """Whether an output is a file on the disk, which can be read again: no stream, pipe or device."""
    if path == STANDARD_STREAM or find_descriptor(path) is not None:
        return False
    return Path(path).is_file() or not Path(path).exists()


def find_descriptor(path: str) -> int | None:
    """The open file that a name such as /dev/stdout or /dev/fd/3, or a link to one, stands for.

    It is written to as it is. To open the name again would cut short a file that the shell opened to append to it.
    """
    for _ in range(_MOST_LINKS if fcntl else 0):
        name = os.path.normpath(path)
        if name in _DESCRIPTORS:
            return _DESCRIPTORS[name]
        folder, _, number = name.rpartition("/")
        if folder in ("/dev/fd", "/proc/self/fd", f"/proc/{os.getpid()}/fd") and number.isdecimal():
            return int(number)
        try:
            path = os.path.join(os.path.dirname(name), os.readlink(name))
        except (OSError, ValueError):
            return None
    return None


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


@contextlib.contextmanager
def open_output(path: str) -> Iterator[IO[bytes]]:
    """Open an output for writing bytes; the file appears complete or not at all.

    ``-`` is standard output; devices, named pipes and open files (/dev/stdout) are written to directly. Every failure
    to write is an `OutputError`, except that a closed pipe is a `BrokenPipeError`. An input is never replaced.
    """
    check_output(path)
    with error_context("standard output" if path == STANDARD_STREAM else path, "cannot be written"):
        if path == STANDARD_STREAM:
            sys.stdout.flush()
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        elif (stream := _open_in_place(path)) is not None:
            with stream:
                yield stream
        else:
            with _replacing(_final_target(path)) as stream, compressing(stream, path) as packed:
                yield packed


def _open_in_place(path: str) -> IO[bytes] | None:
    """A stream to something other than a file on the disk; None for a file."""
    if (descriptor := find_descriptor(path)) is not None:
        for standard in (sys.stdout, sys.stderr):
            if standard is not None:
                standard.flush()
        return os.fdopen(os.dup(descriptor), "wb")
    if os.path.exists(path) and not os.path.isfile(path):
        return open(path, "wb")
    return None


def _create_temporary(target: Path) -> tuple[int, str]:
    """A new file beside the target, with the permissions of the target, or those that the system gives to new files.

    The system applies the umask when it creates the file; to ask for the umask, it would have to be changed, which
    another thread that writes a file would notice.
    """
    try:
        mode: int | None = stat.S_IMODE(target.stat().st_mode) & 0o777
    except OSError:
        mode = None
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    while True:
        temporary = str(target.parent / f"{temporary_prefix(target)}{secrets.token_hex(4)}")
        with contextlib.suppress(FileExistsError):
            handle = os.open(temporary, flags, 0o666 if mode is None else 0o600)
            break
    if mode is not None:
        try:
            os.chmod(handle if os.chmod in os.supports_fd else temporary, mode)
        except BaseException:
            os.close(handle)
            os.unlink(temporary)
            raise
    return handle, temporary


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    """A temporary file beside the target that replaces it at the end, unless something fails."""
    handle, temporary = _create_temporary(target)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if (drafts := _DRAFTS.get()) is None:
            _replace(temporary, target)
        else:
            drafts.append((temporary, target))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _replace(new: str | Path, target: Path) -> None:
    """Give a complete file its name, unless that is the name of an input."""
    refuse_input(target)
    os.replace(new, target)
    record_output(target)


@contextlib.contextmanager
def all_or_none() -> Iterator[None]:
    """Files that are written inside appear under their names at the end, unless something fails."""
    drafts: list[tuple[str, Path]] = []
    token = _DRAFTS.set(drafts)
    try:
        yield
        for temporary, target in drafts:
            with error_context(target, "cannot be written"):
                _replace(temporary, target)
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
        stream = _open_in_place(path) or open(path, "r+b" if n_kept else "wb")
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
            _replace(place / name, place.parent / name)
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
