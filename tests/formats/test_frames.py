"""DataFrames of pandas and polars, Parquet files, and estimators on tables."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metasilvae
from metasilvae.errors import DataError, MetasilvaeWarning
from metasilvae.perturbations.attack_files import parse_attack

pandas = pytest.importorskip("pandas")

PENGUINS = metasilvae.read_dataset("builtin:penguins/train")
KEPT = np.flatnonzero(~np.isnan(PENGUINS.X).any(axis=1))
RULES = parse_attack(
    b'[default]\nradius = "2% of value"\n[columns]\nsex = { any = true }\nisland = { swap = [["Biscoe", "Dream"]] }\n',
    "attack.toml",
)


def make_frame() -> Any:
    """The rows without missing numbers as they are in the file."""
    assert PENGUINS.encoding is not None
    cells = [PENGUINS.encoding.decode(PENGUINS.X[row]) for row in KEPT]
    frame = pandas.DataFrame(cells, columns=[column.name for column in PENGUINS.encoding.columns])
    for name in frame:
        if name not in ("island", "sex"):
            frame[name] = frame[name].astype(float)
    frame["sex"] = frame["sex"].replace("", None)
    return frame


FRAME = make_frame()
LABELS = [PENGUINS.labels[code] for code in PENGUINS.y[KEPT]]


def list_columns() -> dict[str, list[Any]]:
    return {name: FRAME[name].astype(object).where(FRAME[name].notna(), None).tolist() for name in FRAME}


def test_a_frame_is_the_table_of_the_file() -> None:
    dataset = metasilvae.make_dataset(FRAME, LABELS)
    np.testing.assert_array_equal(dataset.X, PENGUINS.X[KEPT])
    assert dataset.encoding == PENGUINS.encoding
    categorical = FRAME.astype({"island": "category", "sex": "category"})
    np.testing.assert_array_equal(metasilvae.make_dataset(categorical, LABELS).X, dataset.X)


def test_frames_of_polars() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(
        {name: FRAME[name].astype(object).where(FRAME[name].notna(), None).tolist() for name in FRAME}
    )
    np.testing.assert_array_equal(metasilvae.make_dataset(frame, LABELS).X, PENGUINS.X[KEPT])


def test_parquet(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = str(tmp_path / "birds.parquet")
    parquet.write_table(arrow.table({**list_columns(), "species": LABELS}), path)
    dataset = metasilvae.read_dataset(path, label_column="species")
    np.testing.assert_array_equal(dataset.X, PENGUINS.X[KEPT])
    assert dataset.label_name == "species"
    with pytest.raises(DataError, match="no column is called 'kind'"):
        metasilvae.read_dataset(path, label_column="kind")
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(Path(path).read_bytes()[:200])
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        metasilvae.read_dataset(str(broken))


def test_functions_take_frames_and_rules() -> None:
    dataset = metasilvae.make_dataset(FRAME, LABELS)
    model = metasilvae.train(dataset, RULES, preset="fast")
    outcome = metasilvae.verify(model, dataset, RULES)
    assert outcome.counts.stable > 0
    predictions = metasilvae.predict(model, FRAME)
    assert [predictions.sets[number] for number in predictions.ids] == [
        outcome.predictions.sets[number] for number in outcome.predictions.ids
    ]
    with pytest.raises(DataError, match="X is no DataFrame"):
        metasilvae.predict(model, dataset.X)
    with pytest.raises(DataError, match="'Mars' is not among the 3 categories"):
        metasilvae.predict(model, FRAME.assign(island="Mars"))
    other = metasilvae.make_dataset(FRAME[:5][::-1], LABELS[:5], encoding=model.encoding)
    np.testing.assert_array_equal(other.X, dataset.X[:5][::-1])


def test_estimators_on_tables() -> None:
    pytest.importorskip("sklearn")
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    estimator = metasilvae.MetaSilvaeClassifier(perturbation=RULES, preset="fast")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MetasilvaeWarning)
        pipeline = make_pipeline(FunctionTransformer(), estimator)
        robust = cross_val_score(pipeline, FRAME, LABELS, cv=3, scoring=metasilvae.robust_accuracy_scorer())
    assert robust.min() > 0.5
    fitted = estimator.fit(FRAME, LABELS)
    direct = metasilvae.train(metasilvae.make_dataset(FRAME, LABELS), RULES, preset="fast")
    assert fitted.model_.fingerprint == direct.fingerprint
    stable, points = fitted.certify(FRAME, witnesses=True)
    assert points.shape == FRAME.shape
    assert set(points[~stable][:, 0]) <= {"Biscoe", "Dream", "Torgersen"}
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(FRAME.rename(columns={"sex": "gender"}))
    with pytest.raises(ValueError, match="'Mars' is not among"):
        fitted.predict(FRAME.assign(island="Mars"))


def test_categorical_features_by_place() -> None:
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 4, 60), rng.normal(size=60)])
    y = (X[:, 0] == 2).astype(int)
    for wanted in ([0], [True, False]):
        model = metasilvae.MetaSilvaeClassifier(epsilon=5.0, preset="fast", categorical_features=wanted).fit(X, y)
        assert model.score(X, y) == 1
        assert model.robust_score_ == 1  # a category does not move
    with pytest.raises(ValueError, match="no column of X"):
        metasilvae.MetaSilvaeClassifier(categorical_features=["z"]).fit(X, y)
    with pytest.raises(ValueError, match="expected 'from_dtype'"):
        metasilvae.MetaSilvaeClassifier(categorical_features="all").fit(X, y)
