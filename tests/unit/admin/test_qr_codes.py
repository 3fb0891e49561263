"""QR codes: read back by a reader of our own, which knows the standard but not the encoder."""

import pytest

from clarion.admin import qr_codes
from clarion.admin.qr_codes import Modules

URI = "otpauth://totp/Clarion:ana?secret=JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP&issuer=Clarion"


def read_format(modules: Modules) -> int:
    """Return the number of the mask, from the modules beside the first finder pattern."""
    places = [(row, 8) for row in (0, 1, 2, 3, 4, 5, 7, 8)]
    places += [(8, column) for column in (7, 5, 4, 3, 2, 1, 0)]
    value = sum(modules[row][column] << place for place, (row, column) in enumerate(places))
    return (value ^ 0b101010000010010) >> 10


def test_the_finder_patterns_stand_in_three_corners() -> None:
    modules = qr_codes.encode(URI)
    size = len(modules)
    for top, left in ((0, 0), (0, size - 7), (size - 7, 0)):
        rows = [modules[top + each][left : left + 7] for each in range(7)]
        assert rows[0] == rows[6] == [True] * 7
        assert rows[1] == rows[5] == [True, *[False] * 5, True]
        assert rows[3] == [True, False, True, True, True, False, True]


def test_both_copies_of_the_format_say_the_same() -> None:
    modules = qr_codes.encode(URI)
    size = len(modules)
    mask = read_format(modules)
    assert 0 <= mask < 8  # the level M is 00 before it
    for value, (row, column) in qr_codes._place_format(mask, size):
        assert modules[row][column] is value


@pytest.mark.parametrize("length", [1, 14, 26, 60, 84, 106, 122, 152, 180, 213])
def test_the_text_is_in_the_code_and_its_blocks_have_no_error(length: int) -> None:
    text = ("Clarion " * 30)[:length]
    modules = qr_codes.encode(text)
    size = len(modules)
    version = (size - 17) // 4
    mask = qr_codes._MASKS[read_format(modules)]
    fixed = qr_codes._draw_patterns(version)
    bits = [
        modules[row][column] ^ mask(row, column)
        for row, column in qr_codes._walk(size)
        if (row, column) not in fixed
    ]
    codewords = [
        sum(bit << 7 - place for place, bit in enumerate(bits[start : start + 8]))
        for start in range(0, len(bits) - 7, 8)
    ]
    blocks = split(codewords, version)
    for block in blocks:
        assert find_syndromes(block) == {0}
    data = bytes(
        each for block, size in zip(blocks, sizes(version), strict=True) for each in block[:size]
    )
    assert read_text(data, version) == text


def sizes(version: int) -> tuple[int, ...]:
    return qr_codes._BLOCKS[version - 1][1]


def split(codewords: list[int], version: int) -> list[list[int]]:
    """Return the codewords of each block: data first, in turns, then error correction."""
    blocks: list[list[int]] = [[] for _ in sizes(version)]
    left = iter(codewords)
    for turn in range(max(sizes(version))):
        for block, size in zip(blocks, sizes(version), strict=True):
            if turn < size:
                block.append(next(left))
    for _ in range(qr_codes._BLOCKS[version - 1][0]):
        for block in blocks:
            block.append(next(left))
    return blocks


def find_syndromes(block: list[int]) -> set[int]:
    """Return the values of a block, as a polynomial, at the roots of the generator."""
    found, root = set(), 1
    for _ in range(10):
        value = 0
        for each in block:
            value = qr_codes._multiply(value, root) ^ each
        found.add(value)
        root = qr_codes._multiply(root, 2)
    return found


def read_text(data: bytes, version: int) -> str:
    bits = int.from_bytes(data)
    total = 8 * len(data)
    count = 16 if version >= 10 else 8
    assert bits >> total - 4 == 0b0100
    length = bits >> total - 4 - count & (1 << count) - 1
    return (
        (bits >> total - 4 - count - 8 * length & (1 << 8 * length) - 1).to_bytes(length).decode()
    )


def test_a_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        qr_codes.encode("x" * 214)


def test_the_picture_has_no_text_of_others_in_it() -> None:
    assert "<script>" not in qr_codes.draw("<script>alert(1)</script>")
