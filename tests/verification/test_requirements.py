import numpy as np
import pytest
from support.oracles import data_of, make_model

from metasilvae.errors import RequestError
from metasilvae.model import PredictionTable
from metasilvae.perturbations.boxes import Ball
from metasilvae.verification.class_metrics import measure_classes
from metasilvae.verification.query import make_query
from metasilvae.verification.requirements import Requirement, RequirementResult, check_requirements, combine
from metasilvae.verification.verdicts import Outcome, Stability


def outcome(correct: list[bool], stability: list[Stability]) -> Outcome:
    predictions = PredictionTable(((0,),), np.zeros(len(correct), dtype=np.int32))
    return Outcome(predictions, np.array(correct), np.array(stability, dtype=np.uint8))


S, U, Q = Stability.STABLE, Stability.UNSTABLE, Stability.UNKNOWN
DECIDED = outcome([True, True, True, False, True], [S, S, S, U, U])
OPEN = outcome([True, True, True, False, True], [S, S, Q, Q, U])

# Classes a (two of three correct), "b c" (one of two), and one without rows.
TWO_CLASSES = Outcome(
    PredictionTable(((0,), (1,)), np.array([0, 0, 1, 1, 0], dtype=np.int32)),
    np.array([True, True, False, True, False]),
    np.array([S, Q, U, S, S], dtype=np.uint8),
)
SUBJECT = make_query(
    make_model([[1, 0, 0]], 1, ["a", "b c", "empty"]), data_of([[0.0]] * 5, ["a", "a", "a", "b c", "b c"]), Ball(0)
)
SCORES = np.array([[0.9, 0.1, 0], [0.8, 0.2, 0], [0.1, 0.9, 0], [0.3, 0.7, 0], [0.8, 0.2, 0]])


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("accuracy>=0.8", RequirementResult.HOLDS),
        ("accuracy>0.8", RequirementResult.VIOLATED),
        ("accuracy==80%", RequirementResult.HOLDS),
        ("stability>=0.6", RequirementResult.HOLDS),
        ("stability >= 60 %", RequirementResult.HOLDS),
        ("stability<0.6", RequirementResult.VIOLATED),
        ("stability<=.6", RequirementResult.HOLDS),
        ("robustness>=0.60000000000000000001", RequirementResult.VIOLATED),
    ],
)
def test_decided_rows(text: str, result: RequirementResult) -> None:
    assert Requirement.parse(text).check(DECIDED).result is result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("accuracy>=0.8", RequirementResult.HOLDS),
        ("stability>=0.4", RequirementResult.HOLDS),
        ("stability>=0.5", RequirementResult.UNDECIDED),
        ("stability>=0.8", RequirementResult.UNDECIDED),
        ("stability>0.8", RequirementResult.VIOLATED),
        ("stability<=0.8", RequirementResult.HOLDS),
        ("stability==0.6", RequirementResult.UNDECIDED),
        ("stability==0.9", RequirementResult.VIOLATED),
        ("robustness>0.6", RequirementResult.VIOLATED),
        ("robustness>=0.6", RequirementResult.UNDECIDED),
    ],
)
def test_undecided_rows_leave_an_interval(text: str, result: RequirementResult) -> None:
    assert Requirement.parse(text).check(OPEN).result is result


CLASSES = measure_classes(SUBJECT, TWO_CLASSES, SCORES)


@pytest.mark.parametrize(
    ("text", "result", "found"),
    [
        ("recall[a]>=2/3", None, ""),
        ("recall[a]>=0.66", RequirementResult.HOLDS, "recall[a] is 0.666667"),
        ("recall[b c]>=0.66", RequirementResult.VIOLATED, "recall[b c] is 0.5"),
        ("precision[a] == 0.6666666", RequirementResult.VIOLATED, "precision[a] is 0.666667"),
        ("f1[b c]<=50%", RequirementResult.HOLDS, "f1[b c] is 0.5"),
        ("recall[*]>=0.5", RequirementResult.HOLDS, "recall[b c] is 0.5"),
        ("recall[*]>0.5", RequirementResult.VIOLATED, "recall[b c] is 0.5"),
        ("recall[*]<0.7", RequirementResult.HOLDS, "recall[a] is 0.666667"),
        ("stability[a]>=0.5", RequirementResult.UNDECIDED, "stability[a] is between 0.333333 and 0.666667"),
        ("stability[*]>=0.9", RequirementResult.VIOLATED, "stability[a] is between 0.333333 and 0.666667"),
        ("robustness[a]>0.2", RequirementResult.HOLDS, "robust_accuracy[a] is between 0.333333 and 0.666667"),
        ("balanced_accuracy>=0.58", RequirementResult.HOLDS, "balanced_accuracy is 0.583333"),
        ("balanced_robust_accuracy>=0.5", RequirementResult.UNDECIDED,
         "balanced_robust_accuracy is between 0.416667 and 0.583333"),
        ("roc_auc>=0.58", RequirementResult.HOLDS, "roc_auc is 0.583333"),
        ("roc_auc[a]>0.59", RequirementResult.VIOLATED, "roc_auc[a] is 0.583333"),
    ],
)  # fmt: skip
def test_classes(text: str, result: RequirementResult | None, found: str) -> None:
    if result is None:
        with pytest.raises(RequestError, match="not understood"):
            Requirement.parse(text)
        return
    checked = Requirement.parse(text).check(TWO_CLASSES, CLASSES)
    assert (checked.result, checked.found) == (result, found)
    assert check_requirements([checked.requirement], SUBJECT, TWO_CLASSES, lambda: SCORES) == [checked]


def test_classes_that_are_not_there() -> None:
    with pytest.raises(RequestError, match=r"no class is called z; there are a, b c, empty"):
        Requirement.parse("recall[z]>=0.5").check(TWO_CLASSES, CLASSES)
    with pytest.raises(RequestError, match=r"recall\[empty\] is not defined"):
        Requirement.parse("recall[empty]>=0.5").check(TWO_CLASSES, CLASSES)
    with pytest.raises(RequestError, match="which shards do not hold"):
        check_requirements([Requirement.parse("roc_auc>=0.5")], SUBJECT, TWO_CLASSES)


@pytest.mark.parametrize("text", ["recall>=0.5", "accuracy[a]>=0.5", "balanced_accuracy[a]>=0.5", "recall[a>=0.5"])
def test_metrics_without_their_class(text: str) -> None:
    with pytest.raises(RequestError, match=r"METRIC\[LABEL\]"):
        Requirement.parse(text)


def test_archives_know_metrics_of_all_rows_only() -> None:
    with pytest.raises(RequestError, match="leaves may be compared with any number"):
        Requirement.parse("recall[a]>=0.5", ["leaves"])
    assert Requirement.parse("leaves<=9", ["leaves"]).accepts(9)


def test_shares_are_compared_exactly() -> None:
    one_third = outcome([True, False, False], [S, S, S])
    assert Requirement.parse("accuracy>=0.3333333333333333").check(one_third).result is RequirementResult.HOLDS
    assert Requirement.parse("accuracy>=0.33333333333333334").check(one_third).result is RequirementResult.VIOLATED


@pytest.mark.parametrize(
    "text", ["", "stability", "stability=0.8", "speed>=1", "stability>=x", "stability>=-1", "st>=nan"]
)
def test_nonsense_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(RequestError, match=r"stability>=0\.8"):
        Requirement.parse(text)


def test_a_share_over_one_is_refused() -> None:
    with pytest.raises(RequestError, match="at most 1"):
        Requirement.parse("stability>=80")


def test_the_worst_result_decides() -> None:
    assert combine([]) is RequirementResult.HOLDS
    assert combine([RequirementResult.HOLDS, RequirementResult.UNDECIDED]) is RequirementResult.UNDECIDED
    assert combine([RequirementResult.UNDECIDED, RequirementResult.VIOLATED]) is RequirementResult.VIOLATED
