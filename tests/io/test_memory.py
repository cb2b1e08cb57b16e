"""Every reader keeps METASILVAE_MEMORY: files that unpack to much, long lines, many labels; the peak is measured."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.command import TREE

from metasilvae.errors import DataError
from metasilvae.formats import text
from metasilvae.formats.datasets import read_dataset
from metasilvae.io import compression
from metasilvae.io.storage import read_source

ALLOWED = 10 << 20
# In addition to the allowed memory: buffers, and what Python needs to load modules.
FIXED = 60 << 20
CONTENT = 80 << 20

PROGRAM = """
import sys
from metasilvae.cli import main
import metasilvae.cli.{module}, metasilvae.formats.datasets, metasilvae.perturbations.attack, tomllib, json, numpy

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))

before = peak()
try:
    main({words!r})
except SystemExit as end:
    print(peak() - before, end.code)
"""


def gz(content: bytes) -> bytes:
    return gzip.compress(content, 1)


def zipped(content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("rows.csv", content)
    return stream.getvalue()


def repeated(piece: bytes, start: bytes = b"", end: bytes = b"") -> bytes:
    return start + piece * (CONTENT // len(piece)) + end


def labels() -> bytes:
    return b"".join(b"label %d,1\n" % number for number in range(500_000))


def many_labels() -> bytes:
    number = 120_000
    names = b" ".join(b"%d" % label for label in range(number))
    return b"classifier-decision-tree 1 %d %s LEAF %s" % (number, names, b"1 " * number)


def directory_of_many() -> bytes:
    """A zip archive whose directory is 60 MB, which is nothing but names."""
    entry = zipfile.ZipInfo("x" * 60_000)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for _ in range(200):
            entry = zipfile.ZipInfo(f"{_}{'x' * 60_000}")
            archive.writestr(entry, b"")
    return stream.getvalue()


CHECK = "data check FILE"
CASES: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "csv: a long line": (CHECK, lambda: repeated(b"1,", b"a,"), "a line of more than 0.3 MiB, which takes more memory"),
    "csv: a long line in zip": (CHECK, lambda: zipped(repeated(b"1,", b"a,")), "a line of more than 0.3 MiB"),
    "csv: a long line without end": (CHECK, lambda: gz(repeated(b"a")), "a line of more than 0.3 MiB"),
    "csv: a long line of quotes": (CHECK, lambda: gz(repeated(b'""', b'a,"')), "a line of more than 0.3 MiB"),
    "csv: a long second line": (CHECK, lambda: gz(repeated(b",1", b"a,1\n")), "a line of more than 0.3 MiB"),
    "csv: a long comment": (CHECK, lambda: gz(repeated(b"# ", b"# 1 1\n")), "a line of more than 0.3 MiB"),
    "csv: a line of 8 MB": (CHECK, lambda: b"a" + b",1" * (4 << 20) + b"\n", "a line of more than 0.3 MiB"),
    "csv: many rows": (CHECK, lambda: gz(repeated(b"a,1\n")), "of 1 features need"),
    "csv: many comments": (CHECK, lambda: gz(b"# x\n" * (1 << 20)), "the file is empty or holds comments only"),
    "csv: many labels": (CHECK, labels, "different labels take more memory than 10.0 MiB"),
    "csv: many announced": (CHECK, lambda: b"# 999999999 9\n" + b"a,1\n" * 10, "announces 999999999 rows"),
    "libsvm: a long line": (CHECK, lambda: gz(repeated(b" 7:1", b"a 1:1\na")), "a line of more than 0.3 MiB"),
    "libsvm: many rows": (CHECK, lambda: gz(repeated(b"a 1:1\n")), "the rows up to here take"),
    "libsvm: wide": (CHECK, lambda: b"a 3000000:1\nb 1:1\n", "2 rows of 3000000 features need 45.8 MiB"),
    "binary: a long row": (
        CHECK, lambda: b"# 1 1 9000000\n" + bytes(100), "1 row of 9000000 features need 68.7 MiB of memory"),
    "binary: many rows": (
        CHECK, lambda: gz(repeated(b"a".ljust(32, b"\0") + bytes(8), b"# 1 1 1\n")), "of 1 features need"),
    "model: blanks": ("info FILE", lambda: gz(repeated(b" ")), "holds more than fits into memory: 10.0 MiB"),
    "model: nodes": (
        "info FILE", lambda: gz(repeated(b"SPLIT 0 1 LEAF 1 0 ", b"classifier-decision-tree 1 2 a b ")),
        "holds more than fits into memory"),
    "model: labels": ("info FILE", many_labels, "120000 labels do not fit into memory: 10.0 MiB are allowed"),
    "attack": ("attack check FILE ROWS", lambda: gz(repeated(b"a=[]\n")), "holds more than fits into memory"),
    "boxes": (
        "verify TREE ROWS --perturbation from-file FILE", lambda: gz(repeated(b"[0;1]")), "holds more than fits"),
    "weights": (
        "verify TREE ROWS --radius --feature-weights FILE", lambda: gz(repeated(b"1 ")), "holds more than fits"),
    "shard": ("merge FILE", lambda: gz(repeated(b"{}\n")), "holds more than fits into memory"),
    "scale": (
        "data convert ROWS - --to csv --apply-scale FILE", lambda: gz(repeated(b"[],", b"[")), "holds more than fits"),
    "table": ("plot variance FILE -o out.png", lambda: gz(repeated(b"1,2\n")), "holds more than fits into memory"),
    "log": ("plot convergence FILE -o out.png", lambda: gz(repeated(b"{}")), "holds more than fits into memory"),
    "checkpoint": (
        "train ROWS out.silva --epsilon 0.1 --resume FILE",
        lambda: gz(repeated(b"[],", b"metasilvae checkpoint 4\n")), "holds more than fits into memory"),
    "zip: a long directory": (CHECK, directory_of_many, "the directory of the zip archive is too large for one file"),
}  # fmt: skip


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory cannot be read here")
@pytest.mark.parametrize("name", CASES)
def test_the_peak(name: str, rows: str, tree: str, tmp_path: Path) -> None:
    line, make, message = CASES[name]
    path = tmp_path / "file"
    path.write_bytes(make())
    words = [{"FILE": str(path), "ROWS": rows, "TREE": tree}.get(word, word) for word in line.split()]
    program = PROGRAM.format(module={"info": "models", "merge": "verify"}.get(words[0], words[0]), words=words)
    environment = {**os.environ, "METASILVAE_MEMORY": "10M"}
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert message in found.stdout + found.stderr, (found.stdout[-500:], found.stderr[-500:])
    growth, code = map(int, found.stdout.split()[-2:])
    assert code == (0 if name == "csv: many announced" else 1)
    assert growth < ALLOWED + FIXED, f"{growth / 2**20:.0f} MiB"
    assert "Traceback" not in found.stderr
    assert len(found.stderr.splitlines()) <= 1
    assert len(found.stderr) < 500


@pytest.mark.parametrize("chunk", [1 << 10, 1 << 23])
def test_the_longest_line(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is the same whatever the size of the buffer, and a line that just fits is read."""
    monkeypatch.setattr(text, "CHUNK_BYTES", chunk)
    monkeypatch.setenv("METASILVAE_MEMORY", "4M")
    longest = (4 << 20) // 32
    path = tmp_path / "rows.csv"
    line = "a" + ",1" * ((longest - 1) // 2)
    path.write_text(f"{line}\n{line}\n")
    assert read_dataset(str(path)).n_samples == 2
    longer = line + " " * (longest - len(line) + 1)
    for content, place in ((f"{longer}\n{line}\n", 1), (f"{line}\n{longer},1\n", 2)):
        path.write_text(content)
        with pytest.raises(DataError, match=f"rows.csv:{place}: a line of more than 0.1 MiB, which takes more memory"):
            read_dataset(str(path))


def test_short_lines_are_read_with_any_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METASILVAE_MEMORY", "1")
    path = tmp_path / "rows.csv"
    path.write_text(f"a{',1' * 30_000}\nb{',2' * 30_000}\n")
    assert np.array_equal(read_dataset(str(path)).X[:, 0], [1, 2])


# xz files, which Python's own reader unpacks without a limit


def test_xz_with_several_streams_and_padding(tmp_path: Path) -> None:
    one, other = os.urandom(100_000), b"the other"
    path = tmp_path / "model.xz"
    for packed in (
        lzma.compress(one) + lzma.compress(other),
        lzma.compress(one) + bytes(8) + lzma.compress(other) + bytes(4),
        lzma.compress(b"") + lzma.compress(one + other),
    ):
        path.write_bytes(packed)
        assert read_source(str(path)) == one + other
    path.write_bytes(lzma.compress(one) + b"no stream")
    with pytest.raises(DataError, match="the compressed file is damaged or cut short"):
        read_source(str(path))


def test_an_xz_file_that_needs_much_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.xz"
    path.write_bytes(lzma.compress(TREE.encode(), filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 90 << 20}]))
    assert read_source(str(path)) == TREE.encode()
    monkeypatch.setenv("METASILVAE_MEMORY", "1M")
    with pytest.raises(DataError, match=r"model.xz: unpacking needs more than 80.0 MiB; unpack it first"):
        read_source(str(path))
    path.write_bytes(lzma.compress(TREE.encode(), preset=9))
    assert read_source(str(path)) == TREE.encode()


def test_a_zip_archive_from_a_pipe_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METASILVAE_MEMORY", "1M")

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("rows.csv", bytes(2 << 20))
    with pytest.raises(compression.ContentError, match="holds more than fits into memory"):
        compression.unpack_stream(Pipe(stream.getvalue()))
