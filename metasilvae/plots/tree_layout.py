"""Where the boxes of a tree go: a tidy drawing (Reingold and Tilford 1981), without recursion.

Each node stands in the middle between its children, subtrees of the same shape look the same, and boxes of the same
level never touch. The way in which a level extends is called breadth here: a drawing may grow down or to the right.
"""

from __future__ import annotations

from collections.abc import Sequence

Children = tuple[int, int] | None


def place_boxes(children: Sequence[Children], breadths: Sequence[float], gap: float) -> list[float]:
    """The centre of each box along the breadth; the smallest edge is at 0.

    Parameters
    ----------
    children : positions of the two children of each node, None for a leaf; children follow their parent
    breadths : how far each box extends
    gap : least distance between two boxes of a level
    """
    n_nodes = len(children)
    shifts = [0.0] * n_nodes
    # Edges of the subtree of a node, level by level, relative to the centre of the node.
    firsts: list[list[float]] = [[] for _ in range(n_nodes)]
    lasts: list[list[float]] = [[] for _ in range(n_nodes)]
    for node in range(n_nodes - 1, -1, -1):
        below = children[node]
        first, last = [-breadths[node] / 2], [breadths[node] / 2]
        if below is not None:
            left, right = below
            levels = zip(lasts[left], firsts[right], strict=False)
            half = max(one - other for one, other in levels) / 2 + gap / 2
            shifts[left], shifts[right] = -half, half
            first += _join(firsts[left], -half, firsts[right], half)
            last += _join(lasts[right], half, lasts[left], -half)
            for child in below:
                firsts[child], lasts[child] = [], []
        firsts[node], lasts[node] = first, last
    centres = [-min(firsts[0])] * n_nodes
    for node, below in enumerate(children):
        for child in below or ():
            centres[child] = centres[node] + shifts[child]
    return centres


def _join(outer: list[float], shift: float, other: list[float], other_shift: float) -> list[float]:
    """One side of two subtrees: the outer one as deep as it goes, then what lies deeper in the other one."""
    return [edge + shift for edge in outer] + [edge + other_shift for edge in other[len(outer) :]]
