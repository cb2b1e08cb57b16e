"""The command line: commands parse, call the library and print."""

from __future__ import annotations

import sys

import click

from metasilvae._version import VERSION
from metasilvae.cli.commands import CommandGroup

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 100}
# For each section of the help, its commands by name: module of this package, function in it, summary.
COMMANDS: dict[str, dict[str, tuple[str, str, str]]] = {
    "Train": {
        "train": ("train", "train", "Train a robust tree, forest or boosted model."),
        "pareto": ("pareto", "pareto", "List, plot and pick the Pareto-optimal trees of a training run."),
    },
    "Verify and analyse": {
        "verify": ("verify", "verify", "Prove for each row whether a perturbation can change the prediction."),
        "merge": ("verify", "merge", "Merge the results of `verify --shard` into one report."),
        "evaluate": ("evaluate", "evaluate", "Compare accuracy, stability, robust accuracy and size of models."),
        "explain": ("explain", "explain", "Find the features and thresholds that make rows unstable."),
        "prove": ("prove", "prove", "Prove a property for all inputs, or find two inputs that refute it."),
        "report": ("report", "report", "Write an HTML report about a model."),
        "plot": ("plot", "plot", "Plot models, training runs and studies."),
    },
    "Models": {
        "predict": ("evaluate", "predict", "Predict the labels of rows."),
        "info": ("models", "info", "Show size and shape of a model."),
        "similarity": ("models", "similarity", "Fraction of rows with equal predictions of two models."),
        "diff": ("models", "diff", "Find the exact regions in which two models predict differently."),
        "simplify": ("models", "simplify", "Remove branches without changing a prediction."),
        "assemble": ("models", "assemble", "Join trees into a forest."),
        "disassemble": ("models", "disassemble", "Write each tree of a forest to its own file."),
        "import": ("interop", "import_", "Convert a model of another library to silva's format."),
        "export": ("interop", "export", "Convert a model to code, ONNX, scikit-learn and other formats."),
    },
    "Data": {
        "data": ("data", "data", "Check, convert, split, list and fetch data sets."),
        "attack": ("attack", "attack", "Write and check attack files: the allowed changes per column."),
    },
}


@click.group(cls=CommandGroup, sections=COMMANDS, context_settings=CONTEXT_SETTINGS)
@click.version_option(VERSION, "-V", "--version", prog_name="metasilvae", message="%(prog)s %(version)s")
def main() -> None:
    """Train and verify decision trees that are accurate and provably robust.

    Models are files in silva's text format, data are CSV or LIBSVM files, compressed or not. A path may also be "-"
    for standard input or output, a data set that ships with metasilvae (builtin:wine/test), or one that was fetched
    (cache:mnist/test).
    """
    # Labels and column names may hold characters that the terminal cannot show.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
