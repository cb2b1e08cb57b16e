"""Fixtures for tests of training."""

from collections.abc import Iterator

import pytest

from metasilvae.training import tuning


@pytest.fixture(scope="module")
def _short_tuning() -> Iterator[None]:
    """Tuning on two folds, once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "PARTS", 2)
        patch.setattr(tuning, "REPEATS", 1)
        yield
