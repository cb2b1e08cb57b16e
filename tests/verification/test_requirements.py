import numpy as np
import pytest

from metasilvae.errors import RequestError
from metasilvae.model import PredictionTable
from metasilvae.verification.requirements import Requirement, RequirementResult, combine
from metasilvae.verification.verdicts import Outcome, Stability


def outcome(correct: list[bool], stability: list[Stability]) -> Outcome:
    predictions = PredictionTable(((0,),), np.zeros(len(correct), dtype=np.int32))
    return Outcome(predictions, np.array(correct), np.array(stability, dtype=np.uint8))


S, U, Q = Stability.STABLE, Stability.UNSTABLE, Stability.UNKNOWN
DECIDED = outcome([True, True, True, False, True], [S, S, S, U, U])
OPEN = outcome([True, True, True, False, True], [S, S, Q, Q, U])


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
    assert Requirement.parse(text).check(DECIDED) is result


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
    assert Requirement.parse(text).check(OPEN) is result


def test_shares_are_compared_exactly() -> None:
    one_third = outcome([True, False, False], [S, S, S])
    assert Requirement.parse("accuracy>=0.3333333333333333").check(one_third) is RequirementResult.HOLDS
    assert Requirement.parse("accuracy>=0.33333333333333334").check(one_third) is RequirementResult.VIOLATED


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
