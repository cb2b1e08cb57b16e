"""Proofs of stability: queries, verdicts, certified radii, curves, and the metrics that count them."""
