"""Entity tags: the same parts give the same tag, and who has it gets 304."""

import pytest

from clarion.http.etags import answer_known, make_tag

TAG = make_tag("app", "ana", 7)


def test_a_tag_follows_from_its_parts_and_their_order() -> None:
    assert make_tag("app", "ana", 7) == TAG
    others = [("app", "ana", 8), ("ana", "app", 7), ("app", "ana"), ("app", "ana", 7, "")]
    assert len({TAG, *(make_tag(*each) for each in others)}) == 1 + len(others)


@pytest.mark.parametrize("known", [TAG, b"W/" + TAG, b'"a", ' + TAG, TAG + b', "b"', b"*", b" * "])
def test_who_has_it_is_told_so(known: bytes) -> None:
    answer = answer_known(known, TAG)
    assert answer is not None
    assert (answer.status, answer.body, answer.headers) == (304, b"", ((b"etag", TAG),))


@pytest.mark.parametrize("known", [b'"a"', TAG[:-2] + b'"', TAG.strip(b'"'), b"", b'"*"'])
def test_anything_else_is_not_known(known: bytes) -> None:
    assert answer_known(known, TAG) is None
