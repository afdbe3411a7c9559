#!/usr/bin/env python3
"""Random schemas and documents: our grammars must accept exactly what Python's jsonschema accepts.

check_schema.py PROGRAM [--documents N] [--seed S]   PROGRAM: grammar_accepts
Exit status 0: no difference; 1: differences, each printed; 77: jsonschema is not installed.

Documents are written as schema.h says: properties in the schema's order (here: both alphabetical, additional keys
after), shortest escapes, no exponent where there are bounds, no fraction that is 0. What the header leaves out is not made:
oneOf whose alternatives overlap, strings on which Python's regular expressions differ from ECMA's, repeated keys.
"""
import argparse
import json
import random
import subprocess
import sys
import uuid

try:
    import jsonschema
except ImportError:
    print("skip: Python's jsonschema is not installed")
    sys.exit(77)

CHARS = "abcXYZ019 _-.,:/\"\\\t\n\u00e9\u20ac\U0001f600\x01\x7f"
PATTERNS = ["^[a-c]+$", "^x?[0-9]{2,4}$", "ab", "^ab", "ab$", "^(foo|ba[rz])*$", "[^a-z]", "^[^\"\\\\]*$",
            "^\\d+(\\.\\d{1,2})?$", "^a.c$", "^$", "", "^[A-Z][a-z]*( [A-Z][a-z]*)*$", "(a|b){3}", "^a|b$", "\\x41|\\u0042",
            "^\\S+@\\S+$", "^(?:x|yy?)+?z$"]
FORMATS = ["date", "uuid", "ipv4", "ipv6"]
NAMES = ["a", "ab", "abc", "b", "c\"d", "d\\e", "e", "f\u00e9"]
EXTRA = ["z", "zz", "z\"", "z\u00e9", "z1"]
# what allOf makes of its parts, and what references sometimes make of each other
REFUSED = ["beside enum and const only", "only one of several patterns and formats", "refers to itself directly",
           "minProperties and maxProperties are possible only", '"uniqueItems": true is possible only']
TYPES = ["null", "boolean", "object", "array", "string", "integer", "number"]


class Maker:
    def __init__(self, rng, standard):
        self.rng, self.standard, self.defs = rng, standard, []

    def chance(self, p):
        return self.rng.random() < p

    def schema(self, depth):
        r = self.rng
        if depth <= 0:
            kind = r.choice(["null", "boolean", "string", "integer", "number", "enum", "const"])
        else:
            kind = r.choice(["null", "boolean", "string", "string", "integer", "number", "enum", "const", "object", "object",
                             "object",
                             "array", "array", "anyOf", "oneOf", "allOf", "ref", "list", "any"])
        return getattr(self, "make_" + kind)(depth)

    def typed(self, schema, name):
        if not self.standard or self.chance(0.85):
            schema["type"] = name
        return schema

    def make_null(self, _):
        return {"type": "null"}

    def make_boolean(self, _):
        return {"type": "boolean", "title": "yes or no"}

    def make_any(self, _):
        return self.rng.choice([True, {}, {"description": "anything"}]) if self.standard else {"type": "object"}

    def make_list(self, depth):
        r = self.rng
        schema = {"type": r.sample(TYPES, r.randint(1, 4))}
        if self.chance(0.5):
            schema["minimum"] = r.randint(-3, 3)
        if self.chance(0.5):
            schema["maxLength"] = r.randint(0, 3)
        if self.chance(0.3):
            schema["items"] = self.schema(depth - 1)
        return schema

    def make_string(self, _):
        r, schema = self.rng, {}
        kind = r.randint(0, 3)
        if kind == 1:
            if self.chance(0.7):
                schema["minLength"] = r.randint(0, 4)
            if self.chance(0.7):
                schema["maxLength"] = schema.get("minLength", 0) + r.randint(0, 4)
        elif kind == 2:
            schema["pattern"] = r.choice(PATTERNS)
            if self.chance(0.3):
                schema["minLength"] = r.randint(0, 3)
            if self.chance(0.3):
                schema["maxLength"] = schema.get("minLength", 0) + r.randint(1, 4)
        elif kind == 3:
            schema["format"] = r.choice(FORMATS)
            return dict(schema, type="string")
        return self.typed(schema, "string")

    def bounds(self, pick):
        schema = {}
        low, high = sorted([pick(), pick()])
        if self.chance(0.6):
            schema[self.rng.choice(["minimum", "exclusiveMinimum"])] = low
        if self.chance(0.6):
            schema[self.rng.choice(["maximum", "exclusiveMaximum"])] = high
        return schema

    def make_integer(self, _):
        spread = self.rng.choice([3, 20, 150, 12345, 10**9])
        schema = dict(self.bounds(lambda: self.rng.randint(-spread, spread)), type="integer")
        if spread < 10**9 and self.chance(0.3):
            schema["multipleOf"] = self.rng.choice([1, 2, 3, 5, 7, 10, 12, 60])
        return schema

    def make_number(self, _):
        spread, places = self.rng.choice([2, 20, 150]), self.rng.randint(0, 3)
        pick = lambda: round(self.rng.uniform(-spread, spread), places) or 0
        schema = dict(self.bounds(pick), type="number")
        if self.chance(0.2): # halves and quarters are exact in Python too
            schema["multipleOf"] = self.rng.choice([0.25, 0.5, 1.5, 2, 10])
        return schema

    def make_enum(self, _):
        values = [self.value(2) for _ in range(self.rng.randint(1, 4))]
        schema = {"enum": values}
        if self.chance(0.3):
            schema["type"] = self.rng.sample(TYPES, 3)
        return schema

    def make_const(self, _):
        return {"const": self.value(2)}

    def make_object(self, depth):
        r, schema = self.rng, {"type": "object"}
        names = sorted(r.sample(NAMES, r.randint(0, 4)))
        if names:
            schema["properties"] = {name: self.schema(depth - 1) if self.chance(0.95) else False for name in names}
            required = [name for name in names if self.chance(0.4)]
            if self.chance(0.1):
                required.append("z")
            if required:
                schema["required"] = required
        elif self.chance(0.5):
            schema["minProperties"] = r.randint(0, 2)
            schema["maxProperties"] = r.randint(1, 3)
        if not self.standard or self.chance(0.6):
            schema["additionalProperties"] = r.choice([True, False, False, self.schema(depth - 1)])
        return schema

    def make_array(self, depth):
        r, schema = self.rng, {"type": "array"}
        if self.chance(0.3):
            schema["prefixItems"] = [self.schema(depth - 1) for _ in range(r.randint(1, 3))]
        if not schema.get("prefixItems") and self.chance(0.2):
            schema["uniqueItems"] = self.chance(0.9)
            schema["items"] = self.make_enum(0) if self.chance(0.7) else {"type": r.choice(["boolean", ["null", "boolean"]])}
        elif self.chance(0.7):
            schema["items"] = self.schema(depth - 1) if self.chance(0.9) else False
        if self.chance(0.4):
            schema["minItems"] = r.randint(0, 3)
        if self.chance(0.4):
            schema["maxItems"] = r.randint(1, 4)
        return schema

    def make_anyOf(self, depth):
        schema = {"anyOf": [self.schema(depth - 1) for _ in range(self.rng.randint(1, 3))]}
        if self.chance(0.2):
            schema["type"] = self.rng.sample(TYPES, 4)
        return schema

    def make_oneOf(self, depth):
        makers = self.rng.sample(["null", "boolean", "string", "integer", "object", "array"], self.rng.randint(1, 3))
        branches = [getattr(self, "make_" + name)(depth - 1) for name in makers]
        return {"oneOf": [dict(branch, type=name) for name, branch in zip(makers, branches)]}

    def make_allOf(self, depth):
        r = self.rng
        if self.chance(0.4):
            return {"allOf": [dict(self.make_integer(0)), self.make_number(0)]}
        names = sorted(r.sample(NAMES, 4))
        parts = []
        for some in (names[:2], names[1:]):
            part = {"type": "object", "properties": {name: self.schema(depth - 2) for name in some}}
            part["required"] = [name for name in some if self.chance(0.4)]
            if not self.standard or self.chance(0.3):
                part["additionalProperties"] = r.choice([True, True, {"type": "integer"}])
            parts.append(part)
        return {"allOf": parts}

    def make_ref(self, depth):
        if not self.defs:
            return self.make_object(depth)
        return {"$ref": "#/$defs/" + self.rng.choice(self.defs)}

    def root(self):
        r = self.rng
        defs = {}
        if self.chance(0.5):
            self.defs = ["node", "other"]
            defs["node"] = {"type": "object", "additionalProperties": False,
                            "properties": {"a": self.schema(0),
                                           "b": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
                                           "c\"d": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}}}
            defs["other"] = self.schema(1)
        schema = self.schema(r.randint(1, 3))
        if defs and isinstance(schema, dict):
            schema = dict(schema)
            schema["$defs"] = defs
        elif defs:
            self.defs = []
        return schema

    # ---- values ----

    def text(self):
        r = self.rng
        kind = r.randint(0, 9)
        if kind == 8:
            return ".".join(str(r.choice([0, 1, 10, 99, 199, 249, 255, 256, "01"])) for _ in range(r.choice([4, 4, 4, 3, 5])))
        if kind == 9:
            parts = ["%x" % r.getrandbits(r.choice([1, 8, 16])) for _ in range(r.choice([8, 8, r.randint(0, 9)]))]
            if self.chance(0.2):
                parts[-2:] = ["1.2.3.%d" % r.choice([4, 255, 256])]
            if self.chance(0.6):
                at, end = sorted(r.randint(0, len(parts)) for _ in range(2))
                return ":".join(parts[:at]) + "::" + ":".join(parts[end:])
            return ":".join(parts)
        if kind == 0:
            return str(uuid.UUID(int=r.getrandbits(128)))
        if kind == 1:
            return "%04d-%02d-%02d" % (r.choice([1900, 2000, 2023, 2024, r.randint(1, 9999)]), r.randint(1, 13),
                                       r.choice([1, 28, 29, 30, 31, 32]))
        if kind == 2:
            return r.choice(["abc", "foobar", "12", "x123", "ab", "aXc", "Ada Lovelace", "1.5", "a@b", "xyz", "xyyz", "bab",
                             "A", ""])
        text = "".join(r.choice(CHARS if kind < 5 else "abc01xyzfo") for _ in range(r.randint(0, 6)))
        return text.rstrip("\n")

    def value(self, depth):
        r = self.rng
        kind = r.randint(0, 6 if depth > 0 else 4)
        if kind == 0:
            return None
        if kind == 1:
            return self.chance(0.5)
        if kind == 2:
            return self.text()
        if kind == 3:
            return r.choice([r.randint(-5, 5), r.randint(-200, 200), r.randint(-10**10, 10**10)])
        if kind == 4:
            x = round(r.uniform(-20, 20), r.randint(1, 3))
            return int(x) if x == int(x) else x
        if kind == 5:
            return [self.value(depth - 1) for _ in range(r.randint(0, 3))]
        # Only names that sort after all properties, since additional keys come last; not "z": where it is required without
        # being a property, it belongs before all other additional keys.
        return {name: self.value(depth - 1) for name in sorted(r.sample(EXTRA[1:], r.randint(0, 3)))}

    def near(self, low, high, whole):
        r = self.rng
        low = -20 if low is None else low
        high = low + 40 if high is None else high
        if whole:
            return r.choice([int(low), int(high), r.randint(int(min(low, high)) - 2, int(max(low, high)) + 2)])
        x = r.choice([low, high, round(r.uniform(min(low, high) - 1, max(low, high) + 1), r.randint(1, 3))])
        return int(x) if x == int(x) else x

    def instance(self, schema, root, depth):
        """A value that the schema probably accepts."""
        r = self.rng
        if depth < -3 or self.chance(0.04) or not isinstance(schema, dict):
            return self.value(1)
        if "$ref" in schema:
            return self.instance(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root, depth - 1)
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return self.instance(r.choice(schema[word]), root, depth)
        if "allOf" in schema:
            parts = [self.instance(part, root, depth) for part in schema["allOf"]]
            return {k: v for part in parts for k, v in part.items()} if all(isinstance(p, dict) for p in parts) else parts[0]
        if "enum" in schema:
            return r.choice(schema["enum"])
        if "const" in schema:
            return schema["const"]
        kind = schema.get("type")
        kind = r.choice(kind) if isinstance(kind, list) else kind
        if kind == "object":
            return self.object_of(schema, root, depth)
        if kind == "array":
            low = schema.get("minItems", 0)
            prefix, n = schema.get("prefixItems", []), r.randint(low, max(low, schema.get("maxItems", 4)))
            items = schema.get("items", True)
            return [self.instance(prefix[i] if i < len(prefix) else items, root, depth - 1) for i in range(n)]
        if kind in ("integer", "number"):
            x = self.near(schema.get("minimum", schema.get("exclusiveMinimum")),
                          schema.get("maximum", schema.get("exclusiveMaximum")), kind == "integer")
            if "multipleOf" in schema and self.chance(0.7):
                x = round(x / schema["multipleOf"]) * schema["multipleOf"]
            return int(x) if x == int(x) else x
        if kind == "string" or "pattern" in schema or "minLength" in schema or "maxLength" in schema:
            return self.text()
        return {"null": None, "boolean": self.chance(0.5)}.get(kind, self.value(1))

    def object_of(self, schema, root, depth):
        out = {}
        for name, sub in schema.get("properties", {}).items():
            if self.chance(0.95 if name in schema.get("required", []) else 0.5) and sub is not False:
                out[name] = self.instance(sub, root, depth - 1)
        more = schema.get("additionalProperties", True)
        n = 0 if more is False and self.chance(0.9) else self.rng.choice([0, 0, 1, 2, schema.get("minProperties", 0)])
        for name in self.rng.sample(EXTRA, n):
            out[name] = self.instance(more, root, depth - 1)
        return out


def write(rng, value):
    style = rng.randint(0, 2)
    if style == 0:
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    if style == 1:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=rng.randint(0, 4))


def has_exponent(value):
    if isinstance(value, dict):
        return any(has_exponent(v) for v in value.values())
    if isinstance(value, list):
        return any(has_exponent(v) for v in value)
    return isinstance(value, float) and "e" in repr(value)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("program")
    args.add_argument("--documents", type=int, default=10000)
    args.add_argument("--per-schema", type=int, default=25)
    args.add_argument("--seed", type=int, default=1)
    args = args.parse_args()
    rng = random.Random(args.seed)
    process = subprocess.Popen([args.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    n = n_good = n_schemas = n_empty = n_refused = bad = 0
    while n < args.documents:
        standard = rng.random() < 0.7
        maker = Maker(rng, standard)
        schema = maker.root()
        checker = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker(FORMATS))
        values = [maker.instance(schema, schema, 3) if rng.random() < 0.85 else maker.value(2) for _ in range(args.per_schema)]
        values = [v for v in values if not has_exponent(v)]
        try:
            verdicts = [checker.is_valid(v) for v in values]
        except RecursionError:  # a schema that is itself: we must have refused it
            verdicts = [None for v in values]
        texts = [write(rng, v) for v in values]
        process.stdin.write(json.dumps({"schema": json.dumps(schema), "standard": standard, "texts": texts}) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline().rstrip("\n")
        if "nothing satisfies" in answer and not any(verdicts):
            n_empty += 1
            continue
        if any(part in answer for part in REFUSED):
            n_refused += 1
            continue
        n_schemas += 1
        if len(answer) != len(texts):
            bad += 1
            print("schema %s\n  %s" % (json.dumps(schema), answer))
        for text, verdict, ours in zip(texts, verdicts, answer):
            n += 1
            n_good += verdict is True
            if verdict != (ours == "1") and len(answer) == len(texts):
                bad += 1
                if bad < 20:
                    print("schema %s (standard: %s)\n  document %s\n  validator: %s, grammar: %s"
                          % (json.dumps(schema), standard, text, verdict, ours))
    process.stdin.close()
    process.wait()
    print("%d documents, %d valid, of %d schemas: %d differences; %d more schemas that nothing satisfies, %d refused"
          % (n, n_good, n_schemas, bad, n_empty, n_refused))
    if not n // 5 < n_good < n - n // 5:
        print("too few documents of one kind for this to mean much")
        return 1
    return 1 if bad or process.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
