"""The sequence number after which a client resumes."""

import pytest

from clarion.errors import InvalidFields
from clarion.inbox.sequences import read_sequence


def test_a_sequence_is_a_number() -> None:
    assert read_sequence("0", "after") == 0
    assert read_sequence("9223372036854775807", "after") == (1 << 63) - 1


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", "x", "٣", "9223372036854775808", "1" * 99])
def test_anything_else_is_refused_with_the_name_of_the_field(text: str) -> None:
    with pytest.raises(InvalidFields, match="after"):
        read_sequence(text, "after")
