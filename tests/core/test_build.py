"""The build is the one that was asked for."""

from __future__ import annotations

import os

import numpy as np
import pytest
from support.oracles import make_model

from metasilvae._core.model import predict
from metasilvae._core.verification import reach

EXPECTS_DEBUG = os.environ.get("METASILVAE_EXPECT_DEBUG", "") not in ("", "0")


@pytest.mark.skipif(not EXPECTS_DEBUG, reason="an optimized build would write behind the array")
def test_a_debug_build_checks_bounds() -> None:
    tree = make_model([(0, 0.5, [1, 0], [0, 1])], 1)
    X = np.zeros((3, 1))
    with pytest.raises(IndexError):
        predict.fill_leaves(tree.nodes, tree.roots, X, 0, 3, np.empty((2, 1), dtype=np.int32))
    with pytest.raises(IndexError):
        predict.fill_leaves(tree.nodes, tree.roots, X[:2], 0, 3, np.empty((3, 1), dtype=np.int32))
    bounds = [X, X, *[np.zeros(1)] * 2, np.full(1, -np.inf), np.full(1, np.inf)]
    expected = np.zeros(3, dtype=np.int32)
    with pytest.raises(IndexError):
        reach.check_stability(
            tree.nodes, tree.leaf_predictions.ids, 1, *bounds, expected, 0, 3, np.empty(2, dtype=np.uint8)
        )


def test_kernels_refuse_arrays_of_another_type() -> None:
    tree = make_model([[1, 0]], 1)
    with pytest.raises(ValueError, match="Buffer dtype mismatch"):
        predict.fill_leaves(
            tree.nodes, tree.roots, np.zeros((1, 1), np.float32), 0, 1, np.empty((1, 1), dtype=np.int32)
        )
