"""Data sets: shipped and downloadable ones, scaling, splitting, summaries."""
