"""``metasilvae plot``: pictures of models, trainings and studies."""

from __future__ import annotations

import click

from metasilvae.cli import CommandGroup
from metasilvae.cli.plot_models import curve, pareto, regions, tree
from metasilvae.cli.plot_studies import convergence, variance, weights


@click.group(cls=CommandGroup)
def plot() -> None:
    """Draw models, trainings and studies, as SVG, PNG or PDF.

    The same input gives the same file, byte for byte. Needs matplotlib: pip install 'metasilvae[plot]'.

    \b
    Example:
      metasilvae plot tree model.silva train.csv -o tree.svg
    """


for command in (tree, regions, curve, pareto, convergence, weights, variance):
    plot.add_command(command)
