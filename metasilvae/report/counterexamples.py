"""Files of counterexamples: samples that the tool can load again, or silva's boxes."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator

from metasilvae.dataset import Dataset
from metasilvae.model import LabelSet, Model
from metasilvae.verification import Witness


def _join(model: Model, label_set: LabelSet) -> str:
    return ",".join(model.labels[label] for label in label_set)


def write_samples(model: Model, dataset: Dataset, witnesses: Iterable[Witness]) -> Iterator[str]:
    """CSV of perturbed samples under their true labels.

    Columns whose name starts with ``#`` are notes that readers of data pass over: the row of the sample, its answer
    before and after the perturbation.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    names = [dataset.feature_names[f] if dataset.feature_names else f"x{f}" for f in range(dataset.n_features)]
    writer.writerow(["label", *names, "#row", "#answer", "#perturbed_answer"])
    for witness in witnesses:
        notes = [dataset.number_of(witness.row), _join(model, witness.answer), _join(model, witness.perturbed_answer)]
        writer.writerow([dataset.labels[dataset.y[witness.row]], *map(repr, witness.point.tolist()), *notes])
        yield stream.getvalue()
        stream.seek(0)
        stream.truncate()
    yield stream.getvalue()


def write_silva_boxes(model: Model, dataset: Dataset, witnesses: Iterable[Witness]) -> Iterator[str]:
    """silva's form: for each unstable row a box in which the answer is another one."""
    for witness in witnesses:
        pairs = zip(witness.lower.tolist(), witness.upper.tolist(), strict=True)
        yield f"{dataset.number_of(witness.row)}: [{','.join(f'[{lower!r},{upper!r}]' for lower, upper in pairs)}]\n"


COUNTEREXAMPLE_FORMATS: dict[str, Callable[[Model, Dataset, Iterable[Witness]], Iterator[str]]] = {
    "csv": write_samples,
    "silva": write_silva_boxes,
}
