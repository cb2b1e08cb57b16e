"""metasilvae: decision trees that are accurate and provably stable under perturbations of the input."""

from metasilvae._version import VERSION as __version__

__all__ = ["__version__"]
