"""What the labels of an imported model are called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from metasilvae.errors import ModelError


def name_classes(classes: Iterable[object]) -> list[str]:
    """Classes as they are written in data files: whole numbers without a point."""
    names = []
    for label in classes.tolist() if hasattr(classes, "tolist") else classes:
        is_whole = isinstance(label, float) and label.is_integer()
        names.append(str(int(label)) if isinstance(label, float) and is_whole else str(label))
    return names


def choose_labels(own: Sequence[str], wanted: Sequence[str] | None, source: str) -> tuple[str, ...]:
    """The names asked for, or those of the source."""
    if wanted is None:
        return tuple(own)
    if len(wanted) != len(own):
        raise ModelError(
            f"{source}: {len(wanted)} names were given with --labels, the model has {len(own)} labels "
            f"({', '.join(own[:5])}{', ...' if len(own) > 5 else ''})"
        )
    return tuple(wanted)
