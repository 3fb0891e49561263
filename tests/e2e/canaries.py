"""Canaries: secrets and texts that must not turn up where they are not meant to be."""

import base64
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

# Shorter values turn up by chance, such as codes of six digits.
SHORTEST = 11


@dataclass
class Canaries:
    """Every canary with its name, and the paths that canaries went through."""

    values: dict[str, str] = field(default_factory=dict)
    paths: set[str] = field(default_factory=set)

    def make(self, name: str) -> str:
        """Return a new one: letters and digits only, so that no encoding of text changes it."""
        return self.watch(name, f"canary{uuid.uuid4().hex}")

    def watch(self, name: str, value: str) -> str:
        """Look for a secret that the server has made."""
        assert len(value) >= SHORTEST, name
        key = name if name not in self.values else f"{name} {len(self.values)}"
        self.values[key] = value
        return value

    def went(self, path: str) -> None:
        self.paths.add(path)

    def find(self, texts: Mapping[str, str]) -> list[str]:
        """Return which canary is in which text, also encoded as credentials often are."""
        return [
            f"{name} in {where}"
            for name, value in self.values.items()
            for where, text in texts.items()
            if any(form in text for form in forms_of(value))
        ]


def forms_of(value: str) -> Iterator[str]:
    """Yield a value as it is, in URLs, in hexadecimal, and as a part of base64."""
    yield value
    if (quoted := quote(value, safe="")) != value:
        yield quoted
    yield value.encode().hex()
    # Whatever is before it: three ways to begin, and the ends depend on what is around.
    for shift in range(3):
        text = base64.b64encode(b"x" * shift + value.encode()).decode()
        middle = text[4 if shift else 0 :].rstrip("=")[:-2]
        yield middle
        if "+" in middle or "/" in middle:
            yield middle.translate(str.maketrans("+/", "-_"))


def secret_part(key: str) -> str:
    """Return what of an API key is secret: the part before it names the key."""
    return re.split(r"[_.]", key)[-1]
