"""The body for email is plain text, HTML or MJML; where values are escaped, and where not."""

import re
from typing import Any

import pytest

from clarion.catalog.entry import build_entry
from clarion.catalog.model import Channel, RenderedText
from tests.factories import make_template, make_type
from tests.sandbox import run_directly

HOSTILE = '<img src=x onerror="alert(1)">'
ESCAPED = "&lt;img src=x onerror=&#34;alert(1)&#34;&gt;"
MJML = """
<mjml><mj-head><mj-title>{{ a }}</mj-title></mj-head><mj-body><mj-section><mj-column>
<mj-text>Hello {{ a }}</mj-text><mj-button href="https://example.com/?q={{ a }}">Go</mj-button>
<mj-raw>{% for each in more %}</mj-raw><mj-text>{{ each }}</mj-text><mj-raw>{% endfor %}</mj-raw>
</mj-column></mj-section></mj-body></mjml>
"""


async def render(body: str, channel: Channel = Channel.EMAIL, **data: Any) -> RenderedText:
    template = make_template(
        channel=channel, subject="{{ a }}", body=body, variables=("a",), language="en"
    )
    entry = build_entry(make_type(), [template], run_directly)
    return await entry.render(channel, "en", data)


@pytest.mark.parametrize("filters", ["", " | strip"])
async def test_a_value_in_html_comes_out_as_text(filters: str) -> None:
    """Once by the quick compiler, once by Liquid."""
    body = f'<p title="{{{{ a{filters} }}}}">{{{{ a{filters} }}}}</p>'
    text = await render(body, a=HOSTILE)
    assert (text.body, text.is_html) == (f'<p title="{ESCAPED}">{ESCAPED}</p>', True)
    assert text.subject == HOSTILE


@pytest.mark.parametrize("filters", ["", " | strip"])
async def test_plain_text_is_not_escaped_and_stays_text(filters: str) -> None:
    """Also if it begins with a value that looks like HTML."""
    text = await render(f"{{{{ a{filters} }}}} liked it", a=HOSTILE)
    assert (text.body, text.is_html) == (f"{HOSTILE} liked it", False)


async def test_only_email_has_html() -> None:
    text = await render("<b>{{ a }}</b>", Channel.IN_APP, a="<")
    assert (text.body, text.is_html) == ("<b><</b>", False)


async def test_mjml_becomes_html_and_its_values_are_escaped() -> None:
    text = await render(MJML, a=HOSTILE, more=["<1>", "<2>"])
    assert text.is_html
    assert text.body.lower().startswith("<!doctype html>")
    assert "<img" not in text.body
    assert f"Hello {ESCAPED}" in text.body
    assert f'href="https://example.com/?q={ESCAPED}"' in text.body
    assert re.findall("&lt;.&gt;", text.body) == ["&lt;1&gt;", "&lt;2&gt;"]
    assert text.subject == HOSTILE


async def test_a_value_is_never_read_as_mjml() -> None:
    hostile = '</mj-text><mj-include path="/etc/passwd" /><mj-raw>{{ 7 }}'
    text = await render(MJML, a=hostile, more=[])
    assert "root:" not in text.body
    assert "&lt;/mj-text&gt;&lt;mj-include path=" in text.body


async def test_mjml_is_converted_once() -> None:
    jobs = []

    async def run(job: Any) -> Any:
        jobs.append(type(job).__name__)
        return await run_directly(job)

    template = make_template(body=MJML, subject=None, variables=("a",), language="en")
    entry = build_entry(make_type(), [template], run)
    for _ in range(3):
        await entry.render(Channel.EMAIL, "en", {"a": "x", "more": []})
    assert jobs == ["ConvertMjml", "Render", "Render", "Render"]


async def test_no_reader_is_reported_to_a_third_party() -> None:
    assert "googleapis" not in (await render(MJML, a="x", more=[])).body
