"""Entity tags: a client that has a response already is answered 304, without it."""

from __future__ import annotations

from hashlib import blake2b

from clarion import __version__
from clarion.http.asgi import Request, Response

_NOT_MODIFIED = 304
_TAG_BYTES = 12


def make_tag(*parts: object) -> bytes:
    """Return the tag of a response that depends on these parts alone.

    The version is one of them: another one may write the same things in another way.
    """
    text = "\n".join(map(str, (__version__, *parts)))
    return b'"%s"' % blake2b(text.encode(), digest_size=_TAG_BYTES).hexdigest().encode()


def find_known(request: Request) -> bytes | None:
    """Return the tags that the client has responses for, or None."""
    return request.headers.get(b"if-none-match")


def answer_known(known: bytes, tag: bytes) -> Response | None:
    """Return the answer to a client that has the response of this tag; None if it has not."""
    # Tags have quotes around them, so none is found within another.
    is_known = tag in known or known.strip() == b"*"
    return Response(_NOT_MODIFIED, b"", ((b"etag", tag),)) if is_known else None
