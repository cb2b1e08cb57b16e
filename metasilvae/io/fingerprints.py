"""Digests that identify models, data and perturbations, whatever their files are called."""

from __future__ import annotations

import hashlib
import json

import numpy as np


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
