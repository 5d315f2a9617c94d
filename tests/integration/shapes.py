"""Whether a value has the shape that proto/schema's tables give it, by the JSON Schemas made from them.

    shapes.check("messages", "status result", reply)

A member that has no row is a failure. Every message that tests/integration receives comes through here, so this
reads only what schema.c writes, and is quick; test_schemas.py compares it with jsonschema.
"""

import functools
import json
import os
import re
from pathlib import Path

BUILD = Path(os.environ.get("GPT2D_BUILD", Path(__file__).resolve().parents[2] / "build"))
FILES = {"messages": "proto/messages.schema.json", "output": "ctl/output.schema.json",
    "artifacts": "proto/artifacts.schema.json"}
TYPES = {"integer": int, "number": (int, float), "string": str, "boolean": bool, "null": type(None), "object": dict,
    "array": list}


class Wrong(AssertionError):
    pass


@functools.cache
def definitions(name):
    return json.loads((BUILD / FILES[name]).read_text())["$defs"]


def is_type(value, name):
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, TYPES[name]) or name == "integer" and isinstance(value, float) and value.is_integer()


def fits(schema, value, defs):
    try:
        compare(schema, value, defs, "")
    except Wrong:
        return False
    return True


def compare_object(schema, value, defs, path):
    properties, more = schema.get("properties", {}), schema.get("additionalProperties", {})
    missing = [key for key in schema.get("required", ()) if key not in value]
    if missing:
        raise Wrong(f"{path}: {', '.join(missing)} missing")
    for key, member in value.items():
        if key not in properties and more is False:
            raise Wrong(f"{path}.{key}: no row describes it")
        compare(properties.get(key, more), member, defs, f"{path}.{key}")


def compare(schema, value, defs, path):
    if "$ref" in schema:
        schema = defs[schema["$ref"].rsplit("/", 1)[1].replace("%20", " ")]
    if "anyOf" in schema:
        null = [choice for choice in schema["anyOf"] if choice == {"type": "null"}]
        others = [choice for choice in schema["anyOf"] if choice not in null]
        if value is None and null:
            return
        if len(others) == 1:  # an error inside says more than that no alternative fits
            compare(others[0], value, defs, path)
        elif not any(fits(choice, value, defs) for choice in others):
            raise Wrong(f"{path}: {value!r} is none of {others}")
    if "type" in schema and not is_type(value, schema["type"]):
        raise Wrong(f"{path}: {schema['type']} expected, found {value!r}")
    if "const" in schema and value != schema["const"]:
        raise Wrong(f"{path}: {schema['const']!r} expected, found {value!r}")
    if "enum" in schema and value not in schema["enum"]:
        raise Wrong(f"{path}: one of {schema['enum']} expected, found {value!r}")
    if "minimum" in schema and value < schema["minimum"]:
        raise Wrong(f"{path}: at least {schema['minimum']} expected, found {value!r}")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        raise Wrong(f"{path}: {schema['pattern']} expected, found {value!r}")
    if isinstance(value, list):
        for i, member in enumerate(value):
            compare(schema.get("items", {}), member, defs, f"{path}[{i}]")
    elif isinstance(value, dict):
        compare_object(schema, value, defs, path)


def check(file, name, value):
    defs = definitions(file)
    if name not in defs:
        raise Wrong(f"{name}: no row describes it")
    compare(defs[name], value, defs, name)


def example(file, name):
    """A value of that shape with the members that are required: zeros, empty texts, empty arrays; a hash of zeros."""
    def of(schema):
        schema = defs[schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema
        schema = schema["anyOf"][0] if "anyOf" in schema else schema
        if "enum" in schema:
            return schema["enum"][0]
        if schema.get("type") == "object":
            return {key: of(schema["properties"][key]) for key in schema.get("required", ())}
        if "pattern" in schema:
            return "0" * 64
        return {"integer": 0, "number": 0, "string": "", "boolean": False, "array": []}.get(schema.get("type"))
    defs = definitions(file)
    return of(defs[name])


def check_reply(method, message):
    """A reply of gpt2d to a request of that method."""
    if "result" in message:
        check("messages", f"{method} result", message["result"])
    for error in (message.get("error", {}).get("data") or {}).get("errors", ()):
        check("messages", "spec_error", error)


def check_lines(text):
    """What gpt2ctl --json printed."""
    for line in text.splitlines():
        value = json.loads(line)
        check("output", value["kind"], value)
