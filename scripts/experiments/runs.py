"""Running the tasks of the paper: find data, train, verify. A task returns a small document of numbers."""

from __future__ import annotations

import copy
import os
import platform
import signal
import threading
import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from bench_train import find_commit

from experiments.tasks import GRID, HELD_OUT, MOST_HELD_OUT, PAPER_EPSILONS, STEPS_PER_ROW, Task
from metasilvae import __version__
from metasilvae.dataset import Dataset
from metasilvae.datasets.splitting import split_dataset
from metasilvae.errors import MetasilvaeWarning
from metasilvae.extras import find_library, load_library
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.training_records import METRICS
from metasilvae.interop.imports.scikit_learn import import_estimator
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Ball
from metasilvae.training.forest import ForestTrainer
from metasilvae.training.options import forest_options_for, options_for
from metasilvae.training.runs import make_trainer
from metasilvae.verification.budget import Budget
from metasilvae.verification.objective import Fitness
from metasilvae.verification.query import make_query
from metasilvae.verification.verifier import verify

Sources = dict[str, str]


@lru_cache(maxsize=2)
def _read(source: str) -> Dataset:
    return read_dataset(source)


def _load(sources: Sources) -> tuple[Dataset, Dataset]:
    return _read(sources["train"]), _read(sources["test"])


class _Stopwatch:
    """Seconds on the clock and of the processor; a task has its process to itself."""

    def __init__(self) -> None:
        self._clock, self._processor = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        clock, processor = time.perf_counter() - self._clock, time.process_time() - self._processor
        return {"seconds": round(clock, 4), "processor": round(processor, 4)}


def _judge(model: Model, rows: Dataset, epsilon: float, voting: str | None = None) -> dict[str, Any]:
    """Numbers of rows by verdict, decided exactly, and what that took."""
    watch = _Stopwatch()
    counts = verify(make_query(model, rows, Ball(epsilon), voting=voting), 1, budget=Budget(steps=STEPS_PER_ROW)).counts
    counts = {name: getattr(counts, name) for name in ("size", "correct", "stable", "robust", "no_info")}
    return {**counts, "processor": watch.read()["processor"]}


def _describe(model: Model) -> dict[str, int]:
    return {"leaves": model.n_leaves, "depth": model.max_depth}


# Kinds of tasks


def _describe_data(task: Task, sources: Sources) -> dict[str, Any]:
    train, test = _load(sources)
    return {
        "train": train.n_samples,
        "test": test.n_samples,
        "features": train.n_features,
        "classes": train.n_labels,
        "test_classes": len(np.unique(test.y)),
        # Of the largest class of the training rows among the test rows: what a single leaf would get.
        "majority": int((test.y == _position(test, train.labels[np.bincount(train.y).argmax()])).sum()),
    }


def _position(dataset: Dataset, label: str) -> int:
    return dataset.labels.index(label) if label in dataset.labels else -1


def _train_tree(task: Task, sources: Sources) -> dict[str, Any]:
    train, test = _load(sources)
    epsilon, weight = PAPER_EPSILONS[task.dataset], task["w_acc"]
    # 1 - 0.9 is not the 0.1 of the default weights.
    fitness = Fitness(correct=weight, stable=round(1 - weight, 10))
    watch = _Stopwatch()
    trainer = make_trainer(train, Ball(epsilon), options_for(task["preset"], seed=task["seed"], fitness=fitness), 1)
    for _ in trainer.run():
        pass
    model = trainer.model
    spent = watch.read()
    return {
        **spent, **_describe(model), "train": _judge(model, train, epsilon), "test": _judge(model, test, epsilon),
    }  # fmt: skip


def _log_training(task: Task, sources: Sources) -> dict[str, Any]:
    """The best tree so far after each step."""
    train, _ = _load(sources)
    options = options_for(task["preset"], seed=task["seed"])
    trainer = make_trainer(train, Ball(PAPER_EPSILONS[task.dataset]), options, 1)
    steps = list(trainer.run())
    return {
        "phases": [step.phase for step in steps],
        **{name: [round(getattr(step, name), 6) for step in steps] for name in METRICS},
    }


def _fit_forest(rows: Dataset, task: Task, n_trees: int) -> Any:
    ensemble = load_library("sklearn.ensemble", "sklearn", "a random forest")
    forest = ensemble.RandomForestClassifier(
        n_trees, max_depth=task["depth"], criterion=task["criterion"], random_state=task["seed"], n_jobs=1
    )
    return forest.fit(rows.X, np.array(rows.labels)[rows.y])


def _try_forests(task: Task, sources: Sources) -> dict[str, Any]:
    """Forests of all sizes, fitted to a part of the training rows and verified on rows of the other part.

    The first trees of a large forest are those of a small one with the same random state, so one fit is enough.
    """
    train, _ = _load(sources)
    learned, held_out = split_dataset(train, HELD_OUT, task["seed"])
    drawn = np.random.default_rng(task["seed"]).permutation(held_out.n_samples)[:MOST_HELD_OUT]
    held_out = held_out.subset(np.sort(drawn))
    watch = _Stopwatch()
    forest = _fit_forest(learned, task, max(GRID))
    spent = watch.read()
    tried = []
    for n_trees in GRID:
        part = copy.copy(forest)
        part.estimators_ = forest.estimators_[:n_trees]
        imported = import_estimator(part)
        found = _judge(imported.model, held_out, PAPER_EPSILONS[task.dataset], imported.voting)
        tried.append({"trees": n_trees, "leaves": imported.model.n_leaves, **found})
    return {**spent, "tried": tried}


def _judge_chosen_forest(task: Task, sources: Sources) -> dict[str, Any]:
    train, test = _load(sources)
    watch = _Stopwatch()
    forest = _fit_forest(train, task, task["trees"])
    spent = watch.read()
    imported = import_estimator(forest)
    found = _judge(imported.model, test, PAPER_EPSILONS[task.dataset], imported.voting)
    return {**spent, **_describe(imported.model), "test": found}


def _train_forest(task: Task, sources: Sources) -> dict[str, Any]:
    train, test = _load(sources)
    epsilon = PAPER_EPSILONS[task.dataset]
    watch = _Stopwatch()
    trainer = ForestTrainer(
        train, Ball(epsilon), forest_options_for("default", task["trees"], "auto", seed=task["seed"]), 1
    )
    for _ in trainer.run():
        pass
    model = trainer.model
    spent = watch.read()
    return {**spent, **_describe(model), "test": _judge(model, test, epsilon)}


KINDS: dict[str, Callable[[Task, Sources], dict[str, Any]]] = {
    "data": _describe_data,
    "tree": _train_tree,
    "convergence": _log_training,
    "random-forest": _try_forests,
    "chosen-forest": _judge_chosen_forest,
    "forest": _train_forest,
}


def run_task(task: Task, sources: Sources) -> dict[str, Any]:
    """Do a task in a process of its own, see `prepare_worker`."""
    return KINDS[task.kind](task, sources)


def prepare_worker(parent: int) -> None:
    """A worker leaves Ctrl-C to its parent, and ends when that has ended, however that came about."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore", MetasilvaeWarning)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def describe_origin(jobs: int) -> dict[str, str]:
    """What printed the figures."""
    learn = find_library("sklearn")
    libraries = [f"Python {platform.python_version()}", f"numpy {np.__version__}"]
    libraries += [f"scikit-learn {learn.__version__}"] if learn else []
    return {
        "version": __version__,
        "commit": find_commit() or "unknown",
        "machine": f"{platform.machine()}, {platform.system()}, {os.cpu_count()} cores, {jobs} task(s) at a time",
        "libraries": ", ".join(libraries),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
