"""``metasilvae data``: check, convert, split, list and fetch data sets.

``metasilvae data fetch``.
"""

from __future__ import annotations

from typing import Any

import click

from metasilvae.cli import CommandGroup
from metasilvae.cli.parameters import check_outputs, data_options, refuse_two_pipes
from metasilvae.dataset import Dataset
from metasilvae.datasets.builtin import list_builtin_datasets
from metasilvae.datasets.remote import choose_datasets, fetch_dataset, list_remote_datasets
from metasilvae.datasets.scaling import KIND, Scale
from metasilvae.datasets.splitting import split_dataset
from metasilvae.datasets.summary import summarize_dataset
from metasilvae.formats.datasets import (
    WRITERS,
    choose_format,
    find_problems,
    read_dataset,
    split_suffixes,
    write_dataset,
)
from metasilvae.io.storage import BUILTIN_PREFIX, CACHE_PREFIX, STANDARD_STREAM, all_or_none, display_name
from metasilvae.output.text.datasets import CHECK_FORMATS, DataCheck
from metasilvae.output.text.tables import TABLE_FORMATS, Record
from metasilvae.output.text.terminal import TransferBar, tell


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--list", "shows_list", is_flag=True, help="List what can be fetched, and what is here already.")
@click.option(
    "--format",
    "table_format",
    type=click.Choice(list(TABLE_FORMATS)),
    default="text",
    help="Format of the list.",
)
@click.option("--mirror", metavar="URL", help="Fetch from here; paths and checksums are those of the usual homes.")
@click.option("--offline", is_flag=True, help="Do not use the network; fail for what is not here.")
@click.option("--again", is_flag=True, help="Fetch even what is here already.")
def fetch(
    names: tuple[str, ...], shows_list: bool, table_format: str, mirror: str | None, offline: bool, again: bool
) -> None:
    """Fetch the data sets NAME, check them and keep them.

    The data sets of the paper come from its authors' public collection, MNIST and Fashion-MNIST from their usual homes.
    Any command takes them by the names that are printed, for instance cache:wine/train. A transfer that broke off goes
    on where it ended; what has the wrong checksum is thrown away.

    They are kept in the folder for caches of the platform, or in the one that the environment variable METASILVAE_CACHE
    names.

    \b
    Examples:
      metasilvae data fetch --list
      metasilvae data fetch wine mnist-1-5
      metasilvae data fetch mnist --mirror https://example.org/data
    """
    if offline and (again or mirror):
        raise click.UsageError("--offline uses no network, so it excludes --again and --mirror")
    if shows_list:
        if names or offline or again or mirror:
            raise click.UsageError("--list fetches nothing; give no names and no other options but --format")
        _show_list(table_format)
        return
    if not names:
        raise click.UsageError("name a data set; `metasilvae data fetch --list` shows them")
    for dataset in choose_datasets(names, mirror):
        n_received = None
        bar = TransferBar(dataset.source)
        try:
            for received in fetch_dataset(dataset, offline=offline, again=again):
                n_received = received.n_bytes
                bar.show(received)
        finally:
            bar.close()
        how = "here already" if n_received is None else "fetched and checked"
        tell(f"{dataset.path}: {how}")
        click.echo(dataset.source)


def _show_list(table_format: str) -> None:
    records: list[Record] = [
        {
            "data set": dataset.source,
            "rows": dataset.rows,
            "features": dataset.features,
            "classes": dataset.classes,
            "epsilon": dataset.epsilon,
            "bytes": dataset.size,
            "here": "yes" if dataset.is_cached else "no",
        }
        for dataset in list_remote_datasets()
    ]
    click.echo(TABLE_FORMATS[table_format](records), nl=False)


to_option = click.option(
    "--to", "output_format", type=click.Choice(list(WRITERS)), help="Format of the output.  [default: by its suffix]"
)


@click.group(cls=CommandGroup)
def data() -> None:
    """Check, convert, split, list and fetch data sets.

    \b
    Example:
      metasilvae data check train.csv
    """


@data.command()
@click.argument("file")
@click.option("--format", "check_format", type=click.Choice(list(CHECK_FORMATS)), default="text")
@data_options
@click.pass_context
def check(ctx: click.Context, file: str, check_format: str, **data_options: Any) -> None:
    """Show what is in FILE and what is wrong with it.

    Rows, features, classes with their counts, ranges, constant columns, equal rows with different labels; of a broken
    file the first ten problems with line and column. The exit code is 1 if the file cannot be used.

    \b
    Examples:
      metasilvae data check train.csv
      metasilvae data check builtin:wine/train --format json
    """
    dataset, problems, oddities = find_problems(file, **data_options)
    summary = summarize_dataset(dataset) if dataset else None
    oddities += summary.oddities if summary else []
    result = DataCheck(display_name(file), dataset, summary, problems, oddities)
    click.echo(CHECK_FORMATS[check_format](result), nl=False)
    if problems:
        ctx.exit(1)


@data.command()
@click.argument("input", metavar="IN")
@click.argument("output", metavar="OUT")
@to_option
@click.option("--scale", type=click.Choice([KIND]), help="Scale each feature of IN to the range from 0 to 1.")
@click.option("--save-scale", metavar="FILE", help="Keep the scale, for other data of the same kind.")
@click.option("--apply-scale", metavar="FILE", help="Use a scale that was kept.")
@data_options
def convert(
    input: str,
    output: str,
    output_format: str | None,
    scale: str | None,
    save_scale: str | None,
    apply_scale: str | None,
    **data_options: Any,
) -> None:
    """Read IN, scale it if asked to, and write it to OUT.

    CSV (.csv, .txt, .data), LIBSVM (.libsvm, .svm, .svmlight) or silva's binary data (.bin, .binary); .gz, .bz2 or .xz
    behind it compresses. Values are written so that they read back exactly.

    \b
    Examples:
      metasilvae data convert train.csv train.libsvm.gz
      metasilvae data convert train.csv scaled-train.csv --scale minmax --save-scale scale.json
      metasilvae data convert test.csv scaled-test.csv --apply-scale scale.json
    """
    if apply_scale and (scale or save_scale):
        raise click.UsageError("--apply-scale uses a kept scale, so it excludes --scale and --save-scale")
    if save_scale and not scale:
        raise click.UsageError(f"--save-scale needs --scale {KIND}")
    inputs = [input, *([apply_scale] if apply_scale else [])]
    refuse_two_pipes(*inputs)
    check_outputs([output, *([save_scale] if save_scale else [])], inputs)
    chosen_format = choose_format(output, output_format)
    kept_scale = Scale.load(apply_scale) if apply_scale else None
    dataset = read_dataset(input, **data_options)
    if scale:
        kept_scale = Scale.fit(dataset)
    if kept_scale:
        dataset = kept_scale.apply(dataset)
    with all_or_none():
        if kept_scale and save_scale:
            kept_scale.save(save_scale)
        write_dataset(dataset, output, chosen_format)
    _report_written(dataset, output)


@data.command()
@click.argument("input", metavar="IN")
@click.option("--test", "test_share", type=float, default=0.2, help="Share of the rows that go to the test part.")
@click.option("--seed", type=click.IntRange(min=0), default=1, help="The same seed gives the same split.")
@click.option("--train-output", metavar="FILE", help="Training part.  [default: IN's name with -train]")
@click.option("--test-output", metavar="FILE", help="Test part.  [default: IN's name with -test]")
@to_option
@data_options
def split(
    input: str,
    test_share: float,
    seed: int,
    train_output: str | None,
    test_output: str | None,
    output_format: str | None,
    **data_options: Any,
) -> None:
    """Split IN into a training and a test part that hold each class in the same share.

    Rows keep their order. Without names for the parts, data.csv gives data-train.csv and data-test.csv beside it.

    \b
    Example:
      metasilvae data split data.csv --test 0.2 --seed 1
    """
    train_output = train_output or _part_name(input, "train", output_format)
    test_output = test_output or _part_name(input, "test", output_format)
    if not 0 < test_share < 1:
        raise click.BadParameter(f"{test_share:g} is not between 0 and 1.", param_hint="'--test'")
    check_outputs([train_output, test_output], [input])
    formats = [choose_format(output, output_format) for output in (train_output, test_output)]
    parts = split_dataset(read_dataset(input, **data_options), test_share, seed)
    with all_or_none():
        for part, output, chosen_format in zip(parts, (train_output, test_output), formats, strict=True):
            write_dataset(part, output, chosen_format)
    for part, output in zip(parts, (train_output, test_output), strict=True):
        _report_written(part, output)


@data.command(name="list")
@click.option("--format", "table_format", type=click.Choice(list(TABLE_FORMATS)), default="text")
def list_datasets(table_format: str) -> None:
    """List the data sets that ship with metasilvae.

    Any command takes them in place of a path.

    \b
    Example:
      metasilvae data list
    """
    records: list[Record] = [
        {
            "data set": shipped.source,
            "rows": shipped.rows,
            "features": shipped.features,
            "classes": shipped.classes,
            "epsilon": shipped.epsilon,
        }
        for shipped in list_builtin_datasets()
    ]
    click.echo(TABLE_FORMATS[table_format](records), nl=False)


data.add_command(fetch)


def _part_name(source: str, part: str, output_format: str | None) -> str:
    """``folder/data.csv.gz`` gives ``folder/data-train.csv.gz``; what is no file gets a name in the current folder."""
    if source == STANDARD_STREAM:
        source = "data.csv"
    elif source.startswith((BUILTIN_PREFIX, CACHE_PREFIX)):
        source = source.partition(":")[2].replace("/", "-") + ".csv"
    stem, suffix, compression = split_suffixes(source)
    if output_format and (not suffix or choose_format(f"x{suffix}") != output_format):
        suffix = f".{'bin' if output_format == 'binary' else output_format}"
    return f"{stem}-{part}{suffix or '.csv'}{compression}"


def _report_written(dataset: Dataset, output: str) -> None:
    name = "<stdout>" if output == STANDARD_STREAM else output
    shape = f"{dataset.n_samples} rows x {dataset.n_features} features"
    tell(f"{name}: {shape}, {dataset.n_labels} classes")
