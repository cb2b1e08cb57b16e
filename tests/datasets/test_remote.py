"""Data sets that can be fetched: the shipped list, the conversion, and the command against a server of this machine."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.archives import COLUMNS, as_idx, as_zip
from support.command import run
from support.web_server import Site, serving

from metasilvae.datasets import remote
from metasilvae.datasets.remote import (
    HOMES,
    Received,
    check_mirror,
    choose_datasets,
    fetch_dataset,
    list_remote_datasets,
)
from metasilvae.errors import DataError, RequestError
from metasilvae.formats.binary_files import read_idx, read_images
from metasilvae.formats.datasets import read_dataset
from metasilvae.output.text.terminal import TransferBar

PIXELS = np.random.default_rng(1).integers(0, 256, (6, 2, 3)).astype(np.uint8)
NUMBERS = np.array([7, 2, 7, 0, 2, 9], dtype=np.uint8)


FILES = {
    "/domains/toy/train.csv.zip": as_zip("# 3 2\na,1,2\nb,3,4\na,5,6\n"),
    "/domains/toy/test.csv.zip": as_zip("# 2 2\nb,1,2\na,3,4\n"),
    "/pictures/train-images.gz": gzip.compress(as_idx(PIXELS), mtime=0),
    "/pictures/train-labels.gz": gzip.compress(as_idx(NUMBERS), mtime=0),
}


def registry() -> str:
    def line(*cells: object) -> str:
        path = f"/{cells[-1]}"
        checksum = f"sha256:{hashlib.sha256(FILES[path]).hexdigest()}"
        return "\t".join(map(str, (*cells, len(FILES[path]), checksum)))

    return "\n".join(
        [
            COLUMNS.replace(" ", "\t"),
            line("toy", "train", "rows", 3, 2, 2, 0.5, "collection", "domains/toy/train.csv.zip"),
            line("toy", "test", "rows", 2, 2, 2, 0.5, "collection", "domains/toy/test.csv.zip"),
            line("pictures", "train", "images", 6, 6, 4, "", "mnist", "pictures/train-images.gz"),
            line("pictures", "train", "labels", 6, 6, 4, "", "mnist", "pictures/train-labels.gz"),
            "",
        ]
    )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server that is the home of everything, and a registry that lists what it has."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    (folder / "downloads.tsv").write_text(registry())
    monkeypatch.setattr(remote, "builtin_folder", lambda: folder)
    monkeypatch.setenv("METASILVAE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving(Site(dict(FILES))) as site:
        monkeypatch.setattr(remote, "HOMES", dict.fromkeys(HOMES, (site.address,)))
        yield site


class TestRegistry:
    def test_what_can_be_fetched(self) -> None:
        listed = list_remote_datasets()
        splits: dict[str, list[str]] = {}
        for dataset in listed:
            splits.setdefault(dataset.name, []).append(dataset.split)
        assert all(each == ["train", "test"] for each in splits.values())
        assert {"wine", "diabetes", "cod-rna", "mnist-1-5", "sensorless", "mnist", "fashion-mnist"} <= set(splits)

    @pytest.mark.parametrize("dataset", list_remote_datasets(), ids=lambda dataset: dataset.source)
    def test_entries(self, dataset: remote.RemoteDataset) -> None:
        assert set(dataset.files) in ({"rows"}, {"images", "labels"})
        assert min(dataset.rows - 1, dataset.features - 1, dataset.classes) > 0
        for file in dataset.files.values():
            assert re.fullmatch(r"sha256:[0-9a-f]{64}|git-blob:[0-9a-f]{40}", file.checksum)
            assert file.size is None or file.size > 100
            for url in file.urls:
                assert re.fullmatch(r"https://[\w./-]+\.(csv\.zip|gz)", url)

    def test_checksums_differ(self) -> None:
        checksums = [file.checksum for dataset in list_remote_datasets() for file in dataset.files.values()]
        assert len(set(checksums)) == len(checksums)

    def test_a_mirror_replaces_every_home(self) -> None:
        for dataset in list_remote_datasets("https://example.org/copy"):
            for file in dataset.files.values():
                assert len(file.urls) == 1
                assert re.match(r"https://example\.org/copy/(domains|mnist|fashion)/", file.urls[0])

    @pytest.mark.parametrize("mirror", ["example.org", "ftp://example.org/", "http://a b/", "", "http://[x/"])
    def test_what_is_no_mirror(self, mirror: str) -> None:
        with pytest.raises(RequestError, match="not an address"):
            check_mirror(mirror)

    def test_a_broken_registry(self, site: Site, tmp_path: Path) -> None:
        (tmp_path / "shipped" / "downloads.tsv").write_text("name\tsplit\nx\ttrain\n")
        with pytest.raises(DataError, match="install again"):
            list_remote_datasets()

    def test_choosing(self, site: Site) -> None:
        assert [part.source for part in choose_datasets(("toy",))] == ["cache:toy/train", "cache:toy/test"]
        chosen = choose_datasets(("cache:toy/test", "pictures", "toy/test"))
        assert [part.source for part in chosen] == ["cache:toy/test", "cache:pictures/train"]


class TestIdx:
    def test_images(self, tmp_path: Path) -> None:
        (tmp_path / "x.gz").write_bytes(gzip.compress(as_idx(PIXELS)))
        (tmp_path / "y").write_bytes(as_idx(NUMBERS))
        dataset = read_images(str(tmp_path / "x.gz"), str(tmp_path / "y"), "pictures")
        assert np.array_equal(dataset.X, PIXELS.reshape(6, 6))
        assert dataset.labels == ("7", "2", "0", "9")
        assert [dataset.labels[code] for code in dataset.y] == [str(number) for number in NUMBERS]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "not an IDX file of bytes in 3 dimensions"),
            (as_idx(NUMBERS), "not an IDX file of bytes in 3 dimensions"),
            (as_idx(PIXELS)[:10], "not an IDX file of bytes in 3 dimensions"),
            (as_idx(PIXELS)[:-1], "announces 36 values and has 35"),
            (as_idx(PIXELS) + b"x", "announces 36 values and has 37"),
            (b"\0\0\x08\x03" + bytes(4) + b"\xfe\xff\xff\xd5" + b"\xfe\0\0\6", "holds no values"),
        ],
    )
    def test_broken_files(self, tmp_path: Path, content: bytes, message: str) -> None:
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(DataError, match=message):
            read_idx(str(tmp_path / "x"), 3)

    def test_numbers_that_differ(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(as_idx(PIXELS))
        (tmp_path / "y").write_bytes(as_idx(NUMBERS[:5]))
        with pytest.raises(DataError, match=r"holds 6 images, .* holds 5 labels"):
            read_images(str(tmp_path / "x"), str(tmp_path / "y"), "pictures")


class TestCommand:
    def test_fetch_and_use(self, site: Site, tmp_path: Path) -> None:
        result = run("data", "fetch", "toy")
        assert result.stdout == "cache:toy/train\ncache:toy/test\n"
        assert result.stderr.count("fetched and checked") == 2
        dataset = read_dataset("cache:toy/train")
        assert dataset.X.tolist() == [[1, 2], [3, 4], [5, 6]]
        assert dataset.labels == ("a", "b")
        assert "rows      3" in run("data", "check", "cache:toy/train").stdout

    def test_it_is_fetched_once(self, site: Site) -> None:
        run("data", "fetch", "toy/train")
        assert "cached already" in run("data", "fetch", "toy/train").stderr
        assert len(site.requests) == 1
        assert "fetched and checked" in run("data", "fetch", "toy/train", "--again").stderr
        assert len(site.requests) == 2

    def test_a_damaged_file_is_fetched_again(self, site: Site, tmp_path: Path) -> None:
        run("data", "fetch", "toy/train")
        kept = tmp_path / "cache" / "toy" / "train.csv.zip"
        kept.write_bytes(kept.read_bytes()[:-1])
        run("data", "fetch", "toy/train", "--offline", code=1)
        run("data", "fetch", "toy/train")
        assert kept.read_bytes() == FILES["/domains/toy/train.csv.zip"]

    def test_images_are_converted(self, site: Site, tmp_path: Path) -> None:
        assert run("data", "fetch", "pictures").stdout == "cache:pictures/train\n"
        dataset = read_dataset("cache:pictures/train")
        assert np.array_equal(dataset.X, PIXELS.reshape(6, 6))
        assert [dataset.labels[code] for code in dataset.y] == [str(number) for number in NUMBERS]
        files = {path.name for path in (tmp_path / "cache" / "pictures").iterdir()}
        assert files - {".lock"} == {"train.csv.zip"}
        assert "cached already" in run("data", "fetch", "pictures").stderr

    def test_images_that_came_before_are_used(self, site: Site, tmp_path: Path) -> None:
        site.files.pop("/pictures/train-labels.gz")
        run("data", "fetch", "pictures", code=1)
        site.files["/pictures/train-labels.gz"] = FILES["/pictures/train-labels.gz"]
        run("data", "fetch", "pictures")
        assert site.requests.count("/pictures/train-images.gz") == 1

    def test_offline(self, site: Site) -> None:
        result = run("data", "fetch", "toy", "--offline", code=1)
        assert "error: cache:toy/train: not in the cache (" in result.stderr
        assert site.requests == []
        run("data", "fetch", "toy")
        count = len(site.requests)
        assert run("data", "fetch", "toy", "--offline").stdout == "cache:toy/train\ncache:toy/test\n"
        assert len(site.requests) == count

    def test_mirror(self, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(remote, "HOMES", dict.fromkeys(HOMES, ("http://127.0.0.1:9/",)))
        site.files = {f"/deep/copy{path}": content for path, content in FILES.items()}
        run("data", "fetch", "toy", "--mirror", site.url("deep/copy"))
        assert site.requests[0] == "/deep/copy/domains/toy/train.csv.zip"
        folder = tmp_path / "disk" / "domains" / "toy"
        folder.mkdir(parents=True)
        (folder / "test.csv.zip").write_bytes(FILES["/domains/toy/test.csv.zip"])
        run("data", "fetch", "toy/test", "--again", "--mirror", (tmp_path / "disk").as_uri())

    def test_failures_are_one_line(self, site: Site) -> None:
        site.files["/domains/toy/train.csv.zip"] = FILES["/domains/toy/train.csv.zip"][::-1]
        result = run("data", "fetch", "toy", code=1)
        assert result.stdout == ""
        assert re.fullmatch(r"error: http://\S+train\.csv\.zip: the checksum of .* is wrong; .*\n", result.stderr)
        site.files.clear()
        assert "the server answers 404 Not Found" in run("data", "fetch", "toy", code=1).stderr

    def test_list(self, site: Site) -> None:
        run("data", "fetch", "toy/test")
        lines = run("data", "fetch", "--list").stdout.splitlines()
        assert lines[0].split() == ["data", "set", "rows", "features", "classes", "epsilon", "bytes", "cached"]
        assert [(line.split()[0], line.split()[-1]) for line in lines[1:]] == [
            ("cache:toy/train", "no"),
            ("cache:toy/test", "yes"),
            ("cache:pictures/train", "no"),
        ]
        assert '"rows": 6' in run("data", "fetch", "--list", "--format", "json").stdout

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([], "name a data set"),
            (["nothing"], "'nothing': no such data set to fetch; choose among toy, pictures"),
            (["toy/valid"], "no such data set"),
            (["toy", "--mirror", "somewhere"], "not an address"),
            (["toy", "--offline", "--again"], "--offline uses no network"),
            (["toy", "--list"], "--list fetches nothing"),
        ],
    )
    def test_usage(self, site: Site, arguments: list[str], message: str) -> None:
        assert message in run("data", "fetch", *arguments, code=2).stderr

    @pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="no folder is protected from this user")
    def test_a_protected_cache(self, site: Site, tmp_path: Path) -> None:
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache").chmod(stat.S_IRUSR | stat.S_IXUSR)
        assert "set METASILVAE_CACHE to another folder" in run("data", "fetch", "toy", code=1).stderr

    def test_a_cache_that_is_a_file(self, site: Site, tmp_path: Path) -> None:
        (tmp_path / "cache").write_text("")
        assert "set METASILVAE_CACHE to another folder" in run("data", "fetch", "toy", code=1).stderr


def test_two_at_once_do_not_disturb_each_other(site: Site) -> None:
    pytest.importorskip("fcntl")
    dataset = choose_datasets(("toy/train",))[0]
    first = fetch_dataset(dataset)
    next(first)
    failures: list[BaseException] = []

    def fetch_too() -> None:
        try:
            list(fetch_dataset(dataset))
        except BaseException as error:
            failures.append(error)

    other = threading.Thread(target=fetch_too)
    other.start()
    list(first)
    other.join()
    assert failures == []
    assert dataset.is_cached
    assert len(site.requests) == 1


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    wine = next(dataset for dataset in list_remote_datasets() if dataset.source == "cache:wine/train")
    path = wine.files["rows"].urls[0].removeprefix(HOMES["collection"][0])
    assert wine.size is not None
    environment = {**os.environ, "METASILVAE_CACHE": str(tmp_path), "NO_PROXY": "127.0.0.1"}
    with serving(Site({f"/{path}": bytes(wine.size)}, cuts=[1000], stalls=True)) as site:
        process = subprocess.Popen(
            [sys.executable, "-m", "metasilvae", "data", "fetch", "wine", "--mirror", site.address],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            # A shell starts what runs in the background with this signal ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        while process.poll() is None and not site.requests:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert said == "interrupted\n"
    assert {path.name for path in (tmp_path / "wine").iterdir()} <= {".lock"}


class TestBar:
    def show(self, monkeypatch: pytest.MonkeyPatch, is_terminal: bool, *steps: Received) -> str:
        stream = io.StringIO()
        stream.isatty = lambda: is_terminal  # type: ignore[method-assign]
        monkeypatch.setattr("sys.stderr", stream)
        bar = TransferBar("cache:toy/train")
        for step in steps:
            bar.show(step)
        bar.close()
        return stream.getvalue()

    def test_on_a_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        shown = self.show(
            monkeypatch, True, Received(500, 2000), Received(2000, 2000), Received(0, 64), Received(9, None)
        )
        assert "cache:toy/train:  25%" in shown
        assert "500/2.00k" in shown
        assert "0.00/64.0" in shown

    def test_elsewhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.show(monkeypatch, False, Received(500, 2000)) == ""
