"""Models of other libraries: exact imports and lossless exports."""
