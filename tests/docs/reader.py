"""A reader of the documentation: a fresh clone, an empty home, and terminals."""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.docs.pages import FILES, ROOT, Block
from tests.node import find_node
from tests.processes import ServerUnavailableError, free_port
from tests.replacing import replace
from tests.servers import postgres_programs

LIMIT_S = 60.0
ASK_EVERY_S = 0.02
# What a shell of a user has; the rest of the environment of the tests must not matter.
KEPT = ("PATH", "LANG", "TMPDIR")
# How packages are installed here is the machine's business.
KEPT_PREFIXES = ("PIP_", "UV_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT", "PYENV_")
# API keys begin with it. What stays open, above all a server, has no reason to show one.
SECRET = "ck_"
REFUSED = "HTTP 4", "HTTP 5"

# Says on the standard error what was answered: curl itself succeeds whatever it is.
CURL = """#!/bin/sh
exec {curl} -w '%{{stderr}}HTTP %{{http_code}}\\n' "$@"
"""
# For a machine without the program.
PYTHON = """#!/bin/sh
exec {python} -P {script} "$@"
"""


class Clone:
    """A clone of this repository in which `make install` was run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "clarion"
        self.home = folder / "home"
        self.programs = folder / "programs"
        self.install_s = 0.0

    def prepare(self) -> None:
        """Clone and install, once a run: another worker may have done it, or be doing it."""
        self.home.parent.mkdir(exist_ok=True)
        done = self.home.parent / "installed"
        with only_one_at_a_time(self.home.parent / "lock"):
            if not done.exists():
                self._clone()
                self._install()
                self._add_programs()
                done.touch()

    def _clone(self) -> None:
        git("clone", "--quiet", str(ROOT), str(self.folder))
        # What is not committed yet is part of what is tested.
        changed = git("-C", str(ROOT), "ls-files", "-mo", "--exclude-standard").splitlines()
        for name in changed:
            if (ROOT / name).exists():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, self.folder / name)
        self._follow_itself()
        self.home.mkdir()

    def _follow_itself(self) -> None:
        """Let `git pull` find nothing new, whatever is committed while the tests run."""
        own = ("-C", str(self.folder))
        git(*own, "checkout", "--quiet", "-B", "release")
        git(*own, "remote", "set-url", "origin", str(self.folder))
        git(*own, "fetch", "--quiet")
        git(*own, "branch", "--quiet", "--set-upstream-to=origin/release")

    def _install(self) -> None:
        done = subprocess.run(
            ["/usr/bin/env", "make", "install"],
            cwd=self.folder,
            env=environment(self.home),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ServerUnavailableError(f"make install failed:\n{done.stdout}{done.stderr}")

    def _add_programs(self) -> None:
        self.programs.mkdir()
        curl = shutil.which("curl")
        shims = {"curl": CURL.format(curl=curl) if curl else run_script("e2e/curl.py")}
        for name in ("oathtool", "php"):
            if not shutil.which(name):
                shims[name] = run_script(f"docs/{name}.py")
        node = find_node()
        shims["node"] = f'#!/bin/sh\nexec {node.node} "$@"\n'
        shims["npm"] = f'#!/bin/sh\nexec {" ".join(node.npm)} "$@"\n'
        for program in postgres_programs(bundled=False, folder=self.programs).iterdir():
            (self.programs / program.name).symlink_to(program)
        for name, text in shims.items():
            (self.programs / name).write_text(text)
            (self.programs / name).chmod(0o755)


def accepts(address: str) -> bool:
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port))).close()
    except OSError:
        return False
    return True


def run_script(name: str) -> str:
    return PYTHON.format(python=sys.executable, script=ROOT / "tests" / name)


def git(*arguments: str) -> str:
    done = subprocess.run(
        ["/usr/bin/env", "git", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ServerUnavailableError(f"git {arguments[0]}: {done.stderr}")
    return done.stdout


@contextmanager
def only_one_at_a_time(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in KEPT or name.upper().startswith(KEPT_PREFIXES)
    }
    own = str(Path(sys.prefix) / "bin")
    path = [each for each in kept.get("PATH", "").split(":") if each != own]
    return {**kept, "PATH": ":".join(path), "HOME": str(home), "COLUMNS": "400", **more}


class Terminal:
    """A shell of its own."""

    def __init__(self, folder: Path, given: Mapping[str, str], log: Path) -> None:
        self._folder = folder
        self._log = log
        self._count = 0
        log.mkdir()
        self._process = subprocess.Popen(
            ["/bin/bash", "--noprofile", "--norc"],
            cwd=folder,
            env=given,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._type("set -eu -o pipefail")

    @property
    def is_busy(self) -> bool:
        """Whether the last command is still running."""
        return self._process.poll() is None and not self._path("done").exists()

    @property
    def has_failed(self) -> bool:
        return self._process.poll() is not None

    @property
    def printed(self) -> str:
        """What the last command has printed so far."""
        names = ("out", "err")
        paths = [path for name in names if (path := self._path(name)).exists()]
        return "".join(path.read_text(errors="replace") for path in paths)

    def begin(self, text: str) -> None:
        """Type commands; a failure ends the shell."""
        self._count += 1
        self._path("sh").write_text(text)
        paths = {name: self._path(name) for name in ("sh", "out", "err", "done")}
        self._type(
            ". {sh} </dev/null >{out} 2>{err}; echo >{done}".format(
                **{name: f"'{path}'" for name, path in paths.items()}
            )
        )

    def interrupt(self) -> None:
        """Press Ctrl-C, and close the terminal."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                os.killpg(self._process.pid, number)
                try:
                    self._process.wait(20 if number == signal.SIGINT else 5)
                except subprocess.TimeoutExpired:
                    continue

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.interrupt()

    def _path(self, name: str) -> Path:
        return self._log / f"{self._count}.{name}"

    def _type(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


class Reader:
    """Follows a page from its top to its end."""

    def __init__(
        self, clone: Clone, folder: Path, replaced: Mapping[str, str], **given: str
    ) -> None:
        self.folder = folder / "clarion"
        self._log = folder
        self.port, self.tls_port, self.gateway_port = (free_port() for _ in range(3))
        # Of a web application that a page makes.
        self._site = f"127.0.0.1:{free_port()}"
        self._replaced = {
            "127.0.0.1:8080": f"127.0.0.1:{self.port}",
            "127.0.0.1:8081": f"127.0.0.1:{self.gateway_port}",
            **dict.fromkeys(("127.0.0.1:8000", "127.0.0.1:3000"), self._site),
            "--port 8000": f"--port {self._site.rpartition(':')[2]}",
            "127.0.0.1:8090": f"127.0.0.1:{free_port()}",
            "127.0.0.1:8091": f"127.0.0.1:{free_port()}",
            "localhost:8443": f"localhost:{self.tls_port}",
            '"127.0.0.1", 9000': f'"127.0.0.1", {(receiver := free_port())}',
            "127.0.0.1:9000": f"127.0.0.1:{receiver}",
            "localhost:3000": f"localhost:{(web := free_port())}",
            "http.server 3000": f"http.server {web}",
            "/var/lib/clarion": str(folder / "state"),
            **replaced,
        }
        # Where there is a `sudo`, it is the test's.
        path = f"{folder / 'sudo'}:{clone.programs}:{environment(clone.home)['PATH']}"
        listen = {
            "CLARION_LISTEN": f"127.0.0.1:{self.port}",
            "CLARION_TLS_LISTEN": f"127.0.0.1:{self.tls_port}",
            "CLARION_GATEWAY_LISTEN": f"127.0.0.1:{self.gateway_port}",
            "CLARION_ALLOW_PRIVATE_TARGETS": "127.0.0.0/8",
        }
        home = folder / "home"
        home.mkdir()
        self._environment = environment(home, **{"PATH": path, **listen, **given})
        self.open: list[tuple[Block | None, Terminal]] = []
        self._last: Block | None = None

    def __enter__(self) -> Self:
        self._terminal = Terminal(self.folder, self._environment, self._log / "terminal")
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()
        self._terminal.close()

    def start_server(self, command: str = "exec .venv/bin/clarion serve") -> None:
        """Have what pages call a running server: that of the quickstart."""
        self._open(None, command)

    def run(self, text: str) -> None:
        """Run commands of a test."""
        self._run(Block(page="a test", line=0, kind="sh", title=None, text=text), None)

    @property
    def printed(self) -> str:
        """What the last commands have printed."""
        return self._terminal.printed

    def follow(self, blocks: list[Block]) -> None:
        for block, following in zip(blocks, [*blocks[1:], None], strict=True):
            if block.kind in FILES:
                assert block.title is not None
                path = self.folder / block.title
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self._replace(block.text))
            elif block.is_shown:
                self._compare(block)
            elif block.changes_machine:
                subprocess.run(["/bin/bash", "-n"], input=block.text, text=True, check=True)
            elif block.kind == "sh":
                self._run(block, following if following and following.is_shown else None)
        for opened, terminal in self.open:
            assert not terminal.has_failed, f"{opened} ended: {terminal.printed}"
            assert SECRET not in terminal.printed, f"{opened} shows an API key"

    def stop(self) -> None:
        for _, terminal in self.open:
            terminal.close()
        self.open.clear()

    def _run(self, block: Block, shown: Block | None) -> None:
        if block.comes_after_a_stop:
            self.stop()
        self._last = None if block.stays else block
        if block.stays:
            self._open(block, self._replace(block.text))
            return
        terminal = self._terminal
        terminal.begin(self._replace(block.text))
        self._wait(block, lambda: not terminal.is_busy)
        assert not terminal.has_failed, f"{block} failed: {terminal.printed}"
        is_refused = any(line.startswith(REFUSED) for line in terminal.printed.splitlines())
        shows_refusal = shown is not None and '"code"' in shown.text
        assert shows_refusal or not is_refused, f"{block} was refused: {terminal.printed}"

    def _open(self, block: Block | None, text: str) -> None:
        log = self._log / f"terminal-{time.monotonic_ns()}"
        terminal = Terminal(self.folder, self._environment, log)
        self.open.append((block, terminal))
        terminal.begin(text)
        if "clarion serve" in text or "make run" in text:
            self._wait(block, lambda: self.is_ready() or terminal.has_failed)
            assert not terminal.has_failed, f"{block} failed: {terminal.printed}"
        elif self._site in text:
            self._wait(block, lambda: accepts(self._site) or terminal.has_failed)

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready") as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _compare(self, block: Block) -> None:
        """Output can come from the last command, or from a terminal that is open.

        What was sent may not have arrived yet: then a command that only reads is repeated.
        """
        shown = replace(block, text=self._replace(block.text))
        others = [terminal for opened, terminal in self.open if opened]
        last = self._last

        def is_printed() -> bool:
            if any(shown.matches(each.printed) for each in (self._terminal, *others)):
                return True
            if last is not None and last.only_reads:
                self._run(last, None)
            return False

        if others or (last is not None and last.only_reads):
            self._wait(block, is_printed)
        else:
            assert is_printed(), f"{block}: not so:\n{self._terminal.printed}"

    def _wait(self, block: Block | None, is_over: Callable[[], bool]) -> None:
        give_up = time.monotonic() + LIMIT_S
        while not is_over():
            if time.monotonic() > give_up:
                terminals = [self._terminal, *(terminal for _, terminal in self.open)]
                printed = "\n".join(each.printed for each in terminals)
                raise AssertionError(f"{block}: not so:\n{printed}")
            time.sleep(ASK_EVERY_S)

    def _replace(self, text: str) -> str:
        for old, new in self._replaced.items():
            text = text.replace(old, new)
        return text
