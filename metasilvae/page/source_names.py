"""Short names of files for headings, which have no room for paths."""

from __future__ import annotations

from collections.abc import Sequence

# Such sources are short, and their last parts alone say little.
_KEPT = "builtin:"


def shorten_sources(sources: Sequence[str]) -> list[str]:
    """The last part of each path; more parts where it takes them to tell different ones apart."""
    parts = [[source] if source.startswith(_KEPT) else source.split("/") for source in sources]
    n_distinct = len(set(sources))
    for n_parts in range(1, max(map(len, parts), default=0)):
        names = ["/".join(part[-n_parts:]) for part in parts]
        if len(set(names)) == n_distinct and all(names):
            return names
    return list(sources)
