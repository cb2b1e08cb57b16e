import re

import numpy as np
import pytest

from metasilvae.dataset import Dataset
from metasilvae.errors import PerturbationError, RequestError
from metasilvae.perturbations.boxes import Ball, parse_perturbation
from metasilvae.perturbations.groups import TableGroups


def dataset(rows: list[list[float]]) -> Dataset:
    X = np.array(rows, dtype=np.float64)
    return Dataset(X, np.zeros(len(X), dtype=np.int32), ("a",), source="data.csv")


def test_a_ball_reaches_epsilon_to_both_sides() -> None:
    lower, upper = Ball(0.1).boxes(dataset([[1.0, -2.0]])).bounds(0)
    assert lower.tolist() == [1.0 - 0.1, -2.0 - 0.1]
    assert upper.tolist() == [1.0 + 0.1, -2.0 + 0.1]


def test_a_ball_can_be_cut() -> None:
    lower, upper = parse_perturbation(("l_inf-clip-all", "3", "0", "10")).boxes(dataset([[1.0, 9.0]])).bounds(0)
    assert lower.tolist() == [0, 6]
    assert upper.tolist() == [4, 10]


def test_a_ball_can_be_cut_on_one_side() -> None:
    lower, upper = parse_perturbation(("l_inf-clip-all", "3", "-inf", "+Infinity")).boxes(dataset([[1.0]])).bounds(0)
    assert (lower.item(), upper.item()) == (-2, 4)


def test_a_ball_outside_its_range_is_refused_with_its_place() -> None:
    with pytest.raises(PerturbationError, match=re.escape("data.csv: row 1, x[0] = 20")):
        Ball(3, 0, 10).boxes(dataset([[1.0], [20.0]]))


@pytest.mark.parametrize(
    ("phrase", "message"),
    [
        (("l_inf", "-1"), "must be finite and not negative"),
        (("l_inf", "nan"), "'nan' is not a number"),
        (("l_inf", "inf"), "must be finite and not negative"),
        (("l_inf", "much"), "'much' is not a number"),
        (("l_inf", "1_0"), "'1_0' is not a number"),
        (("l_inf", "٣"), "is not a number"),
        (("l_inf-clip-all", "1", "0", ""), "'' is not a number"),
        (("l_inf-clip-all", "1", "5", "2"), "give the smaller bound first"),
    ],
)
def test_nonsense_is_refused(phrase: tuple[str, ...], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse_perturbation(phrase)


def test_boxes_from_a_file(tmp_path) -> None:
    path = tmp_path / "boxes.txt"
    path.write_text("[0;1] [ -2.5 ; 3e2 ]\n[-inf;inf]\t[.5;.5]\n")
    boxes = parse_perturbation(("from-file", str(path))).boxes(dataset([[0, 0], [0, 0]]))
    assert [bound.tolist() for bound in boxes.bounds(0)] == [[0, -2.5], [1, 300]]
    assert [bound.tolist() for bound in boxes.bounds(1)] == [[-np.inf, 0.5], [np.inf, 0.5]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds 0 intervals, 2 were expected"),
        ("[0;1]", "holds 1 intervals, 2 were expected"),
        ("[0;1] [0;1] [0;1]", "holds 3 intervals"),
        ("[0;1]\n(0;1)", "boxes.txt:2: found '(0;1)'"),
        ("[0;1] [0,1]", "boxes.txt:1: found '[0,1]'"),
        ("[0;1] [0;1", "found '[0;1'"),
        ("[0;1] [0;x]", "interval 2: 'x' is not a number"),
        ("[0;1] [0;nan]", "'nan' is not a number"),
        ("[0;1] [0;1_0]", "'1_0' is not a number"),
        ("[0;1] [2;1]", "sample 0, feature 1: [2;1] is empty"),
        ("[0;1] [inf;inf]", "is empty"),
    ],
)
def test_broken_box_files(tmp_path, text: str, message: str) -> None:
    path = tmp_path / "boxes.txt"
    path.write_text(text)
    with pytest.raises(PerturbationError, match=re.escape(message)):
        parse_perturbation(("from-file", str(path))).boxes(dataset([[0, 0]]))


def test_tiers_become_groups() -> None:
    groups = TableGroups.of_tiers([0, 2, 1, 2, 1, 0], 6)
    assert groups.members.tolist() == [2, 4, 1, 3]
    assert groups.starts.tolist() == [0, 2, 4]


def test_tiers_must_fit() -> None:
    with pytest.raises(RequestError, match="2 tiers were given for 3 features"):
        TableGroups.of_tiers([0, 1], 3)
    with pytest.raises(RequestError, match="tier -1"):
        TableGroups.of_tiers([0, -1], 2)
