"""Short descriptions of objects for people: as text for a console, as a table for a notebook."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from metasilvae.errors import printable


def describe(title: str, facts: Sequence[str]) -> str:
    """One line: ``<title: fact, fact>``."""
    return f"<{printable(title)}: {', '.join(map(printable, facts))}>" if facts else f"<{printable(title)}>"


def show_facts(title: str, facts: Mapping[str, object]) -> str:
    """A small table with a line for each fact that is not None."""
    known = {name: value for name, value in facts.items() if value is not None}
    rows = "".join(f"<tr><th>{_escape(name)}</th><td>{_escape(value)}</td></tr>" for name, value in known.items())
    return f"<table><caption>{_escape(title)}</caption><tbody>{rows}</tbody></table>"


def show_records(title: str, records: Sequence[Mapping[str, object]]) -> str:
    """A table with a line for each record; the names of the first one are its head."""
    names = list(records[0]) if records else []
    head = "".join(f"<th>{_escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{_escape(record[name])}</td>" for name in names) + "</tr>" for record in records
    )
    return f"<table><caption>{_escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def show_percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.2f} %"


def _escape(value: object) -> str:
    return html.escape(printable(str(value)))
