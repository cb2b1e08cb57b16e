"""Reading and writing CSV data."""

import bz2
import csv
import gzip
import io
import lzma
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metasilvae.dataset import Dataset
from metasilvae.errors import DataError, MetasilvaeWarning, RequestError
from metasilvae.formats import csv_files, text
from metasilvae.formats.csv_files import LABEL_NAMES, split_cells
from metasilvae.formats.datasets import read_dataset, write_dataset


@pytest.fixture
def read(tmp_path: Path):
    def read_bytes(content: bytes | str, **options) -> Dataset:
        path = tmp_path / "data.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_dataset(str(path), **options)

    return read_bytes


def rows_of(dataset: Dataset) -> list[tuple]:
    return [(dataset.labels[code], *values) for code, values in zip(dataset.y, dataset.X.tolist(), strict=True)]


PLAIN = [("a", 1.0, 2.5), ("b", -3.0, 1e-3), ("a", 0.5, 7.0)]


@pytest.mark.parametrize(
    "content",
    [
        "a,1,2.5\nb,-3,1e-3\na,.5,7\n",
        "a,1,2.5\nb,-3,1e-3\na,.5,7",
        "# 3 2\na,1,2.5\nb,-3,1e-3\na,.5,7\n",
        "# 0 3 2\na,1,2.5\nb,-3,1e-3\na,.5,7\n",
        "#3 2\na,1,2.5\nb,-3,1e-3\na,.5,7\n",
        "a,1,2.5\r\nb,-3,1e-3\r\na,.5,7\r\n",
        "a,1,2.5\rb,-3,1e-3\ra,.5,7\r",
        "a,1,2.5\nb,-3,1e-3\r\na,.5,7\r",
        "\n\na,1,2.5\n\n  \t \nb,-3,1e-3\r\n\r\na,.5,7\n\n",
        "a;1;2.5\nb;-3;1e-3\na;.5;7\n",
        "a\t1\t2.5\nb\t-3\t1e-3\na\t.5\t7\n",
        "a|1|2.5\nb|-3|1e-3\na|.5|7\n",
        "  a , 1 ,\t2.5 \nb,-3  ,1e-3\na, .5,7 \n",
        'a,"1",2.5\n"b",-3," 1e-3 "\n"a" , "0.5" ,7\n',
        "\ufeffa,1,2.5\nb,-3,1e-3\na,.5,7\n",
        "\ufeff# 3 2\na,1,2.5\nb,-3,1e-3\na,.5,7\n",
        "label,u,v\na,1,2.5\nb,-3,1e-3\na,.5,7\n",
        "# 3 2\nlabel,u,v\na,1,2.5\nb,-3,1e-3\na,.5,7\n",
        "1,?,v\na,1,2.5\nb,-3,1e-3\na,.5,7\n",
        "a,+1,25e-1\nb,-3.0,0.001\na,5E-1,007\n",
    ],
)
def test_the_same_rows_in_many_spellings(read, content: str) -> None:
    dataset = read(content)
    assert rows_of(dataset) == PLAIN
    assert dataset.labels == ("a", "b")
    assert dataset.X.dtype == np.float64
    assert dataset.X.flags.c_contiguous
    assert dataset.y.dtype == np.int32


def test_lines_of_rows(read) -> None:
    assert read("# 2 1\r\n\r\na,1\r\n\r\nb,2\r\n").line_of_row.tolist() == [3, 5]
    assert read("name,x\ra,1\r\rb,2").line_of_row.tolist() == [2, 4]


@pytest.mark.parametrize(
    ("pack", "suffix"),
    [(gzip.compress, ".gz"), (bz2.compress, ".bz2"), (lzma.compress, ".xz"), (bytes, ""), (gzip.compress, ".txt")],
)
def test_compressed(tmp_path: Path, pack, suffix: str) -> None:
    path = tmp_path / f"data.csv{suffix}"
    path.write_bytes(pack(b"a,1\nb,2\n"))
    assert rows_of(read_dataset(str(path))) == [("a", 1.0), ("b", 2.0)]


def test_zip(tmp_path: Path) -> None:
    path = tmp_path / "data.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.csv", "a,1\nb,2\n")
    assert rows_of(read_dataset(str(path))) == [("a", 1.0), ("b", 2.0)]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(b"a,1\nb,2\n"))))
    dataset = read_dataset("-")
    assert rows_of(dataset) == [("a", 1.0), ("b", 2.0)]
    assert dataset.source == "<stdin>"


@pytest.mark.parametrize(
    ("column", "names"),
    [("last", ("u", "v")), ("3", ("u", "v")), ("kind", ("u", "v")), ("2", ("u", "kind")), ("first", ("v", "kind"))],
)
def test_label_columns(read, column: str, names: tuple[str, ...]) -> None:
    dataset = read("u,v,kind\n1,2,3\n4,5,6\n", label_column=column)
    assert dataset.feature_names == names
    assert dataset.n_features == 2
    assert dataset.labels == {"last": ("3", "6"), "2": ("2", "5"), "first": ("1", "4")}.get(column, ("3", "6"))


def test_label_column_without_names(read) -> None:
    assert read("1,2,a\n4,5,b\n", label_column="last").labels == ("a", "b")
    with pytest.raises(
        DataError, match=r"data\.csv:1: no column is called 'kinds' in the first row; did you mean 'kind'"
    ):
        read("u,kind\n1,2\n", label_column="kinds")
    with pytest.raises(DataError, match="label column 4 was requested, but there are 3 columns"):
        read("1,2,a\n4,5,b\n", label_column="4")
    with pytest.raises(DataError, match="2 columns are called 'k'"):
        read("k,k,a\n4,5,6\n", label_column="k")
    for column in ("0", ""):
        with pytest.raises(RequestError, match="expected first, last, a column name or a number from 1"):
            read("1,2,a\n", label_column=column)
    with pytest.raises(RequestError, match="--no-header says there are no names"):
        read("1,2,a\n", label_column="x", header=False)


def test_header_can_be_forced(read) -> None:
    assert read("a,1,2\nb,3,4\n", header=True).feature_names == ("1", "2")
    assert read("a,1,2\nb,3,4\n", header=True).n_samples == 1
    with pytest.raises(DataError, match=r"data\.csv:1: column 2: 'u' is not a number"):
        read("label,u,v\nb,3,4\n", header=False)


def test_names_with_quotes_and_gaps(read) -> None:
    dataset = read('"the ""label""","a, b",\nx,1,2\n')
    assert dataset.feature_names == ("a, b", "x[1]")


def test_labels_with_quotes_and_other_letters(read) -> None:
    dataset = read('"a, ""b""",1\ngröße 1,2\n"größe 1",3\n')
    assert dataset.labels == ('a, "b"', "größe 1")
    assert dataset.y.tolist() == [0, 1, 1]


def test_width_asked_for(read) -> None:
    assert read("a,1,2\n", n_features=2).n_features == 2
    with pytest.raises(DataError, match=r"data\.csv:1: 2 features \(and the label\) found, 3 were requested"):
        read("a,1,2\n", n_features=3)
    assert read("a,1,2\n", libsvm_width=7).n_features == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("# 2 2\na,1,2\n", "data.csv:1: the # line announces 2 rows, 1 follow; the line is ignored"),
        ("# 1 3\na,1,2\n", "data.csv:1: the # line announces 3 features, the rows have 2 and the label; the line"),
        ("\n# 0 9 9\na,1,2\n", "data.csv:2: the # line announces 9 rows, 1 follow; and 9 features, the rows have 2"),
        ("# 999999999999999999 2\na,1,2\n", "announces 999999999999999999 rows, 1 follow"),
    ],
)
def test_wrong_counts_are_told_once(read, content: str, message: str) -> None:
    with pytest.warns(MetasilvaeWarning) as caught:
        dataset = read(content)
    assert rows_of(dataset) == [("a", 1.0, 2.0)]
    assert len(caught) == 1
    assert message in str(caught[0].message)
    assert "\n" not in str(caught[0].message)


def test_a_damaged_row_is_found_behind_the_first_chunk(read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "CHUNK_BYTES", 64)
    content = "".join(f"a,{row},1\r\n" for row in range(1000)) + "b,x,1\r\n"
    with pytest.raises(DataError, match=r"data\.csv:1001: column 2: 'x' is not a number"):
        read(content)


cells = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-1000, 1000).map(float)
# Words that stand above columns of labels are met with a warning in the first row.
labels = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Z"]) | st.sampled_from(' ,;|"#\t'), min_size=1, max_size=5
).filter(lambda text: text.strip() and text.lower() not in LABEL_NAMES)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[float]]]:
    width = draw(st.integers(1, 4))
    rows = draw(st.lists(st.tuples(labels, st.lists(cells, min_size=width, max_size=width)), min_size=1, max_size=8))
    return [label for label, _ in rows], [values for _, values in rows]


@settings(max_examples=500, deadline=None)
@given(tables(), st.sampled_from(",;|\t"), st.sampled_from(["\n", "\r", "\r\n"]), st.integers(1, 40), st.integers(1, 3))
def test_any_quoting_and_any_chunks(tmp_path_factory, table, delimiter: str, end: str, chunk: int, batch: int) -> None:
    """Python's csv module writes, the compiled reader reads, whatever the size of chunks and batches."""
    names, values = table
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_NONNUMERIC)
    writer.writerows([label, *row] for label, row in zip(names, values, strict=True))
    path = tmp_path_factory.mktemp("csv") / "data.csv"
    path.write_bytes(stream.getvalue().encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "CHUNK_BYTES", chunk)
        patch.setattr(csv_files, "BATCH_ROWS", batch)
        dataset = read_dataset(str(path), input_format="csv")
    assert [dataset.labels[code] for code in dataset.y] == names
    assert dataset.X.tobytes() == np.array(values).tobytes()
    assert dataset.line_of_row.tolist() == list(range(1, len(names) + 1))


@settings(max_examples=300, deadline=None)
@given(tables(), st.booleans(), st.sampled_from(["", ".gz", ".bz2", ".xz"]))
def test_round_trip(tmp_path_factory, table, named: bool, suffix: str) -> None:
    names, values = table
    seen = tuple(dict.fromkeys(names))
    feature_names = tuple(f'"f", {column}' for column in range(len(values[0]))) if named else None
    y = np.array([seen.index(name) for name in names], np.int32)
    path = str(tmp_path_factory.mktemp("csv") / f"data.csv{suffix}")
    write_dataset(Dataset(np.array(values), y, seen, feature_names), path)
    dataset = read_dataset(path, input_format="csv")
    assert dataset.X.tobytes() == np.array(values).tobytes()
    assert dataset.labels == seen
    assert dataset.y.tolist() == y.tolist()
    assert dataset.feature_names == feature_names


def test_written_form(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    X = np.array([[1.0, 0.1], [-0.0, 1e300]])
    write_dataset(Dataset(X, np.array([0, 1], np.int32), ("a", "#b"), ("label", "x")), str(path))
    assert path.read_text() == '# 2 2\nclass,label,x\na,1,0.1\n"#b",-0,1e+300\n'


def test_names_like_numbers_are_warned_about(tmp_path: Path) -> None:
    dataset = Dataset(np.ones((1, 2)), np.zeros(1, np.int32), ("a",), ("1", "2"))
    with pytest.warns(MetasilvaeWarning, match="use --header"):
        write_dataset(dataset, str(tmp_path / "data.csv"))
    assert read_dataset(str(tmp_path / "data.csv"), header=True).feature_names == ("1", "2")


def test_a_label_with_a_line_break_is_not_written(tmp_path: Path) -> None:
    dataset = Dataset(np.ones((1, 1)), np.zeros(1, np.int32), ("a\nb",))
    with pytest.raises(DataError, match="contains a line break"):
        write_dataset(dataset, str(tmp_path / "data.csv"))
    assert list(tmp_path.iterdir()) == []


def test_unknown_output_format(tmp_path: Path) -> None:
    dataset = Dataset(np.ones((1, 1)), np.zeros(1, np.int32), ("a",))
    with pytest.raises(RequestError, match="the suffix does not determine the format"):
        write_dataset(dataset, str(tmp_path / "data.xyz"))
    with pytest.raises(RequestError, match="expected csv, silva, libsvm, binary"):
        write_dataset(dataset, str(tmp_path / "data.csv"), "arff")
    with pytest.raises(RequestError, match="expected auto, csv, libsvm, binary"):
        read_dataset("x", input_format="arff")


def test_many_labels_and_growth(read) -> None:
    dataset = read("".join(f"label{row},{row}\n" for row in range(20000)))
    assert dataset.n_labels == dataset.n_samples == 20000
    assert dataset.y.tolist() == list(range(20000))
    assert dataset.X[:, 0].tolist() == list(range(20000))


@settings(max_examples=500, deadline=None)
@given(st.lists(st.text('ab ,"', max_size=4), min_size=1, max_size=4))
def test_split_cells_undoes_csv_quoting(row: list[str]) -> None:
    stream = io.StringIO()
    csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="").writerow(row)
    assert split_cells(stream.getvalue(), ",") == row


SHARED = sorted((Path(__file__).parents[3] / "shared" / "data").glob("*/*.csv.gz"))


@pytest.mark.skipif(not SHARED, reason="the folder shared/data beside the repository is missing")
@pytest.mark.parametrize("path", SHARED, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_published_files(path: Path) -> None:
    if path.stat().st_size > 1 << 20:
        pytest.skip("large; scripts/bench_load.py reads such files")
    expected = np.loadtxt(path, delimiter=",", usecols=1)
    if path.parent.name in ("breast-cancer", "mnist-1-5", "mnist-2-6"):
        with pytest.warns(MetasilvaeWarning, match=":1: the # line announces"):
            dataset = read_dataset(str(path))
    else:
        dataset = read_dataset(str(path))
    assert np.array_equal(dataset.X[:, 0], expected)


@pytest.mark.parametrize(
    "content",
    [
        "label,u,#n,v\na,1,,2.5\nb,-3,x,1e-3\na,.5,7 ,7\n",
        "label,u,v,#n\na,1,2.5,\nb,-3,1e-3,?\na,.5,7,  \n",
        'label,u,v,"#n, m"\na,1,2.5,"x,y"\nb,-3,1e-3,""\na,.5,7,"say ""no"""\n',
        "label,#m,#n,u,v\na,nan,inf,1,2.5\nb,1e999,,-3,1e-3\na,a b,#,.5,7\n",
        "label;u;#n;v\na;1;1,5;2.5\nb;-3;;1e-3\na;.5;;7\n",
    ],
)
def test_note_columns_are_passed_over(read, content: str) -> None:
    dataset = read(content)
    assert rows_of(dataset) == PLAIN
    assert dataset.feature_names == ("u", "v")


def test_a_label_is_never_a_note(read) -> None:
    dataset = read("u,v,#kind,#n\n1,2.5,a,\n-3,1e-3,b,\n.5,7,a,\n", label_column="#kind")
    assert rows_of(dataset) == PLAIN
    assert rows_of(read("u,v,#kind\n1,2.5,a\n-3,1e-3,b\n.5,7,a\n", label_column="last")) == PLAIN


def test_without_names_there_are_no_notes(read) -> None:
    with pytest.raises(DataError, match=r"data.csv:2: column 3: '#n' is not a number"):
        read("a,1,2\na,1,#n\n", header=False)


def test_rows_with_notes_have_the_width_of_the_header(read) -> None:
    with pytest.raises(DataError, match=r"data.csv:2: 2 columns found, 3 expected as in the header"):
        read("label,u,#n\na,1\n")
    with pytest.raises(DataError, match=r"data.csv:3: column 2 \(u\): 'x' is not a number"):
        read("label,u,#n\na,1,1\na,x,1\n")
    with pytest.raises(DataError, match=r"data.csv:2: column 3: the quote that opens here is never closed"):
        read('label,u,#n\na,1,"x\n')
    with pytest.raises(DataError, match="no column holds values"):
        read("label,#n\na,1\n")


def test_the_announced_features_do_not_count_notes(read) -> None:
    assert read("# 1 2\nlabel,u,v,#n\na,1,2,3\n", n_features=2).X.tolist() == [[1, 2]]


def test_data_without_labels(read) -> None:
    options = {"label_column": "none", "needs_labels": False}
    for content in ("1,2.5\n-3,1e-3\n.5,7\n", "# 3 2\nu,#n,v\n1,,2.5\n-3,,1e-3\n.5,,7\n"):
        dataset = read(content, **options)
        assert dataset.X.tolist() == [list(row[1:]) for row in PLAIN]
        assert (dataset.labels, dataset.y.tolist(), dataset.has_labels) == ((), [-1, -1, -1], False)
    with pytest.raises(DataError, match="2 features found, 3 were requested"):
        read("1,2\n", n_features=3, **options)
    with pytest.warns(MetasilvaeWarning, match="announces 1 features, the rows have 2; the line is ignored"):
        read("# 1 1\n1,2\n", **options)
    with pytest.raises(RequestError, match="all other commands need labels"):
        read("1,2\n", label_column="none")


# Lines that start with #

MARKED = [("#a", 1.0, 2.0), ("#b", 3.0, 4.0), ("c", 5.0, 6.0)]


@pytest.mark.parametrize("start", ["", "# 3 2\n", "\n"])
@pytest.mark.parametrize("chunk", [1, 7, 1 << 16])
def test_rows_whose_label_starts_with_a_mark_are_rows(read, monkeypatch, start: str, chunk: int) -> None:
    monkeypatch.setattr(text, "CHUNK_BYTES", chunk)
    content = start + "#a,1,2\n#b,3,4\nc,5,6\n"
    assert rows_of(read(content, header=False)) == MARKED
    number = start.count("\n") + 1
    with pytest.warns(MetasilvaeWarning) as caught:
        assert rows_of(read(content)) == MARKED
    assert [str(each.message).partition("data.csv: ")[2] for each in caught] == [
        f"line {number} starts with # and has as many cells as the rows, so it is read as a row; --header changes "
        "that; delete it if it is a comment"
    ]


def test_all_rows_start_with_a_mark(read) -> None:
    assert rows_of(read("#a,1,2\n#b,3,4\n", header=False)) == MARKED[:2]
    with pytest.warns(MetasilvaeWarning, match="line 1 is|line 1 starts with #, and the rows have another number"):
        assert rows_of(read("# about these rows\n#a,1,2\n#b,3,4\n", header=False)) == MARKED[:2]


@pytest.mark.parametrize("comment", ["# made by hand", "#", "# a, b", "# 3 2 1 0", "# one, two, three, four", '#,"'])
@pytest.mark.parametrize("chunk", [1, 1 << 16])
def test_comments_are_skipped_with_a_warning(read, monkeypatch, comment: str, chunk: int) -> None:
    monkeypatch.setattr(text, "CHUNK_BYTES", chunk)
    skipped = "starts with #, and the rows have another number of cells: ignored as comments"
    with pytest.warns(MetasilvaeWarning, match=f"data.csv: line 1 {skipped}"):
        dataset = read(f"{comment}\nlabel,u,v\na,1,2.5\nb,-3,1e-3\na,.5,7\n")
    assert rows_of(dataset) == PLAIN
    assert dataset.feature_names == ("u", "v")
    with pytest.warns(MetasilvaeWarning, match=f"data.csv: lines 1 to 4 {skipped.replace('starts', 'start')}"):
        # Only a first line announces counts.
        assert rows_of(read(f"{comment}\n# 9 9\n\n# more\na,1,2.5\nb,-3,1e-3\na,.5,7\n")) == PLAIN


def test_a_long_comment_before_long_rows(read, monkeypatch) -> None:
    content = "".join(f"# line {number}\n" for number in range(30_000)) + f"a{',1' * 300_000}\nb{',2' * 300_000}\n"
    for chunk in (1 << 10, 1 << 23):
        monkeypatch.setattr(text, "CHUNK_BYTES", chunk)
        with pytest.warns(MetasilvaeWarning, match="lines 1 to 30000 start with #"):
            assert read(content).X.shape == (2, 300_000)


def test_a_column_of_names_that_is_a_comment(read) -> None:
    content = "#id,kind,u,v\n17,a,1,2.5\n18,b,-3,1e-3\n19,a,.5,7\n"
    with pytest.warns(MetasilvaeWarning, match="line 1 starts with # and has as many cells .* read as column names"):
        dataset = read(content, label_column="kind")
    assert rows_of(dataset) == PLAIN
    assert dataset.feature_names == ("u", "v")
    assert rows_of(read(content, label_column="2", header=True)) == PLAIN
    with pytest.raises(DataError, match=r"data.csv:1: the first column is called '#id', and names that start with #"):
        read(content, header=True)
    numbered = read("#id,u\n17,1\n18,2\n", header=True, label_column="1")
    assert numbered.labels == ("17", "18")


def test_the_name_of_the_label_may_follow_a_mark(read) -> None:
    dataset = read("# Label,u,v\na,1,2.5\nb,-3,1e-3\na,.5,7\n", header=True)
    assert rows_of(dataset) == PLAIN
    assert dataset.feature_names == ("u", "v")


def test_comments_behind_the_first_row_are_refused(read) -> None:
    with pytest.raises(DataError, match=r"data.csv:2: 1 column found, 3 expected .* only at the top of the file"):
        read("a,1,2\n# a comment\n")


# silva's own form


def test_the_form_for_silva(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    X = np.array([[1.0, 0.1], [-0.0, 1e300]])
    write_dataset(Dataset(X, np.array([0, 1], np.int32), ("a", "b"), ("u", "v")), str(path), "silva")
    assert path.read_text() == "# 2 2\na,1,0.1\nb,-0,1e+300\n"
    assert rows_of(read_dataset(str(path))) == [("a", 1.0, 0.1), ("b", 0.0, 1e300)]


@pytest.mark.parametrize(
    ("label", "problem"),
    [("#b", "starts with #"), ("a b", "contains a blank"), ("a,b", "contains a comma"), ("x" * 32, "has 32 bytes"),
     ('"', "needs quotes, which silva does not know"), ("a;b", "needs quotes")],
)  # fmt: skip
def test_labels_that_silva_cannot_read(tmp_path: Path, label: str, problem: str) -> None:
    dataset = Dataset(np.zeros((1, 1)), np.zeros(1, np.int32), (label,))
    with pytest.raises(DataError, match=f"cannot be written as silva: the label .* {problem}"):
        write_dataset(dataset, str(tmp_path / "data.csv"), "silva")
    assert not list(tmp_path.iterdir())
