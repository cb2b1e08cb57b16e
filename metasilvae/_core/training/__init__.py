"""Kernels that train trees."""
