"""Digests by which models, data and perturbations are told apart, whatever their files are called."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from metasilvae.dataset import Dataset
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Boxes


def fingerprint(*parts: np.ndarray | tuple[str, ...]) -> str:
    """A short digest that differs if any part differs."""
    digest = hashlib.blake2b(digest_size=12)
    for part in parts:
        if isinstance(part, tuple):
            digest.update(json.dumps(part).encode())
        else:
            digest.update(f"{part.dtype}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).view(np.uint8).data if part.size else b"")
    return digest.hexdigest()


def of_model(model: Model) -> str:
    return fingerprint(model.nodes, model.roots, model.leaf_values, model.labels)


def of_dataset(dataset: Dataset) -> str:
    """Of the rows as they were read; names of columns and the spelling of numbers make no difference."""
    return fingerprint(dataset.X, dataset.y, dataset.labels)


def of_boxes(boxes: Boxes, dataset: Dataset) -> str:
    """Of a perturbation, by the boxes that it gives the samples and by what multiples of its radii would be."""
    arrays: list[np.ndarray] = list(boxes.scale)
    if boxes.low_center is not dataset.X:
        arrays += [boxes.low_center, boxes.high_center]
    return fingerprint(*arrays, boxes.groups.members, boxes.groups.starts, *boxes.domains.parts)
