"""Where a picture goes: options that all plots share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from metasilvae.cli.parameters import check_outputs, shared_options
from metasilvae.plots.canvas import ENDINGS, PLOT_FORMATS, choose_plot_format, render
from metasilvae.storage import STANDARD_STREAM, write_output

if TYPE_CHECKING:
    from matplotlib.figure import Figure

plot_options = shared_options(
    click.option(
        "--output", "-o", required=True, metavar="FILE", help=f"Picture to write ({ENDINGS}), - for standard output."
    ),
    click.option(
        "--format", "plot_format", type=click.Choice(list(PLOT_FORMATS)), help="Form of it.  [default: by the name]"
    ),
    click.option("--title", metavar="TEXT", help="What to write above the picture."),
)


class Picture:
    """A picture to be written; what cannot be, is refused before anything is computed."""

    def __init__(self, output: str, plot_format: str | None, inputs: Sequence[str]) -> None:
        if output == STANDARD_STREAM and plot_format is None:
            raise click.UsageError(f"standard output has no ending; add --format {'|'.join(PLOT_FORMATS)}")
        self._output = output
        self._format = choose_plot_format(output, plot_format)
        check_outputs([output], inputs)

    def write(self, figure: Figure) -> None:
        write_output(self._output, render(figure, self._format))
