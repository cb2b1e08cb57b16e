"""The line behind a model in which it describes itself."""

from __future__ import annotations

import json
import random
import re
import warnings
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles import make_model, models, with_directions

from metasilvae.errors import MetasilvaeWarning, ModelError
from metasilvae.formats.silva_models import format_model, parse_model, read_model, same_model, write_model
from metasilvae.model import NO_DESCRIPTION, LeafKind, Model, ModelDescription
from metasilvae.voting import VOTINGS

TREE = "classifier-decision-tree 2 2\nyes no\nSPLIT 1 0.5\nLEAF 3 1\nLEAF 0 2\n"
SCORES = "classifier-decision-tree 2 2\nyes no\nLEAF_LOGARITHMIC 3 1\n"


def parse(text: str) -> Model:
    return parse_model(text.encode(), "m.silva")


def describe(model: Model, **parts: object) -> Model:
    return replace(model, description=ModelDescription(**parts))  # type: ignore[arg-type]


names = st.text(max_size=8) | st.sampled_from(
    ["SPLIT 0 1", "LEAF", "\nLEAF 1 2", '"', "\\", "\\LEAF", "\r\n# metasilvae {}"]
)
plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(names, parts, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(names, plain_json, max_size=4)


@st.composite
def described_models(draw: st.DrawFn) -> Model:
    model = draw(models(simple_labels=False))
    fitting = [name for name, scheme in VOTINGS.items() if scheme.leaf_kind is model.leaf_kind]
    of_features = st.lists(names, min_size=model.n_features, max_size=model.n_features, unique=True).map(tuple)
    return describe(
        model,
        feature_names=draw(st.none() | of_features),
        label_name=draw(st.none() | names),
        voting=draw(st.none() | st.sampled_from(fitting)),
        encoding=draw(st.none() | objects),
        provenance=draw(st.none() | objects),
    )


@given(described_models())
def test_round_trip(model: Model) -> None:
    text, plain = format_model(model), format_model(model, plain=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = parse(text)
    assert same_model(model, again)
    assert again.description == model.description
    assert again.fingerprint == parse(plain).fingerprint
    assert parse(plain).description == NO_DESCRIPTION
    # To all other programs there is one more line, and no more words of nodes and trees.
    assert text.startswith(plain)
    trailer = text[len(plain) :]
    assert trailer == "" if model.description == NO_DESCRIPTION else trailer.startswith("# metasilvae {")
    assert trailer.count("\n") == (trailer != "")
    assert trailer.isascii()
    assert not re.search("LEAF|SPLIT|classifier-", trailer)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\r"),
        lambda text: text.replace("# meta", "\n \n# meta"),
        lambda text: text.rstrip("\n"),
        lambda text: text + "\n \n",
        lambda text: text.replace('"b"', '"b", "é"').replace('["a", ', "["),
    ],
)
def test_line_ends_and_blank_lines(change) -> None:
    text = format_model(describe(parse(TREE), feature_names=("a", "b")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse(change(text)).description.feature_names in (("a", "b"), ("b", "é"))


@pytest.mark.parametrize(
    ("trailer", "complaint"),
    [
        ("{", "m.silva:6: the trailer is not JSON"),
        ("", "m.silva:6: the trailer is not JSON"),
        ("{} {}", "not JSON"),
        ('{"features": ["a", "b"', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"trained": ' + "[" * 100_000 + "]" * 100_000 + "}", "not JSON .it is nested too deeply"),
        ('{"trained": {"seconds": NaN}}', "NaN is not a number"),
        ('{"trained": {"seconds": 1e999}}', "'1e999' is too large"),
        ('{"label": "a", "label": "b"}', "the key 'label' occurs twice"),
        ('["a"]', "expected a JSON object"),
        ("null", "expected a JSON object"),
        ('{"features": null}', "has 'null' under 'features', expected a list of names"),
        ('{"features": "ab"}', "under 'features', expected a list"),
        ('{"features": ["a"]}', "has 1 feature names, the model has 2 features"),
        ('{"features": ["a", 1]}', "as the name of feature 1, expected text"),
        ('{"features": ["a", "a"]}', "has the name 'a' for features 0 and 1; names must differ"),
        ('{"features": ["a", "\\ud800"]}', "which is not Unicode text"),
        ('{"label": "\\ud800"}', "not Unicode text"),
        ('{"trained": {"\\ud800": 1}}', "not Unicode text"),
        ('{"label": ["class"]}', "under 'label', expected a name"),
        ('{"voting": "maximum"}', "has the voting 'maximum'; known are max, average, softargmax"),
        ('{"voting": "softargmax"}', "has the voting 'softargmax', which does not fit LEAF leaves"),
        ('{"voting": true}', "under 'voting'"),
        ('{"encoding": []}', "under 'encoding', expected an object"),
        ('{"trained": "yes"}', "under 'trained', expected an object"),
        ('{"requires": ["missing-values"]}', "requires 'missing-values', which this version does not know"),
        ('{"requires": [1]}', "requires '1', which this version does not know"),
        ('{"requires": "missing"}', "under 'requires', expected a list"),
    ],
)  # fmt: skip
def test_what_is_refused(trailer: str, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint) as caught:
        parse(TREE + "# metasilvae " + trailer + "\n")
    message = str(caught.value)
    assert message.startswith("m.silva:6: ")
    assert "\n" not in message
    assert len(message) < 300


def test_bytes_that_are_not_utf_8_are_refused() -> None:
    with pytest.raises(ModelError, match=r"m\.silva:6: the trailer is not JSON"):
        parse_model(TREE.encode() + b'# metasilvae {"label": "\xff"}\n', "m.silva")


def test_a_voting_that_does_not_fit_scores_is_refused() -> None:
    assert parse(SCORES + '# metasilvae {"voting": "softargmax"}').description.voting == "softargmax"
    with pytest.raises(ModelError, match="'max', which does not fit LEAF_LOGARITHMIC leaves"):
        parse(SCORES + '# metasilvae {"voting": "max"}')


def test_unknown_keys_are_ignored() -> None:
    model = parse(TREE + '# metasilvae {"later": [1], "label": "class", "requires": []}\n')
    assert model.description == ModelDescription(label_name="class")


@pytest.mark.parametrize(
    "rest",
    [
        "# a comment\n",
        "#metasilvae {}\n",
        "# metasilvae\n",
        "# Metasilvae {}\n",
        'x # metasilvae {"features": ["x"]}\n',
        '# a comment\n# metasilvae {"features": ["x"]}\n',
    ],
)
def test_other_text_only_warns(rest: str) -> None:
    with pytest.warns(MetasilvaeWarning, match="m.silva:6: more tokens follow the end of the model"):
        model = parse(TREE + rest)
    assert model.description == NO_DESCRIPTION


def test_a_trailer_on_the_line_of_a_leaf_is_other_text() -> None:
    with pytest.warns(MetasilvaeWarning, match="m.silva:5: more tokens follow"):
        assert parse(TREE.rstrip() + ' # metasilvae {"label": "a"}').description == NO_DESCRIPTION


def test_text_behind_the_trailer_warns() -> None:
    text = TREE + '# metasilvae {"label": "class"}\n\n'
    with pytest.warns(
        MetasilvaeWarning, match="m.silva:8: more tokens .* 'classifier-decision-tree'; a file of several"
    ):
        assert parse(text + TREE).description.label_name == "class"


@pytest.mark.parametrize("name", ["x" * 100_000, "\x00\x1b[31m", "a\nb\r\tc", "'\"\\", "\u2028\u202e", "😀", ""])
def test_hostile_names_survive(name: str, tmp_path) -> None:
    path = str(tmp_path / "m.silva")
    write_model(describe(parse(TREE), feature_names=(name, "b"), label_name=name), path)
    again = read_model(path)
    assert again.description.feature_names == (name, "b")
    assert again.description.label_name == name
    assert (tmp_path / "m.silva").read_text().count("\n") == 6


@pytest.mark.parametrize(
    ("description", "complaint"),
    [
        ({"feature_names": ("a",)}, "has 1 feature names, the model has 2"),
        ({"feature_names": ("a", "a")}, "names must differ"),
        ({"feature_names": ("a", "\udcff")}, "not Unicode text"),
        ({"label_name": "\udcff"}, "not Unicode text"),
        ({"voting": "softargmax"}, "does not fit LEAF leaves"),
        ({"provenance": {"seconds": float("nan")}}, "not plain JSON"),
        ({"provenance": {"seconds": {1}}}, "not plain JSON"),
    ],
)
def test_what_cannot_be_written(description: dict[str, object], complaint: str, tmp_path) -> None:
    model = describe(parse(TREE), **description)
    path = tmp_path / "m.silva"
    with pytest.raises(ModelError, match=complaint):
        write_model(model, str(path))
    assert not path.exists()
    write_model(model, str(path), plain=True)
    assert path.read_text() == TREE


def test_size_is_limited(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    text = TREE + "# metasilvae " + json.dumps({"trained": {"list": [[]] * 500_000}})
    monkeypatch.setenv("METASILVAE_MEMORY", "20M")
    with pytest.raises(ModelError, match=r"m.silva:6: the trailer is too large, \d+ bytes: 20.0 MiB are allowed"):
        parse(text)
    path = tmp_path / "m.silva"
    with pytest.raises(ModelError, match="its description is too large"):
        write_model(describe(parse(TREE), label_name="x" * 2_000_000), str(path))
    assert not path.exists()
    monkeypatch.setenv("METASILVAE_MEMORY", "500M")
    assert parse(text).description.provenance is not None


def test_plain_models_have_no_trailer(tmp_path) -> None:
    model = make_model([[1, 2]], 1, "ab", LeafKind.COUNTS)
    assert "#" not in format_model(model)
    path = str(tmp_path / "m.silva")
    write_model(describe(model, feature_names=("x",)), path, plain=True)
    assert read_model(path).description == NO_DESCRIPTION


# Missing values


@settings(max_examples=100)
@given(models(max_trees=3), st.randoms(use_true_random=False))
def test_directions_are_kept(model: Model, rng: random.Random) -> None:
    model = with_directions(model, rng)
    text = format_model(model)
    assert ('"requires": ["missing"]' in text) == model.has_directions == (model.n_nodes > model.n_leaves)
    assert same_model(parse_model(text.encode()), model)
    plain = parse_model(format_model(model, plain=True).encode())
    assert not plain.has_directions
    assert same_model(plain, model.without_directions)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ('"LRL"', "has 3 directions of missing values, the model has 2 splits"),
        ('"99999999999L"', "expected letters L, R and N"),
        ('"2X"', "expected letters L, R and N"),
        ('"0LLR"', "expected letters L, R and N"),
        ("3", "expected the directions of missing values"),
    ],
)
def test_broken_directions_are_refused(written: str, message: str) -> None:
    model = make_model([(0, 1.0, [1, 0], (1, 1.0, [0, 1], [1, 0]))], kind=LeafKind.COUNTS)
    text = format_model(model) + f'# metasilvae {{"missing": {written}, "requires": ["missing"]}}\n'
    with pytest.raises(ModelError, match=message):
        parse_model(text.encode(), "m.silva")
