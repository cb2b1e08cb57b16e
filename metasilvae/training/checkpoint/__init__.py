"""Checkpoints: a training run stored in a file, from which it can be resumed to the same model."""
