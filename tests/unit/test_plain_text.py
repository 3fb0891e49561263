"""Text that can be written down."""

import pytest

from clarion.fields import is_plain


@pytest.mark.parametrize(
    "text", ["", "Ana", "naïve café", "日本語", "👨‍👩‍👧", "a\u00a0b", "a-b_c.d:e"]
)
def test_what_people_write_is_plain(text: str) -> None:
    assert is_plain(text)


@pytest.mark.parametrize("text", ["\0", "a\nb", "a\tb", "\x1b[31m", "\x7f", "\x85", "\ud800"])
def test_what_only_machines_send_is_not(text: str) -> None:
    assert not is_plain(text)
