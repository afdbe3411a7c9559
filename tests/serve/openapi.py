"""docs/openapi.json: its operations, and which values its schemas allow."""
import json
import os
import re

KINDS = {"null": type(None), "boolean": bool, "integer": int, "number": (int, float), "string": str, "array": list,
         "object": dict}

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/openapi.json")) as f:
    FILE = json.load(f)
SCHEMAS = FILE["components"]["schemas"]


def referred(value):
    """What a reference stands for."""
    while "$ref" in value:
        at = FILE
        for name in value["$ref"].removeprefix("#/").split("/"):
            at = at[name.replace("~1", "/").replace("~0", "~")]
        value = at
    return value


def operations():
    """(method, path, operation) of each, in capitals and with {} around what a path leaves open."""
    return [(method.upper(), path, operation) for path, item in FILE["paths"].items()
            for method, operation in referred(item).items()]


def answer(operation, status):
    """The schema of a JSON answer; None: the file has no such answer."""
    found = operation["responses"].get(str(status))
    return referred(found).get("content", {}).get("application/json", {}).get("schema") if found else None


def is_a(value, kind):
    return isinstance(value, KINDS[kind]) and not (isinstance(value, bool) and kind in ("integer", "number"))


def same(value, const):
    return value == const and isinstance(value, bool) == isinstance(const, bool)


def allows(schema, value):
    """What the file uses of JSON Schema."""
    schema = referred(schema)
    types = schema.get("type", list(KINDS))
    number, text, entries = is_a(value, "number"), is_a(value, "string"), is_a(value, "array")
    size = len(value) if isinstance(value, (str, list, dict)) else 0
    kind = "Length" if text else "Items" if entries else "Properties" if isinstance(value, dict) else None
    members = schema.get("properties", {})
    return (any(is_a(value, t) for t in ([types] if isinstance(types, str) else types))
            and all(allows(s, value) for s in schema.get("allOf", []))
            and ("anyOf" not in schema or any(allows(s, value) for s in schema["anyOf"]))
            and ("not" not in schema or not allows(schema["not"], value))
            and ("const" not in schema or same(value, schema["const"]))
            and ("enum" not in schema or any(same(value, e) for e in schema["enum"]))
            and not (number and (value < schema.get("minimum", value) or value > schema.get("maximum", value)))
            and not (kind and not schema.get("min" + kind, 0) <= size <= schema.get("max" + kind, size))
            and not (text and not re.search(schema.get("pattern", ""), value))
            and not (entries and not all(allows(schema.get("items", {}), v) for v in value))
            and not (isinstance(value, dict)
                     and not (all(name in value for name in schema.get("required", []))
                              and all(allows(members.get(name, schema.get("additionalProperties", {})), v)
                                      for name, v in value.items()))))


def said_of(schema, field):
    """All that a schema of a request says of a field."""
    schema = referred(schema)
    out = [schema["properties"][field]] if field in schema.get("properties", {}) else []
    for part in schema.get("allOf", []):
        out += said_of(part, field)
    if "anyOf" in schema:
        out += said_of(schema["anyOf"][-1 if "properties" in schema else 0], field)
    return out
