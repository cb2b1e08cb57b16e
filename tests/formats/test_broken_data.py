"""Broken data files, each with what the user is told. No traceback, exit code 1, one line per problem."""

import gzip
import re
import struct
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from metasilvae.cli import main
from metasilvae.errors import DataError, MetasilvaeWarning
from metasilvae.formats.datasets import read_dataset

ROW = struct.pack("32s2d", b"a", 1.0, 2.0)
NAN_ROW = struct.pack("32s2d", b"a", 1.0, float("nan"))
INF_ROW = struct.pack("32s2d", b"a", float("-inf"), 0.0)
NO_NUMBER = "encode categories as numbers, or name the label's column by --label-column"
NOT_A_NUMBER = "correct it, or read the column as a category (--categorical 'x[0]')"
MISSING = "fill in a value or delete the row"
NUL = "a NUL byte, so this is not a text file; is it damaged, or binary data without its header line?"
WIDTH = "add or remove cells, or quote a cell that holds the delimiter"

# Name: (content, message after the path of the file).
BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", ": the file is empty"),
    "blank": (b" \n\t\n\r\n", ": no rows; the file is empty or holds comments only"),
    "comments-only": (b"# 3 2\n# nothing\n", ": no rows; the file is empty or holds comments only"),
    "mark-only": (b"\xef\xbb\xbf", ": no rows; the file is empty or holds comments only"),
    "header-only": (
        b"label,u,v\n",
        ":1: column names, but no rows follow; if the first row holds values, use --no-header",
    ),
    "announced-header-only": (
        b"# 5 2\n\nlabel,u,v\n",
        ":3: column names, but no rows follow; if the first row holds values, use --no-header",
    ),
    "short-row": (b"a,1,2\nb,3\n", f":2: 2 columns found, 3 expected as in the first row (line 1); {WIDTH}"),
    "long-row": (b"a,1,2\nb,3,4,5\n", f":2: 4 columns found, 3 expected as in the first row (line 1); {WIDTH}"),
    "row-shorter-than-header": (
        b"# 1 2\nlabel,u,v\nb,3\n",
        f":3: 2 columns found, 3 expected as in the header (line 2); {WIDTH}",
    ),
    "one-cell": (b"a,1,2\nb\n", f":2: 1 column found, 3 expected as in the first row (line 1); {WIDTH}"),
    "trailing-delimiter": (
        b"a,1,2\nb,3,4,\n",
        ":2: 4 columns found, 3 expected as in the first row (line 1); the line ends with an extra delimiter",
    ),
    "late-comment": (
        b"a,1,2\n# b\nb,3,4\n",
        ":2: 1 column found, 3 expected as in the first row (line 1); comments are allowed only at the top of the file",
    ),
    "infinity": (
        b"a,1,2\nb,-inf,4\n",
        ":2: column 2: '-inf' is infinite, a finite number was expected; replace it or delete the row",
    ),
    "overflow": (
        b"a,1,2\nb,1e999,4\n",
        ":2: column 2: '1e999' is too large for a 64-bit floating point number; rescale the column",
    ),
    "word": (b"a,1,2\nb,red,4\n", f":2: column 2: 'red' is not a number, but 1 other cell is; {NOT_A_NUMBER}"),
    "hexadecimal": (b"a,1,2\nb,0x10,4\n", f":2: column 2: '0x10' is not a number, but 1 other cell is; {NOT_A_NUMBER}"),
    "underscore": (
        b"a,1,2\nb,1_000,4\n",
        f":2: column 2: '1_000' is not a number, but 1 other cell is; {NOT_A_NUMBER}",
    ),
    "half-exponent": (b"a,1,2\nb,1e,4\n", f":2: column 2: '1e' is not a number, but 1 other cell is; {NOT_A_NUMBER}"),
    "two-numbers": (b"a,1,2\nb,1 2,4\n", f":2: column 2: '1 2' is not a number, but 1 other cell is; {NOT_A_NUMBER}"),
    "wide-digits": (
        "a,1,2\nb,\uff11,4\n".encode(),
        f":2: column 2: '\uff11' is not a number, but 1 other cell is; {NOT_A_NUMBER}",
    ),
    "decimal-comma": (
        b"a;1,5;2\nb;3;4\n",
        ":1: column 2: '1,5' is not a number; write a decimal point instead of the comma",
    ),
    "quoted-decimal-comma": (
        b'a,1,2\nb,"1,5",4\n',
        ":2: column 2: '1,5' is not a number; write a decimal point instead of the comma",
    ),
    "missing-label": (b"a,1,2\n,3,4\n", ":2: column 1: the label is missing; fill it in or delete the row"),
    "blank-label": (b"a,1,2\n  ,3,4\n", ":2: column 1: the label is missing; fill it in or delete the row"),
    "quoted-blank-label": (b'a,1,2\n" ",3,4\n', ":2: the label is missing; fill it in or delete the row"),
    "open-quote": (
        b'a,1,2\n"b,3,4\n',
        ":2: column 1: the quote that opens here is never closed; close it, or write a quote twice",
    ),
    "open-quote-first": (
        b'"a,1,2\nb,3,4\n',
        ":1: column 1: the quote is not closed on this line; close it, or remove a line break inside the quotes",
    ),
    "text-after-quote": (
        b'a,1,2\n"b"c,3,4\n',
        ":2: column 1: text follows the closing quote; write a quote inside quotes twice",
    ),
    "separated-by-blanks": (
        b"a 1 2\nb 3 4\n",
        ":1: 'a 1 2' is a single column, a label and at least one value were expected; it seems to be separated by "
        "blanks; separate label and values by , ; tab or |",
    ),
    "labels-only": (
        b"a\nb\n",
        ":1: 'a' is a single column, a label and at least one value were expected; separate label and values by "
        ", ; tab or |",
    ),
    "latin-1-label": (
        b"a,1,2\ngr\xfcn,3,4\n",
        ":2: not UTF-8 text (byte 0xfc); save the file with UTF-8 encoding",
    ),
    "latin-1-header": (
        b"label,gr\xfcn\na,1\n",
        ":1: not UTF-8 text (byte 0xfc); save the file with UTF-8 encoding",
    ),
    "latin-1-cell": (
        b"a,1,2\nb,3\xb0,4\n",
        ":2: not UTF-8 text (byte 0xb0); save the file with UTF-8 encoding",
    ),
    "utf-16": ("a,1,2\n".encode("utf-16"), ": UTF-16 text; save the file with UTF-8 encoding"),
    "utf-32": ("a,1,2\n".encode("utf-32"), ": UTF-32 text; save the file with UTF-8 encoding"),
    "nul-in-cell": (b"a,1,2\nb,\0,4\n", f":2: {NUL}"),
    "nul-in-label": (b"a,1,2\nb\0,3,4\n", f":2: {NUL}"),
    "nul-far-down": (b"a,1,2\n" * 20000 + b"b\0,3,4\n", f":20001: {NUL}"),
    "only-nul": (b"\0" * 100, f":1: {NUL}"),
    "cut-gzip": (
        gzip.compress(bytes(range(256)) * 9)[:-20],
        ": the compressed file is damaged or cut short (Compressed file ended before the end-of-stream marker was "
        "reached)",
    ),
    "libsvm-missing-label": (
        b"a 1:2\n1:2 2:3\n",
        ":2: the label is missing before '1:2'; a line is label index:value ...",
    ),
    "libsvm-query": (b"a qid:1 1:2\n", ":1: 'qid:1': ranking data is not supported; remove the qid entries"),
    "libsvm-several-labels": (
        b"1,2 3:4\n",
        ":1: '1,2' holds several labels, one was expected; multi-label data is not supported",
    ),
    "libsvm-repeated-index": (b"a 1:2 1:3\n", ":1: index 1 occurs twice; each index may occur once per line"),
    "libsvm-decreasing-index": (
        b"a 1:1\nb 3:2 2:3\n",
        ":2: index 2 follows index 3; sort the indices of the line in increasing order",
    ),
    "libsvm-word": (b"a 1:2\nb 1:x\n", f":2: index 1: 'x' is not a number; {NO_NUMBER}"),
    "libsvm-nan": (
        b"a 1:2\nb 1:nan\n",
        f":2: index 1: 'nan' stands for a missing value, a number was expected; {MISSING}",
    ),
    "libsvm-no-value": (b"a 1:2\nb 1:\n", f":2: index 1: the cell is empty, a number was expected; {MISSING}"),
    "libsvm-negative-index": (
        b"a 1:2\nb -1:2\n",
        ":2: '-1:2': expected index:value with a whole number as index",
    ),
    "libsvm-no-colon": (b"a 1:2\nb 1 2\n", ":2: '1': expected index:value with a whole number as index"),
    "libsvm-blank-after-colon": (
        b"a 1:2\nb 1: 2\n",
        f":2: index 1: the cell is empty, a number was expected; {MISSING}",
    ),
    "libsvm-absurd-index": (
        b"a 1000000000000:1\n",
        ":1: index 1000000000000 is too large; at most 2147483646 features are supported",
    ),
    "libsvm-endless-index": (
        b"a " + b"9" * 60 + b":1\n",
        ":1: index " + "9" * 21 + "... is too large; at most 2147483646 features are supported",
    ),
    "libsvm-latin-1": (b"a 1:2\n\xfc 1:2\n", ":2: not UTF-8 text (byte 0xfc); save the file with UTF-8 encoding"),
    "binary-header-only": (b"# 1 2 2\n", ": no rows follow the header line"),
    "binary-cut": (
        b"# 1 2 2\n" + ROW + ROW[:-1],
        ": row 2: the file ends in the middle of the row: 47 of 48 bytes; it is cut short, or the announced number of "
        "features is wrong",
    ),
    "binary-wrong-width": (
        b"# 1 3 1\n" + ROW * 5,
        ": row 2: the label continues after its end; the announced number of features is probably wrong",
    ),
    "binary-nan": (
        b"# 1 2 2\n" + ROW + NAN_ROW,
        ": row 2: value 2 is nan, a finite number was expected; the data or the announced number of features is wrong",
    ),
    "binary-infinity": (
        b"# 1 1 2\n" + INF_ROW,
        ": row 1: value 1 is -inf, a finite number was expected; the data or the announced number of features is wrong",
    ),
    "binary-no-label": (b"# 1 1 2\n" + b"\0" * 48, ": row 1: the label is empty; every row needs one"),
    "binary-label-not-padded": (
        b"# 1 1 2\na\0b" + ROW[3:],
        ": row 1: the label continues after its end; the announced number of features is probably wrong",
    ),
    "binary-label-not-utf-8": (
        b"# 1 1 2\n\xfc\0" + ROW[2:],
        ": row 1: the label is not UTF-8 text; the announced number of features is probably wrong",
    ),
    "binary-no-features": (b"# 1 1 0\n" + ROW[:32], ":1: 0 features are announced; the file holds labels only"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_message_and_exit_code(tmp_path: Path, name: str) -> None:
    content, expected = BROKEN[name]
    path = tmp_path / "broken"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_dataset(str(path))
    assert str(caught.value) == f"{path}{expected}"
    result = CliRunner().invoke(main, ["data", "check", str(path)])
    assert result.exit_code == 1, result.output
    assert result.output.splitlines()[1] == f"- {path}{expected}"
    assert "Traceback" not in result.output
    result = CliRunner().invoke(main, ["data", "convert", str(path), str(tmp_path / "out.csv")])
    assert result.exit_code == 1
    assert result.output == f"error: {path}{expected}\n"
    assert not (tmp_path / "out.csv").exists()


def test_binary_data_that_end_with_their_header(tmp_path: Path) -> None:
    path = tmp_path / "broken"
    path.write_bytes(b"# 1 2 2")
    with pytest.raises(DataError, match="no header line of binary data found"):
        read_dataset(str(path), input_format="binary")


def test_binary_rows_beyond_any_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METASILVAE_MEMORY", "1T")
    path = tmp_path / "broken"
    path.write_bytes(b"# 1 1 300000000\n" + ROW)
    with pytest.raises(DataError, match=r":1: 300000000 features are announced, at most \d+ are supported"):
        read_dataset(str(path))


def test_absurd_sizes_are_refused_before_they_are_allocated(tmp_path: Path) -> None:
    path = tmp_path / "broken"
    for content in (b"# 1 1 99999999999999\n" + ROW, b"a 2147483646:1\n" * 3000):
        path.write_bytes(content)
        pattern = (
            re.escape(str(path)) + r": \d+ rows? of \d+ features need [\d.]+ GiB of memory, [\d.]+ GiB are allowed"
        )
        with pytest.raises(DataError, match=pattern):
            read_dataset(str(path))


def test_several_problems_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "broken.csv"
    path.write_bytes(b"a,1\n" + b"b,x\n" * 7 + b"c,1,2\n" * 7)
    result = CliRunner().invoke(main, ["data", "check", str(path)])
    lines = result.output.splitlines()
    # One line for each row of a wrong width, and one for the column with texts among numbers.
    assert [line.split(":")[1] for line in lines[1:]] == [*(str(line) for line in range(9, 16)), "2"]
    assert lines[-1].endswith("'x' is not a number, but 1 other cell is (7 such cells); correct it, or read the column "
                              "as a category (--categorical 'x[0]')")  # fmt: skip


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("missing.csv", "missing.csv: no such file"),
        (".", ".: is a folder, a file was expected"),
        ("builtin:nothing/train", "builtin:nothing/train: there is no such builtin data set"),
        ("builtin:../setup.py", "there is no such builtin data set"),
        ("a\0b", "is not a valid path"),
    ],
)
def test_sources_that_are_no_files(tmp_path: Path, monkeypatch, source: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=re.escape(message)):
        read_dataset(source)
    result = CliRunner().invoke(main, ["data", "check", source])
    assert result.exit_code == 1
    assert message in result.output


PIECES = [
    b"a", b"b", b"1", b"-2.5", b"1e5", b"nan", b"?", b",", b";", b"\t", b" ", b'"', b"\n", b"\r\n", b"\r", b"#", b":",
    b"1:2", b" 3:4", b"# 2 2\n", b"# 1 1 2\n", b"\0", b"\xff", b"\xef\xbb\xbf", b"a,1,2\n", b"b 1:1\n", ROW, NAN_ROW,
]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(
    st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join), st.sampled_from(["auto", "csv", "libsvm", "binary"])
)
def test_any_bytes_give_data_or_a_message(tmp_path_factory, content: bytes, input_format: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MetasilvaeWarning)
        try:
            dataset = read_dataset(str(path), input_format=input_format)
        except DataError as error:
            message = str(error)
            assert message.startswith(str(path))
            assert "\n" not in message
            assert "cannot be read" not in message
            return
    assert dataset.n_samples == len(dataset.y) > 0
    assert dataset.n_features > 0
    # NaN is a missing value.
    assert not np.isinf(dataset.X).any()
    assert set(dataset.y.tolist()) == set(range(dataset.n_labels))


def test_zip_archives(tmp_path: Path) -> None:
    path = tmp_path / "data.zip"
    for count in (0, 2):
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(count):
                archive.writestr(f"{number}.csv", "a,1\n")
        with pytest.raises(DataError, match=f"the zip archive holds {count} files, exactly one was expected"):
            read_dataset(str(path))
