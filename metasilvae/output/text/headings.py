"""The lines that open a report: which model, on which data, under which perturbation."""

from __future__ import annotations

from typing import Protocol

from metasilvae.dataset import Dataset
from metasilvae.model import ModelFacts, count_leaves, name_kind
from metasilvae.verification.shards import ShardNote


class Subject(Protocol):
    """What a report is about, such as a `metasilvae.verification.verifier.VerificationQuery`."""

    @property
    def model(self) -> ModelFacts: ...

    @property
    def dataset(self) -> Dataset: ...

    @property
    def voting(self) -> str: ...


def describe_model(model: ModelFacts, voting: str) -> str:
    """Name, kind and size of a model, and the voting of a forest."""
    facts = [name_kind(model.is_forest, model.n_trees), count_leaves(model.n_leaves), f"depth {model.max_depth}"]
    if model.is_forest:
        facts.append(f"voting {voting}")
    return f"{model.source} ({', '.join(facts)})"


def describe_subject(subject: Subject, perturbation: str, shard: ShardNote | None = None) -> str:
    """Model, data and perturbation, one on each line; and the shard if there is one."""
    dataset = subject.dataset
    lines = [
        f"model         {describe_model(subject.model, subject.voting)}",
        f"data          {dataset.source} ({dataset.n_samples} rows, {dataset.n_features} features)",
        *([] if shard is None else [f"shard         {shard.number}/{shard.count} of {shard.n_rows} rows"]),
        f"perturbation  {perturbation}",
    ]
    return "\n".join([*lines, ""])
