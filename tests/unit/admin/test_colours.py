"""The dashboard has six colours, each for light and dark; all others are mixed from them."""

import re
from importlib import resources

COLOURS = {"surface", "text", "accent", "good", "warn", "bad"}
_LITERAL = re.compile(r"#[0-9a-fA-F]{3,8}\b|\b(?:rgb|hsl|oklch|lab|lch|hwb)a?\(")


def test_the_style_sheets_have_six_colours() -> None:
    named = set()
    for name in ("dashboard.css", "workspace.css"):
        for line in (resources.files("clarion.admin") / "static" / name).read_text().splitlines():
            if _LITERAL.search(line):
                found = re.match(r"  --(\w+): light-dark\(#[0-9a-f]{6}, #[0-9a-f]{6}\);$", line)
                assert found, line
                named.add(found[1])
    assert named == COLOURS
