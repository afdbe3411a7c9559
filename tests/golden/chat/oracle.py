"""The reference for chat templates: Python's jinja2, set up as model makers' tools set it up.

Shared by make_chat_vectors.py (whole templates) and unit/make_jinja_cases.py (the language).
"""
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = datetime.datetime(2025, 7, 4, 15, 4, 5)


class Generation(jinja2.ext.Extension):
    """{% generation %} marks what the assistant said; it prints its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    def _support(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda fmt: NOW.strftime(fmt)
    return env


class Context:
    """One environment; long templates are compiled once."""

    def __init__(self):
        self.environment = environment()
        self.compiled = {}

    def compile(self, text):
        if len(text) < 500:
            return self.environment.from_string(text)
        if text not in self.compiled:
            self.compiled[text] = self.environment.from_string(text)
        return self.compiled[text]

    def render(self, text, variables):
        """{"text": ...} or {"error": ...}"""
        try:
            out = self.compile(text).render(**variables)
            out.encode("utf-8")
            return {"text": out}
        except Exception as e:  # every failure counts as one
            return {"error": f"{type(e).__name__}: {e}"}


def render(text, variables):
    return Context().render(text, variables)
