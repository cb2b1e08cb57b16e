"""Errors and warnings for users, and the phrases that their messages share.

A message says where (path, line, column), what was found, what was expected and what to try. Only the command
line turns these exceptions into output and exit codes.
"""

from collections.abc import Sequence


class MetasilvaeError(Exception):
    """Base of all errors that the user can correct."""


class DataError(MetasilvaeError):
    """A data file that cannot be read."""


class ModelError(MetasilvaeError):
    """A model file that cannot be read, or a model that does not fit the data or the request."""


class PerturbationError(MetasilvaeError):
    """A perturbation that is malformed or does not fit the data."""


class OutputError(MetasilvaeError):
    """A result that cannot be written to its path."""


class CheckpointError(MetasilvaeError):
    """A checkpoint that cannot be read or belongs to another run."""


class ClusterError(MetasilvaeError):
    """A cluster that cannot be reached or cannot run the tasks."""


class TransferError(MetasilvaeError):
    """A file that cannot be fetched, or that is not the expected one."""


class RequestError(MetasilvaeError):
    """Arguments that contradict each other; the command line reports wrong usage."""


class MetasilvaeWarning(UserWarning):
    """Something unexpected that does not stop the work; reported once."""


class RequestWarning(MetasilvaeWarning):
    """An argument that has no effect; the command line names its option."""


def at_line(source: str, line: int, found: str) -> str:
    """Prefix a message with its place in a file, in the form that editors recognize."""
    return f"{source}:{line}: {found}"


def shorten(token: str, width: int = 40) -> str:
    """Quote a token of the input for a message, cut to a readable length."""
    text = token if len(token) <= width else token[: width - 3] + "..."
    return repr(text)


def printable(text: str) -> str:
    """A name of the input for a message or a report; characters that cannot be printed are escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def list_some(names: Sequence[str], most: int = 5) -> str:
    """The first names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
