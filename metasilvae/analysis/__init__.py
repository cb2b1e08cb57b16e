"""What a model does and why: explanations, differences, simplification, summaries."""
