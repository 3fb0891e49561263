"""Print an SBOM (CycloneDX 1.6, JSON) of what a release installs, made from the lock file.

Standard library only. The same lock makes the same document, byte for byte.
"""

from __future__ import annotations

import json
import re
import tomllib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCK = "requirements.lock"
PINNED = re.compile(
    r"(?P<name>[\w.-]+)(?:\[[\w,-]+\])?==(?P<version>[^ ;\\]+)(?: ; (?P<marker>[^\\]+?))?(?: \\)?"
)
HASH = re.compile(r" +--hash=sha256:([0-9a-f]{64})(?: \\)?")
VIA = re.compile(r" +# via (.+)")
# Any, as long as it stays the same.
NAMESPACE = uuid.UUID("0e8a3c5e-7c0d-4a9e-9d55-6f2b0a5d8c11")


class UnknownLine(Exception):
    """The lock file has a line that is not understood."""


@dataclass
class Package:
    """A pinned package, and who needs it."""

    name: str
    version: str
    marker: str | None
    hashes: list[str] = field(default_factory=list)
    needed_by: list[str] = field(default_factory=list)

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{normalise(self.name)}@{self.version}"


def normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(text: str) -> list[Package]:
    """Return the packages of a lock file that uv has written; `UnknownLine` for anything else."""
    packages: list[Package] = []
    for line in text.splitlines():
        if found := HASH.fullmatch(line):
            packages[-1].hashes.append(found[1])
        elif found := VIA.fullmatch(line):
            packages[-1].needed_by += [each.split("[")[0] for each in found[1].split(", ")]
        elif found := PINNED.fullmatch(line):
            packages.append(Package(found["name"], found["version"], found["marker"]))
        elif line and not line.startswith("#"):
            raise UnknownLine(line)
    return packages


def make_sbom(project: dict[str, Any], lock: str) -> dict[str, Any]:
    """Return the document as what becomes JSON."""
    packages = read_lock(lock)
    root = f"pkg:generic/{project['name']}@{project['version']}"
    component = {
        "type": "application",
        "bom-ref": root,
        "name": project["name"],
        "version": project["version"],
        "description": project["description"],
        "licenses": [{"license": {"id": project["license"]}}],
        "purl": root,
    }
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, root + lock)}",
        "version": 1,
        "metadata": {"component": component},
        "components": [describe(each) for each in packages],
        "dependencies": list(find_dependencies(project["name"], root, packages)),
    }


def describe(package: Package) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
        # One for each file that is published of this version: a wheel a platform, and the source.
        "hashes": [{"alg": "SHA-256", "content": each} for each in package.hashes],
    }
    if package.marker:
        component["properties"] = [{"name": "clarion:marker", "value": package.marker}]
    return component


def find_dependencies(name: str, root: str, packages: list[Package]) -> Iterator[dict[str, Any]]:
    """Yield what each needs, the application first."""
    refs = {normalise(each.name): each.purl for each in packages} | {name: root}
    for each in (name, *(package.name for package in packages)):
        ours = normalise(each)
        needed = sorted(
            package.purl
            for package in packages
            if ours in {normalise(by.split(" ")[0]) for by in package.needed_by}
        )
        yield {"ref": refs[ours], "dependsOn": needed}


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    print(json.dumps(make_sbom(project, (ROOT / LOCK).read_text()), indent=1))


if __name__ == "__main__":
    main()
