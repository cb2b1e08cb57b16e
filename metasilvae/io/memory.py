"""Memory limits: a small file can ask for an array larger than the memory of the machine."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from metasilvae.errors import RequestError, shorten

MEMORY_VARIABLE = "METASILVAE_MEMORY"
# Results, sorted copies and other programs need memory too.
FRACTION_FOR_INPUT = 0.5
# Bytes of memory that each byte of a file may become, measured for the worst texts that were found.
MODEL_EXPANSION = 8
JSON_EXPANSION = 24
LINE_EXPANSION = 32
TABLE_EXPANSION = 64
_SIZE = re.compile(r"(\d{1,12})([KMGT]?)(i?B)?", re.IGNORECASE | re.ASCII)
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_UNKNOWN = 1 << 32
_CONTROL_GROUPS = Path("/sys/fs/cgroup")


def allowed_memory() -> int:
    """Bytes that an input may take: METASILVAE_MEMORY, or half of the free memory."""
    wanted = os.environ.get(MEMORY_VARIABLE)
    if not wanted:
        return int(available_memory() * FRACTION_FOR_INPUT)
    match = _SIZE.fullmatch(wanted.strip())
    if match is None:
        raise RequestError(f"{MEMORY_VARIABLE} is {shorten(wanted)}, a size such as 500M or 8G was expected")
    return int(match[1]) << _UNITS[match[2].upper()]


def available_memory() -> int:
    """Bytes of memory that this process can get, as far as the system reports it."""
    return min([_free_memory() or _UNKNOWN, *_control_group_limits(), *_process_limits()])


def describe_allowed(allowed: int) -> str:
    """The part of an error message that says how much is allowed, why, and how to change it."""
    why = f"set by {MEMORY_VARIABLE}" if os.environ.get(MEMORY_VARIABLE) else "half of the free memory"
    return f"{describe_bytes(allowed)} are allowed ({why}); {MEMORY_VARIABLE}=SIZE changes that"


def describe_bytes(n_bytes: int) -> str:
    """A readable size, in MiB or GiB."""
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 1 << 30 else f"{n_bytes / 2**20:.1f} MiB"


def _free_memory() -> int | None:
    """Free memory; all memory, or None, if the system reports less."""
    with contextlib.suppress(OSError):
        found = re.search(r"^MemAvailable:\s*(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
        if found:
            return int(found[1]) << 10
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _control_group_limits() -> Iterator[int]:
    """Limits of the containers and batch jobs in which this process runs."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        base = _CONTROL_GROUPS / controllers
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        folder = base / place.lstrip("/")
        # Inside a container the root of the mount is the group itself.
        for group in {base, folder, *folder.parents} - set(base.parents):
            try:
                limit = (group / name).read_text().strip()
            except OSError:
                continue
            if limit.isdecimal():
                yield int(limit)


def _process_limits() -> Iterator[int]:
    try:
        import resource
    except ImportError:  # Windows
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        yield limit
