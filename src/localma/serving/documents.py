"""The documents of the Open Inference Protocol as JSON schemas, for the OpenAPI description."""

from __future__ import annotations

from typing import Any

from localma.serving.protocol import NUMBERS

Document = dict[str, Any]
"""A part of an OpenAPI description."""

NAME = {"type": "string", "minLength": 1}
PARAMETERS = {
    "type": "object",
    "additionalProperties": {"type": ["boolean", "number", "string"]},
}
DATATYPE = {"type": "string", "enum": [*NUMBERS, "BYTES"]}
VALUE = {"type": ["number", "string", "boolean", "null"]}
DATA = {"type": "array", "items": {"anyOf": [VALUE, {"type": "array", "items": VALUE}]}}


def _shape(least: int) -> Document:
    size = {"type": "integer", "minimum": least, "maximum": 2**31 - 1}
    return {"type": "array", "items": size, "minItems": 1, "maxItems": 2}


def _record(required: list[str], **properties: Document) -> Document:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


INPUT = _record(
    ["name", "shape", "datatype", "data"],
    name=NAME,
    shape=_shape(1),
    datatype=DATATYPE,
    parameters=PARAMETERS,
    data=DATA,
)
OUTPUT = _record(
    ["name", "shape", "datatype"],
    name=NAME,
    shape=_shape(0),
    datatype=DATATYPE,
    parameters=PARAMETERS,
    data={"type": "array", "items": VALUE},
)
PORT = _record(["name", "datatype", "shape"], name=NAME, datatype=DATATYPE, shape=_shape(-1))
SCHEMAS: dict[str, Document] = {
    "Error": _record(["error"], error={"type": "string"}),
    "InferRequest": _record(
        ["inputs"],
        id={"type": "string"},
        parameters=PARAMETERS,
        inputs={"type": "array", "items": INPUT, "minItems": 1},
        outputs={
            "type": "array",
            "items": _record(["name"], name=NAME, parameters=PARAMETERS),
            "minItems": 1,
        },
    ),
    "InferResponse": _record(
        ["model_name", "model_version"],
        model_name=NAME,
        model_version=NAME,
        id={"type": "string"},
        parameters=PARAMETERS,
        outputs={"type": "array", "items": OUTPUT},
        explanations={"type": "array", "items": {"type": "object"}},
    ),
}
"""Documents by name."""


def _content(schema: str, *kinds: str) -> Document:
    reference = {"schema": {"$ref": f"#/components/schemas/{schema}"}}
    return dict.fromkeys(kinds or ("application/json",), reference)


REASONS = {
    400: "The request is wrong; the message says how.",
    401: "The token is missing or wrong.",
    404: "There is no such model or version.",
    408: "The body did not arrive in time.",
    413: "The request has too many bytes or rows.",
    415: "The body is compressed.",
    429: "Too many requests wait. Try again later.",
    503: "No answer now. Try again later.",
}
"""What each status means."""


def answers(*statuses: int) -> dict[int | str, Document]:
    """Describe the responses of a path with these statuses, besides success.

    >>> sorted(answers(404))
    [200, 401, 404]
    """
    described: dict[int | str, Document] = {
        200: {"content": {"application/json": {"schema": {"type": "object"}}}}
    }
    for status in (401, *statuses):
        described[status] = {"description": REASONS[status], "content": _content("Error")}
    return described


BODY: Document = {"required": True, "content": _content("InferRequest")}
"""The body of a request for answers."""
HEADER: Document = {
    "name": "Inference-Header-Content-Length",
    "in": "header",
    "required": False,
    "description": "Bytes of the JSON document, if binary tensors follow it.",
    "schema": {"type": "integer", "minimum": 1},
}
"""The header of a request with binary tensors."""


def path_parameters(model: str, has_version: bool) -> list[Document]:
    """Describe the parts of a path: the name of the model and, if it is named, its version.

    >>> [parameter["name"] for parameter in path_parameters("rent", has_version=True)]
    ['name', 'version']
    """
    schemas: dict[str, Document] = {"name": {"type": "string", "enum": [model]}}
    if has_version:
        schemas["version"] = {"type": "string", "pattern": "^[0-9a-f]{12}$"}
    return [
        {"name": name, "in": "path", "required": True, "schema": schema}
        for name, schema in schemas.items()
    ]


ANSWERS: dict[int | str, Document] = {
    **answers(*(status for status in REASONS if status != 401)),
    200: {"content": _content("InferResponse")},
}
"""The responses to a request for predictions."""
