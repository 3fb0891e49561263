"""T25: bodies that are too large, too deep, too many, compressed or not text.

Each is refused with a status that says why, in less than a second of processor time, and the memory
of the server does not grow with it.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from tests.faults.http.server import MIB, Target, watched_memory
from tests.faults.sizes import SIZES
from tests.lanes import is_measured

REFUSED = {400, 413, 415, 422}
CPU_LIMIT_S = 1.0
MEMORY_LIMIT = 64 * MIB
PATHS = ("/v1/events", "/v1/events/batch", "/v1/users/ana", "/v1/keys", "/v1/explain")
EVENT = '{"type": "POST_LIKE", "recipient": {"user_id": "ana"}, "data": %s}'


@dataclass(frozen=True)
class Case:
    name: str
    body: bytes | Callable[[], Iterator[bytes]]
    headers: Mapping[str, str] = field(default_factory=dict)


def _stream() -> Iterator[bytes]:
    """A body in chunks, without its length."""
    part = b"[" + b" " * (MIB - 1)
    for _ in range(SIZES.huge_body_bytes // MIB):
        yield part


def _event(data: str) -> bytes:
    return (EVENT % data).encode()


def _nested(opening: str, closing: str) -> str:
    return opening * SIZES.nested_levels + closing * SIZES.nested_levels


def _encoded(value: object) -> bytes:
    return json.dumps(value).encode()


# As many as fit into the largest body; a million would be refused for their size alone.
_KEYS = dict.fromkeys(map(str, range(60_000)), 0)
_PEOPLE = ["a"] * 200_000
_ZEROS = b" " * (100 * MIB)  # 1 : 1000 when compressed

CASES = [
    Case("nothing", b""),
    Case("announced and too large", b" " * (2 * MIB)),
    Case("chunks without a length", _stream),
    Case("gzip bomb", gzip.compress(_ZEROS, 1), {"Content-Encoding": "gzip"}),
    Case("deflate bomb", zlib.compress(_ZEROS, 1), {"Content-Encoding": "deflate"}),
    Case("said to be brotli", b"\x81\x16\x00\x58" * 1000, {"Content-Encoding": "br"}),
    Case("nested lists", _nested("[", "]").encode()),
    Case("nested objects", _nested('{"a":', "}").encode()),
    Case("nested in data", _event(_nested("[", "]"))),
    Case("many keys", _encoded(_KEYS)),
    Case("a million keys", _encoded({str(n): 0 for n in range(1_000_000)})),
    Case("many keys in data", _event(json.dumps(_KEYS))),
    Case("many recipients", _encoded({"type": "POST_LIKE", "recipient": {"user_ids": _PEOPLE}})),
    Case("a million recipients", _encoded({"recipient": {"user_ids": _PEOPLE * 5}})),
    Case("a long number", _event("9" * 900_000)),
    Case("a number beyond all", _event("1e999999")),
    Case("zero bytes", b"\0" * 1000),
    Case("a zero character", b'{"type": "A\\u0000B", "recipient": {"user_id": "a\\u0000b"}}'),
    Case("half a surrogate pair", b'{"type": "\\ud800", "recipient": {"user_id": "\\udfff"}}'),
    Case("not UTF-8", b'{"type": "\xff\xfe", "recipient": {"user_id": "\xc0\x80"}}'),
    Case("UTF-16", '{"type": "POST_LIKE"}'.encode("utf-16")),
    Case("right to left", _encoded({"type": "\u202e", "recipient": {"user_id": "\u202e"}})),
    Case("the same key often", b"{" + b",".join([b'"type": "A"'] * 50_000) + b"}"),
    Case("a byte-order mark", b'\xef\xbb\xbf{"type": "POST_LIKE"}'),
    Case("only white space", b" " * MIB),
    Case("two documents", b"{}{}"),
]


@pytest.mark.watched
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "_"))
def test_huge_input_is_refused_at_little_cost(target: Target, case: Case) -> None:
    for path in PATHS:
        method = "PUT" if path == "/v1/users/ana" else "POST"
        body = case.body if isinstance(case.body, bytes) else case.body()
        before_s = target.cpu_s
        with watched_memory(target) as growth:
            answer = target.app.ask(method, path, body, headers=case.headers)
        about = f"{case.name} to {path}: {answer.status} {answer.body[:200]!r}"
        # A user may have any fields but unknown ones, so nothing here is a valid one.
        assert answer.status in REFUSED, about
        assert answer.problem["code"] in {
            "malformed_body", "invalid_fields", "body_too_large", "not_json",
        }, about  # fmt: skip
        assert target.cpu_s - before_s < CPU_LIMIT_S or not is_measured(), about
        assert growth[-1] < MEMORY_LIMIT, about


@pytest.mark.parametrize("size", [4096, 4097, MIB, 2 * MIB])
def test_a_push_without_a_token_is_refused_whatever_its_size(target: Target, size: int) -> None:
    with watched_memory(target) as growth:
        answer = target.app.post("/3/device/00", b" " * size)
    assert answer.status == 403
    assert growth[-1] < MEMORY_LIMIT


def test_afterwards_the_server_works_as_before(
    target: Target, figures: Callable[[str], None]
) -> None:
    assert target.app.ask("PUT", "/v1/users/ana", {"name": "Ana"}).status in {200, 201}
    rss = target.rss_bytes // MIB
    figures(f"T25: {len(CASES)} bodies × {len(PATHS)} endpoints refused; RSS {rss} MiB")
