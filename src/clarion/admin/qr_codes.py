"""QR codes (ISO/IEC 18004) of short texts: bytes, error correction level M, versions 1 to 10.

An authenticator app reads its secret from one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, pairwise, zip_longest

from markupsafe import Markup

# By version: codewords for error correction in each block, and the data codewords of each block.
_BLOCKS: tuple[tuple[int, tuple[int, ...]], ...] = (
    (10, (16,)),
    (16, (28,)),
    (26, (44,)),
    (18, (32, 32)),
    (24, (43, 43)),
    (16, (27,) * 4),
    (18, (31,) * 4),
    (22, (38, 38, 39, 39)),
    (22, (36, 36, 36, 37, 37)),
    (26, (43, 43, 43, 43, 44)),
)
# By version: the centres of the alignment patterns, in both directions.
_CENTRES: tuple[tuple[int, ...], ...] = (
    (),
    *((6, 14 + 4 * version) for version in range(1, 6)),
    (6, 22, 38),
    (6, 24, 42),
    (6, 26, 46),
    (6, 28, 50),
)
_MASKS: tuple[Callable[[int, int], bool], ...] = (
    lambda row, column: (row + column) % 2 == 0,
    lambda row, _column: row % 2 == 0,
    lambda _row, column: column % 3 == 0,
    lambda row, column: (row + column) % 3 == 0,
    lambda row, column: (row // 2 + column // 3) % 2 == 0,
    lambda row, column: row * column % 2 + row * column % 3 == 0,
    lambda row, column: (row * column % 2 + row * column % 3) % 2 == 0,
    lambda row, column: ((row + column) % 2 + row * column % 3) % 2 == 0,
)
_BYTES_MODE = 0b0100
_LONG_COUNT = 10  # from this version on, the length of the text takes 16 bits
_WITH_VERSION = 7  # from this version on, the code says its version
_FORMAT_GENERATOR, _FORMAT_MASK = 0b10100110111, 0b101010000010010
_VERSION_GENERATOR = 0b1111100100101
_FIELD = 0x11D  # the polynomial of the field of 256 elements
_RUN = 5

Modules = list[list[bool]]
Places = set[tuple[int, int]]


def draw(text: str) -> Markup:
    """Return the code of a text as SVG; `ValueError` if it has more than 213 bytes."""
    modules = encode(text)
    size = len(modules)
    path = "".join(
        f"M{column} {row}h1v1h-1z"
        for row in range(size)
        for column in range(size)
        if modules[row][column]
    )
    return Markup(
        '<svg viewBox="-2 -2 {0} {0}" role="img" aria-label="QR code" shape-rendering="crispEdges">'
        '<path d="{1}" fill="#000"/></svg>'
    ).format(size + 4, path)


def encode(text: str) -> Modules:
    """Return the rows of modules, dark ones as True."""
    data = text.encode()
    version = _find_version(len(data))
    bits = _to_bits(_interleave(_fill(data, version), version))
    fixed = _draw_patterns(version)
    candidates = [_draw(version, fixed, bits, mask) for mask in range(len(_MASKS))]
    return min(candidates, key=_count_faults)


def _find_version(length: int) -> int:
    for version, (_, blocks) in enumerate(_BLOCKS, 1):
        if length + (3 if version >= _LONG_COUNT else 2) <= sum(blocks):
            return version
    raise ValueError("is too long for a QR code")


def _fill(data: bytes, version: int) -> bytes:
    """Return all data codewords: mode, length, text, end and padding."""
    count_bits = 16 if version >= _LONG_COUNT else 8
    capacity = sum(_BLOCKS[version - 1][1])
    value = (_BYTES_MODE << count_bits | len(data)) << 8 * len(data) | int.from_bytes(data)
    used = 4 + count_bits + 8 * len(data)
    value <<= -used % 8
    filled = value.to_bytes((used + 7) // 8)
    padding = bytes((0xEC, 0x11)) * capacity
    return (filled + padding)[:capacity]


def _interleave(data: bytes, version: int) -> bytes:
    """Return the codewords of all blocks in turn: first data, then error correction."""
    length, sizes = _BLOCKS[version - 1]
    blocks, start = [], 0
    for size in sizes:
        blocks.append(data[start : start + size])
        start += size
    checks = [_check(block, length) for block in blocks]
    return bytes(chain(_take_turns(blocks), _take_turns(checks)))


def _take_turns(blocks: list[bytes]) -> Iterator[int]:
    return (each for turn in zip_longest(*blocks) for each in turn if each is not None)


def _check(block: bytes, length: int) -> bytes:
    """Return the codewords by which errors in a block are corrected (Reed-Solomon)."""
    generator = [1]
    root = 1
    for _ in range(length):
        shifted = [_multiply(each, root) for each in generator]
        generator = [a ^ b for a, b in zip([*generator, 0], [0, *shifted], strict=True)]
        root = _multiply(root, 2)
    rest = bytearray(block) + bytes(length)
    for place in range(len(block)):
        factor = rest[place]
        for offset, each in enumerate(generator):
            rest[place + offset] ^= _multiply(each, factor)
    return bytes(rest[len(block) :])


def _multiply(one: int, two: int) -> int:
    product = 0
    while two:
        product ^= one * (two & 1)
        one = one << 1 ^ (_FIELD if one & 0x80 else 0)
        two >>= 1
    return product


def _to_bits(codewords: bytes) -> list[bool]:
    return [bool(each >> shift & 1) for each in codewords for shift in range(7, -1, -1)]


def _draw_patterns(version: int) -> dict[tuple[int, int], bool]:
    """Return the modules that do not depend on the text, by row and column."""
    size = 17 + 4 * version
    fixed: dict[tuple[int, int], bool] = {}
    for place in range(size):
        fixed[6, place] = fixed[place, 6] = place % 2 == 0
    for top, left in ((0, 0), (0, size - 7), (size - 7, 0)):
        _draw_square(fixed, top + 3, left + 3, 4, size)
    centres = _CENTRES[version - 1]
    corners = {(6, 6), (6, size - 7), (size - 7, 6)}
    for row, column in ((a, b) for a in centres for b in centres):
        if (row, column) not in corners:
            _draw_square(fixed, row, column, 2, size)
    fixed[size - 8, 8] = True
    fixed |= {place: value for value, place in _place_format(0, size)}
    if version >= _WITH_VERSION:
        fixed |= _draw_version(version, size)
    return fixed


def _draw_square(
    fixed: dict[tuple[int, int], bool], row: int, column: int, reach: int, size: int
) -> None:
    """Draw squares within each other: dark, light, dark from outside, or from the centre."""
    for i in range(-reach, reach + 1):
        for j in range(-reach, reach + 1):
            if 0 <= row + i < size and 0 <= column + j < size:
                ring = max(abs(i), abs(j))
                fixed[row + i, column + j] = ring not in {2, 4} if reach == 4 else ring != 1  # noqa: PLR2004 - the rings of a finder pattern


def _draw_version(version: int, size: int) -> dict[tuple[int, int], bool]:
    bits = version << 12 | _remainder(version << 12, _VERSION_GENERATOR)
    drawn = {}
    for place in range(18):
        value = bool(bits >> place & 1)
        row, column = place // 3, size - 11 + place % 3
        drawn[row, column] = drawn[column, row] = value
    return drawn


def _place_format(mask: int, size: int) -> Iterator[tuple[bool, tuple[int, int]]]:
    """Yield the modules that say the level, which is M (00), and the mask, in both places."""
    bits = (mask << 10 | _remainder(mask << 10, _FORMAT_GENERATOR)) ^ _FORMAT_MASK
    upwards = [*range(6), 7, 8]
    for place in range(15):
        value = bool(bits >> place & 1)
        beside = (upwards[place], 8) if place < 8 else (8, [7, 5, 4, 3, 2, 1, 0][place - 8])  # noqa: PLR2004 - half of the bits stand in a column, half in a row
        yield value, beside
        yield value, (8, size - 1 - place) if place < 8 else (size - 15 + place, 8)  # noqa: PLR2004 - as above


def _remainder(value: int, generator: int) -> int:
    length = generator.bit_length()
    while value.bit_length() >= length:
        value ^= generator << value.bit_length() - length
    return value


def _draw(version: int, fixed: dict[tuple[int, int], bool], bits: list[bool], mask: int) -> Modules:
    size = 17 + 4 * version
    modules = [[fixed.get((row, column), False) for column in range(size)] for row in range(size)]
    left = iter(bits)
    for row, column in _walk(size):
        if (row, column) not in fixed:
            modules[row][column] = next(left, False) ^ _MASKS[mask](row, column)
    for value, (row, column) in _place_format(mask, size):
        modules[row][column] = value
    return modules


def _walk(size: int) -> Iterator[tuple[int, int]]:
    """Yield places in the order in which data is written: pairs of columns, up and down."""
    rows = list(range(size))
    right = size - 1
    is_up = True
    while right > 0:
        for row in reversed(rows) if is_up else rows:
            yield row, right
            yield row, right - 1
        is_up = not is_up
        right -= 3 if right == 8 else 2  # noqa: PLR2004 - column 6 has a timing pattern


def _count_faults(modules: Modules) -> int:
    """Return how hard a code is to read: long runs and blocks of one colour."""
    lines = [*modules, *map(list, zip(*modules, strict=True))]
    runs = sum(
        len(set(line[start : start + _RUN])) == 1
        for line in lines
        for start in range(len(line) - _RUN + 1)
    )
    blocks = sum(
        len({*one[place : place + 2], *two[place : place + 2]}) == 1
        for one, two in pairwise(modules)
        for place in range(len(one) - 1)
    )
    return runs + 3 * blocks
