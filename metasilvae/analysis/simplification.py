"""Smaller models with the same predictions, proved for every sample of a domain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from metasilvae._core.model import difference as kernel
from metasilvae._core.model import structure
from metasilvae.analysis.difference import InputBox, find_regions, number_classes
from metasilvae.model import LeafKind, Model
from metasilvae.voting import choose_voting

# The largest count that files can hold.
LARGEST_COUNT = 2**53


def simplify(model: Model, domain: InputBox | None = None, *, voting: str | None = None) -> Model:
    """Drop tests that have no effect on any sample of a domain.

    A tree keeps its predictions. Each tree of a forest keeps its contribution to the vote: its predictions (max), its
    distributions (average) or its scores (softargmax). Where two leaves are merged, their counts are added. The result
    is compared with the model, region by region, before it is returned.

    Parameters
    ----------
    domain : InputBox or None
        None means all finite samples.
    voting : str or None
        One of `metasilvae.voting.VOTINGS`; None chooses by the kind of leaves.
    """
    voting = choose_voting(model, voting)
    kind = "max" if model.n_trees == 1 else voting
    domain = (InputBox.everything(model.n_features) if domain is None else domain).for_models(model)
    simple = model
    while True:
        smaller = _drop_needless_tests(simple, domain, kind)
        if smaller.n_nodes == simple.n_nodes:
            break
        simple = smaller
    classes = number_classes((model, simple), kind)
    for position in range(model.n_trees):
        n_regions, _, _ = find_regions((model, simple), position, classes, domain)
        if n_regions:
            raise AssertionError(f"tree {position}: the simplified tree differs in {n_regions} regions")
    return simple


def _drop_needless_tests(model: Model, domain: InputBox, kind: str) -> Model:
    (classes,) = number_classes((model,), kind)
    nodes = model.nodes.copy()
    absorbed = np.empty(model.n_leaves, dtype=np.int32)
    kernel.drop_needless_tests(
        nodes, model.parents, classes, 2 * model.max_depth, domain.lower, domain.upper, domain.missing,
        *domain.tables, np.empty(model.n_nodes, dtype=np.int32), absorbed,
    )  # fmt: skip
    kept, roots = np.empty_like(nodes), np.empty_like(model.roots)
    takes_missing = model.takes_missing.view(np.uint8)
    n_kept, _ = structure.drop_contradictions(nodes, model.roots, takes_missing, False, kept, roots)
    kept = kept[:n_kept].copy()
    is_leaf = kept["feature"] < 0
    leaves = kept["leaf"][is_leaf]
    kept["leaf"][is_leaf] = np.arange(len(leaves), dtype=np.int32)
    return replace(model, nodes=kept, roots=roots, leaf_values=_add_counts(model, absorbed)[leaves])


def _add_counts(model: Model, absorbed: NDArray[np.int32]) -> np.ndarray:
    """Values of the leaves, with the counts of absorbed leaves added if files can hold the sum."""
    if model.leaf_kind is not LeafKind.COUNTS:
        return model.leaf_values
    values: np.ndarray = model.leaf_values.copy()
    targets = np.where(absorbed >= 0, absorbed, np.arange(len(absorbed)))
    # A leaf that absorbed others may be absorbed itself; each round doubles the steps along such chains.
    while not np.array_equal(further := targets[targets], targets):
        targets = further
    for leaf in np.flatnonzero(absorbed >= 0):
        # The sum of two int64 counts fits into uint64.
        total = values[targets[leaf]].astype(np.uint64) + model.leaf_values[leaf].astype(np.uint64)
        if total.max() <= LARGEST_COUNT:
            values[targets[leaf]] = total
    return values
