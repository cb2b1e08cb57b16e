"""Settings for all tests: time never decides one. Small files that many of them need."""

import os
from collections.abc import Iterator
from pathlib import Path

# Other libraries' threads would wait for each other on a busy machine; before any of them is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from command import FOREST, ROWS, TREE, write
from hypothesis import HealthCheck, settings
from remote_tasks import Cluster, running_cluster

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


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Dask cluster of two workers for all tests that need one."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
