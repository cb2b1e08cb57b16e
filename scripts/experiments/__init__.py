"""The experiments of the paper, for scripts/paper.py: tasks, their runs and results, and the document made of them."""
