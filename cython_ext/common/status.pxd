# Codes that the kernels report, declared once; status.pyx gives Python the same names.

cdef enum SearchStatus:
    # How a search for a witness ended: a point of a box with another prediction, or with different predictions.
    UNDECIDED           # the limit on steps was reached first
    ABSENT              # proven: there is no witness
    FOUND
    CANDIDATE           # scores are rounded, and the caller has to check the witness
    INADMISSIBLE        # no point of the box has one-hot groups

cdef enum Stability:
    # Whether a perturbation can change the prediction for a row.
    UNSTABLE
    STABLE
    UNKNOWN
