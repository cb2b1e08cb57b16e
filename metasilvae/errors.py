"""What can go wrong, in the words of the person who has to mend it.

A message says where (path, line, column), what was found, what was expected and what to try. Only the command
line turns these exceptions into output and exit codes.
"""


class MetasilvaeError(Exception):
    """Base of every error that the user can do something about."""


class DataError(MetasilvaeError):
    """A data file that cannot be read as what it claims to be."""


class ModelError(MetasilvaeError):
    """A model file that cannot be read, or a model that does not fit the data or the request."""


class PerturbationError(MetasilvaeError):
    """A perturbation that is malformed or does not fit the data."""


class OutputError(MetasilvaeError):
    """A result that cannot be written where it was asked to be."""


class CheckpointError(MetasilvaeError):
    """A checkpoint that cannot be read, or that is one of another run."""


class ClusterError(MetasilvaeError):
    """A cluster that cannot be reached, or that cannot do the work."""


class TransferError(MetasilvaeError):
    """A file that cannot be fetched from where it lies, or that is not the one expected there."""


class RequestError(MetasilvaeError):
    """A request that contradicts itself; the command line reports it as wrong usage."""


class MetasilvaeWarning(UserWarning):
    """Something odd that does not stop the work, told once."""


def at_line(source: str, line: int, found: str) -> str:
    """Prefix a message with its place in a file, in the form that editors understand."""
    return f"{source}:{line}: {found}"


def shorten(token: str, width: int = 40) -> str:
    """Quote a token of the input for a message, cut to a readable length."""
    text = token if len(token) <= width else token[: width - 3] + "..."
    return repr(text)
