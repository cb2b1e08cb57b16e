"""Proofs about all inputs of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from metasilvae.analysis.proofs import Proof
from metasilvae.analysis.proofs import prove_constant as _prove_constant
from metasilvae.analysis.proofs import prove_insensitive as _prove_insensitive
from metasilvae.analysis.proofs import prove_monotone as _prove_monotone
from metasilvae.analysis.spaces import InputSpace, describe_columns
from metasilvae.analysis.stable_share import StableShare
from metasilvae.analysis.stable_share import measure_stable_share as _measure_stable_share
from metasilvae.analysis.sufficiency import Sufficiency
from metasilvae.analysis.sufficiency import find_sufficient as _find_sufficient
from metasilvae.dataset import Dataset
from metasilvae.model import Model
from metasilvae.perturbations.attack import ColumnFinder
from metasilvae.perturbations.attack_files import AttackRules
from metasilvae.prediction import align
from metasilvae.verification.budget import Budget


def prove_insensitive(
    model: Model,
    columns: Sequence[str | int],
    domain: Dataset | AttackRules | None = None,
    *,
    margin: float = 0.0,
    voting: str | None = None,
    budget: Budget | None = None,
) -> Proof:
    """Prove that inputs which differ only in some columns get the same prediction, or find two that do not.

    Parameters
    ----------
    columns : sequence of str or int
        Names or numbers of columns; a category is one column.
    domain : Dataset, AttackRules or None
        Only inputs within the ranges of a data set, or within the limits of the rules that `read_attack` gives; None
        means all inputs.
    margin : float
        Only pairs count in which the label of each input is ahead of all others by this margin: a fraction of the
        votes, or for leaves with scores a difference of sums.
    voting : str or None
        One of ``max``, ``average``, ``softargmax``; None chooses by the model.
    budget : Budget or None
        Work allowed for the proof; None means no limit.
    """
    features = [feature for features in _find_columns(model, columns).values() for feature in features]
    space = _make_space(model, domain)
    return _prove_insensitive(model, features, space, margin=margin, voting=voting, budget=budget)


def prove_monotone(
    model: Model,
    directions: Mapping[str | int, str],
    domain: Dataset | AttackRules | None = None,
    *,
    target: str | None = None,
    of: str = "prediction",
    margin: float = 0.0,
    voting: str | None = None,
    budget: Budget | None = None,
) -> Proof:
    """Prove that raising or lowering some columns never harms a label, or find two inputs where it does.

    Parameters
    ----------
    directions : mapping from str or int to str
        ``up`` or ``down`` for names or numbers of columns.
    target : str or None
        The label; None means 1, if the labels are 0 and 1, or -1 and 1.
    of : str
        ``prediction`` or ``score``.

    The other parameters are those of `prove_insensitive`.
    """
    found = _find_columns(model, list(directions))
    by_feature = {feature: directions[column] for column, features in found.items() for feature in features}
    space = _make_space(model, domain)
    return _prove_monotone(model, by_feature, space, target=target, of=of, margin=margin, voting=voting, budget=budget)


def prove_constant(
    model: Model, domain: Dataset | AttackRules, *, voting: str | None = None, budget: Budget | None = None
) -> Proof:
    """Prove that all inputs of a domain get the same prediction, or find two that do not."""
    return _prove_constant(model, _make_space(model, domain), voting=voting, budget=budget)


def measure_stable_share(
    model: Model,
    domain: Dataset | AttackRules,
    epsilon: float,
    *,
    voting: str | None = None,
    budget: Budget | None = None,
) -> StableShare:
    """The share of the volume of a domain on which no change of each column by at most epsilon changes the prediction.

    Parameters
    ----------
    domain : Dataset or AttackRules
        Numbers within finite ranges.
    budget : Budget or None
        Work allowed; a step is one box of the division. Then `lower` and `upper` of the result enclose the share.
    """
    return _measure_stable_share(model, _make_space(model, domain), epsilon, voting=voting, budget=budget)


def find_sufficient(
    model: Model,
    dataset: Dataset,
    domain: Dataset | AttackRules | None = None,
    *,
    voting: str | None = None,
    jobs: int | None = None,
    budget: Budget | None = None,
) -> Sufficiency:
    """A smallest set of columns for each row that alone guarantees its prediction, whatever the others are.

    Parameters
    ----------
    domain : Dataset, AttackRules or None
        The values that the other columns may take, as in `prove_insensitive`.
    """
    space = _make_space(model, domain)
    return _find_sufficient(model, dataset, space, voting=voting, jobs=jobs, budget=budget)


def _find_columns(model: Model, columns: Sequence[str | int]) -> dict[str | int, list[int]]:
    """The features of each column."""
    finder = ColumnFinder(describe_columns(model))
    return {
        column: list(finder.encoding.features_of(finder.find(str(column), "columns")))
        for column in dict.fromkeys(columns)
    }


def _make_space(model: Model, domain: Dataset | AttackRules | None) -> InputSpace:
    if domain is None:
        return InputSpace.of_model(model)
    if isinstance(domain, AttackRules):
        return InputSpace.of_rules(model, domain)
    return InputSpace.around(model, align(model, domain))
