"""File formats of data sets and models."""
