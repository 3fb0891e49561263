"""Clears the unused space inside the pages of a SQLite file.

With `secure_delete` SQLite overwrites rows that are deleted. But when it moves rows to another
page, to split or join pages, their copies stay in the space between the cell pointers and the cells
of the page that they were in. Nothing reads that space, so it can be overwritten in the file, as
long as no pages are written: the caller holds the write lock, and the log is empty.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

# The kinds of b-tree pages, and the size of their header.
_HEADERS = {2: 12, 5: 12, 10: 8, 13: 8}
_FILE_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\0"
_LARGEST_PAGE = 65_536
# The first byte of a page that is no b-tree page is part of a page number. In a file with so many
# pages, which has 128 GiB, it could be taken for a kind.
PAGES_LIMIT = 2 << 24


class UnusedSpace:
    """The unused space of a file, whose descriptor is never closed.

    To close any descriptor of a file drops all locks that the process has on it: also those of
    SQLite.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR)

    def clear(self, first: int, count: int) -> tuple[int | None, bool]:
        """Clear pages; return the next page, None at the end, and whether anything was cleared.

        The first page is number 1.
        """
        size, usable = _read_sizes(os.pread(self._descriptor, _FILE_HEADER_BYTES, 0))
        total = os.fstat(self._descriptor).st_size // size
        if total >= PAGES_LIMIT or first > total:
            return None, False
        data = os.pread(self._descriptor, size * count, (first - 1) * size)
        gaps = list(_find_gaps(data, first, size, usable))
        for start, length in gaps:
            os.pwrite(self._descriptor, bytes(length), start)
        if gaps:
            os.fsync(self._descriptor)
        following = first + count
        return following if following <= total else None, bool(gaps)


def _read_sizes(header: bytes) -> tuple[int, int]:
    """Return the size of a page, and how much of it is used."""
    if not header.startswith(_MAGIC):
        raise ValueError("not a SQLite file")
    size = int.from_bytes(header[16:18], "big")
    size = _LARGEST_PAGE if size == 1 else size
    return size, size - header[20]


def _find_gaps(data: bytes, first: int, size: int, usable: int) -> Iterator[tuple[int, int]]:
    """Yield where in the file unused space is that is not clear, and how long it is."""
    for number in range(len(data) // size):
        page = first + number
        begin = number * size
        start, end = find_gap(data, begin, _FILE_HEADER_BYTES if page == 1 else 0, usable)
        if end > start and data.count(0, begin + start, begin + end) < end - start:
            yield (page - 1) * size + start, end - start


def find_gap(data: bytes, begin: int, header: int, usable: int) -> tuple[int, int]:
    """Return the unused space of the page that begins there; nothing if it is no b-tree page."""
    kind, _, cells, content = struct.unpack_from(">BHHH", data, begin + header)
    if kind not in _HEADERS:
        return 0, 0
    start = header + _HEADERS[kind] + 2 * cells
    end = content or _LARGEST_PAGE
    return (start, end) if start <= end <= usable else (0, 0)
