"""The preview of an email loads nothing, so that the browser has nothing to report."""

import pytest

from clarion.admin.mails import hide_remote


@pytest.mark.parametrize(
    "html",
    [
        "<img src='https://x.example/a.png'>",
        '<IMG alt="a" SRC = "//x.example/a.png" width=1>',
        "<img src=https://x.example/a.png>",
        "<img srcset='https://x.example/a.png 2x'>",
        "<td background='https://x.example/a.png'>",
        "<p style='background: url(https://x.example/a.png)'>",
        "<style>@import 'https://x.example/a.css'; p { background: url('//x.example/a') }</style>",
        "<link rel='stylesheet' href='https://x.example/a.css'>",
    ],
)
def test_what_an_email_would_load_is_left_out(html: str) -> None:
    assert "x.example" not in hide_remote(html)


@pytest.mark.parametrize(
    "html",
    [
        "<p>src=https://x.example</p>",
        "<a href='https://x.example/'>open</a>",
        "<img src='data:image/png;base64,AA=='>",
        "<meta charset='utf-8'><p style='color: red'>1 &lt; 2</p>",
    ],
)
def test_all_else_stays_as_it_is(html: str) -> None:
    assert hide_remote(html) == html
