"""How training runs got better, from their logs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from metasilvae.formats.training_logs import LoggedRun
from metasilvae.plots.canvas import limit_shares, new_figure, put_heading, put_legend_below, say, style, tell_apart
from metasilvae.plots.palette import FAINT, INK, colour_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

X_AXES = ("seconds", "steps")
SHOWN = {"fitness": "phi", "accuracy": "accuracy", "stability": "stability", "leaves": "leaves"}
# A phase that would be taken for the number that a training starts from.
PHASE_NAMES = {"seed": "first trees"}
PHASE_MARKS = "osD^vP*X"
# With more lines than this, those of a log have one colour.
MOST_COLOURS = 8


@style()
def draw_convergence(runs: Sequence[LoggedRun], x_axis: str = "seconds", title: str | None = None) -> Figure:
    """Phi, accuracy, stability and leaves of the best tree so far, over time or over steps.

    The phases of a single run are bands; of several, each has a mark where it starts.
    """
    figure = new_figure(9, 6)
    axes = dict(zip(SHOWN, figure.subplots(2, 2, sharex=True).ravel(), strict=True))
    phases = list(dict.fromkeys(phase for run in runs for phase in run.phases))
    sources = list(dict.fromkeys(run.source for run in runs))
    for number, run in enumerate(runs):
        colour = colour_of(number if len(runs) <= MOST_COLOURS else sources.index(run.source))
        for name, each in axes.items():
            _draw_run(each, run, name, x_axis, colour, phases if len(runs) > 1 else [])
    for name, each in axes.items():
        each.set_ylabel(SHOWN[name])
        each.grid(alpha=0.3)
        each.set_xlim(left=0)
        if len(runs) == 1:
            _draw_bands(each, runs[0], x_axis)
        if name != "leaves":
            limit_shares(each)
    for name in ("stability", "leaves"):
        axes[name].set_xlabel("seconds" if x_axis == "seconds" else "step")
    axes["leaves"].set_ylim(bottom=0)
    axes["leaves"].yaxis.get_major_locator().set_params(integer=True)
    heading = f"{len(runs)} trainings"
    if len(runs) == 1:
        heading = f"{say(runs[0].source, 200)}, seed {runs[0].seed}: {', '.join(map(_name_phase, phases))}"
    put_heading(figure, heading if title is None else say(title, 200))
    _draw_legend(figure, runs, sources, phases)
    return figure


def _places(run: LoggedRun, x_axis: str) -> list[float]:
    return run.figures["seconds"] if x_axis == "seconds" else [float(step) for step in range(1, run.n_steps + 1)]


def _draw_run(axes: Axes, run: LoggedRun, name: str, x_axis: str, colour: str, phases: Sequence[str]) -> None:
    places, values = _places(run, x_axis), run.figures[name]
    mark = "." if run.n_steps == 1 else None
    axes.plot(places, values, color=colour, linewidth=1.5, drawstyle="steps-post", marker=mark)
    for phase, start, _ in _stretches(run):
        if phase in phases:
            axes.plot(
                places[start], values[start], marker=_mark(phases, phase), color=colour, markersize=5,
                markeredgecolor=INK, markeredgewidth=0.5, linestyle="none", label=f"start of {_name_phase(phase)}",
            )  # fmt: skip


def _name_phase(phase: str) -> str:
    return PHASE_NAMES.get(phase, say(phase))


def _mark(phases: Sequence[str], phase: str) -> str:
    return PHASE_MARKS[phases.index(phase) % len(PHASE_MARKS)]


def _stretches(run: LoggedRun) -> list[tuple[str, int, int]]:
    """Phases with their first and last steps, as they followed each other."""
    found = []
    for phase, steps in groupby(range(run.n_steps), key=lambda step: run.phases[step]):
        positions = list(steps)
        found.append((phase, positions[0], positions[-1]))
    return found


def _draw_bands(axes: Axes, run: LoggedRun, x_axis: str) -> None:
    """A grey band for every other phase; its name stands above it, if there is room."""
    places = _places(run, x_axis)
    start, whole = 0.0, places[-1]
    for number, (phase, _, last) in enumerate(_stretches(run)):
        end, name = places[last], _name_phase(phase)
        axes.axvspan(start, end, color="black", alpha=0.07 if number % 2 else 0.0, linewidth=0, label=f"phase {name}")
        if end - start > 0.02 * len(name) * whole:
            axes.annotate(
                name, ((start + end) / 2, 1.01), xycoords=axes.get_xaxis_transform(), ha="center", va="bottom",
                fontsize="small", color=FAINT,
            )  # fmt: skip
        start = end


def _name_runs(runs: Sequence[LoggedRun]) -> list[str]:
    return [
        f"{name}, seed {run.seed}" for name, run in zip(tell_apart([run.source for run in runs]), runs, strict=True)
    ]


def _draw_legend(figure: Figure, runs: Sequence[LoggedRun], sources: Sequence[str], phases: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    if len(runs) == 1:
        return
    if len(runs) <= MOST_COLOURS:
        names = _name_runs(runs)
    else:
        counts = [sum(run.source == source for run in runs) for source in sources[:MOST_COLOURS]]
        shown = tell_apart(sources)[:MOST_COLOURS]
        names = [f"{name}, {count} seed{'s'[: count > 1]}" for name, count in zip(shown, counts, strict=True)]
    handles = [Line2D([], [], color=colour_of(number), label=name) for number, name in enumerate(names)]
    handles += [
        Line2D(
            [], [], linestyle="none", marker=_mark(phases, phase), color=FAINT, label=f"start of {_name_phase(phase)}"
        )
        for phase in phases
    ]
    put_legend_below(figure, handles)
