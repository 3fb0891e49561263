"""The image, the files of Compose and the manifests, as far as they can be checked without them."""

import json
import os
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import validator_for

from clarion.settings import PREFIX, describe
from tests.installed_packages import install
from tests.ops.operations import OPS, ROOT, read_manifests, read_yaml

pytestmark = pytest.mark.timeout(300)
LOCK = Path(__file__).with_name("tools.lock")
DOCKERFILE = OPS / "Dockerfile"
COMPOSE = sorted(OPS.glob("compose*.yaml"))
MANIFESTS = sorted((OPS / "kubernetes").glob("*.yaml"))
KUBERNETES = "v1.37.0-local-strict"
VARIABLES = {variable for _, _, variable, _, _ in describe()}
SECRET_FILES = {f"{variable}_FILE" for variable in VARIABLES}


@pytest.fixture(scope="session")
def tools() -> Path:
    """The programs and schemas of the lock file."""
    return install(LOCK)


def lint(tools: Path, text: str) -> list[str]:
    program = tools / "bin" / "hadolint"
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    done = subprocess.run(
        [program, "--no-color", "-"], input=text, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_the_dockerfile_has_no_fault(tools: Path) -> None:
    assert lint(tools, DOCKERFILE.read_text()) == []


def test_a_fault_of_a_dockerfile_is_found(tools: Path) -> None:
    assert lint(tools, "FROM python\nRUN cd /x && pip install clarion\n") != []


def test_the_image_runs_without_privileges_and_checks_itself() -> None:
    build, image = re.split(r"^FROM ", DOCKERFILE.read_text(), flags=re.MULTILINE)[1:]
    assert "--require-hashes --only-binary :all:" in build
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", image, re.MULTILINE)
    assert "HEALTHCHECK" in image
    assert "pip install" not in image, "what builds the image is not part of it"
    named = set(re.findall(rf"\b({PREFIX}\w+)=", image))
    assert named - VARIABLES == set()


def test_the_context_of_the_build_has_what_is_copied_and_nothing_secret() -> None:
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    assert allowed[0] == "*"
    copied = re.findall(r"^COPY (?!--from)(\S+)", DOCKERFILE.read_text(), re.MULTILINE)
    assert {f"!{each}" for each in copied} == {each for each in allowed if each.startswith("!")}


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_a_file_of_compose_names_settings_and_files_that_exist(path: Path) -> None:
    services = read_yaml(path)["services"]
    for service in services.values():
        variables = {name for name in service.get("environment", {}) if name.startswith(PREFIX)}
        assert variables - VARIABLES - SECRET_FILES == set()
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (OPS / source).exists(), source


# A version with three numbers, or PostgreSQL's with two; or a digest.
EXACT = re.compile(r":v?\d+\.\d+\.\d+\b|^postgres:\d+\.\d+\b|@sha256:[0-9a-f]{64}$")


def test_the_image_is_based_on_an_exact_version() -> None:
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE.read_text(), flags=re.MULTILINE)
    assert bases
    assert all(map(EXACT.search, bases)), bases


def test_metrics_are_not_for_those_who_come_through_a_proxy() -> None:
    for path in COMPOSE:
        assert "CLARION_METRICS_AND_DOCS: direct" in path.read_text()


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_every_service_of_compose_is_confined_and_pinned(path: Path) -> None:
    for name, service in read_yaml(path)["services"].items():
        assert "no-new-privileges:true" in service["security_opt"], name
        assert service["image"] == "clarion" or EXACT.search(service["image"]), name
        # Ports are for this machine: what is open to others is decided by whoever opens it.
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        if service["image"] == "clarion":
            assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])


CASES = [
    (f"{path.name} {each['kind']}", each) for path in MANIFESTS for each in read_manifests(path)
]
PODS = [(name, each) for name, each in CASES if each["kind"] in {"Deployment", "StatefulSet"}]


@pytest.mark.parametrize("manifest", [each for _, each in CASES], ids=[name for name, _ in CASES])
def test_a_manifest_fulfils_the_schema_of_kubernetes(tools: Path, manifest: dict[str, Any]) -> None:
    assert find_schema_faults(tools, manifest) == []


def test_a_fault_of_a_manifest_is_found(tools: Path) -> None:
    manifest = json.loads(json.dumps(PODS[0][1]))
    manifest["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    assert find_schema_faults(tools, manifest) != []


def find_schema_faults(tools: Path, manifest: dict[str, Any]) -> list[str]:
    folder = tools / "kubernetes_validate" / "kubernetes-json-schema" / KUBERNETES
    group, _, version = manifest["apiVersion"].rpartition("/")
    parts = [manifest["kind"].lower(), *([group.split(".")[0]] if group else []), version]
    schema = json.loads((folder / f"{'-'.join(parts)}.json").read_text())

    def retrieve(uri: str) -> Any:
        return json.loads((folder / uri.rpartition("/")[2]).read_text())

    validator = validator_for(schema, retriever=retrieve)
    return [error.message for error in validator.iter_errors(manifest)]


@pytest.mark.parametrize("manifest", [each for _, each in PODS], ids=[name for name, _ in PODS])
def test_pods_are_restricted_and_probed(manifest: dict[str, Any]) -> None:
    """As the Pod Security Standard *restricted* has it."""
    pod = manifest["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"requests", "limits"} <= container["resources"].keys()
    (server,) = pod["containers"]
    probes = {name: server[f"{name}Probe"]["httpGet"]["path"] for name in ("liveness", "readiness")}
    assert probes == {"liveness": "/live", "readiness": "/ready"}
    assert {each["name"] for each in server["env"]} - VARIABLES == set()


@pytest.mark.parametrize("manifest", [each for _, each in PODS], ids=[name for name, _ in PODS])
def test_a_pod_has_more_time_to_stop_than_it_takes(manifest: dict[str, Any]) -> None:
    pod = manifest["spec"]["template"]["spec"]
    defaults = {variable: default for _, _, variable, default, _ in describe()}
    given = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    takes_s = sum(
        int(given.get(name) or defaults[name]) for name in ("CLARION_GRACE_S", "CLARION_DRAIN_S")
    )
    assert pod["terminationGracePeriodSeconds"] > takes_s


def test_no_secret_is_in_the_files() -> None:
    assert not (OPS / "secrets").exists() or os.environ.get("CI") is None
    assert "/ops/secrets/" in (ROOT / ".gitignore").read_text().splitlines()
