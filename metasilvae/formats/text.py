"""Text files read in chunks into growing arrays, so that memory holds the result and one chunk, not the file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from metasilvae._core.parsing.lines import encode_labels, next_line
from metasilvae.errors import DataError, at_line
from metasilvae.io.memory import LINE_EXPANSION, allowed_memory, describe_allowed, describe_bytes

CHUNK_BYTES = 8 << 20
LONGEST_LINE = 1 << 30
# Lines up to this length are read whatever METASILVAE_MEMORY says.
SHORT_LINE = 1 << 16
# Memory that a label takes in addition to its text.
LABEL_BYTES = 300
BATCH_ROWS = 4096
# Arrays up to this size are allocated without a check of the available memory.
FIRST_BYTES = 1 << 20
LINE_FEED = 10
NUL_BYTE = "a NUL byte, so this is not a text file; is it damaged, or binary data without its header line?"


class Problems:
    """Problems of a file: the first one ends the reading, or several are collected.

    Parameters
    ----------
    source : name of the file in messages
    limit : number of problems after which reading ends
    """

    def __init__(self, source: str, limit: int = 1) -> None:
        self.source = source
        self.limit = limit
        self.found: list[str] = []

    def report(self, line: int, problem: str) -> None:
        """Add a problem of a line; raise `DataError` when the limit is reached."""
        self.found.append(at_line(self.source, line, problem))
        if len(self.found) >= self.limit:
            raise DataError(self.found[0])

    def finish(self) -> None:
        """Raise `DataError` if there was any problem."""
        if self.found:
            raise DataError(self.found[0])


class TextChunks:
    """A buffer that slides over a stream of text.

    Attributes
    ----------
    buffer : bytearray
        The text is ``buffer[start:stop]``; a line feed follows it.
    line : int
        Number of the line at `start`, from 1.
    at_end : bool
        Whether the stream ends at `stop`.
    longest_line : int
        Bytes of the longest line: cells that are taken apart need many times the memory of their text.
    """

    def __init__(self, stream: BinaryIO, source: str) -> None:
        self.stream = stream
        self.source = source
        self.buffer = bytearray(CHUNK_BYTES + 1)
        self.start = 0
        self.stop = 0
        self.line = 1
        self.at_end = False
        self.longest_line = max(SHORT_LINE, min(LONGEST_LINE, allowed_memory() // LINE_EXPANSION))
        self._fill()

    def refill(self) -> None:
        """Move the rest to the front and read on; a line longer than the buffer makes the buffer larger."""
        if self.start == 0 and self.stop == len(self.buffer) - 1:
            self._check_line(self.stop)
        self.read_on()

    def read_on(self) -> None:
        """The same for a place of which more than one line is needed; `start` becomes 0."""
        rest = self.stop - self.start
        if self.start == 0 and self.stop == len(self.buffer) - 1:
            self.buffer.extend(bytes(max(1, min(rest, self.longest_line + 1 - rest))))
        else:
            self.buffer[:rest] = self.buffer[self.start : self.stop]
            self.start, self.stop = 0, rest
        self._fill()

    def _fill(self) -> None:
        size = len(self.buffer) - 1
        with memoryview(self.buffer) as view:
            while self.stop < size:
                # Compressed streams return small pieces.
                n_read = self.stream.readinto(view[self.stop : size])  # type: ignore[attr-defined]
                if not n_read:
                    self.at_end = True
                    break
                self.stop += n_read
        self.buffer[self.stop] = LINE_FEED

    def advance(self, start: int, line: int) -> None:
        """Continue at another place of the buffer."""
        self.start, self.line = start, line

    def _check_line(self, n_bytes: int) -> None:
        if n_bytes <= self.longest_line:
            return
        problem = f"a line of more than {describe_bytes(self.longest_line)}"
        if self.longest_line < LONGEST_LINE:
            problem += f", which takes more memory than {describe_allowed(allowed_memory())}"
        raise DataError(at_line(self.source, self.line, f"{problem}; is this really a text file?"))

    def peek_line(self) -> tuple[bytes, int] | None:
        """The next line without its line end, and the start of the one after it; None at the end of the text."""
        while True:
            end, next_start = next_line(self.buffer, self.start, self.stop, self.at_end)
            if end >= 0:
                self._check_line(end - self.start)
                return bytes(self.buffer[self.start : end]), next_start
            if self.at_end:
                return None
            self.refill()

    def skip_line(self) -> None:
        """Continue after the next line."""
        peeked = self.peek_line()
        if peeked:
            self.advance(peeked[1], self.line + 1)


class GrowingArray:
    """An array whose number of rows is not known yet; it grows in place, if possible without a second copy."""

    def __init__(self, dtype: DTypeLike, row_shape: tuple[int, ...] = (), capacity: int = BATCH_ROWS) -> None:
        self.values: NDArray[Any] = np.empty((capacity, *row_shape), dtype)
        self.n_rows = 0

    def reserve(self, n_rows: int) -> NDArray[Any]:
        """Space for that many further rows; `take` adds them to the array."""
        needed = self.n_rows + n_rows
        if needed > len(self.values):
            self.values.resize((max(needed, len(self.values) * 3 // 2), *self.values.shape[1:]), refcheck=False)
        return self.values[self.n_rows : needed]

    def rest(self, n_rows: int) -> NDArray[Any]:
        """Space for at most that many further rows, without growing."""
        return self.values[self.n_rows : self.n_rows + n_rows]

    def take(self, n_rows: int) -> None:
        self.n_rows += n_rows

    def finish(self) -> NDArray[Any]:
        """The rows taken, in an array of their own size."""
        self.values.resize((self.n_rows, *self.values.shape[1:]), refcheck=False)
        return self.values


class LabelCodes:
    """Numbers labels in order of first appearance.

    Parameters
    ----------
    decode : turns the bytes of a label in the file into the label; a ValueError describes a problem
    """

    def __init__(self, problems: Problems, decode: Callable[[bytes], str]) -> None:
        self._problems = problems
        self._decode = decode
        self._codes_of_text: dict[bytes, int] = {}
        self._codes: dict[str, int] = {}
        self._n_bytes = 0

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self._codes)

    def encode(
        self,
        buffer: bytearray | memoryview,
        spans: NDArray[np.int64],
        line_of_row: NDArray[np.int64],
        y: NDArray[np.int32],
    ) -> None:
        """Write the code of each label that lies at ``spans`` in the buffer."""

        def add(text: bytes, row: int) -> int:
            try:
                label = self._decode(text)
            except ValueError as error:
                self._problems.report(int(line_of_row[row]), str(error))
                return 0
            self._n_bytes += 2 * len(text) + LABEL_BYTES
            if self._n_bytes > FIRST_BYTES and self._n_bytes > (allowed := allowed_memory()):
                raise DataError(
                    f"{self._problems.source}: {len(self._codes)} different labels take more memory than "
                    f"{describe_allowed(allowed)}; is the label in another column?"
                )
            code = self._codes.setdefault(label, len(self._codes))
            self._codes_of_text[text] = code
            return code

        encode_labels(buffer, spans, self._codes_of_text, add, y)


def decode_text(text: bytes) -> str:
    """Text of a cell or line; a ValueError describes its problem."""
    if 0 in text:
        raise ValueError(NUL_BYTE)
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        byte = text[error.start]
        raise ValueError(f"not UTF-8 text (byte 0x{byte:02x}); save the file with UTF-8 encoding") from None


def check_size(source: str, n_rows: int, n_features: int) -> None:
    """Refuse an array that would take too much memory, before it is allocated."""
    needed = n_rows * (n_features * 8 + 12)  # the values, the label and the number of the line
    if needed > FIRST_BYTES and needed > (allowed := allowed_memory()):
        raise DataError(
            f"{source}: {n_rows} row{'s' * (n_rows != 1)} of {n_features} features need "
            f"{describe_bytes(needed)} of memory, {describe_allowed(allowed)}; "
            "check the indices and counts in the file"
        )


def shortest_decimals(numbers: np.ndarray) -> Iterator[str]:
    """Shortest decimals that read back to the same float64, whole numbers without ``.0``."""
    return (text[:-2] if text.endswith(".0") else text for text in map(repr, numbers.tolist()))


def show_value(value: float) -> str:
    """A value of a sample for people: the shortest decimal that reads back, or ``missing``."""
    return "missing" if math.isnan(value) else repr(value)
