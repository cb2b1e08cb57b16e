"""Options that are given together: the library and the command line have the same rules."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command import run

from metasilvae.api import choose_options
from metasilvae.errors import RequestError, RequestWarning
from metasilvae.training.options import MOST_BLENDS, PRESETS, TrainingOptions, options_for

KINDS: dict[str, dict[str, int]] = {"tree": {}, "forest": {"trees": 3}, "boosting": {"boost": 3}}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
# What tuning chooses, or cannot work with, by the kind of the model.
OF_ALL: list[dict[str, Any]] = [{"robust_weight": 0.5}, {"training_epsilon_factor": 1.1}]
OF_TREES: list[dict[str, Any]] = [{"leaf_penalty": 500.0}, {"greedy": False}]
OF_BOOSTING: list[dict[str, Any]] = [{"max_depth": 3}, {"tolerance": 0.1}, {"first_tree": "grown"}]
FIXED = [
    *((kind, change) for kind in KINDS for change in OF_ALL),
    *((kind, change) for kind in ("tree", "forest") for change in OF_TREES),
    *(("boosting", change) for change in OF_BOOSTING),
]


@pytest.mark.parametrize(("kind", "change"), FIXED)
def test_tuning_and_what_it_chooses_exclude_each_other(kind: str, change: dict[str, Any]) -> None:
    assert choose_options(**KINDS[kind], tune=True).tree_options.tune
    assert not choose_options(**KINDS[kind], **change).tree_options.tune
    assert not choose_options(**KINDS[kind], **change, tune=False).tree_options.tune
    with pytest.raises(RequestError, match=r"^'tune' and '[a-z-]+' exclude each other; leave one of them out$"):
        choose_options(**KINDS[kind], **change, tune=True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--leaf-penalty", "1"], "--tune and --leaf-penalty exclude each other"),
        (["--trees", "3", "--robust-weight", "1"], "--tune and --robust-weight exclude each other"),
        (["--boost", "3", "--max-depth", "4"], "--tune and --max-depth exclude each other"),
        (["--population-generator", "blank"], "--tune and --population-generator exclude each other"),
        (["--preset", "paper"], "--tune and --preset paper exclude each other"),
        (["--preset", "cart", "--trees", "3"], "--tune and --preset cart exclude each other"),
    ],
)
def test_the_command_line_names_its_options(words: list[str], told: str, tmp_path: Path) -> None:
    found = run("train", "builtin:iris/train", tmp_path / "m.silva", "--epsilon", "0.1", "--tune", *words, code=2)
    assert found.stderr == f"error: {told}; leave one of them out. See metasilvae train -h\n"


@pytest.mark.parametrize(
    ("kind", "change", "told"),
    [
        ("tree", {"method": "independent"}, "'forest-method' is for forests; give the number of trees with 'trees'"),
        ("tree", {"row_sample": 0.5}, "'row-sample' is for ensembles; give 'trees' or 'boost'"),
        ("tree", {"learning_rate": 0.5}, "'learning-rate' is for boosting; give the number of rounds with 'boost'"),
        ("forest", {"tolerance": 1.0}, "'tolerance' is for boosting; give the number of rounds with 'boost'"),
        ("boosting", {"method": "auto"}, "'forest-method' is for forests; give the number of trees with 'trees'"),
        ("boosting", {"greedy": False}, "'population-generator' is for the search for trees; "),
    ],
)
def test_options_of_other_kinds_are_refused(kind: str, change: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError) as caught:
        choose_options(**KINDS[kind], **change)
    assert str(caught.value).startswith(told)
    choose_options(**KINDS[kind], **dict.fromkeys(change))


@every_kind
def test_a_way_to_split_rows_needs_tuning(kind: dict[str, int]) -> None:
    rows = " up to 3000 rows" if kind == KINDS["tree"] else ""
    with pytest.warns(RequestWarning, match=f"^'split blocks' has no effect{rows}: it is for tuning"):
        choose_options("fast", **kind, split="blocks")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choose_options("fast", **kind, split="auto")
        choose_options(**kind, split="blocks")


@pytest.mark.parametrize(
    ("kind", "change", "told"),
    [
        ("tree", {"max_depth": "3"}, "max-depth is '3', it must be a whole number"),
        ("tree", {"generations": 2.5}, "max-iteration is 2.5, it must be a whole number"),
        ("tree", {"leaf_penalty": None, "robust_weight": [0.5]}, r"robust-weight is \[0.5\], it must be a number"),
        ("tree", {"tune": "no"}, "tune is 'no', it must be True or False"),
        ("tree", {"selection": 3}, "select is 3, it must be a word"),
        ("forest", {"row_sample": "half"}, "row-sample is 'half', it must be a number"),
        ("forest", {"max_leaves": True}, "max-leaves is True, it must be a whole number"),
        ("boosting", {"refits": 1.5}, "refits is 1.5, it must be a whole number"),
        ("boosting", {"learning_rate": "0.1"}, "learning-rate is '0.1', it must be a number"),
        ("boosting", {"image_shifts": (28, 28)}, r"image-shifts is \(28, 28\), it must be a word"),
        ("boosting", {"no_such": 1}, "no such option: no_such"),
        ("tree", {"blends": 0.3}, "blends is 0.3, it must be a list of numbers"),
        ("forest", {"blends": ("a",)}, r"blends is \('a',\), it must be a list of numbers"),
        ("boosting", {"fitness": 3}, "weight is 3, it must be a Fitness"),
    ],
)
def test_values_of_another_kind_are_refused(kind: str, change: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError, match=f"^{told}$"):
        choose_options(**KINDS[kind], **change)


def test_numbers_of_numpy_are_numbers() -> None:
    found = choose_options(boost=np.int64(3), max_depth=np.int32(2), learning_rate=np.float32(0.5), refits=np.int64(0))
    assert found == choose_options(boost=3, max_depth=2, learning_rate=0.5, refits=0)
    assert choose_options(tune=np.False_).tree_options == choose_options(tune=False).tree_options
    every = choose_options(
        max_depth=np.int64(3), leaf_penalty=2, tune=np.False_, blends=[0, np.float32(0.5)], seed=np.int32(1)
    )
    for field in dataclasses.fields(every):
        value = getattr(every, field.name)
        assert type(value).__module__ in ("builtins", "metasilvae.verification.objective"), field.name
        assert str(field.type) != "float" or type(value) is float
    assert every.blends == (0.0, 0.5)


def test_other_names_of_counts_are_refused() -> None:
    with pytest.raises(RequestError, match="no such option: n_trees; give 'trees'"):
        choose_options(trees=3, n_trees=4)
    with pytest.raises(RequestError, match="no such option: n_rounds; give 'boost'"):
        choose_options(n_rounds=4)


def test_criteria_of_growth_are_as_many_as_the_search_takes() -> None:
    most = tuple(np.linspace(0, 1, MOST_BLENDS).tolist())
    assert len(TrainingOptions(blends=most * 2).growth_criteria) == MOST_BLENDS
    with pytest.raises(RequestError, match=f"blends are {MOST_BLENDS + 1} numbers, at most {MOST_BLENDS} are possible"):
        TrainingOptions(blends=(*most, 0.501))


def test_every_preset_has_valid_options() -> None:
    assert {preset: type(options_for(preset)) for preset in PRESETS} == dict.fromkeys(PRESETS, TrainingOptions)
