"""What a log was told of a run, so that it is known again when the run goes on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

from metasilvae.formats.checkpoint_files import take
from metasilvae.training_progress import Progress

# What the same run tells again; seconds are not.
_REPEATED = ("seed", "phase", "step", "fitness", "leaves", "offspring")


@dataclass(frozen=True)
class Told:
    """The number of records of a log, and a digest of them; it is None where it is not known."""

    n_steps: int = 0
    digest: str | None = ""

    @classmethod
    def read(cls, document: dict[str, Any], key: str) -> Told:
        stored = take(document, key, dict)
        return cls(take(stored, "n_steps", int), None if stored.get("digest") is None else take(stored, "digest", str))

    def after(self, seed: int, progress: Progress) -> Told:
        """With one more step."""
        return self.after_record({"seed": seed, **asdict(progress)})

    def after_record(self, record: dict[str, Any]) -> Told:
        """With one more record of a log; a KeyError if it is none."""
        if self.digest is None:
            return Told(self.n_steps + 1, None)
        text = json.dumps([self.digest, *(record[name] for name in _REPEATED)])
        return Told(self.n_steps + 1, blake2b(text.encode(), digest_size=12).hexdigest())
