"""Tables with texts, booleans, quotes and missing values: the reader against Python's csv module, types, encoding."""

import csv
import io
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metasilvae._core.parsing import table_cells
from metasilvae.dataset import Dataset
from metasilvae.encoding import BOOLEAN, CATEGORY, MISSING_TOKENS, Column, Encoding
from metasilvae.errors import DataError, MetasilvaeWarning, RequestError
from metasilvae.formats.datasets import read_dataset, write_dataset
from metasilvae.formats.schema_files import parse_schema, write_schema
from metasilvae.formats.tables import TableOptions, column_of_texts, type_columns
from metasilvae.formats.text import Problems

PEOPLE = """\
id,age,work,member,note,label
p-01,23,Private,true,,a
p-02,,State-gov,false,x,b
p-03,41,"Self, own",true,?,a
p-04,35,NA,false,,b
"""


@pytest.fixture
def read(tmp_path: Path):
    def read_text(text: str, **options) -> Dataset:
        path = tmp_path / "table.csv"
        path.write_bytes(text.encode())
        return read_dataset(str(path), **options)

    return read_text


def options_of(**changes) -> TableOptions:
    return TableOptions(**changes)


# Records


def split(content: bytes, n_columns: int, size: int) -> list[list[str]]:
    """Cells of all records, with a buffer of the given size that grows where a record is longer."""
    records: list[list[str]] = []
    spans, lines = np.empty((3, n_columns, 2), np.int64), np.empty(3, np.int64)
    start, line, stop = 0, 1, min(size, len(content))
    while True:
        buffer = np.frombuffer(content[:stop] + b"\n", np.uint8)
        start, line, n_rows, status, _ = table_cells.split_records(
            buffer, start, stop, stop == len(content), ord(","), line, spans, lines
        )
        for row in range(n_rows):
            cells = [content[a:b].decode() for a, b in spans[row]]
            records.append([c[1:-1].replace('""', '"') if c.startswith('"') else c for c in cells])
        assert status != table_cells.MALFORMED
        if status == table_cells.USED_UP:
            if stop == len(content):
                return records
            stop = min(stop + size, len(content))


CELLS = st.text(st.sampled_from('ab1 ,"\n\r;#\té'), max_size=6).map(str.strip)


@settings(max_examples=400, deadline=None)
@given(
    st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=1, max_size=8)),
    st.integers(1, 40),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
    st.booleans(),
)
def test_records_are_those_of_the_csv_module(
    rows: list[list[str]], size: int, line_end: str, quotes_all: bool, has_end: bool
) -> None:
    stream = io.StringIO()
    # The module does not quote line breaks other than its own.
    quotes_all = quotes_all or any(mark in cell for row in rows for cell in row for mark in "\r\n")
    style = csv.QUOTE_ALL if quotes_all else csv.QUOTE_MINIMAL
    csv.writer(stream, lineterminator=line_end, quoting=style).writerows(rows)
    text = stream.getvalue()
    text = text if has_end else text.removesuffix(line_end)
    # A record of one empty cell is a blank line unless it is quoted.
    expected = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    expected = [row for row in expected if quotes_all or any(row) or len(row) > 1 or '""' in text]
    found = split(text.encode(), len(rows[0]), size)
    assert [row for row in found if any(row) or len(row) > 1] == [row for row in expected if any(row) or len(row) > 1]


def test_lines_of_records_with_line_breaks(read) -> None:
    dataset = read('label,text,x\na,"one\ntwo",1\n\nb,three,2\nc,"one\ntwo",3\n')
    assert dataset.line_of_row.tolist() == [2, 5, 6]
    assert dataset.feature_names == ("text = one\ntwo", "text = three", "x")
    assert dataset.feature_name(0) == "text = one\\ntwo"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('l,x,y\na,"1,2\nb,3,4\n', "table.csv:2: column 2: the quote that opens here is never closed"),
        ('l,x,y\na,r,2\nb,"s"t,4\n', "table.csv:3: column 2: text follows the closing quote"),
        ('l,x,y\na,r,"2\n3",4\n', "table.csv:2: 4 columns found, 3 expected as in the header (line 1)"),
        ("l,x,y\na,r,2\nb,s\n", "table.csv:3: 2 columns found, 3 expected"),
    ],
)
def test_broken_records(read, text: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read(text)
    assert message in str(caught.value)


# Types


def test_types_are_detected(read) -> None:
    dataset = read(PEOPLE, label_column="label", columns=options_of(ignored=("note",), ids=("id",)))
    assert dataset.encoding == Encoding(
        (
            Column("age"),
            Column("work", CATEGORY, ("Private", "Self, own", "State-gov"), has_missing=True),
            Column("member", BOOLEAN, ("false", "true")),
        ),
        ("id", "note"),
    )
    assert dataset.feature_names == (
        "age", "work = Private", "work = Self, own", "work = State-gov", "work = (missing)", "member",
    )  # fmt: skip
    np.testing.assert_array_equal(
        dataset.X,
        [[23, 1, 0, 0, 0, 1], [np.nan, 0, 0, 1, 0, 0], [41, 0, 1, 0, 0, 1], [35, 0, 0, 0, 1, 0]],
    )
    assert dataset.labels == ("a", "b")
    assert dataset.label_name == "label"
    assert dataset.ids_of(1) == {"id": "p-02", "note": "x"}
    assert dataset.subset(np.array([3])).ids_of(0)["id"] == "p-04"


def test_numbers_alone_are_read_as_before(read) -> None:
    dataset = read("label,x,y\na,1,2\nb,3,4\n")
    assert dataset.encoding is None
    assert dataset.indicators is None
    assert dataset.feature_names == ("x", "y")


def test_missing_numbers_need_no_encoding(read) -> None:
    dataset = read("label,x,y\na,?,2\nb,3,\nc,NA,null\n")
    assert dataset.encoding is None
    np.testing.assert_array_equal(dataset.X, [[np.nan, 2], [3, np.nan], [np.nan, np.nan]])
    assert dataset.has_missing


def test_missing_tokens_can_be_changed(read) -> None:
    dataset = read("label,x,y\na,-999,NA\nb,3,u\nc,4,u\n", columns=options_of(missing=("-999",)))
    np.testing.assert_array_equal(dataset.X[:, 0], [np.nan, 3, 4])
    assert dataset.encoding.columns[1].categories == ("NA", "u")


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (["true", "FALSE", "True"], ("FALSE", "true")),
        (["yes", "no"], ("no", "yes")),
        (["Yes", "Yes"], ("No", "Yes")),
        (["t", "f"], ("f", "t")),
        (["N", "Y"], ("N", "Y")),
    ],
)
def test_booleans(read, cells: list[str], found: tuple[str, str]) -> None:
    rows = "".join(f"a,{cell}\n" for cell in cells)
    dataset = read(f"label,x\n{rows}", label_column="label", header=True)
    assert dataset.encoding.columns[0] == Column("x", BOOLEAN, found)
    assert dataset.X[:, 0].tolist() == [float(cell.lower() in ("true", "yes", "t", "y")) for cell in cells]


@pytest.mark.parametrize("cells", [["f", "f"], ["y", "x"], ["true", "maybe"]])
def test_other_words_are_categories(read, cells: list[str]) -> None:
    rows = "".join(f"a,{cell},1\n" for cell in cells)
    assert read(f"label,x,z\n{rows}").encoding.columns[0].kind == CATEGORY


def many(cells: list[str]) -> str:
    return "label,x,c\n" + "".join(f"a,{number},{cell}\n" for number, cell in enumerate(cells))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            many(["1", "2", "abc", "4"]),
            "table.csv:4: column 3 (c): 'abc' is not a number, but 3 other cells are; correct it, or read the column "
            "as a category (--categorical c)",
        ),
        (many(["inf", "u"]), "table.csv:2: column 3 (c): 'inf' is infinite"),
        (
            many([f"2024-01-{day:02}" for day in range(1, 30)]),
            "table.csv:2: column 3 (c): '2024-01-01' is a date or time; replace it by numbers, such as days since a "
            "date, or ignore the column (--ignore c)",
        ),
        (
            many([f"text {number}" for number in range(40)] + ["text 0"]),
            "table.csv:2: column 3 (c): 40 different texts in 41 rows, such as 'text 0', are free text or identifiers; "
            "ignore the column (--ignore c), or use it as a category (--categorical c)",
        ),
    ],
)
def test_columns_without_a_type(read, text: str, message: str) -> None:
    if "inf" in text:
        text = text.replace("u\n", "3\n")
    with pytest.raises(DataError) as caught:
        read(text)
    assert message in str(caught.value)


def test_too_many_categories_are_refused(read) -> None:
    text = many([f"c{number}" for number in range(1001) for _ in range(3)])
    with pytest.raises(DataError, match="1001 different categories, at most 1000 are possible; join rare ones"):
        read(text)
    assert len(read(text, columns=options_of(ignored=("c",))).feature_names) == 1


def test_identifiers_are_ignored_with_a_warning(read) -> None:
    with pytest.warns(MetasilvaeWarning, match=r"column 3 \(c\) is ignored: 30 different texts in as many rows are"):
        dataset = read(many([f"id-{number}" for number in range(30)]))
    assert dataset.feature_names == ("x",)
    assert dataset.ids_of(4) == {"c": "id-4"}


def test_numbers_as_the_first_column_are_no_labels(read) -> None:
    with pytest.raises(DataError, match=r"labels are read from the first column \(length\), which holds 2 numbers"):
        read("length,kind\n1.5,a\n2.5,b\n3.5,a\n".replace("3.5", "1.5"))
    assert read("length,kind\n1.5,a\n2.5,b\n", label_column="1").labels == ("1.5", "2.5")


def test_codes_can_be_categories(read) -> None:
    dataset = read("label,code\na,1\nb,02\nc,2\n", columns=options_of(categorical=("c*",)))
    assert dataset.encoding.columns[0].categories == ("02", "1", "2")


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        (options_of(categorical=("z",)), DataError, "no column is called z (--categorical)"),
        (options_of(ignored=("z_*",)), DataError, "no column is called z_* (--ignore)"),
        (options_of(categorical=("x",), ignored=("x",)), RequestError, "both categorical and ignored"),
        (options_of(ignored=("*",)), DataError, "every column is ignored; a table needs at least one feature"),
    ],
)
def test_options_that_do_not_fit(read, columns: TableOptions, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        read("label,x,y\na,1,u\nb,2,v\n", columns=columns)
    assert message in str(caught.value)


# Rare and unknown categories


def test_rare_categories_are_joined(read) -> None:
    text = "label,c\n" + "".join(f"a,{cell}\n" for cell in ["u"] * 3 + ["v"] * 2 + ["w", "(other)"])
    dataset = read(text, header=True, columns=options_of(min_category_count=2))
    column = dataset.encoding.columns[0]
    assert column.categories == ("u", "v")
    assert column.values == ("u", "v", "(other)")
    assert dataset.X.sum(axis=0).tolist() == [3, 2, 2]


def test_the_name_of_other_is_no_category() -> None:
    assert Column("c", CATEGORY, ("(other)", "x"), has_other=True).values == ("(other)", "x", "((other))")


def test_unknown_categories(read) -> None:
    known = read("label,c,x\na,u,1\nb,v,2\n")
    with pytest.raises(DataError) as caught:
        read("label,c,x\na,u,1\nb,w,2\n", encoding=known.encoding, maker="m.silva")
    assert "table.csv:3: column 2 (c): 'w' is not among the 2 categories of m.silva ('u', 'v')" in str(caught.value)
    with pytest.raises(DataError, match="the cell is empty"):
        read("label,c,x\na,,1\n", encoding=known.encoding, maker="m.silva")
    tolerant = read("label,c,x\na,u,1\nb,v,2\n", columns=options_of(unknown="other"))
    found = read("label,c,x\na,w,1\nb,,2\nb,v,2\n", encoding=tolerant.encoding, maker="m.silva")
    assert found.X.tolist() == [[0, 0, 1, 1], [0, 0, 1, 2], [0, 1, 0, 2]]


def test_columns_are_found_by_name(read) -> None:
    known = read("label,c,x\na,u,1\nb,v,2\n")
    with pytest.warns(MetasilvaeWarning, match="ignores extra, which m.silva does not know"):
        found = read("x,extra,label,c\n7,?,a,v\n", label_column="label", encoding=known.encoding, maker="m.silva")
    assert found.X.tolist() == [[0, 1, 7]]
    with pytest.raises(DataError, match=r"has no column c, which m.silva has"):
        read("label,x\na,1\n", encoding=known.encoding, maker="m.silva")


def test_texts_for_a_model_of_numbers_are_refused(read) -> None:
    with pytest.raises(DataError, match="'u' is not a number"):
        read("label,c,x\na,u,1\nb,v,2\n", maker="m.silva")
    with pytest.warns(MetasilvaeWarning, match="ignores c"):
        assert read("label,c,x\na,u,1\n", maker="m.silva", model_names=("x",)).X.tolist() == [[1]]


# Encodings


def _as_category(text: str) -> str:
    """A text that is no missing value and keeps its blanks."""
    text = text.strip()
    return f"x{text}" if not text or text.lower() in {token.lower() for token in MISSING_TOKENS} else text


TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp", "Cf"]) | st.sampled_from(' ,"#=\n'), max_size=8
).map(_as_category)


@st.composite
def encodings(draw) -> Encoding:
    # A name has no line break, and does not start with the mark of a note.
    name = TEXTS.map(lambda text: text.replace("\n", " ").lstrip("# ") or "x")
    names = draw(st.lists(name, min_size=1, max_size=5, unique=True))
    columns = []
    for name in names:
        kind = draw(st.sampled_from(["number", BOOLEAN, CATEGORY]))
        if kind == CATEGORY:
            categories = tuple(draw(st.lists(TEXTS, min_size=1, max_size=4, unique=True)))
            columns.append(Column(name, kind, categories, draw(st.booleans()), draw(st.booleans())))
        else:
            columns.append(Column(name, kind, ("no", "yes") if kind == BOOLEAN else ()))
    return Encoding(tuple(columns), tuple(draw(st.lists(TEXTS, max_size=2, unique=True))))


@given(encodings())
def test_encodings_survive_json(encoding: Encoding) -> None:
    assert Encoding.from_json(encoding.as_json()) == encoding


@settings(max_examples=150, deadline=None)
@given(encodings(), st.data())
def test_rows_survive_decoding_and_encoding(tmp_path_factory, encoding: Encoding, data) -> None:
    """Any encoded row, written as a table and read again with the same encoding, is the same row."""
    encoding = Encoding(encoding.columns)
    rows = []
    for _ in range(data.draw(st.integers(1, 4))):
        row: list[float] = []
        for column in encoding.columns:
            if column.kind == CATEGORY:
                row += np.eye(column.width)[data.draw(st.integers(0, column.width - 1))].tolist()
            elif column.kind == BOOLEAN:
                row.append(data.draw(st.sampled_from([0.0, 1.0, np.nan])))
            else:
                row.append(data.draw(st.floats(-1e6, 1e6) | st.just(np.nan)))
        rows.append(row)
    dataset = Dataset(np.array(rows), np.zeros(len(rows), np.int32), ("a",), encoding.feature_names, encoding=encoding)
    path = str(tmp_path_factory.getbasetemp() / "round.csv")
    write_dataset(dataset, path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MetasilvaeWarning)
        again = read_dataset(path, encoding=encoding, maker="m", header=True, label_column="1")
    np.testing.assert_array_equal(again.X, dataset.X)


@pytest.mark.parametrize(
    "content",
    [
        None, {}, {"format": 2}, {"format": 1, "columns": []}, {"format": 1, "columns": [{"name": "a"}]},
        {"format": 1, "columns": [{"name": "a", "type": "category", "categories": ["u", "u"]}]},
        {"format": 1, "columns": [{"name": "a", "type": "boolean", "values": ["u"]}]},
        {"format": 1, "columns": [{"name": "a", "type": "number"}] * 2},
        {"format": 1, "columns": [{"name": "a", "type": "category", "categories": []}]},
    ],
)  # fmt: skip
def test_broken_encodings_are_refused(content: object) -> None:
    with pytest.raises(ValueError, match=r"expected|needs|named|listed|must|boolean"):
        Encoding.from_json(content)


def test_words_of_tests() -> None:
    encoding = Encoding((Column("x"), Column("c", CATEGORY, ("u", "v")), Column("b", BOOLEAN, ("no", "yes"))))
    assert encoding.describe_test(0, 1.5) == ("x <= 1.5", "x > 1.5")
    assert encoding.describe_test(2, 0.5) == ("c != v", "c = v")
    assert encoding.describe_test(3, 0.5) == ("b = no", "b = yes")
    assert encoding.describe_test(2, 2.0) == ("c = v <= 2.0", "c = v > 2.0")
    before, after = np.array([1.0, 1, 0, 0]), np.array([2.0, 0, 1, 1])
    assert encoding.describe_changes(before, after, range(4)) == [("x", 1.0, 2.0), ("c", "u", "v"), ("b", "no", "yes")]


# Schema files


def test_a_schema_fixes_types(read, tmp_path: Path) -> None:
    schema = parse_schema(
        b'label = "y"\nmissing = ["-"]\n[columns]\nx = { type = "category" }\n'
        b'b = { type = "boolean", values = ["0", "1"] }\nc = { type = "category", categories = ["u", "v"] }\n'
        b'i = { type = "ignored" }\n',
        "s.toml",
    )
    dataset = read("i,x,b,c,y\nq,1,0,u,k\nr,2,-,v,l\n", columns=schema)
    assert dataset.label_name == "y"
    assert dataset.feature_names == ("x = 1", "x = 2", "b", "c = u", "c = v")
    assert [name for name, _ in dataset.ids] == ["i"]
    with pytest.raises(DataError, match="'w' is not among the 2 categories"):
        read("i,x,b,c,y\nq,1,0,w,k\n", columns=schema)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TEXTS, st.lists(TEXTS, min_size=3, max_size=3)), min_size=1, max_size=4))
def test_schemas_read_back(columns: list[tuple[str, list[str]]]) -> None:
    from metasilvae.formats.frames import _join

    names = list(dict(columns))
    table = _join([column_of_texts(name, cells) for name, cells in dict(columns).items()], "data.csv")
    options = TableOptions(categorical=tuple(name.translate(str.maketrans("[]*?", "????")) for name in names))
    typed = type_columns(table, options, Problems("data.csv"))
    text = "".join(write_schema(typed, None, MISSING_TOKENS, "data.csv"))
    read_again = parse_schema(text.encode(), "schema.toml")
    again = type_columns(table, read_again, Problems("data.csv"))
    assert [each.column for each in again] == [each.column for each in typed]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "unknown key 'x'"),
        ("[columns]\nx = 1", "expected a table"),
        ('[columns]\nx = { type = "digit" }', "the type is 'digit'"),
        ('[columns]\nx = { type = "number", categories = [] }', "categories is not for columns of the type number"),
        ('[columns]\nx = { type = "category", categories = ["a", "a"] }', "listed twice"),
        ('[columns]\nx = { type = "boolean", values = ["a"] }', "expected the two texts"),
        ('label = 3', "is not the name of a column"),
        ("[", "is not TOML"),
    ],
)  # fmt: skip
def test_broken_schemas(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        parse_schema(text.encode(), "s.toml")
    assert str(caught.value).startswith("s.toml: ")
