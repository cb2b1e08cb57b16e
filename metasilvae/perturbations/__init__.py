"""The threat model: boxes around rows, one-hot groups, attack files and their templates."""
