"""Sources and outputs: compression by content, standard streams, files that appear whole or not at all."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.command import write

from metasilvae.errors import DataError, OutputError, RequestError
from metasilvae.io import storage
from metasilvae.io.inputs import protect_inputs

TEXT = b"some bytes \x00\xff\n" * 1000


def zipped(*contents: bytes, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        archive.writestr("folder/", b"")
        for number, content in enumerate(contents):
            archive.writestr(f"folder/{number}.csv", content)
    return stream.getvalue()


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zip": zipped,
    "stored zip": lambda text: zipped(text, compression=zipfile.ZIP_STORED),
    "gz in two parts": lambda text: gzip.compress(text[:5000]) + gzip.compress(text[5000:]),
}


# Reading


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_the_content_tells_the_compression_not_the_name(tmp_path: Path, kind: str) -> None:
    for name in ("data.csv", "data.gz", "data"):
        assert storage.read_source(write(tmp_path, name, COMPRESSIONS[kind](TEXT))) == TEXT


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_a_pipe_is_decompressed_too(tmp_path: Path, kind: str) -> None:
    reading, writing = os.pipe()
    with open(writing, "wb") as stream:
        stream.write(COMPRESSIONS[kind](TEXT))  # less than a pipe holds
    try:
        assert storage.read_source(f"/dev/fd/{reading}") == TEXT
    finally:
        os.close(reading)


@pytest.mark.parametrize("text", [b"", b"x", b"BZ", b"PK", b"\x1f"])
def test_very_short_files(tmp_path: Path, text: bytes) -> None:
    assert storage.read_source(write(tmp_path, "short", text)) == text


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zip"])
def test_damaged_archives(tmp_path: Path, kind: str) -> None:
    packed = COMPRESSIONS[kind](os.urandom(5000))
    middle = len(packed) // 2
    for broken in (packed[:middle], packed[:middle] + bytes(100) + packed[middle + 100 :], packed[:10]):
        path = write(tmp_path, "broken", broken)
        with pytest.raises(DataError, match=re.escape(f"{path}: the compressed file is damaged or cut short")):
            storage.read_source(path)


def test_damage_is_noticed_when_reading_piece_by_piece(tmp_path: Path) -> None:
    path = write(tmp_path, "broken", gzip.compress(os.urandom(100_000))[:-50_000])

    def read_all() -> None:
        with storage.open_source(path) as stream:
            while stream.read(1000):
                pass

    with pytest.raises(DataError, match="damaged or cut short"):
        read_all()


def test_a_zip_archive_holds_one_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds 2 files, exactly one was expected; unpack it and name the file"):
        storage.read_source(write(tmp_path, "two.zip", zipped(TEXT, TEXT)))
    with pytest.raises(DataError, match="holds 0 files"):
        storage.read_source(write(tmp_path, "none.zip", zipped()))


def test_an_encrypted_zip_archive(tmp_path: Path) -> None:
    packed = bytearray(zipped(TEXT))
    # The bit for encryption in the directory at the end; the last entry is the file.
    entry = packed.rindex(b"PK\x01\x02")
    packed[entry + 8] |= 1
    with pytest.raises(DataError, match="the zip archive is encrypted; unpack it first"):
        storage.read_source(write(tmp_path, "secret.zip", bytes(packed)))


def test_an_unknown_zip_compression(tmp_path: Path) -> None:
    packed = bytearray(zipped(TEXT))
    entry = packed.rindex(b"PK\x01\x02")
    packed[entry + 10] = 97
    with pytest.raises(DataError, match="unpack it first"):
        storage.read_source(write(tmp_path, "odd.zip", bytes(packed)))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("absent.csv", "absent.csv: no such file; check the path"),
        ("row.csv", "row.csv: no such file; did you mean rows.csv?"),
        ("folder/rows.csv", "folder/rows.csv: no such file; there is no folder folder"),
        (".", ".: is a folder, a file was expected"),
        ("rows.csv/x", "rows.csv/x: cannot be read: Not a directory"),
        ("a\0b", "is not a valid path"),
        ("x" * 300, "cannot be read: File name too long"),
    ],
)
def test_unreadable_sources(
    rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=re.escape(message)):
        storage.read_source(source)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read everything")
def test_a_protected_source(rows: str) -> None:
    os.chmod(rows, 0)
    with pytest.raises(DataError, match="cannot be read: Permission denied"):
        storage.read_source(rows)


@pytest.mark.parametrize("name", ["nonsense", "../setup.py", "circle", "", "circle/../../setup.py", "/etc/passwd"])
def test_only_shipped_sets_are_builtin(name: str) -> None:
    with pytest.raises(DataError, match="there is no such builtin data set"):
        storage.read_source(f"builtin:{name}")


# Writing


def test_a_new_file_gets_the_usual_mode(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        storage.write_output(str(tmp_path / "new"), "text")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_a_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    path = Path(write(tmp_path, "old", "old"))
    path.chmod(0o600)
    storage.write_output(str(path), "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == "new"


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_failure_keeps_the_old_file(tmp_path: Path, failure: type[BaseException]) -> None:
    path = write(tmp_path, "old", "old")

    def write_half() -> None:
        with storage.open_output(path) as stream:
            stream.write(b"new")
            raise failure

    with pytest.raises(failure):
        write_half()
    assert Path(path).read_text() == "old"
    assert os.listdir(tmp_path) == ["old"]


def test_until_the_end_the_old_file_is_there(tmp_path: Path) -> None:
    path = write(tmp_path, "old", "old")
    with storage.open_output(path) as stream:
        stream.write(b"new")
        stream.flush()
        assert Path(path).read_text() == "old"
    assert Path(path).read_text() == "new"
    assert os.listdir(tmp_path) == ["old"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    write(tmp_path, "elsewhere/target", "old")
    link = tmp_path / "link"
    link.symlink_to("elsewhere/target")
    storage.write_output(str(link), "new")
    assert link.is_symlink()
    assert (tmp_path / "elsewhere" / "target").read_text() == "new"
    assert os.listdir(tmp_path / "elsewhere") == ["target"]


def test_a_link_to_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("target")
    storage.write_output(str(link), "new")
    assert (tmp_path / "target").read_text() == "new"
    (tmp_path / "lost").symlink_to("absent/target")
    with pytest.raises(OutputError, match=r"the folder .*absent does not exist"):
        storage.write_output(str(tmp_path / "lost"), "new")


def test_a_named_pipe_is_written_to(tmp_path: Path) -> None:
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        storage.check_output(path)
        storage.write_output(path, "text")
        assert os.read(reading, 100) == b"text"
        assert stat.S_ISFIFO(os.stat(path).st_mode)
    finally:
        os.close(reading)


def test_a_device_is_written_to() -> None:
    storage.write_output(os.devnull, "text")
    assert not Path(os.devnull).is_file()


def test_a_process_substitution_is_written_to() -> None:
    reading, writing = os.pipe()
    try:
        storage.write_output(f"/dev/fd/{writing}", "text")
        assert os.read(reading, 100) == b"text"
    finally:
        os.close(reading)
        os.close(writing)


def test_the_longest_name(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    storage.write_output(str(path), "text")
    assert path.read_text() == "text"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "the output path is empty"),
        (".", ".: is a folder; give a file name inside it"),
        ("absent/file", "/absent does not exist; create it first"),
        ("rows.csv/file", "does not exist"),
        ("a\0b", "embedded null"),
        ("x" * 256, "cannot be written: File name too long"),
    ],
)
def test_impossible_outputs(
    rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match=re.escape(message)):
        storage.check_output(path)
    with pytest.raises(OutputError, match=re.escape(message)):
        storage.write_output(path, "text")
    assert os.listdir(tmp_path) == ["rows.csv"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_protected_outputs(rows: str, tmp_path: Path) -> None:
    os.chmod(rows, 0o400)
    with pytest.raises(OutputError, match="is write-protected"):
        storage.check_output(rows)
    os.chmod(tmp_path, 0o500)
    with pytest.raises(OutputError, match="cannot be written: Permission denied"):
        storage.check_output(str(tmp_path / "new"))


def test_a_full_device(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    with pytest.raises(OutputError, match="/dev/full: cannot be written: No space left on device"):
        storage.write_output("/dev/full", "text")


def test_standard_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    storage.write_output("-", ["names may be t\udcfft\n", "pieces\n"])
    storage.write_output("-", b"bytes\xff\n")
    assert capfdbinary.readouterr().out == b"names may be t\xfft\npieces\nbytes\xff\n"


def test_same_files(rows: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(rows)
    os.link(rows, tmp_path / "hard")
    for other in (rows, f"{tmp_path}/./rows.csv", str(tmp_path / "link"), str(tmp_path / "hard")):
        assert storage.is_same_file(rows, other)
    assert storage.is_same_file(str(tmp_path / "new"), f"{tmp_path}/../{tmp_path.name}/new")
    assert not storage.is_same_file(rows, str(tmp_path / "new"))
    assert not storage.is_same_file("-", "-")


def test_concurrent_writes_never_change_the_umask(tmp_path: Path) -> None:
    """Each file is made with the permissions of the umask, while other threads write and no thread yields long."""
    mask, interval = os.umask(0o077), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda number: storage.write_output(str(tmp_path / f"{number}"), "text"), range(400)))
    finally:
        sys.setswitchinterval(interval)
        os.umask(mask)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    assert len(list(tmp_path.iterdir())) == 400


def test_the_umask_is_left_to_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask for it is to change it, for all threads."""

    def refuse(mask: int) -> int:
        raise AssertionError("the umask was changed")

    monkeypatch.setattr(os, "umask", refuse)
    storage.write_output(str(tmp_path / "new"), "text")
    storage.write_output(str(tmp_path / "new"), "text")


def test_a_private_file_is_never_readable_for_others(tmp_path: Path) -> None:
    path = Path(write(tmp_path, "old", "old"))
    path.chmod(0o600)
    with storage.open_output(str(path)) as stream:
        stream.write(b"secret")
        assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o600}


def test_a_write_error_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "old", "old")

    def fail(*arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chmod", fail)
    with pytest.raises(OutputError, match="old: cannot be written: Operation not permitted"):
        storage.write_output(path, "new")
    assert os.listdir(tmp_path) == ["old"]


# Outputs that are no ordinary files; docs/formats.md lists them


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/stderr", "/dev/fd/1", "/proc/self/fd/2", "link"])
@pytest.mark.parametrize("opened", ["wb", "ab"])
def test_open_files_are_written_to_as_they_are(name: str, opened: str, tmp_path: Path) -> None:
    """Even if the shell appends them to a file, as in >> FILE; the name would cut the file short or replace it."""
    if name == "link":
        (tmp_path / "link").symlink_to("/dev/stdout")
    program = f"from metasilvae.io.storage import write_output as w\nw({name!r}, 'a')\nw({name!r}, 'b')"
    path = tmp_path / "file"
    path.write_text("before\n")
    inode = path.stat().st_ino
    with path.open(opened) as stream:
        key = "stderr" if name.endswith(("2", "stderr")) else "stdout"
        subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path, **{key: stream})
    assert path.read_text() == ("before\nab" if opened == "ab" else "ab")
    assert path.stat().st_ino == inode


def test_an_open_file_that_cannot_be_written(tmp_path: Path) -> None:
    with open(write(tmp_path, "old", "old")) as stream:
        for function in (storage.check_output, lambda path: storage.write_output(path, "new")):
            with pytest.raises(OutputError, match=r"/dev/fd/[0-9]+: is open for reading only"):
                function(f"/dev/fd/{stream.fileno()}")
            with pytest.raises(OutputError, match="/dev/fd/999: cannot be written: Bad file descriptor"):
                function("/dev/fd/999")


def test_a_link_that_leads_to_itself(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("other")
    (tmp_path / "other").symlink_to("one")
    with pytest.raises(OutputError, match="one: is a link that leads to itself; remove it or choose another name"):
        storage.write_output(str(tmp_path / "one"), "text")
    assert (tmp_path / "one").is_symlink()


def test_a_pipe_with_the_name_of_a_compressed_file_is_not_compressed(tmp_path: Path) -> None:
    path = str(tmp_path / "pipe.gz")
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        storage.write_output(path, "text")
        assert os.read(reading, 100) == b"text"
    finally:
        os.close(reading)


def test_standard_output_has_several_names() -> None:
    with pytest.raises(RequestError, match="two results would be written to standard output"):
        storage.check_outputs(["-", "/dev/stdout"], [])
    assert storage.is_standard_output("/dev/fd/1")
    assert not storage.is_standard_output("/dev/stderr")


# Inputs are protected


def test_what_was_read_is_not_replaced(rows: str, tmp_path: Path) -> None:
    link = tmp_path / "link"
    os.link(rows, link)
    with protect_inputs():
        before = storage.read_source(rows)
        for path in (rows, str(link)):
            for write_to in (lambda path: storage.write_output(path, "x"), lambda path: open_and_close(path)):
                with pytest.raises(OutputError, match="is read by this command; write the result to another file"):
                    write_to(path)
        storage.write_output(str(tmp_path / "new"), "x")
        storage.read_source(str(tmp_path / "new"))
        storage.write_output(str(tmp_path / "new"), "y")  # what it wrote itself
    assert Path(rows).read_bytes() == before
    storage.write_output(rows, "x")


def test_invalid_names_are_no_inputs(rows: str) -> None:
    with protect_inputs():
        storage.read_source(rows)
        with pytest.raises(OutputError, match="embedded null"):
            storage.check_outputs(["a\0b"], [])
        with pytest.raises(OutputError, match="the output path is empty"):
            storage.check_outputs([""], [])
        storage.check_outputs(["-"], [])
        with pytest.raises(RequestError, match="is read by this command"):
            storage.check_outputs([rows], [])


def open_and_close(path: str) -> None:
    with storage.open_log(path):
        pass


def test_an_input_that_is_read_while_the_output_is_written(rows: str) -> None:
    before = Path(rows).read_bytes()

    def read_late() -> Iterator[str]:
        yield storage.read_source(rows).decode()

    with protect_inputs(), pytest.raises(OutputError, match="is read by this command"):
        storage.write_output(rows, read_late())
    assert Path(rows).read_bytes() == before
    assert os.listdir(Path(rows).parent) == ["rows.csv"]
