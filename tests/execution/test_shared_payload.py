"""What is sent to workers arrives as it was."""

from __future__ import annotations

import pickle
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from metasilvae.dataset import Dataset
from metasilvae.execution.executors import SharedPayload
from metasilvae.perturbations.boxes import Ball

VALUES = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 1.0, 255.0, 256.0, -1.0, 0.5, np.nan, np.inf]))
ARRAYS = arrays.arrays(np.float64, arrays.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=6), elements=VALUES)
PIXELS = arrays.arrays(np.float64, (3, 4), elements=st.sampled_from([0.0, 1.0, 7.0, 255.0]))


@given(st.one_of(ARRAYS, PIXELS))
def test_arrays_arrive_bit_by_bit(values: np.ndarray) -> None:
    for sent in (values, values.T, np.asfortranarray(values)):
        found = SharedPayload.of(sent).open()
        assert (found.dtype, found.shape) == (sent.dtype, sent.shape)
        assert found.tobytes() == sent.tobytes()


def test_data_sets_are_small_and_opened_once() -> None:
    X = np.random.default_rng(0).integers(0, 256, (50, 200)).astype(float)
    payload = SharedPayload.of(Dataset(X, np.zeros(50, dtype=np.int32), ("a",), None, "rows.csv"))
    opened = payload.open()
    assert (opened.X == X).all()
    assert opened.X.flags.c_contiguous
    assert opened.labels == ("a",)
    assert payload.open() is opened
    assert sys.getsizeof(payload) < X.nbytes / 7
    again = pickle.loads(pickle.dumps(payload))
    assert sys.getsizeof(again) == sys.getsizeof(payload)
    assert again.open().source == "rows.csv"


def test_an_array_that_occurs_twice_is_one_array_again() -> None:
    dataset = Dataset(np.ones((4, 3)), np.zeros(4, dtype=np.int32), ("a",))
    found, boxes = SharedPayload.of((dataset, Ball(0.5).boxes(dataset))).open()
    assert boxes.low_center is boxes.high_center is found.X
