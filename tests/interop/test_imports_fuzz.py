"""Mangled files never crash an import: a model, or one clear error."""

from __future__ import annotations

import contextlib
import json
import struct
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.boosted_models import CATBOOST, DUMP, JSON_DUMP, LIGHTGBM, xgboost_document

from metasilvae.errors import MetasilvaeWarning, ModelError
from metasilvae.formats.silva_models import format_model, parse_model, same_model
from metasilvae.interop.imports import Imported, ImportOptions, compare_with_library, import_file, import_object
from metasilvae.interop.imports.catboost import read_catboost
from metasilvae.interop.imports.documents import load_ubjson
from metasilvae.interop.imports.lightgbm import read_lightgbm
from metasilvae.interop.imports.xgboost import read_xgboost
from metasilvae.interop.imports.xgboost_dumps import read_xgboost_dump

Reader = Callable[[bytes, str, ImportOptions], Imported]


def ubjson(value: object) -> bytes:
    """A small writer, for files to mangle; lists of numbers are typed as XGBoost types them."""
    if isinstance(value, dict):
        return b"{" + b"".join(_length(key) + ubjson(item) for key, item in value.items()) + b"}"
    if isinstance(value, list):
        if value and all(isinstance(item, int) for item in value):
            return b"[$l#" + _count(len(value)) + b"".join(item.to_bytes(4, "big", signed=True) for item in value)
        return b"[#" + _count(len(value)) + b"".join(map(ubjson, value))
    if isinstance(value, str):
        return b"S" + _length(value)
    if isinstance(value, float):
        return b"d" + struct.pack(">f", value)
    assert isinstance(value, int)
    return b"l" + value.to_bytes(4, "big", signed=True)


def _count(number: int) -> bytes:
    return b"L" + number.to_bytes(8, "big")


def _length(text: str) -> bytes:
    return _count(len(text.encode())) + text.encode()


FILES: dict[str, tuple[Reader, bytes]] = {
    "xgboost": (read_xgboost, xgboost_document().encode()),
    "ubjson": (read_xgboost, ubjson(json.loads(xgboost_document()))),
    "lightgbm": (read_lightgbm, LIGHTGBM.encode()),
    "catboost": (read_catboost, json.dumps(CATBOOST).encode()),
    "text dump": (read_xgboost_dump, DUMP.encode()),
    "json dump": (read_xgboost_dump, JSON_DUMP.encode()),
}
OPTIONS = {"text dump": ImportOptions(("no", "yes"), base_score=(0.5,))}
OPTIONS["json dump"] = OPTIONS["text dump"]
edits = st.lists(
    st.tuples(
        st.integers(0, 10_000),
        st.integers(0, 6),
        st.binary(max_size=6)
        | st.sampled_from(
            [
                b"-1",
                b"0",
                b"2",
                b"1e999",
                b"NaN",
                b"null",
                b"[",
                b"{",
                b"}",
                b"]",
                b'"',
                b",",
                b"9" * 30,
                b"\xff",
                b"\n",
            ]
        ),
    ),
    max_size=4,
)


def read(kind: str, content: bytes) -> None:
    """A model that can be written and read again, or a ModelError of one line."""
    reader, _ = FILES[kind]
    told = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MetasilvaeWarning)
            imported = reader(content, "model", OPTIONS.get(kind, ImportOptions()))
    except ModelError as error:
        told = str(error)
    if told is None:
        again = parse_model(format_model(imported.model).encode())
        assert same_model(again, imported.model)
    else:
        assert "\n" not in told
        assert told.startswith("model")
        assert len(told) < 500


@pytest.fixture(autouse=True)
def _no_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("xgboost", "lightgbm", "catboost"):
        monkeypatch.setitem(sys.modules, library, None)


@pytest.mark.parametrize("kind", FILES)
def test_the_file_itself_is_a_model(kind: str) -> None:
    reader, content = FILES[kind]
    assert reader(content, "model", OPTIONS.get(kind, ImportOptions())).model.n_trees == 1


@pytest.mark.parametrize("kind", FILES)
def test_mangled(kind: str) -> None:
    @given(edits)
    def mangle(changes: list[tuple[int, int, bytes]]) -> None:
        content = FILES[kind][1]
        for place, n_removed, inserted in changes:
            place %= len(content) + 1
            content = content[:place] + inserted + content[place + n_removed :]
        read(kind, content)

    mangle()


@pytest.mark.parametrize("kind", FILES)
def test_cut_short(kind: str) -> None:
    content = FILES[kind][1]
    for end in range(0, len(content), 3):
        read(kind, content[:end])


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 5) | st.floats(width=32) | st.sampled_from(["", "1", "a", "1e400"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["name", "a"]), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("kind", ["xgboost", "catboost", "json dump"])
def test_other_values_in_a_document(kind: str) -> None:
    """One value anywhere in the document becomes something else."""
    document = json.loads(FILES[kind][1])

    def places(value: object, path: tuple[object, ...]) -> list[tuple[object, ...]]:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        return [path, *(place for key, item in items for place in places(item, (*path, key)))]

    paths = [path for path in places(document, ()) if path]

    @given(st.sampled_from(paths), values)
    def change(path: tuple[object, ...], value: object) -> None:
        changed = json.loads(FILES[kind][1])
        target = changed
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value
        read(kind, json.dumps(changed).encode())

    change()


@given(st.binary(max_size=60))
def test_any_bytes_as_ubjson(content: bytes) -> None:
    with contextlib.suppress(ModelError):
        load_ubjson(b"{" + content, "model")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 100_000, "nested deeper than 64 levels|an object was expected"),
        (b"{L\x00\x00\x00\x00\x00\x00\x00\x01a[$l#L\x7f\xff\xff\xff\xff\xff\xff\xff", "ends inside a value"),
        (b"{L\x00\x00\x00\x00\x00\x00\x00\x01a[#L\x7f\xff\xff\xff\xff\xff\xff\xff", "values are announced"),
        (b"{L\xff\xff\xff\xff\xff\xff\xff\xff", "is negative"),
        (b"{i\x01a[$S#i\x01", "values of type b'S'"),
        (b"{i\x01aQ", "found b'Q' at byte"),
    ],
)
def test_absurd_sizes(content: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_ubjson(content, "model")


def test_json_nested_without_end() -> None:
    with pytest.raises(ModelError, match=r"nested too deeply|not a JSON document"):
        read_xgboost(b'{"a":' + b"[" * 200_000, "model", ImportOptions())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "model.bin: the file is empty; save the model again"),
        (b"classifier-forest 1\n", "model.bin: this is silva's format already; it needs no import"),
        (b"CBM1", "model.bin: this is CatBoost's binary format; save the model with format='json'"),
        (b"hello", "model.bin: begins with 'hello', which is not a known model format; --from names its library"),
    ],
)
def test_a_file_that_is_not_recognized_gets_advice_that_fits(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(content)
    with pytest.raises(ModelError) as refusal:
        import_file(str(tmp_path / "model.bin"))
    assert message in str(refusal.value)
    assert "--from" in message or "--from" not in str(refusal.value)


def test_the_part_that_is_compared_is_told() -> None:
    sklearn = pytest.importorskip("sklearn.tree", reason="needs scikit-learn")
    X = np.arange(40.0).reshape(20, 2)
    fitted = sklearn.DecisionTreeClassifier().fit(X, np.arange(20) % 3)
    shares: list[float] = []
    compare_with_library(import_object(fitted), X, on_fraction=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1
