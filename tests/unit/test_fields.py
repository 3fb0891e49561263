"""Values that several slices take are stored in one form, or refused with a reason."""

from collections.abc import Callable
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion import fields


@pytest.mark.parametrize(
    ("check", "given_value", "stored"),
    [
        (fields.check_user_id, "a|b:c@d=e+f~g_h-i.1", "a|b:c@d=e+f~g_h-i.1"),
        (fields.check_user_id, "x" * 128, "x" * 128),
        (fields.check_topic, "team:7", "team:7"),
        (fields.check_language, "EN", "en"),
        (fields.check_language, "pt-br", "pt-BR"),
        (fields.check_language, "zh-hans-cn", "zh-Hans-CN"),
        (fields.check_language, "es-419", "es-419"),
        (fields.check_language, "de-DE-1996", "de-DE-1996"),
        (fields.check_timezone, "America/Argentina/Ushuaia", "America/Argentina/Ushuaia"),
    ],
)
def test_a_valid_value_is_stored_in_one_form(
    check: Callable[[str], str], given_value: str, stored: str
) -> None:
    assert check(given_value) == stored


@pytest.mark.parametrize(
    ("check", "values"),
    [
        (fields.check_user_id, ["", "x" * 129, "a b", "a/b", "ü", "a\n", "\0"]),
        (fields.check_topic, ["", "x" * 201, "a b", "a/b", "a\n"]),
        (fields.check_language, ["", "e", "english", "pt_BR", "en-", "en-us-", "é"]),
        (fields.check_timezone, ["", "Mars/Olympus", "europe/berlin", "../etc/passwd", "+02:00"]),
    ],
)
def test_an_invalid_value_is_refused_with_a_reason(
    check: Callable[[str], str], values: list[str]
) -> None:
    for value in values:
        with pytest.raises(ValueError, match=r"^must "):
            check(value)


@given(st.text(max_size=40))
def test_a_time_zone_that_passes_can_be_used(text: str) -> None:
    try:
        ZoneInfo(fields.check_timezone(text))
    except ValueError as error:
        assert str(error).startswith("must be an IANA time zone")  # noqa: PT017


@given(st.from_regex(fields._LANGUAGE, fullmatch=True))
def test_a_language_tag_has_one_form(text: str) -> None:
    once = fields.check_language(text)
    assert fields.check_language(once) == once == fields.check_language(text.upper())


@pytest.mark.parametrize(
    "text", ["", "Ana", "naïve café", "日本語", "👨‍👩‍👧", "a\u00a0b", "a-b_c.d:e"]
)
def test_what_people_write_is_plain(text: str) -> None:
    assert fields.is_plain(text)


@pytest.mark.parametrize("text", ["\0", "a\nb", "a\tb", "\x1b[31m", "\x7f", "\x85", "\ud800"])
def test_control_characters_and_lone_surrogates_are_not_plain(text: str) -> None:
    assert not fields.is_plain(text)


REFUSED = ("javascript", "data")


@given(
    before=st.text("\t\n\r\x00 \x0b\x1f", max_size=3),
    word=st.sampled_from(["javascript", "JaVaScRiPt", "DATA"]),
    place=st.integers(0, 9),
    within=st.text("\t\n\r\x00", max_size=2),
)
def test_a_refused_scheme_is_found_however_it_is_written(
    before: str, word: str, place: int, within: str
) -> None:
    link = f"{before}{word[:place]}{within}{word[place:]}:alert(1)"
    with pytest.raises(ValueError, match="must not"):
        fields.check_link(link, REFUSED)


@pytest.mark.parametrize(
    "link", ["", "/a", "a:b", "myapp://x", "HTTPS://example.com", "x/javascript:1", "#a", "?a=b c"]
)
def test_other_links_are_kept_as_they_are(link: str) -> None:
    assert fields.check_link(link, REFUSED) == link


@pytest.mark.parametrize("url", ["https://a/b.png", "HTTP://a/b.png", "//a/b.png", "b.png", ""])
def test_an_image_has_a_url_of_the_web(url: str) -> None:
    assert fields.check_image_url(url) == url


@pytest.mark.parametrize("url", ["ftp://a", "data:image/png,x", "myapp://a", " https://a"])
def test_an_image_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must"):
        fields.check_image_url(url)
