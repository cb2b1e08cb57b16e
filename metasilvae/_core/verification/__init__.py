"""Kernels that prove which predictions a perturbation can change."""
