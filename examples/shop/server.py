"""The Clarion server: one that the environment names, or the shop's own."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

PROGRAM = str(Path(__file__).resolve().parents[2] / ".venv" / "bin" / "clarion")
LISTEN = f"127.0.0.1:{os.environ.get('SHOP_CLARION_PORT', '5001')}"
# The shop's mail server has a private address: Clarion sends there only if that is allowed.
OPTIONS = ["--tls-listen=off", "--gateway-listen=off", "--allow-private-targets=127.0.0.0/8"]
NAMES = ("CLARION_URL", "CLARION_APP_ID", "CLARION_API_KEY", "CLARION_USER_SECRET")


class Server(NamedTuple):
    """Where Clarion is, and the app of the shop there."""

    url: str
    app_id: str
    api_key: str
    user_secret: str


@contextmanager
def run_clarion(data: Path) -> Iterator[Server]:
    """Yield a server; one that is started here is stopped at the end."""
    if all(name in os.environ for name in NAMES):
        yield Server(*(os.environ[name] for name in NAMES))
        return
    flags = [f"--data={data}", f"--listen={LISTEN}"]
    with data.with_suffix(".log").open("w") as log:
        # Creates the database, and an app with its keys.
        init = [PROGRAM, "init", "--if-needed", *flags]
        subprocess.run(init, stdout=log, stderr=log, check=False)
        process = subprocess.Popen([PROGRAM, "serve", *flags, *OPTIONS], stdout=log, stderr=log)
    try:
        wait_until_ready(process, data.with_suffix(".log"))
        app = json.loads((data / "first-run.json").read_text())["app"]
        yield Server(f"http://{LISTEN}", app["id"], app["api_key"], app["user_secret"])
    finally:
        process.terminate()
        process.wait()


def wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> None:
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://{LISTEN}/ready"):
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"Clarion did not start: see {log}")
