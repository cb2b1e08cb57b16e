from enum import IntEnum

class SearchStatus(IntEnum):
    """How a search for a point with another prediction ended."""

    UNDECIDED = 0
    ABSENT = 1
    FOUND = 2
    CANDIDATE = 3
    INADMISSIBLE = 4

class Stability(IntEnum):
    """Whether a perturbation can change the prediction for a row."""

    UNSTABLE = 0
    STABLE = 1
    UNKNOWN = 2
