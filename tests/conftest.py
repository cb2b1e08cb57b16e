"""Settings for all tests: time never decides one. Small files that many of them need."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

# Other libraries' threads would wait for each other on a busy machine; before any of them is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings
from support.command import FOREST, ROWS, TREE, write
from support.remote_tasks import Cluster, running_cluster

# Fewer where each takes long: under sanitizers, and where each line is told.
MOST_EXAMPLES = int(os.environ.get("METASILVAE_EXAMPLES", "0"))
settings.register_profile(
    "metasilvae",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=MOST_EXAMPLES or 100,
)
settings.load_profile("metasilvae")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that ask for more random cases do not get them either; hypothesis itself has no way to say so."""
    name = "_hypothesis_internal_use_settings"
    for item in items if MOST_EXAMPLES else []:
        test = getattr(item, "obj", None)
        chosen = getattr(test, name, None)
        if chosen is not None and chosen.max_examples > MOST_EXAMPLES:
            setattr(getattr(test, "__func__", test), name, settings(chosen, max_examples=MOST_EXAMPLES))


@pytest.fixture
def tree(tmp_path: Path) -> str:
    return write(tmp_path, "tree.silva", TREE)


@pytest.fixture
def forest(tmp_path: Path) -> str:
    return write(tmp_path, "forest.silva", FOREST)


@pytest.fixture
def rows(tmp_path: Path) -> str:
    return write(tmp_path, "rows.csv", ROWS)


@pytest.fixture
def hard_forest(tmp_path: Path) -> tuple[str, str]:
    """A forest of many small trees, and rows for it."""
    rng = random.Random(1)
    trees = []
    for _ in range(30):
        k = [rng.randint(0, 50) / 10 for _ in range(3)]
        f = [rng.randrange(5) for _ in range(3)]
        leaves = ["LEAF 1 0" if rng.random() < 0.5 else "LEAF 0 1" for _ in range(4)]
        trees.append(
            f"classifier-decision-tree 5 2 a b\nSPLIT {f[0]} {k[0]}\nSPLIT {f[1]} {k[1]}\n{leaves[0]}\n{leaves[1]}\n"
            f"SPLIT {f[2]} {k[2]}\n{leaves[2]}\n{leaves[3]}\n"
        )
    rows = "".join(f"a,{','.join(str(rng.randint(0, 50) / 10) for _ in range(5))}\n" for _ in range(6))
    return (
        write(tmp_path, "hard.silva", "classifier-forest 30\n" + "".join(trees)),
        write(tmp_path, "hard.csv", rows),
    )


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Dask cluster of two workers for all tests that need one."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
