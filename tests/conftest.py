"""Settings for all tests: time never decides one. Small files that many of them need."""

from pathlib import Path

import pytest
from command import FOREST, ROWS, TREE, write
from hypothesis import HealthCheck, settings

settings.register_profile("metasilvae", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("metasilvae")


@pytest.fixture
def tree(tmp_path: Path) -> str:
    return write(tmp_path, "tree.silva", TREE)


@pytest.fixture
def forest(tmp_path: Path) -> str:
    return write(tmp_path, "forest.silva", FOREST)


@pytest.fixture
def rows(tmp_path: Path) -> str:
    return write(tmp_path, "rows.csv", ROWS)
