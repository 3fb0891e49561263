"""The OpenAPI document of the server: complete, with examples that are valid, and plain names."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from clarion.app.management import TAGS
from clarion.http.asgi import Response
from clarion.http.openapi import PATH, list_operations
from tests.conftest import run_apart
from tests.in_process import opened_front

pytestmark = pytest.mark.filterwarnings("ignore::litestar.exceptions.LitestarDeprecationWarning")
Document = dict[str, Any]
# What a description must say more than.
FILLER = {"a", "an", "the", "of", "its", "this", "is", "s"}
LARGEST_BYTES = 512 * 1024


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return run_apart(read_document(tmp_path_factory.mktemp("document")))


@pytest.fixture(scope="module")
def document(encoded: bytes) -> Document:
    read: Document = msgspec.json.decode(encoded)
    return read


async def read_document(folder: Path) -> bytes:
    async with opened_front(folder) as (front, _services):
        request: Any = None  # the answer is the same for everyone
        answer = await front.fast_routes["GET", PATH](request)
        assert isinstance(answer, Response)
        return answer.body


def list_fields(document: Document) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, schema in document["components"]["schemas"].items():
        yield name, schema
        for field, described in schema.get("properties", {}).items():
            yield f"{name}.{field}", described


def list_parameters(document: Document) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, method, operation in list_operations(document):
        for parameter in operation.get("parameters", ()):
            yield f"{method} {path} {parameter['name']}", parameter


def list_bodies(document: Document) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, method, operation in list_operations(document):
        for place, body in (("body", operation.get("requestBody", {})), *responses_of(operation)):
            for content in body.get("content", {}).values():
                yield f"{method} {path} {place}", content
    for name, response in document["components"]["responses"].items():
        for content in response["content"].values():
            yield name, content


def responses_of(operation: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return list(operation["responses"].items())


def is_filler(name: str, text: str) -> bool:
    """Whether a description says no more than the name: "The id of the id"."""
    words = set(re.findall(r"[a-z]+", text.lower()))
    return not words - FILLER - set(re.findall(r"[a-z]+", name.rpartition(".")[2].lower()))


def test_every_schema_field_and_parameter_is_described(document: Document) -> None:
    found = {**dict(list_fields(document)), **dict(list_parameters(document))}
    texts = {name: each.get("description") or "" for name, each in found.items()}
    assert [name for name, text in texts.items() if not text.strip()] == []
    assert [name for name, text in texts.items() if is_filler(name, text)] == []
    assert [name for name, text in texts.items() if text[-1] not in ".!:`)"] == []


def test_every_operation_and_response_is_described(document: Document) -> None:
    for _path, _method, operation in list_operations(document):
        assert operation["description"].strip(), operation["summary"]
        for status, response in responses_of(operation):
            assert response.get("description") or response.get("$ref"), (operation, status)


def test_descriptions_are_not_broken_into_lines(document: Document) -> None:
    texts = {name: each["description"] for name, each in list_fields(document)}
    assert [name for name, text in texts.items() if re.search(r"[^\n]\n[^\n]", text)] == []


def test_every_body_has_an_example_that_is_valid(document: Document) -> None:
    faults = []
    for place, content in list_bodies(document):
        schema = {**content["schema"], "components": document["components"]}
        validator = jsonschema_rs.Draft202012Validator(schema)
        faults += [f"{place}: {error}" for error in validator.iter_errors(content["example"])]
    assert faults == []


def test_examples_have_values_that_mean_something(document: Document) -> None:
    made = {place: msgspec.json.encode(each["example"]) for place, each in list_bodies(document)}
    assert [place for place, example in made.items() if b'"text"' in example] == []


def test_names_are_plain_and_ids_are_unique(document: Document) -> None:
    names = [*document["components"]["schemas"], *document["components"]["responses"]]
    assert [name for name in names if not re.fullmatch(r"([A-Z][a-z]+)+", name)] == []
    ids = [operation["operationId"] for _, _, operation in list_operations(document)]
    assert len(set(ids)) == len(ids)
    assert [each for each in ids if not re.fullmatch(r"[a-z]+(_[a-z]+)*", each)] == []


def test_tags_are_described_used_and_in_order(document: Document) -> None:
    assert [tag["name"] for tag in document["tags"]] == [tag.name for tag in TAGS]
    assert all(tag["description"] for tag in document["tags"])
    used = [operation["tags"] for _, _, operation in list_operations(document)]
    assert all(len(tags) == 1 for tags in used)
    order = list(dict.fromkeys(tag for tags in used for tag in tags))
    assert set(order) == {tag.name for tag in TAGS}
    assert order[0] == TAGS[0].name


def test_every_error_status_is_documented_as_a_problem(document: Document) -> None:
    for _path, method, operation in list_operations(document):
        statuses = {int(status) for status in operation["responses"]}
        assert {400, 401, 403, 404, 429, 500, 503} <= statuses
        assert ("requestBody" in operation) == ({408, 413, 415} <= statuses)
        assert (method == "get") == (507 not in statuses)
        for status, response in responses_of(operation):
            assert ("$ref" in response) == (int(status) >= 400)
    for response in document["components"]["responses"].values():
        (media_type,) = response["content"]
        assert media_type == "application/problem+json"
        schema = response["content"][media_type]["schema"]
        assert schema == {"$ref": "#/components/schemas/Problem"}


def test_the_document_is_not_too_large(encoded: bytes) -> None:
    assert len(encoded) < LARGEST_BYTES
