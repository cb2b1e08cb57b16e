"""Fixtures for tests of training."""

from collections.abc import Iterator

import pytest

from metasilvae.datasets import splitting


@pytest.fixture(scope="module")
def _short_tuning() -> Iterator[None]:
    """Tuning on two folds, once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splitting, "FOLDS", 2)
        patch.setattr(splitting, "REPEATS", 1)
        yield
