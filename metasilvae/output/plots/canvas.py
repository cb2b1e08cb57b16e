"""What all pictures have in common: formats, style, names and colours, and reproducible bytes.

Colours can be distinguished with any kind of colour vision, as far as there are enough: most of the first ten are those
of Okabe and Ito, *Color Universal Design* (https://jfly.uni-koeln.de/color/). For more classes, leaves show their
labels, and marks and lines differ in shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metasilvae.errors import MetasilvaeWarning, RequestError
from metasilvae.extras import load_library
from metasilvae.io.storage import strip_compression

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
import colorsys
import io
import re
import warnings

# Formats, and what must be left out of them so that the same picture is the same file.
PLOT_FORMATS: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
ENDINGS = ", ".join(f".{each}" for each in PLOT_FORMATS)
LEGEND_SIZE = 9.0
HEADING_SIZE = 10.0
POINTS_PER_INCH = 72
DOTS_PER_INCH = 150
# Pixels that a side and the whole of a PNG may have; larger pictures get fewer dots per inch.
MOST_PIXELS_A_SIDE = 20_000
MOST_PIXELS = 60_000_000
_COORDINATES = re.compile(rb' (?:d|x|y|transform)="[^"]*"')
_DIGITS = re.compile(rb"(\.\d\d)\d+")
_INDENTATION = re.compile(rb" *\n *")
# Names of groups that nothing refers to.
_NUMBERED = re.compile(rb'<g id="[A-Za-z0-9.]+_\d+">')
# Marks of one style, which is said once for all of them.
_MARKS = re.compile(rb'(<g clip-path="[^"]*")>\n((?:<use [^>]*( style="[^"]*")/>\n)(?:<use [^>]*\3/>\n)+)')
_SETTINGS: dict[str, Any] = {
    # Without a salt, names inside an SVG would differ from run to run.
    "svg.hashsalt": "metasilvae",
    "svg.fonttype": "none",
    # The first one comes with matplotlib; programs that show an SVG without it take one that is narrower.
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "pdf.fonttype": 42,
    # Labels and column names are shown as they are, also with dollar signs.
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": "medium",
    "legend.fontsize": LEGEND_SIZE,
    "legend.frameon": False,
}


def choose_plot_format(path: str, wanted: str | None = None) -> str:
    """The format that was asked for, or that of a file by its ending; refuses what could not be drawn."""
    suffix = Path(strip_compression(path)).suffix.lstrip(".").lower()
    if wanted is None and suffix not in PLOT_FORMATS:
        raise RequestError(f"{path}: a plot is a file that ends in {ENDINGS}")
    if wanted is not None and suffix in PLOT_FORMATS and suffix != wanted:
        raise RequestError(f"{path} is to be a plot in the format {wanted}; let it end in .{wanted}")
    _load_matplotlib()
    return wanted or suffix


def _load_matplotlib() -> Any:
    return load_library("matplotlib", "plot", "a plot")


@contextmanager
def style() -> Iterator[None]:
    """Our settings for the time being, whatever those of the user are."""
    matplotlib = _load_matplotlib()
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


def new_figure(width: float, height: float, is_packed: bool = True) -> Figure:
    """An empty figure, in inches, that makes room for all its labels if it is packed; call it within `style`."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained" if is_packed else None)


def measure_text(text: str, size: float, is_bold: bool = False) -> float:
    """The width of a line in inches; call it within `style`."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=size, weight="bold" if is_bold else "normal")
    width: float = text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]
    return width / POINTS_PER_INCH


def wrap(text: str, width: float, size: float, is_bold: bool = False) -> list[str]:
    """Lines of at most this width, in inches; call it within `style`. A word is broken only if it needs more."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split(" "):
            longer = f"{line} {word}" if line else word
            if not line or measure_text(longer, size, is_bold) <= width:
                line = longer
            else:
                lines.append(line)
                line = word
            while measure_text(line, size, is_bold) > width and len(line) > 1:
                place = _find_break(line, width, size, is_bold)
                lines.append(line[:place])
                line = line[place:]
        lines.append(line)
    return lines


def _find_break(word: str, width: float, size: float, is_bold: bool) -> int:
    """How much of a word fits into a line: up to a sign that parts it, if there is one not far from its end."""
    most = max((end for end in range(1, len(word)) if measure_text(word[:end], size, is_bold) <= width), default=1)
    signs = [place + 1 for place in range(most // 3, most) if not word[place].isalnum()]
    return signs[-1] if signs else most


def put_heading(figure: Figure, text: str) -> None:
    """A line above the picture, or as many as its width asks for; call it within `style`."""
    if not text:
        return
    lines = wrap(text, figure.get_size_inches()[0] - 0.3, HEADING_SIZE)
    _make_room(figure, len(lines) - 1, HEADING_SIZE * 1.2)
    figure.suptitle("\n".join(lines), fontsize=HEADING_SIZE)


def put_legend_below(figure: Figure, handles: Sequence[Any], **settings: Any) -> None:
    """A legend in as many columns as there is room for; call it within `style`."""
    for handle in handles:
        handle.set_label(_as_entry(handle.get_label()))
    # Besides its name, an entry has a mark, and a gap to the next one.
    widths = [measure_text(handle.get_label(), LEGEND_SIZE) + 0.7 for handle in handles]
    columns = _count_columns(widths, figure.get_size_inches()[0])
    _make_room(figure, -(-len(handles) // columns) - 1, LEGEND_SIZE * 1.6)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, **settings)


def _count_columns(widths: Sequence[float], room: float) -> int:
    """The most columns that fit beside each other, if they are filled one after the other."""
    for columns in range(len(widths), 1, -1):
        n_more, n_least = len(widths) % columns, len(widths) // columns
        ends = [min(place, n_more) + place * n_least for place in range(columns + 1)]
        if sum(max(widths[start:end]) for start, end in pairwise(ends)) <= room:
            return columns
    return 1


def _make_room(figure: Figure, n_lines: int, points: float) -> None:
    """Make the figure higher, so that texts outside of the axes do not make the axes smaller."""
    figure.set_figheight(figure.get_size_inches()[1] + n_lines * points / POINTS_PER_INCH)


def limit_to_one(axes: Axes) -> None:
    """End the axis of a fraction at 1; phi with weights of the user may be larger."""
    low, high = axes.get_ylim()
    if axes.dataLim.y1 <= 1:
        axes.set_ylim(low, min(high, 1 + 0.02 * (1 - low)))


@style()
def render(figure: Figure, plot_format: str) -> bytes:
    """A picture as a file."""
    width, height = figure.get_size_inches()
    dots = min(DOTS_PER_INCH, MOST_PIXELS_A_SIDE / max(width, height), (MOST_PIXELS / (width * height)) ** 0.5)
    stream = io.BytesIO()
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        figure.savefig(stream, format=plot_format, dpi=dots, metadata=PLOT_FORMATS[plot_format])
    # The program that shows an SVG brings its own fonts.
    if plot_format != "svg" and any("missing from" in str(each.message) for each in raised):
        warnings.warn(
            f"a name has characters that the font of a {plot_format} plot lacks; an svg plot shows them",
            MetasilvaeWarning,
            stacklevel=2,
        )
    return _compact_svg(stream.getvalue()) if plot_format == "svg" else stream.getvalue()


def _compact_svg(content: bytes) -> bytes:
    """Round coordinates to a hundredth of a point and remove what has no effect; texts are unchanged."""
    compact = _INDENTATION.sub(b"\n", _COORDINATES.sub(lambda found: _DIGITS.sub(rb"\1", found[0]), content))
    compact = _NUMBERED.sub(b"<g>", compact)
    return _MARKS.sub(lambda found: found[1] + found[3] + b">\n" + found[2].replace(found[3], b""), compact)


def say(text: str, most: int = 40) -> str:
    """A name for a picture, cut to a readable length, without characters that cannot be shown."""
    shown = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    return shown if len(shown) <= most else f"{shown[: most // 2 - 1]}...{shown[-(most - most // 2 - 2) :]}"


def say_entry(text: str, most: int = 40) -> str:
    """The same for a legend, which would ignore a name that starts with an underscore."""
    return _as_entry(say(text, most))


def _as_entry(name: str) -> str:
    return f" {name}" if name.startswith("_") else name


def tell_apart(names: Sequence[str], most: int = 40) -> list[str]:
    """Names for a picture; of long ones that look alike, the parts are kept in which they differ."""
    distinct = list(dict.fromkeys(names))
    shown = {name: _shorten(name, [other for other in distinct if other != name], most) for name in distinct}
    if len({*shown.values()}) < len(distinct):
        shown = {name: f"{number}: {shown[name]}" for number, name in enumerate(distinct, 1)}
    return [shown[name] for name in names]


def _shorten(name: str, others: Sequence[str], most: int) -> str:
    """Cut a long name where it begins and ends as those others do that resemble it most."""
    if len(name) <= most or not others:
        return say(name, most)
    starts = [_count_common(name, other) for other in others]
    n_start = max(starts)
    nearest = [other[n_start:][::-1] for other, start in zip(others, starts, strict=True) if start == n_start]
    n_end = min(_count_common(name[n_start:][::-1], other) for other in nearest)
    start, middle, end = name[:n_start], name[n_start : len(name) - n_end], name[len(name) - n_end :]
    room = max(most - len(middle), 0)
    # Room that one end does not need goes to the other.
    for_start = min(n_start, max(room // 2, room - n_end))
    for_end = min(n_end, room - for_start)
    if n_start > for_start:
        start = "..." + start[n_start - max(for_start - 3, 0) :]
    if n_end > for_end:
        end = end[: max(for_end - 3, 0)] + "..."
    return say(start + middle + end, most)


def _count_common(one: str, other: str) -> int:
    """Length of the common prefix."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999", "#333333", "#882255",
)  # fmt: skip
_GOLDEN = 0.6180339887498949
_LIGHTNESSES = (0.3, 0.62, 0.45, 0.78)
INK = "#222222"
FAINT = "#8A8A8A"


def colour_of(position: int) -> str:
    """The colour of the first, second, ... class or line."""
    if position < len(COLOURS):
        return COLOURS[position]
    rgb = colorsys.hls_to_rgb(position * _GOLDEN % 1, _LIGHTNESSES[position % len(_LIGHTNESSES)], 0.55)
    return "#" + "".join(f"{round(255 * part):02X}" for part in rgb)


def colour_names(names: Iterable[str]) -> dict[str, str]:
    """A colour for each distinct name, in order of appearance."""
    return {name: colour_of(position) for position, name in enumerate(dict.fromkeys(names))}


def blend(colours: Iterable[str], white: float = 0.0) -> str:
    """The mean of some colours, mixed with white."""
    parts = [[int(colour[place : place + 2], 16) for place in (1, 3, 5)] for colour in colours]
    means = (sum(channel) / len(parts) for channel in zip(*parts, strict=True))
    return "#" + "".join(f"{round(255 * white + mean * (1 - white)):02X}" for mean in means)
