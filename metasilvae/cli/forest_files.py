"""``metasilvae assemble`` and ``metasilvae disassemble``."""

from __future__ import annotations

import contextlib
import os
import warnings
from pathlib import Path

import click

from metasilvae.cli.parameters import check_outputs, refuse_two_pipes
from metasilvae.errors import MetasilvaeWarning, OutputError
from metasilvae.formats.silva_models import read_model, write_model
from metasilvae.model import Model, join_trees
from metasilvae.staging import settle, staging
from metasilvae.storage import STANDARD_STREAM, TEMPORARY_PREFIX, prepare_folder

TREE_PATTERN = "tree-*.silva"


@click.command()
@click.argument("output")
@click.argument("trees", nargs=-1, required=True, metavar="TREE...")
@click.option("--force", is_flag=True, help="Overwrite OUTPUT if it exists.")
def assemble(output: str, trees: tuple[str, ...], force: bool) -> None:
    """Join each TREE, in the given order, into the forest OUTPUT.

    All trees must have the same features, the same labels and the same kind of leaves. A forest among them contributes
    all of its trees.

    \b
    Example:
      metasilvae assemble forest.silva tree-*.silva
    """
    refuse_two_pipes(*trees)
    if not force and output != STANDARD_STREAM and Path(output).is_file():
        raise OutputError(f"{output}: exists already; the forest comes first, then its trees; --force overwrites")
    check_outputs([output], trees)
    write_model(join_trees([read_model(tree) for tree in trees], output), output)


@click.command()
@click.argument("forest")
@click.argument("folder")
@click.option("--force", is_flag=True, help="Overwrite trees that are in FOLDER already.")
def disassemble(forest: str, folder: str, force: bool) -> None:
    """Write each tree of FOREST into FOLDER, as tree-000.silva, tree-001.silva and so on.

    FOLDER is made if it does not exist. `assemble` joins the trees again.

    \b
    Example:
      metasilvae disassemble forest.silva trees/
    """
    model = read_model(forest)
    is_new = not Path(folder).exists()
    target = prepare_folder(folder)
    width = max(3, len(str(model.n_trees - 1)))
    paths = [target / f"tree-{position:0{width}}.silva" for position in range(model.n_trees)]
    there = set(target.glob(TREE_PATTERN))
    if there and not force:
        raise OutputError(f"{folder}: holds {len(there)} trees already; choose another folder, or --force to overwrite")
    check_outputs([str(path) for path in paths], [forest])
    try:
        _write_trees(model, target, [path.name for path in paths])
    except BaseException:
        if is_new:
            with contextlib.suppress(OSError):
                target.rmdir()
        raise
    others = there.difference(paths)
    if others:
        warnings.warn(
            f"{folder}: {len(others)} older trees are there too ({min(others).name}); remove them before assembling",
            MetasilvaeWarning,
            stacklevel=2,
        )


def _write_trees(model: Model, target: Path, names: list[str]) -> None:
    """All trees of a forest, or none."""
    with staging(target, f"{TEMPORARY_PREFIX}{os.getpid()}") as place:
        for position, name in enumerate(names):
            write_model(model.tree(position), str(place / name))
    settle(place, names)
