"""The experiments of the paper, for scripts/paper.py: tasks, runs, results and the document."""
