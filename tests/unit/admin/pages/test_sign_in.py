"""The QR code of the second factor, read back by a decoder that knows nothing of its encoder."""

import re

import pytest
import zxingcpp

from clarion.admin.pages.sign_in import draw_code

URI = "otpauth://totp/Clarion:ana?secret=JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP&issuer=Clarion"
PIXELS = 4


def rasterise(svg: str) -> memoryview:
    """Draw the path of a code, which is horizontal lines, in pixels of grey."""
    size = int(re.findall(r'viewBox="0 0 (\d+) \1"', svg)[0])
    rows = [bytearray(b"\xff" * size) for _ in range(size)]
    column, row = 0, -1
    for step in re.findall(r"M(\d+) (\d+)\.5|m(-?\d+) (\d+)|h(\d+)", svg):
        first, down, right, further, length = (int(each or 0) for each in step)
        column, row = column + first + right, max(row, 0) + down + further
        rows[row][column : column + length] = bytes(length)
        column += length
    wide = [bytes(each for each in row for _ in range(PIXELS)) for row in rows]
    picture = b"".join(row for row in wide for _ in range(PIXELS))
    return memoryview(picture).cast("B", (size * PIXELS, size * PIXELS))


@pytest.mark.parametrize(
    "text", [URI, *(("Clarion " * 30)[:length] for length in (1, 14, 26, 60, 106, 152, 213))]
)
def test_a_decoder_reads_the_text(text: str) -> None:
    (code,) = zxingcpp.read_barcodes(rasterise(draw_code(text)))
    assert code.text == text


def test_the_picture_has_no_inline_style_or_script() -> None:
    drawn = draw_code("<script>alert(1)</script>")
    assert not re.search("style|script|class", drawn)
