"""Splits by categories of other libraries: predictions on thousands of rows with missing and unknown categories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command import run

import metasilvae
from metasilvae import api
from metasilvae.encoding import CATEGORY, Column, Encoding
from metasilvae.errors import DataError, ModelError
from metasilvae.formats.silva_models import format_model, parse_model
from metasilvae.interop.imports import Imported, import_file, import_object
from metasilvae.interop.imports.builder import Nodes
from metasilvae.interop.imports.categories import CategoryColumn, CategorySplit, encode_categories
from metasilvae.perturbations.attack import fit_attack
from metasilvae.perturbations.attack_files import parse_attack
from metasilvae.verification.query import make_query
from metasilvae.verification.verdicts import Stability
from metasilvae.verification.verifier import find_witnesses, verify

pandas = pytest.importorskip("pandas", reason="pandas is not installed")
N_ROWS = 3000
TOWNS = ("Bern", "Lima", "Oslo", "Rome", "Riga", "Bonn")


def make_table(rng: np.random.Generator, n_rows: int, unknown: bool = False, missing: float = 0.15) -> Any:
    """Two numbers, a category with names and one with numbers; some values are missing or unknown."""
    towns = [*TOWNS, "Faro", "Kiel"] if unknown else list(TOWNS)
    table = pandas.DataFrame(
        {
            "age": rng.normal(size=n_rows).round(2),
            "town": rng.choice(towns, n_rows),
            "kind": rng.integers(0, 12 if unknown else 9, n_rows).astype(float),
            "pay": rng.normal(size=n_rows).round(1),
        }
    )
    for name in table.columns:
        table.loc[rng.random(n_rows) < missing, name] = np.nan
    return table


def make_labels(table: Any, rng: np.random.Generator, n_labels: int) -> np.ndarray:
    is_town = table["town"].isin(["Bern", "Oslo", "Riga"]).to_numpy()
    is_kind = table["kind"].isin([1, 4, 7, 8]).to_numpy()
    score = is_town.astype(int) + is_kind + (table["age"].to_numpy() > 0) + rng.integers(0, 2, len(table))
    return np.asarray(score % n_labels)


def as_codes(table: Any) -> np.ndarray:
    """The table as numbers; towns by their position, unknown ones by numbers that no town has."""
    codes = {town: float(place) for place, town in enumerate([*sorted(TOWNS), "Faro", "Kiel"])}
    return np.column_stack([table["age"], table["town"].map(codes), table["kind"], table["pay"]]).astype(np.float64)


def with_categories(table: Any) -> Any:
    """The table with towns and kinds as categories of pandas; unknown ones become missing."""
    towns, kinds = sorted(TOWNS), list(range(9))
    known = table.assign(town=table["town"].where(table["town"].isin(towns), None))
    known["kind"] = table["kind"].where(table["kind"].isin(kinds)).astype("Int64")
    return known.assign(
        town=pandas.Categorical(known["town"], categories=towns), kind=pandas.Categorical(known["kind"], kinds)
    )


def agree(imported: Imported, ours: Any, theirs: np.ndarray) -> None:
    """All predictions are those of the library; there are no ties among these scores."""
    found = api.predict(imported.model, ours)
    names = [{imported.model.labels[label] for label in each} for each in found.sets]
    wrong = [row for row, number in enumerate(found.ids) if str(theirs[row]) not in names[number]]
    assert wrong == []


def read_back(imported: Imported) -> Any:
    return parse_model(format_model(imported.model).encode(), "model.silva")


@pytest.mark.parametrize("n_labels", [2, 3])
@pytest.mark.parametrize("settings", [{}, {"max_cat_to_onehot": 1}, {"boosting_type": "dart"}, {"num_leaves": 4}])
def test_lightgbm(n_labels: int, settings: dict[str, Any]) -> None:
    lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed (extra: lightgbm)")
    rng = np.random.default_rng(n_labels)
    train, test = make_table(rng, 600), make_table(rng, N_ROWS, unknown=True)
    y = make_labels(train, rng, n_labels)
    usual = {"n_estimators": 12, "verbose": -1, "min_child_samples": 3, "min_data_per_group": 2, "cat_smooth": 1}
    for has_names in (True, False):
        X = with_categories(train) if has_names else as_codes(train)
        told = "auto" if has_names else [1, 2]
        fitted = lightgbm.LGBMClassifier(**{**usual, **settings}, n_jobs=1).fit(X, y, categorical_feature=told)
        imported = import_object(fitted)
        assert imported.comparison is not None
        assert imported.comparison.n_rounded == 0
        columns = imported.model.encoding.columns
        assert [column.kind for column in columns] == ["number", CATEGORY, CATEGORY, "number"]
        assert columns[1].categories == (tuple(sorted(TOWNS)) if has_names else tuple("012345"))
        assert read_back(imported).encoding == imported.model.encoding
        if has_names:
            agree(imported, test, fitted.predict(with_categories(test)))
        else:
            agree(imported, as_codes(test), fitted.predict(as_codes(test)))


@pytest.mark.parametrize("n_labels", [2, 3])
@pytest.mark.parametrize("settings", [{}, {"max_cat_to_onehot": 20}, {"booster": "dart", "rate_drop": 0.3}])
def test_xgboost(n_labels: int, settings: dict[str, Any], tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed (extra: xgboost)")
    rng = np.random.default_rng(n_labels)
    train, test = make_table(rng, 600), make_table(rng, N_ROWS, unknown=True)
    y = make_labels(train, rng, n_labels)
    usual = {"n_estimators": 12, "max_depth": 5, "n_jobs": 1, "enable_categorical": True, "tree_method": "hist"}
    fitted = xgboost.XGBClassifier(**usual, **settings).fit(with_categories(train), y)
    imported = import_object(fitted)
    assert imported.model.encoding.columns[1].categories == tuple(sorted(TOWNS))
    known = make_table(rng, N_ROWS)
    agree(imported, known, fitted.predict(with_categories(known)))
    # Numbers, which XGBoost takes even if it does not know them; with names it refuses unknown categories.
    fitted = xgboost.XGBClassifier(**usual, **settings, feature_types=["q", "c", "c", "q"]).fit(as_codes(train), y)
    imported = import_object(fitted)
    agree(imported, as_codes(test), fitted.predict(as_codes(test)))
    fitted.save_model(tmp_path / "model.ubj")
    from_file = import_file(str(tmp_path / "model.ubj"))
    assert from_file.model.fingerprint == imported.model.fingerprint


@pytest.mark.parametrize("n_labels", [2, 3])
def test_histogram_boosting(n_labels: int) -> None:
    ensemble = pytest.importorskip("sklearn.ensemble", reason="scikit-learn is not installed (extra: sklearn)")
    rng = np.random.default_rng(n_labels)
    train, test = make_table(rng, 600), make_table(rng, N_ROWS, unknown=True)
    y = make_labels(train, rng, n_labels)
    make = ensemble.HistGradientBoostingClassifier
    fitted = make(max_iter=12, min_samples_leaf=3, categorical_features="from_dtype").fit(with_categories(train), y)
    imported = import_object(fitted)
    agree(imported, test, fitted.predict(test))
    fitted = make(max_iter=12, min_samples_leaf=3, categorical_features=[1, 2]).fit(as_codes(train), y)
    imported = import_object(fitted)
    agree(imported, as_codes(test), fitted.predict(as_codes(test)))
    # Categories that are neither whole numbers nor texts of any other kind.
    odd = as_codes(train)
    odd[:, 1] = odd[:, 1] * 0.5 - 1
    fitted = make(max_iter=12, min_samples_leaf=3, categorical_features=[1]).fit(odd, y)
    imported = import_object(fitted)
    agree(imported, odd, fitted.predict(odd))


@pytest.mark.parametrize("n_labels", [2, 3])
def test_catboost(n_labels: int, tmp_path: Path) -> None:
    catboost = pytest.importorskip("catboost", reason="CatBoost is not installed (extra: catboost)")
    rng = np.random.default_rng(n_labels)

    def prepare(table: Any) -> Any:
        # CatBoost takes texts and whole numbers for categories, and none that are missing.
        return table.assign(town=table["town"].fillna("nan"), kind=table["kind"].fillna(99).astype(int))

    train, test = prepare(make_table(rng, 600)), prepare(make_table(rng, N_ROWS, unknown=True))
    y = make_labels(train, rng, n_labels)
    fitted = catboost.CatBoostClassifier(
        iterations=12, depth=4, one_hot_max_size=20, cat_features=["town", "kind"], verbose=0, thread_count=1,
        allow_writing_files=False,
    ).fit(train, y)  # fmt: skip
    path = str(tmp_path / "model.json")
    fitted.save_model(path, format="json", pool=catboost.Pool(train, y, cat_features=["town", "kind"]))
    imported = import_file(path)
    assert imported.comparison is not None
    assert imported.comparison.n_rounded == 0
    agree(imported, test, np.asarray(fitted.predict(test)).reshape(-1))
    with pytest.raises(ModelError, match="save it with the training data"):
        import_object(fitted)
    with pytest.raises(DataError, match="kind: the value is missing, which is not among the categories"):
        api.predict(imported.model, test.assign(kind=np.nan))


def test_categories_of_catboost_that_are_statistics(tmp_path: Path) -> None:
    catboost = pytest.importorskip("catboost", reason="CatBoost is not installed (extra: catboost)")
    rng = np.random.default_rng(1)
    table = make_table(rng, 300, missing=0.0)
    fitted = catboost.CatBoostClassifier(
        iterations=3, cat_features=["town"], verbose=0, thread_count=1, allow_writing_files=False, one_hot_max_size=2
    ).fit(table, make_labels(table, rng, 2))
    path = str(tmp_path / "model.json")
    fitted.save_model(path, format="json", pool=catboost.Pool(table, cat_features=["town"]))
    with pytest.raises(ModelError, match="only numbers and one-hot splits of categories"):
        import_file(path)


# Names and numbers


def train_lightgbm(X: Any, y: np.ndarray, told: Any = "auto") -> Any:
    lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed (extra: lightgbm)")
    usual = {"n_estimators": 5, "verbose": -1, "min_child_samples": 3, "min_data_per_group": 2, "cat_smooth": 1}
    return lightgbm.LGBMClassifier(**usual, n_jobs=1).fit(X, y, categorical_feature=told)


def test_names_that_do_not_fit_are_not_used() -> None:
    rng = np.random.default_rng(3)
    table = make_table(rng, 400, missing=0.0)
    y = make_labels(table, rng, 2)
    # The first category of pandas is a number to LightGBM here, and the numbers of `kind` are categories.
    typed = table.assign(age=pandas.Categorical(table["pay"] > 0), town=table["pay"], kind=table["kind"].astype(int))
    imported = import_object(train_lightgbm(typed, y, ["kind"]))
    assert imported.model.encoding.columns[2].categories == tuple(map(str, range(9)))
    assert imported.notes
    assert "numbers" in imported.notes[0]


def test_fractions_and_texts_are_no_numbers_of_categories() -> None:
    rng = np.random.default_rng(3)
    table = make_table(rng, 400, missing=0.0)
    imported = import_object(train_lightgbm(as_codes(table), make_labels(table, rng, 2), [1, 2]))
    with pytest.raises(DataError, match=r"1\.5 is not a whole number"):
        api.predict(imported.model, np.array([[0.0, 1.5, 1, 0]]))
    with pytest.raises(DataError, match="'x' is not a number"):
        api.predict(imported.model, np.array([[0.0, "x", 1, 0]], dtype=object))
    with pytest.raises(DataError, match=r"has the shape \(1, 3\)"):
        api.predict(imported.model, np.zeros((1, 3)))


def test_a_table_without_these_names_is_matched_by_position(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    table = make_table(rng, 400)
    y = make_labels(table, rng, 2)
    fitted = train_lightgbm(as_codes(table), y, [1, 2])
    fitted.booster_.save_model(str(tmp_path / "model.txt"))
    rows = pandas.DataFrame(as_codes(table), columns=["a", "b", "c", "d"]).assign(label=y)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    result = run("predict", tmp_path / "model.txt", tmp_path / "rows.csv", "--label-column", "label")
    assert result.stdout.split() == [str(label) for label in fitted.predict(as_codes(table))]


def test_sets_and_their_complements_are_one_feature() -> None:
    def split(feature: int, codes: set[int], **more: bool) -> Nodes:
        none = np.array([-1, -1, -1])
        features, left, right = none.copy(), none.copy(), none.copy()
        features[0], left[0], right[0] = feature, 1, 2
        own = {0: CategorySplit(frozenset(codes), **more)}
        return Nodes(features, np.zeros(3), left, right, np.eye(3)[:, :2], np.zeros(3, dtype=bool), own)

    trees = [
        split(1, {0, 2}),
        split(1, {0, 2}, is_left=False, others_left=True, missing_left=True),
        split(1, {0, 2}, missing_left=True),
        split(1, {0, 1, 2, 5}, others_left=True, missing_left=True),
    ]
    renumbered, encoding = encode_categories(trees, 2, ["a", "b"], {1: CategoryColumn((1, 5))}, "m")
    column = encoding.columns[1]
    assert column.categories == ("0", "1", "2", "5")
    assert column.is_numbered
    assert column.sets == ("101000", "010110")
    assert [int(tree.feature[0]) for tree in renumbered] == [1, 1, 2, 1]
    assert [float(tree.threshold[0]) for tree in renumbered] == [0, 0, 0, np.inf]
    # 1, a category of the set, goes right, and so it goes where the library sends it.
    assert [(int(tree.left[0]), int(tree.right[0])) for tree in renumbered[:2]] == [(2, 1), (1, 2)]
    assert encoding.feature_names == ("a", "b in {0, 2}", "b in {1, 5, (other)}", "b")


def test_words_for_sets() -> None:
    names = ("a", "b", "c", "d")
    column = Column("x", CATEGORY, names, True, True, ("100000", "011111", "110000", "001111", "000001"))
    encoding = Encoding((column,))
    words = [encoding.describe_test(feature, 0.0) for feature in range(5)]
    assert words == [
        ("x != a", "x = a"),
        ("x = a", "x != a"),
        ("x not in {a, b}", "x in {a, b}"),
        ("x in {a, b}", "x not in {a, b}"),
        ("x != (missing)", "x = (missing)"),
    ]
    long = Column("x", CATEGORY, tuple(f"category {n}" for n in range(40)), True, True, ("1" * 20 + "0" * 22,))
    assert long.feature_names == ["x in set 1", "x"]
    assert Encoding((long,)).describe_test(0, 0.5)[1].endswith("category 7 and 12 more}")
    assert Encoding.from_json(json.loads(json.dumps(encoding.as_json()))) == encoding
    assert encoding.as_json()["format"] == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sets": ["01"]}, "a set has a 0 or a 1 for each of its 4 values"),
        ({"sets": ["0120"]}, "a set has a 0 or a 1"),
        ({"sets": "0110"}, "expected a list of texts"),
        ({"numbers": True}, "its categories are not whole numbers"),
        ({"numbers": 1}, "its categories are not whole numbers"),
    ],
)
def test_hostile_sets(change: dict[str, Any], message: str) -> None:
    column = Column("x", CATEGORY, ("a", "b"), True, True, ("0110",)).as_json()
    with pytest.raises(ValueError, match=message):
        Encoding.from_json({"format": 2, "columns": [{**column, **change}]})


# Attacks


def test_an_attack_on_a_category_speaks_of_its_names() -> None:
    rng = np.random.default_rng(5)
    table = make_table(rng, 400)
    y = make_labels(table, rng, 2)
    fitted = train_lightgbm(with_categories(table), y)
    model = import_object(fitted).model
    dataset = api.make_dataset(table, y, encoding=model.encoding)
    rules = parse_attack(b'[columns]\ntown = { swap = [["Bern", "Lima"], ["Oslo", "Rome"]] }\n', "attack.toml")
    query = make_query(model, dataset, fit_attack(rules, dataset))
    outcome = verify(query, 1)
    partner = {"Bern": "Lima", "Lima": "Bern", "Oslo": "Rome", "Rome": "Oslo"}
    swapped = with_categories(table.assign(town=[partner.get(town, town) for town in table["town"]]))
    is_stable = fitted.predict(swapped) == fitted.predict(with_categories(table))
    assert np.array_equal(outcome.stability == Stability.STABLE, is_stable)
    assert not is_stable.all()
    for witness in find_witnesses(query, outcome, 1):
        cells = model.encoding.decode(witness.point)
        assert cells[1] == partner[table["town"][witness.row]]


def test_an_unknown_name_in_an_attack_is_refused() -> None:
    rng = np.random.default_rng(5)
    table = make_table(rng, 400)
    y = make_labels(table, rng, 2)
    model = import_object(train_lightgbm(with_categories(table), y)).model
    dataset = api.make_dataset(table, y, encoding=model.encoding)
    rules = parse_attack(b'[columns]\ntown = { swap = [["Berne", "Lima"]] }\n', "attack.toml")
    with pytest.raises(metasilvae.MetasilvaeError, match="town has no value 'Berne'; did you mean Bern"):
        fit_attack(rules, dataset)
    with pytest.raises(metasilvae.MetasilvaeError, match="town is a category; write any = true"):
        fit_attack(parse_attack(b"[columns]\ntown = { radius = 1 }\n", "attack.toml"), dataset)


@pytest.mark.parametrize("command", ["verify", "explain", "report", "evaluate", "predict", "attack check"])
def test_commands_take_the_file_of_the_library(command: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    table = make_table(rng, 60)
    y = make_labels(table, rng, 2)
    train_lightgbm(with_categories(table), y).booster_.save_model(str(tmp_path / "model.txt"))
    table.assign(label=y).to_csv(tmp_path / "rows.csv", index=False)
    attack = tmp_path / "attack.toml"
    attack.write_text('[default]\nradius = 0.1\n[columns]\ntown = { any = true, missing = "may appear" }\n')
    options: dict[str, list[Any]] = {
        "verify": ["--attack", attack, "--counterexamples", tmp_path / "witnesses.csv"],
        "explain": ["--attack", attack],
        "evaluate": ["--attack", attack],
        "report": ["--attack", attack, "--output", tmp_path / "report.html"],
        "predict": [],
    }
    if command == "attack check":
        attack.write_text("[columns]\ntown = { any = true }\n")
        run("attack", "check", attack, tmp_path / "rows.csv", "--label-column", "label")
        return
    arguments = [tmp_path / "model.txt", tmp_path / "rows.csv", "--label-column", "label", *options[command]]
    run(command, *arguments)
    if command == "verify":
        witnesses = pandas.read_csv(tmp_path / "witnesses.csv")
        assert set(witnesses["town"].dropna()) <= {*TOWNS, "(other)"}
