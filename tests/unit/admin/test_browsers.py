"""Browsers and systems in words."""

import pytest

from clarion.admin.browsers import describe_browser

_LIKE = "AppleWebKit/537.36 (KHTML, like Gecko)"


@pytest.mark.parametrize(
    ("user_agent", "words"),
    [
        (f"Mozilla/5.0 (X11; Linux x86_64) {_LIKE} Chrome/130.0 Safari/537.36", "Chrome on Linux"),
        (
            f"Mozilla/5.0 (Windows NT 10.0; Win64) {_LIKE} Chrome/130.0 Safari/537.36 Edg/130.0",
            "Edge on Windows",
        ),
        (
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 14.1; rv:130.0) Gecko/2010 Firefox/130.0",
            "Firefox on macOS",
        ),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) Version/17.0 Safari/604.1",
            "Safari on iPhone",
        ),
        (f"Mozilla/5.0 (Linux; Android 14) {_LIKE} Chrome/130.0 Mobile", "Chrome on Android"),
        ("curl/8.1", "curl"),
        ("<b>own</b> " + "x" * 100, "<b>own</b> " + "x" * 29),
        ("", "Unknown browser"),
        (None, "Unknown browser"),
    ],
)
def test_a_session_says_which_browser_it_is(user_agent: str | None, words: str) -> None:
    assert describe_browser(user_agent) == words
