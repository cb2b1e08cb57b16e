"""Compiled kernels. Each is built from the .pyx file of the same name in cython_ext/."""
