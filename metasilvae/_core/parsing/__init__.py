"""Kernels that read and write text."""
