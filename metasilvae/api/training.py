"""Training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from metasilvae.api.data import as_perturbation, expect
from metasilvae.dataset import Dataset
from metasilvae.errors import RequestError
from metasilvae.model import Model
from metasilvae.perturbations.attack import fit_attack
from metasilvae.perturbations.attack_files import AttackRules
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.training.options import (
    PRESETS,
    BoostingOptions,
    ForestOptions,
    Options,
    TrainingOptions,
    boosting_options_for,
    forest_options_for,
    options_for,
)
from metasilvae.training.pareto import TreeCollector, TreeMetrics
from metasilvae.training.protocol import Progress, finish
from metasilvae.training.provenance import describe_run, describe_trained
from metasilvae.training.runs import TrainingMonitor, TrainingOutcome, TrainingRequest, make_trainer
from metasilvae.training.runs import run_training as _run_training
from metasilvae.training.weights import ClassWeight, weigh
from metasilvae.verification.objective import fitness_from_weights
from metasilvae.verification.shards import Shard


def choose_options(
    preset: str = "default",
    *,
    trees: int | None = None,
    boost: int | None = None,
    weights: dict[str, float] | None = None,
    **changes: Any,
) -> TrainingOptions | ForestOptions | BoostingOptions:
    """Options of a tree, of a forest of `trees` trees, or of `boost` rounds of boosting, by the name of a preset.

    Parameters
    ----------
    weights : dict or None
        Weights of the fitness, such as ``{"accuracy": 0.9, "stability": 0.1}``.
    **changes
        Fields of `TrainingOptions`; for a forest also `method` and `row_sample`; for boosting those of
        `BoostingOptions`. None leaves the preset's value.
    """
    if preset not in PRESETS:
        raise RequestError(f"preset {preset!r}: choose among {', '.join(PRESETS)}")
    for name, public in (("n_trees", "trees"), ("n_rounds", "boost")):
        if name in changes:
            raise RequestError(f"no such option: {name}; give '{public}'")
    if weights is not None:
        changes["fitness"] = fitness_from_weights(weights)
    if trees is not None and boost is not None:
        raise RequestError("'trees' asks for a forest and 'boost' for a boosted model; give one of them")
    if boost is not None:
        return boosting_options_for(preset, boost, **changes)
    return options_for(preset, **changes) if trees is None else forest_options_for(preset, trees, **changes)


def train(
    dataset: Dataset,
    epsilon: float | Perturbation | AttackRules,
    options: Options | None = None,
    *,
    class_weight: ClassWeight | None = None,
    sample_weight: ArrayLike | None = None,
    start: Model | None = None,
    report: Callable[[Progress], object] | None = None,
    jobs: int | None = None,
    **choices: Any,
) -> Model:
    """Train a tree or a forest to the end.

    Parameters
    ----------
    dataset : Dataset
        Training samples.
    epsilon : float, Perturbation or AttackRules
        The perturbation that the model should withstand; rules of `read_attack` are bound to column names.
    options : TrainingOptions, ForestOptions, BoostingOptions or None
        None makes them by `choose_options` from the other keywords.
    class_weight : "balanced", dict or None
        Weights of classes by label, or the same total weight for all of them. Accuracy, stability and all that training
        maximizes are weighted, and so are the class counts in leaves.
    sample_weight : array-like of shape (n_samples,) or None
        Weights of rows; rows of weight 0 are left out.
    start : Model or None
        Trees from which the search for one tree starts.
    report : function or None
        Called with the progress after each step.
    jobs : int or None
        Threads; None means all available cores. The model does not depend on it.
    """
    expect(dataset=dataset)
    dataset = weigh(dataset, class_weight, sample_weight)
    chosen, perturbation = _options_of(options, choices), as_perturbation(epsilon, dataset)
    if start is not None and not chosen.is_observable:
        raise RequestError("'start' is for the search for one tree")
    trainer = make_trainer(dataset, perturbation, chosen, jobs, start)
    for progress in trainer.run():
        if report is not None:
            report(progress)
    return _describe(trainer.model, dataset, perturbation, chosen, trainer.tuning, start)


def _describe(
    model: Model,
    dataset: Dataset,
    perturbation: Perturbation,
    options: Options,
    tuning: dict[str, Any] | None = None,
    start: Model | None = None,
) -> Model:
    seed = options.tree_options.seed
    return describe_trained(model, dataset, describe_run(dataset, perturbation, options, [seed], start), seed, tuning)


def train_pareto(
    dataset: Dataset,
    epsilon: float | Perturbation | AttackRules,
    options: Options | None = None,
    *,
    class_weight: ClassWeight | None = None,
    sample_weight: ArrayLike | None = None,
    jobs: int | None = None,
    **choices: Any,
) -> list[tuple[TreeMetrics, Model]]:
    """Train a tree, and keep all trees of the run that no other one beats in accuracy, stability and size.

    Parameters are those of `train`. The most accurate tree comes first. The metrics are exact, on the rows that
    `validation` holds out if it does, otherwise on the training samples.
    """
    expect(dataset=dataset)
    dataset = weigh(dataset, class_weight, sample_weight)
    chosen, perturbation = _options_of(options, choices), as_perturbation(epsilon, dataset)
    collector = TreeCollector(dataset, perturbation, chosen.tree_options)
    trainer = make_trainer(dataset, perturbation, chosen, jobs)
    trainer.observe(collector)
    finish(trainer)
    return [(metrics, _describe(model, dataset, perturbation, chosen)) for metrics, model in collector.entries]


def run_training(
    data: Dataset | str,
    epsilon: float | Perturbation | AttackRules,
    output: str | Path | None = None,
    options: Options | None = None,
    *,
    seeds: Sequence[int] | None = None,
    start: Model | str | None = None,
    test: Dataset | str | None = None,
    log: str | Path | None = None,
    pareto: str | Path | None = None,
    checkpoint: str | Path | None = None,
    every: int | None = None,
    resume: str | Path | None = None,
    manifest: bool = True,
    plain: bool = False,
    scheduler: str | None = None,
    shard: str | Shard | None = None,
    jobs: int | None = None,
    reading: dict[str, Any] | None = None,
    class_weight: ClassWeight | None = None,
    sample_weight: ArrayLike | None = None,
    monitor: TrainingMonitor | None = None,
    **choices: Any,
) -> TrainingOutcome:
    """Train with everything that ``metasilvae train`` offers, and write the files that are named.

    Parameters
    ----------
    data : Dataset or str
        Training samples, or the source to read them from.
    epsilon : float, Perturbation or AttackRules
        The perturbation that the model should withstand; rules of `read_attack` are bound to column names.
    output : path or None
        File for the model, which is read back and scored again; None writes no model.
    options : TrainingOptions, ForestOptions, BoostingOptions or None
        None makes them by `choose_options` from the other keywords.
    seeds : sequence of int or None
        Train once for each seed and keep the best model.
    start : Model, str or None
        Trees, or their file, from which the search for one tree starts.
    test : Dataset, str or None
        Rows to report metrics on; they do not influence the model.
    log : path or None
        File for one line of JSON per step.
    pareto : path or None
        New or empty folder for all trees that no other tree beats in accuracy, stability and size.
    checkpoint, resume : path or None
        File for checkpoints, and file to resume from; ``resume="auto"`` is the checkpoint, if it exists.
    every : int or None
        Steps between two checkpoints; None writes them by the clock.
    manifest : bool
        Whether to write ``OUTPUT.manifest.json``.
    plain : bool
        Whether to leave out the line behind a model that describes it.
    scheduler : str or None
        Dask cluster to train on: address of the scheduler, or the file that it wrote.
    shard : str, Shard or None
        Train only this part, such as ``"3/10"``, of the seeds or of the trees of a forest.
    jobs : int or None
        Threads; None means all available cores. The model does not depend on it.
    reading : dict or None
        Options of `read_dataset` for sources of data.
    class_weight, sample_weight
        As for `train`. The metrics of the outcome are weighted; test rows have the weights of their classes.
    monitor : TrainingMonitor or None
        Follows the run and can stop it.

    Returns
    -------
    TrainingOutcome
        With `model`, the metrics of all seeds (`runs`, `records`) and the trees of the `archive`.
    """

    if not isinstance(data, str):
        expect(data=data)

    def named(path: str | Path | None) -> str | None:
        return None if path is None else str(path)

    # The rules of an attack are applied when the data are known.
    withstood = partial(fit_attack, epsilon) if isinstance(epsilon, AttackRules) else as_perturbation(epsilon)
    request = TrainingRequest(
        data, withstood, _options_of(options, choices),
        output=named(output), log=named(log), pareto=named(pareto), checkpoint=named(checkpoint), resume=named(resume),
        shard=Shard.parse(shard) if isinstance(shard, str) else shard, reading=reading or {},
        seeds=seeds, start=start, test=test, every=every, manifest=manifest, scheduler=scheduler, jobs=jobs,
        plain=plain, class_weight=class_weight, sample_weight=sample_weight,
    )  # fmt: skip
    return _run_training(request, monitor)


def _options_of(options: Options | None, choices: dict[str, Any]) -> Options:
    if options is not None and choices:
        raise RequestError(f"options are given, and so are {', '.join(choices)}; give one of them")
    return choose_options(**choices) if options is None else options
