"""As much of `curl` as the documentation uses, so that machines without it can run its examples."""

import argparse
import sys
from pathlib import Path
from urllib.parse import urlsplit

from tests.e2e.asking import Asker

HTTP_ERROR = 22


def main(arguments: list[str]) -> int:
    """Send the request, print the answer, and fail if it is an error."""
    options = read(arguments)
    url = urlsplit(options.url)
    method = options.request or ("GET" if options.data is None else "POST")
    path = f"{url.path}?{url.query}" if url.query else url.path
    body = options.data.encode() if options.data is not None else None
    # As curl does, unless another type is given.
    form = {} if body is None else {"Content-Type": "application/x-www-form-urlencoded"}
    headers = form | {
        name.title(): value.strip() for name, _, value in (h.partition(":") for h in options.header)
    }
    if options.cookies and Path(options.cookies).exists():
        headers["Cookie"] = Path(options.cookies).read_text()
    answer = Asker(url.port or 80).ask(method, path, body, headers=headers)
    if options.jar and answer.set_cookies:
        kept = "; ".join(cookie.partition(";")[0] for cookie in answer.set_cookies)
        Path(options.jar).write_text(kept)
    if options.include:
        lines = [f"{name}: {value}" for name, value in answer.headers.items()]
        sys.stdout.write("\n".join([f"HTTP/1.1 {answer.status}", *lines, "", ""]))
    sys.stdout.write(answer.body.decode())
    return HTTP_ERROR if answer.status >= 400 else 0


def read(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-S", action="store_true")
    parser.add_argument("-i", dest="include", action="store_true")
    parser.add_argument("-H", dest="header", action="append", default=[])
    parser.add_argument("-X", dest="request")
    parser.add_argument("-b", dest="cookies")
    parser.add_argument("-c", dest="jar")
    parser.add_argument("-d", dest="data")
    parser.add_argument("url")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
