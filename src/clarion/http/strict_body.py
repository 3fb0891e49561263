"""Request bodies of handlers: JSON is decoded once, strictly, into the type of `data`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from litestar._openapi.schema_generation import SchemaCreator
from litestar.dto import AbstractDTO
from litestar.dto.data_structures import DTOFieldDefinition
from litestar.openapi.spec import Reference, Schema
from litestar.typing import FieldDefinition

from clarion.http.decoding import decode


class StrictBody(AbstractDTO[Any]):
    """Decodes the `data` of a handler.

    By default Litestar decodes the body into plain values and then converts these loosely: 1 and
    "true" would pass for a flag.
    """

    def decode_bytes(self, value: bytes) -> Any:
        field = self.asgi_connection.route_handler.parsed_data_field
        return decode(_decoder_of(field.annotation), value)

    # The rest is what Litestar asks of a DTO: the type itself is the transfer type.

    @classmethod
    def create_for_field_definition(cls, *_args: Any, **_more: Any) -> None:
        pass

    @classmethod
    def create_openapi_schema(
        cls, field_definition: FieldDefinition, handler_id: str, schema_creator: SchemaCreator
    ) -> Reference | Schema:
        del handler_id
        return schema_creator.for_field_definition(field_definition)

    @classmethod
    def generate_field_definitions(cls, model_type: type[Any]) -> Iterator[DTOFieldDefinition]:  # type: ignore[override]
        del model_type
        return iter(())

    @classmethod
    def detect_nested_field(cls, field_definition: FieldDefinition) -> bool:
        del field_definition
        return False


@cache
def _decoder_of(body_type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(body_type)
