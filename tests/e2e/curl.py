"""As much of `curl` as the documentation uses, so that machines without it can run its examples."""

import argparse
import http.client
import ssl
import sys
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

TIMED_OUT = 28
LIMIT_S = 60.0


def main(arguments: list[str]) -> int:
    """Send the request, print the answer, and say on the standard error what it was."""
    options = read(arguments)
    give_up = time.monotonic() + options.max_time
    with closing(connect(options)) as connection:
        url = urlsplit(options.url)
        path = f"{url.path}?{url.query}" if url.query else url.path
        body = read_body(options.data)
        method = options.request or ("GET" if body is None else "POST")
        connection.request(method, path, body, headers_of(options, body))
        answer = connection.getresponse()
        keep_cookies(options, answer)
        write_head(options, answer)
        code = copy(answer, options.output, give_up)
        sys.stderr.write(f"HTTP {answer.status}\n")
        return code


def connect(options: argparse.Namespace) -> http.client.HTTPConnection:
    url = urlsplit(options.url)
    host = url.hostname or ""
    if url.scheme == "https":
        context = ssl.create_default_context(cafile=options.cacert)
        return http.client.HTTPSConnection(host, url.port, timeout=LIMIT_S, context=context)
    return http.client.HTTPConnection(host, url.port, timeout=LIMIT_S)


def read_body(given: str | None) -> bytes | None:
    if given is None:
        return None
    return Path(given[1:]).read_bytes() if given.startswith("@") else given.encode()


def headers_of(options: argparse.Namespace, body: bytes | None) -> dict[str, str]:
    # As curl does, unless another type is given.
    form = {} if body is None else {"content-type": "application/x-www-form-urlencoded"}
    given = (each.partition(":") for each in options.header)
    headers = form | {name.lower(): value.strip() for name, _, value in given}
    if options.cookies and Path(options.cookies).exists():
        headers["cookie"] = Path(options.cookies).read_text()
    return headers


def keep_cookies(options: argparse.Namespace, answer: http.client.HTTPResponse) -> None:
    cookies = answer.headers.get_all("Set-Cookie", ())
    if options.jar and cookies:
        Path(options.jar).write_text("; ".join(each.partition(";")[0] for each in cookies))


def write_head(options: argparse.Namespace, answer: http.client.HTTPResponse) -> None:
    lines = [f"{name}: {value}" for name, value in answer.getheaders()]
    head = "\n".join([f"HTTP/1.1 {answer.status} {answer.reason}", *lines, "", ""])
    if options.include or options.dump == "-":
        sys.stdout.write(head)


def copy(answer: http.client.HTTPResponse, output: str | None, give_up: float) -> int:
    """Write the body as it comes."""
    with open(output, "wb") if output else sys.stdout.buffer as target:  # noqa: PTH123 - or stdout
        sys.stdout.flush()
        while part := answer.read1():
            target.write(part)
            target.flush()
            if time.monotonic() > give_up:
                return TIMED_OUT
    return 0


def read(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for flag in ("-s", "-S", "-N"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("-i", dest="include", action="store_true")
    parser.add_argument("-H", dest="header", action="append", default=[])
    parser.add_argument("-X", dest="request")
    parser.add_argument("-b", dest="cookies")
    parser.add_argument("-c", dest="jar")
    parser.add_argument("-d", "--data-binary", dest="data")
    parser.add_argument("-o", dest="output")
    parser.add_argument("-D", dest="dump")
    parser.add_argument("--cacert")
    parser.add_argument("--max-time", type=float, default=LIMIT_S)
    parser.add_argument("url")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
