"""Codes that the kernels report, as Python enumerations. status.pxd explains them."""

from enum import IntEnum

from common.status cimport ABSENT, CANDIDATE, FOUND, INADMISSIBLE, STABLE, UNDECIDED, UNKNOWN, UNSTABLE

SearchStatus = IntEnum(
    "SearchStatus",
    {
        "UNDECIDED": UNDECIDED,
        "ABSENT": ABSENT,
        "FOUND": FOUND,
        "CANDIDATE": CANDIDATE,
        "INADMISSIBLE": INADMISSIBLE,
    },
    module=__name__,
)
Stability = IntEnum("Stability", {"UNSTABLE": UNSTABLE, "STABLE": STABLE, "UNKNOWN": UNKNOWN}, module=__name__)
Stability.__doc__ = "Whether a perturbation can change the prediction for a row."
SearchStatus.__doc__ = "How a search for a point with another prediction ended."
