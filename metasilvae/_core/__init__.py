"""Compiled kernels. `metasilvae._core.PACKAGE.NAME` is built from cython_ext/PACKAGE/NAME.pyx."""
