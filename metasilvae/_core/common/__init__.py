"""Kernels that several packages need: ranks of values, status codes."""
