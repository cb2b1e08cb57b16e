"""Kernels that evaluate and compare models."""
