"""Fuzz targets: for each reader a function that takes any bytes and describes what is wrong with the result.

Reading must return a valid object or raise a `MetasilvaeError` of one line. Anything else is a finding.
To add a reader, add a function, an entry in `TARGETS`, and a few small files in ``corpus/NAME/``.
"""

from __future__ import annotations

import hashlib
import io
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.datasets.scaling import Scale
from metasilvae.errors import MetasilvaeError
from metasilvae.formats import text
from metasilvae.formats.binary_files import read_idx
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import format_model, parse_model, same_model
from metasilvae.io.storage import STANDARD_STREAM
from metasilvae.perturbations.attack_files import parse_attack
from metasilvae.perturbations.boxes import read_boxes, read_weights
from metasilvae.training.checkpoint.files import unpack
from metasilvae.verification.shards import merge_shards, read_shard
from metasilvae.voting import choose_voting

CORPUS = Path(__file__).parent / "corpus"
LONGEST_MESSAGE = 2000
# Small chunks are refilled often and do not have to be cleared for each input.
CHUNK_BYTES = 512
BOX_SHAPE = (3, 2)
TRAILED_MODEL = b"classifier-decision-tree 2 2\nyes no\nSPLIT 1 0.5\nLEAF 3 1\nLEAF 0 2\n"


class Finding(Exception):
    """Something that a reader must not do."""


def require(condition: object, what: str) -> None:
    if not condition:
        raise Finding(what)


@contextmanager
def standard_input(content: bytes) -> Iterator[str]:
    """Bytes as the source that is being read, without a file."""
    usual = sys.stdin
    sys.stdin = cast(io.TextIOWrapper, SimpleNamespace(buffer=io.BytesIO(content), closed=False))
    try:
        yield STANDARD_STREAM
    finally:
        sys.stdin = usual


def check_dataset(dataset: Dataset) -> None:
    require(dataset.X.ndim == 2 and min(dataset.X.shape) > 0, f"a data set of shape {dataset.X.shape}")
    require(not np.isinf(dataset.X).any(), "values that are infinite")
    require(len(dataset.y) == dataset.n_samples, "not one label for each row")
    require(((dataset.y >= 0) & (dataset.y < dataset.n_labels)).all(), "a label that is not there")
    require(len(set(dataset.labels)) == dataset.n_labels, "labels that are equal")
    require(
        dataset.feature_names is None or len(dataset.feature_names) == dataset.n_features,
        "not one name for each feature",
    )


def fuzz_dataset(input_format: str) -> Callable[[bytes], None]:
    def fuzz(content: bytes) -> None:
        with standard_input(content) as source:
            check_dataset(read_dataset(source, input_format=input_format))

    return fuzz


def fuzz_idx(content: bytes) -> None:
    with standard_input(content) as source:
        pixels = read_idx(source, 3)
    require(pixels.ndim == 3, f"an array of shape {pixels.shape}")


def fuzz_model(content: bytes) -> None:
    model = parse_model(content)
    again = parse_model(format_model(model).encode())
    require(same_model(model, again), "the model is written as another one")
    require(model.description == again.description, "the description is written as another one")
    require(model.depths.min() >= 0, "a node without depth")
    require(model.feasible.n_nodes <= model.n_nodes, "more nodes than there are")


def fuzz_trailer(content: bytes) -> None:
    """Behind a model of two features and two labels."""
    model = parse_model(TRAILED_MODEL + content)
    names = model.description.feature_names
    require(names is None or len(set(names)) == model.n_features, "not one name for each feature")
    choose_voting(model, None)
    text = format_model(model)
    require(text.count("LEAF") == 2 and text.count("SPLIT") == 1, "words of nodes in the trailer")
    again = parse_model(text.encode())
    require(again.description == model.description, "the description is written as another one")
    require(same_model(again, model), "directions of missing values are written as other ones")


def fuzz_attack(content: bytes) -> None:
    rules = parse_attack(content, "attack.toml")
    require(rules.default.minimum <= rules.default.maximum, "limits that exclude everything")


def fuzz_boxes(content: bytes) -> None:
    with standard_input(content) as source:
        lower, upper = read_boxes(source, *BOX_SHAPE)
    require(lower.shape == upper.shape == BOX_SHAPE, f"boxes of shape {lower.shape}")
    require((lower <= upper).all(), "an empty box")


def fuzz_weights(content: bytes) -> None:
    with standard_input(content) as source:
        require(np.isfinite(read_weights(source)).all(), "a weight that is not finite")


def fuzz_scale(content: bytes) -> None:
    with standard_input(content) as source:
        scale = Scale.load(source)
    require((scale.minimum <= scale.maximum).all(), "a minimum above its maximum")


def fuzz_shard(content: bytes) -> None:
    with standard_input(content) as source:
        shard = read_shard(source)
    found = merge_shards([shard]).results
    require(len(found.predictions.ids) == shard.note.n_rows, "not one result for each row")


def fuzz_checkpoint(content: bytes) -> None:
    """With the right digest, as hostile files have it too."""
    title, _, rest = content.partition(b"\n")
    _, _, body = rest.partition(b"\n")
    document = unpack(b"\n".join([title, hashlib.sha256(body).hexdigest().encode(), body]))
    require(type(document) is dict, "a document that is no table")


TARGETS: dict[str, Callable[[bytes], None]] = {
    "csv": fuzz_dataset("csv"),
    "libsvm": fuzz_dataset("libsvm"),
    "binary": fuzz_dataset("binary"),
    "any-data": fuzz_dataset("auto"),
    "idx": fuzz_idx,
    "model": fuzz_model,
    "trailer": fuzz_trailer,
    "attack": fuzz_attack,
    "boxes": fuzz_boxes,
    "weights": fuzz_weights,
    "scale": fuzz_scale,
    "shard": fuzz_shard,
    "checkpoint": fuzz_checkpoint,
}


def try_one(target: str, content: bytes) -> bool:
    """Whether a reader takes an input; anything but a valid object or a clear error is raised."""
    text.CHUNK_BYTES = CHUNK_BYTES
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            TARGETS[target](content)
    except MetasilvaeError as error:
        message = str(error)
        require(message and "\n" not in message, f"a message that is not one line: {message!r}")
        require(len(message) <= LONGEST_MESSAGE, f"a message of {len(message)} characters")
        return False
    return True


def seeds(target: str) -> list[bytes]:
    """The files to start from."""
    return [path.read_bytes() for path in sorted((CORPUS / target).iterdir())]
