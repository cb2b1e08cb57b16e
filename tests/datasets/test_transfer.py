"""Transfers from a server that breaks off, sends wrong content or redirects."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.web_server import Site, serving

from metasilvae.datasets import remote as module
from metasilvae.datasets.remote import Received, RemoteFile, compute_checksum, is_intact, transfer
from metasilvae.errors import OutputError, TransferError

CONTENT = bytes(range(256)) * 1000
CHECKSUM = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving(Site({"/a.bin": CONTENT})) as site:
        yield site


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "a.bin"


def part_of(target: Path) -> Path:
    return target.with_name("a.bin.part")


def remote(site: Site, size: int | None = len(CONTENT), path: str = "a.bin", checksum: str = CHECKSUM) -> RemoteFile:
    return RemoteFile((site.url(path),), checksum, size)


def run(file: RemoteFile, target: Path) -> list[Received]:
    return list(transfer(file, target))


@pytest.mark.parametrize("size", [len(CONTENT), None])
@pytest.mark.parametrize("tells_length", [True, False])
def test_a_file_arrives_and_progress_ends_at_its_size(
    site: Site, target: Path, size: int | None, tells_length: bool
) -> None:
    site.tells_length = tells_length
    steps = run(remote(site, size), target)
    assert target.read_bytes() == CONTENT
    assert not part_of(target).exists()
    assert [step.n_bytes for step in steps] == sorted({step.n_bytes for step in steps})
    assert steps[-1] == Received(len(CONTENT), len(CONTENT) if size or tells_length else None)


def test_a_broken_connection_is_tried_again(site: Site, target: Path) -> None:
    site.cuts = [1000, 70_000]
    run(remote(site), target)
    assert target.read_bytes() == CONTENT
    assert len(site.requests) == 3


def test_a_server_that_always_breaks_off(site: Site, target: Path) -> None:
    site.cuts = [500] * 50
    with pytest.raises(TransferError, match="broke after 500 of 256000 bytes; check the network"):
        run(remote(site), target)
    assert len(site.requests) == module.MOST_ATTEMPTS
    assert list(target.parent.iterdir()) == []


def test_a_cut_transfer_of_unknown_size_fails_its_check(site: Site, target: Path) -> None:
    site.cuts, site.tells_length = [1000], False
    with pytest.raises(TransferError, match="checksum of the 1000 bytes received is wrong"):
        run(remote(site, size=None), target)
    assert not target.exists()


def test_nothing_is_left_when_the_loop_is_left(site: Site, target: Path) -> None:
    steps = transfer(remote(site), target)
    next(steps)
    assert part_of(target).exists()
    steps.close()
    assert list(target.parent.iterdir()) == []


def test_a_wrong_checksum(site: Site, target: Path) -> None:
    site.files["/a.bin"] = CONTENT[::-1]
    with pytest.raises(TransferError, match="checksum of the 256000 bytes received is wrong"):
        run(remote(site), target)
    assert list(target.parent.iterdir()) == []


def test_a_login_page_is_refused_before_it_is_read(site: Site, target: Path) -> None:
    site.files["/a.bin"] = b"<html>please log in</html>"
    with pytest.raises(TransferError, match="offers 26 bytes, the expected file has 256000"):
        run(remote(site), target)
    assert not part_of(target).exists()


def test_an_endless_response(site: Site, target: Path) -> None:
    site.files["/a.bin"], site.tells_length = CONTENT * 2, False
    with pytest.raises(TransferError, match="more bytes than expected"):
        run(remote(site), target)


def test_an_endless_response_of_unknown_size(site: Site, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    site.tells_length = False
    with pytest.raises(TransferError, match="more bytes than expected"):
        run(remote(site, size=None), target)


def test_not_found(site: Site, target: Path) -> None:
    with pytest.raises(TransferError, match=r"/b\.bin: the server answers 404 Not Found; check the network, or try"):
        run(remote(site, path="b.bin"), target)


def test_redirected(site: Site, target: Path) -> None:
    site.moved = {"/old.bin": "/a.bin", "/circle": "/circle"}
    run(remote(site, path="old.bin"), target)
    assert target.read_bytes() == CONTENT
    assert site.requests == ["/old.bin", "/a.bin"]
    with pytest.raises(TransferError, match="the server answers 302"):
        run(remote(site, path="circle"), target)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_no_network(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    file = RemoteFile((f"http://127.0.0.1:{free_port()}/a.bin",), CHECKSUM, len(CONTENT))
    with pytest.raises(TransferError, match=r"cannot be reached \(Connection refused\); check the network"):
        run(file, target)


def test_the_next_address_is_tried(site: Site, target: Path) -> None:
    file = RemoteFile((site.url("b.bin"), site.url("a.bin")), CHECKSUM, len(CONTENT))
    run(file, target)
    assert target.read_bytes() == CONTENT
    file = RemoteFile((site.url("b.bin"), site.url("c.bin")), CHECKSUM, len(CONTENT))
    with pytest.raises(TransferError, match=r"b\.bin: the server answers 404 .*; .*c\.bin: the server answers 404"):
        run(file, target)


def test_a_folder_is_a_mirror_too(tmp_path: Path, target: Path) -> None:
    (tmp_path / "there").write_bytes(CONTENT)
    run(RemoteFile(((tmp_path / "there").as_uri(),), CHECKSUM, len(CONTENT)), target)
    assert target.read_bytes() == CONTENT
    with pytest.raises(TransferError, match="cannot be reached"):
        run(RemoteFile(((tmp_path / "missing").as_uri(),), CHECKSUM, len(CONTENT)), target)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk(site: Site, target: Path) -> None:
    part_of(target).symlink_to("/dev/full")
    with pytest.raises(OutputError, match="cannot be written: No space left"):
        run(remote(site), target)


def test_checksums(tmp_path: Path) -> None:
    path = tmp_path / "hello"
    path.write_bytes(b"hello world\n")
    # As `git hash-object` and `sha256sum` print them.
    assert compute_checksum(path, "git-blob") == "git-blob:3b18e512dba79e4c8300dd08aeb37f8e728b8dad"
    sha256 = "sha256:a948904f2f0f479b8f8197694b30184b0d2ed1c1cd2a1ec0fb85d299a192a447"
    assert compute_checksum(path, "sha256") == sha256
    assert is_intact(path, sha256)
    assert not is_intact(path, sha256[:-1] + "8")
    assert not is_intact(tmp_path / "missing", sha256)
    with pytest.raises(ValueError, match="no such checksum: crc"):
        compute_checksum(path, "crc")
