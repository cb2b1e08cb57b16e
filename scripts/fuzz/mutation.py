"""Inputs derived from others: bytes changed, removed, repeated or joined, and unusual words inserted."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

WORDS = [
    *(b"", b" ", b"\t", b"\n", b"\r\n", b"\r", b"\0", b",", b";", b"|", b":", b"#", b'"', b"'", b"[", b"]", b"="),
    *(b"0", b"1", b"-1", b"+1", b"2", b"1e400", b"1e-400", b"-0.0", b"nan", b"inf", b"-inf", b"?", b"0x10", b"1_0"),
    *(b"9" * 9, b"9" * 20, b"9" * 400, b"2147483647", b"2147483648", b"4294967296", b"9007199254740993"),
    *(b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"\xc3\xa9", b"\xe2\x80\xa8", b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\x85"),
    *(b"SPLIT", b"LEAF", b"LEAF_LOGARITHMIC", b"classifier-decision-tree", b"classifier-forest"),
    *(b"# 1 2 3\n", b"1:1", b"qid:1", b"true", b"[[one-hot]]\n", b"[columns]\n", b'"5%"', b"[" * 50, b"{a=" * 50),
]  # fmt: skip
MOST_STEPS = 6
LONGEST = 4096

Step = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


def _span(rng: random.Random, content: bytes) -> tuple[int, int]:
    start = rng.randint(0, len(content))
    return start, min(len(content), start + rng.choice((1, 1, 2, 4, 8, 64)))


def _change_byte(rng: random.Random, content: bytes, seeds: Sequence[bytes]) -> bytes:
    start, _ = _span(rng, content)
    return content[:start] + bytes([rng.randrange(256)]) + content[start + 1 :]


def _leave_out(rng: random.Random, content: bytes, seeds: Sequence[bytes]) -> bytes:
    start, stop = _span(rng, content)
    return content[:start] + content[stop:]


def _repeat(rng: random.Random, content: bytes, seeds: Sequence[bytes]) -> bytes:
    start, stop = _span(rng, content)
    return content[:stop] + content[start:stop] * rng.choice((1, 1, 2, 30)) + content[stop:]


def _put_in_word(rng: random.Random, content: bytes, seeds: Sequence[bytes]) -> bytes:
    start, stop = _span(rng, content)
    return content[:start] + rng.choice(WORDS) + content[rng.choice((start, stop)) :]


def _replace_word(rng: random.Random, content: bytes, seeds: Sequence[bytes]) -> bytes:
    words = content.split(b" ")
    words[rng.randrange(len(words))] = rng.choice(WORDS)
    return b" ".join(words)


def _cut(rng: random.Random, content: bytes, seeds: Sequence[bytes]) -> bytes:
    return content[: rng.randint(0, len(content))]


def _join(rng: random.Random, content: bytes, seeds: Sequence[bytes]) -> bytes:
    other = rng.choice(seeds)
    return content[: rng.randint(0, len(content))] + other[rng.randint(0, len(other)) :]


STEPS: tuple[Step, ...] = (_change_byte, _leave_out, _repeat, _put_in_word, _put_in_word, _replace_word, _cut, _join)


def mutate(rng: random.Random, seeds: Sequence[bytes]) -> Iterator[bytes]:
    """Inputs without end; the same generator makes the same ones."""
    while True:
        content = rng.choice(seeds)
        for _ in range(rng.randint(1, MOST_STEPS)):
            content = rng.choice(STEPS)(rng, content, seeds)[:LONGEST]
        yield content
