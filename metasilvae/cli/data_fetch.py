"""``metasilvae data fetch``."""

from __future__ import annotations

import click

from metasilvae.remote_datasets import choose_datasets, fetch_dataset, list_remote_datasets
from metasilvae.report.tables import TABLE_FORMATS, Record
from metasilvae.report.terminal import tell
from metasilvae.report.transfers import TransferBar


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
