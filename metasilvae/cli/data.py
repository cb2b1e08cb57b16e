"""``metasilvae data``: check, convert, split, list and fetch data sets."""

from __future__ import annotations

from typing import Any

import click

from metasilvae.cli.commands import OUTPUT, CommandGroup, option
from metasilvae.cli.inputs import fit_perturbation
from metasilvae.cli.parameters import (
    ThreatModel,
    check_files,
    data_options,
    format_option,
    output_option,
    perturbation_options,
)
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
    read_raw_table,
    split_suffixes,
    write_dataset,
)
from metasilvae.formats.schema_files import write_schema
from metasilvae.formats.tables import type_columns
from metasilvae.formats.text import Problems
from metasilvae.io.storage import BUILTIN_PREFIX, CACHE_PREFIX, STANDARD_STREAM, all_or_none, display_name, write_output
from metasilvae.output.text.datasets import CHECK_FORMATS, DataCheck
from metasilvae.output.text.tables import TABLE_FORMATS, Record
from metasilvae.output.text.terminal import TransferBar, tell
from metasilvae.verification.ceiling import find_ceiling

to_option = option(
    "--to",
    "output_format",
    type=click.Choice(list(WRITERS)),
    group=OUTPUT,
    help="Format of the output. csv has a line of column names if there are names, which silva takes for a row; "
    "silva is CSV as silva reads it, without them.  [default: by its suffix]",
)


@click.group(cls=CommandGroup)
def data() -> None:
    """Check, convert, split, list and fetch data sets.

    \b
    Example:
      metasilvae data check train.csv
    """


@data.command(short_help="Summarize a data file and list its problems.")
@click.argument("file")
@perturbation_options(has_norm=False)
@format_option(CHECK_FORMATS, "Format of the report.")
@data_options
@click.pass_context
def check(ctx: click.Context, file: str, threat: ThreatModel, output_format: str, **data_options: Any) -> None:
    """Summarize FILE and list its problems.

    Rows, features, classes with their counts, ranges, constant columns, equal rows with different labels; for an
    invalid file, the first ten problems with line and column. With --epsilon, --perturbation or --attack also the
    ceiling: the robust accuracy that no model can exceed on these rows, because rows with different labels have common
    perturbations. The exit code is 1 if the file cannot be used.

    \b
    Examples:
      metasilvae data check train.csv
      metasilvae data check builtin:wine/train --format json
      metasilvae data check builtin:iris/test --epsilon 0.2
    """
    chosen = threat.choose(file)
    check_files([file, threat.attack], [], chosen)
    dataset, problems, found = find_problems(file, **data_options)
    summary = summarize_dataset(dataset) if dataset else None
    found += summary.oddities if summary else []
    bound = None
    if dataset is not None and chosen is not None:
        perturbation = fit_perturbation(chosen, dataset)
        bound = (perturbation, find_ceiling(dataset, perturbation))
    result = DataCheck(display_name(file), dataset, summary, problems, found, bound)
    click.echo(CHECK_FORMATS[output_format](result), nl=False)
    if problems:
        ctx.exit(1)


@data.command(short_help="Write the types of the columns of a table, to edit.")
@click.argument("file", metavar="DATA")
@output_option
@data_options
def schema(file: str, output: str, **data_options: Any) -> None:
    """Write the types of the columns of DATA as a schema, to be edited and given to other commands by --schema.

    A column is a number, a category, a boolean or ignored; docs/formats.md has the rules by which types are detected.

    \b
    Example:
      metasilvae data schema train.csv -o schema.toml
    """
    check_files([file], [output])
    problems = Problems(display_name(file))
    columns = data_options["columns"]
    table = read_raw_table(file, problems, **data_options)
    typed = type_columns(table, columns, problems)
    text = "".join(write_schema(typed, table.label_name, columns.missing, table.source))
    write_output(output, [text])


@data.command(short_help="Convert and scale data.")
@click.argument("input", metavar="IN")
@click.argument("output", metavar="OUT")
@to_option
@option("--scale", type=click.Choice([KIND]), help="Scale each feature of IN to [0, 1].")
@option("--save-scale", metavar="FILE", help="Save the scale for other data.")
@option("--apply-scale", metavar="FILE", help="Use a saved scale.")
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
    """Convert IN to the format of OUT, and scale it if --scale or --apply-scale is given.

    Formats are CSV (.csv, .txt, .data), LIBSVM (.libsvm, .svm, .svmlight) and silva's binary data (.bin, .binary),
    compressed with a further suffix .gz, .bz2 or .xz. Values are written so that they read back exactly. For silva
    itself, write CSV with --to silva: the label first and no column names.

    \b
    Examples:
      metasilvae data convert train.csv train.libsvm.gz
      metasilvae data convert train.csv silva-train.csv --to silva
      metasilvae data convert train.csv scaled-train.csv --scale minmax --save-scale scale.json
      metasilvae data convert test.csv scaled-test.csv --apply-scale scale.json
    """
    if apply_scale and (scale or save_scale):
        raise click.UsageError("--apply-scale uses a saved scale, so it excludes --scale and --save-scale")
    if save_scale and not scale:
        raise click.UsageError(f"--save-scale needs --scale {KIND}")
    check_files([input, apply_scale], [output, save_scale])
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


@data.command(short_help="Split data into a training and a test part.")
@click.argument("input", metavar="IN")
@option(
    "--test", "test_fraction", type=float, default=0.2, metavar="FRACTION", help="Fraction of rows of the test part."
)
@option("--seed", type=click.IntRange(min=0), default=1, help="Random seed; the same seed gives the same split.")
@option("--train-output", metavar="FILE", group=OUTPUT, help="Training part.  [default: IN's name with -train]")
@option("--test-output", metavar="FILE", group=OUTPUT, help="Test part.  [default: IN's name with -test]")
@to_option
@data_options
def split(
    input: str,
    test_fraction: float,
    seed: int,
    train_output: str | None,
    test_output: str | None,
    output_format: str | None,
    **data_options: Any,
) -> None:
    """Split IN into a training and a test part, stratified by class.

    Rows keep their order. By default, data.csv is split into data-train.csv and data-test.csv in the same folder.

    \b
    Example:
      metasilvae data split data.csv --test 0.2 --seed 1
    """
    train_output = train_output or _part_name(input, "train", output_format)
    test_output = test_output or _part_name(input, "test", output_format)
    if not 0 < test_fraction < 1:
        raise click.BadParameter(f"{test_fraction:g} is not between 0 and 1.", param_hint="'--test'")
    check_files([input], [train_output, test_output])
    formats = [choose_format(output, output_format) for output in (train_output, test_output)]
    parts = split_dataset(read_dataset(input, **data_options), test_fraction, seed)
    with all_or_none():
        for part, output, chosen_format in zip(parts, (train_output, test_output), formats, strict=True):
            write_dataset(part, output, chosen_format)
    for part, output in zip(parts, (train_output, test_output), strict=True):
        _report_written(part, output)


@data.command(name="list", short_help="List the data sets that ship with metasilvae.")
@format_option(TABLE_FORMATS, "Format of the list.")
def list_datasets(output_format: str) -> None:
    """List the data sets that ship with metasilvae; all commands accept their names as paths.

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
    click.echo(TABLE_FORMATS[output_format](records), nl=False)


@data.command(short_help="Download data sets.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@option("--list", "shows_list", is_flag=True, help="List the data sets and whether they are cached.")
@format_option(TABLE_FORMATS, "Format of the list.")
@option("--mirror", metavar="URL", help="Fetch from this mirror; paths and checksums must be the same.")
@option("--offline", is_flag=True, help="Do not use the network; fail for what is not cached.")
@option("--again", is_flag=True, help="Fetch data sets again that are cached already.")
def fetch(
    names: tuple[str, ...], shows_list: bool, output_format: str, mirror: str | None, offline: bool, again: bool
) -> None:
    """Download the data sets NAME, check them and cache them.

    The data sets of the paper come from its authors' public collection, MNIST and Fashion-MNIST from their official
    sites. All commands accept them by the printed names, such as cache:wine/train. An interrupted download is
    continued; files with a wrong checksum are deleted. The cache is the platform's cache folder, or the folder that
    the environment variable METASILVAE_CACHE names.

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
        _show_list(output_format)
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
        how = "cached already" if n_received is None else "fetched and checked"
        tell(f"{dataset.path}: {how}")
        click.echo(dataset.source)


def _show_list(output_format: str) -> None:
    records: list[Record] = [
        {
            "data set": dataset.source,
            "rows": dataset.rows,
            "features": dataset.features,
            "classes": dataset.classes,
            "epsilon": dataset.epsilon,
            "bytes": dataset.size,
            "cached": "yes" if dataset.is_cached else "no",
        }
        for dataset in list_remote_datasets()
    ]
    click.echo(TABLE_FORMATS[output_format](records), nl=False)


def _part_name(source: str, part: str, output_format: str | None) -> str:
    """``folder/data.csv.gz`` gives ``folder/data-train.csv.gz``; other sources get a name in the current folder."""
    if source == STANDARD_STREAM:
        source = "data.csv"
    elif source.startswith((BUILTIN_PREFIX, CACHE_PREFIX)):
        source = source.partition(":")[2].replace("/", "-") + ".csv"
    stem, suffix, compression = split_suffixes(source)
    wanted = "csv" if output_format == "silva" else output_format
    if wanted and (not suffix or choose_format(f"x{suffix}") != wanted):
        suffix = f".{'bin' if wanted == 'binary' else wanted}"
    return f"{stem}-{part}{suffix or '.csv'}{compression}"


def _report_written(dataset: Dataset, output: str) -> None:
    name = "<stdout>" if output == STANDARD_STREAM else output
    shape = f"{dataset.n_samples} rows x {dataset.n_features} features"
    tell(f"{name}: {shape}, {dataset.n_labels} classes")
