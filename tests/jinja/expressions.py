"""Random small templates over fixed variables: operators, filters, tests, methods, statements, white space.

What is set bears no name of VARIABLES: in jinja2 a name that is set anywhere in a scope hides the outer one from the loops and
macros of that scope from the start (docs/templates.md).
"""

VARIABLES = {
    "s": "Hello World", "e": "", "u": "naïve 日本語 ß😀", "m": "one\ntwo\r\n\nfour", "h": "<a href=\"x\">'&'</a>", "w": "  x y  ",
    "n": 7, "z": 0, "neg": -3, "f": 2.5, "t": True, "b": False, "none": None,
    "l": [3, 1, 2], "ls": ["pear", "Apple", "fig"], "le": [], "lm": [1, "a", None, 2.5, [1, 2]],
    "d": {"b": 2, "a": 1, "C": 3}, "de": {}, "dn": {"x": {"y": [10, {"c": "deep"}]}, "items": [1]},
    "p": [{"name": "Bo", "age": 30, "tags": ["x"]}, {"name": "al", "age": 25, "tags": []}, {"name": "Cy", "age": 30}],
}
STRINGS = ["'a'", "'World'", "''", "' '", "'l'", "'日'", "\"it's\"", "'a\\nb'", "'%s and %d'", "'{} {x}'", "'\\u00e9'", "'O'"]
NUMBERS = ["0", "1", "2", "3", "-1", "7", "10", "2.5", "1e3", "0.1", "100", "1_000"]
FILTERS = ["upper", "lower", "title", "capitalize", "trim", "length", "count", "string", "int", "float", "abs", "first",
           "last", "list", "reverse", "sort", "unique", "join", "sum", "min", "max", "tojson", "escape", "e", "safe",
           "round", "default('D')", "d('D', true)", "join(', ')", "replace('o', '0')", "replace('l', 'L', 1)",
           "sort(reverse=true)", "indent", "indent(2)", "indent(2, true)", "items", "dictsort", "dictsort(by='value')",
           "batch(2)", "slice(2)", "map('upper')", "map(attribute='name')", "selectattr('age')",
           "selectattr('age', 'equalto', 30)", "rejectattr('tags')", "select", "reject", "select('string')",
           "groupby('age')", "wordcount", "center(20)", "truncate(5)", "truncate(5, true, '')", "tojson(indent=2)",
           "format(1, 2)", "striptags", "attr('name')", "round(1)", "round(1, 'floor')", "wordwrap(5)", "urlencode",
           "xmlattr", "map(attribute='tags', default=[])", "sort(attribute='age')", "sum(attribute='age')",
           "unique(attribute='age')", "pprint", "filesizeformat", "forceescape", "select('odd')", "map('int')",
           "tojson(sort_keys=true)", "tojson(ensure_ascii=true)", "tojson(separators=(',', ':'))"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence",
         "iterable", "callable", "true", "false", "odd", "even", "divisibleby 3", "eq 7", "equalto('a')", "ne 1", "gt 2",
         "lt(3)", "ge 0", "le 0", "in l", "in s", "lower", "upper", "escaped", "sameas none", "not defined", "not none",
         "greaterthan 1"]
METHODS = ["upper()", "lower()", "strip()", "lstrip()", "rstrip()", "strip('H d')", "split()", "split('o')",
           "split('l', 1)", "rsplit('l', 1)", "startswith('H')", "endswith('d')", "endswith(('x', 'd'))",
           "replace('l', '')", "find('o')", "rfind('o')", "count('l')", "title()", "capitalize()", "isdigit()", "isalpha()",
           "isspace()", "join(ls)", "join(lm)", "format(1, x=2)", "splitlines()", "zfill(15)", "ljust(15, '.')",
           "rjust(15)", "center(15)", "items()", "keys()", "values()", "get('a')", "get('zz', 5)", "get('zz')",
           "index('o')", "partition(' ')", "rpartition('o')", "swapcase()", "casefold()", "removeprefix('He')",
           "removesuffix('ld')", "isupper()", "expandtabs(4)", "encode()", "append(1)", "update({})", "copy()", "nothing()",
           "x.y[0]", "name", "age", "isalnum()", "islower()", "istitle()", "isnumeric()", "isdecimal()", "isidentifier()",
           "format_map(d)", "translate(d)", "maketrans('a')"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "and", "or", "in", "not in"]
NAMES = list(VARIABLES) + ["missing", "missing"]


def atom(rng):
    kind = rng.randrange(12)
    if kind < 6:
        return rng.choice(NAMES)
    if kind < 7:
        return rng.choice(STRINGS)
    if kind < 9:
        return rng.choice(NUMBERS)
    if kind < 10:
        return rng.choice(["true", "false", "none", "True", "None", "[]", "{}", "()", "[1, 2]", "(1, 'a')", "{'a': 1}",
                           "range(4)", "range(5, 1, -2)",
                           "dict(a=1)", "namespace(x=1)", "strftime_now('%d %b %Y')", "p[0]", "dn.x", "lm[-1]"])
    return rng.choice(NAMES)


def expression(rng, depth=0):
    if depth > 2 or rng.random() < 0.15:
        return atom(rng)
    kind = rng.randrange(14)
    a = expression(rng, depth + 1)
    if kind < 3:
        return f"{a}|{rng.choice(FILTERS)}"
    if kind < 5:
        return f"{a} {rng.choice(BINARY)} {expression(rng, depth + 1)}"
    if kind < 6:
        return f"({a}) {rng.choice(BINARY)} ({expression(rng, depth + 1)})"
    if kind < 7:
        return f"{a} is {rng.choice(TESTS)}"
    if kind < 9:
        return f"{a if a.isidentifier() else '(' + a + ')'}.{rng.choice(METHODS)}"
    if kind < 10:
        # not of constants: jinja2 folds those by other rules
        variable = rng.choice([v for v in VARIABLES if v != "none"])
        return variable + "[" + rng.choice(["0", "-1", "1:", ":2", "::-1", "1:3", "'a'", "::2", "5", "-2:", "n", ":-1"]) + "]"
    if kind < 11:
        return f"{a} if {expression(rng, depth + 1)} else {expression(rng, depth + 1)}"
    if kind < 12:
        return f"{rng.choice(['not ', '-', '+'])}{a}"
    if kind < 13:
        return f"[{a}, {expression(rng, depth + 1)}]"
    return f"{a}|{rng.choice(FILTERS)}|{rng.choice(FILTERS)}"


def sign(rng):
    return rng.choice(["", "", "", "-", "+"])


def tag(rng, text):
    return "{%" + sign(rng) + " " + text + " " + sign(rng) + "%}"


def statement(rng, depth=0):
    kind = rng.randrange(12)
    inner = body(rng, depth + 1) if depth < 2 else rng.choice(["x", " \n", "{{ loop.index }}"])
    e = expression(rng, 1)
    if kind < 3:
        return "{{" + rng.choice(["", "-", ""]) + " " + expression(rng) + " " + rng.choice(["", "-"]) + "}}"
    if kind < 5:
        middle = tag(rng, rng.choice(["else", f"elif {e}"])) + rng.choice(["y", " \n y"]) if rng.random() < 0.5 else ""
        return tag(rng, f"if {e}") + inner + middle + tag(rng, "endif")
    if kind < 8:
        head = rng.choice(["for x in " + rng.choice(["l", "ls", "p", "d", "le", e]), "for k, v in d.items()",
                           "for k, v in d|dictsort",
                           f"for x in l if {e}", "for x in range(3)", "for x in p recursive", "for a, b in [(1, 2), (3, 4)]"])
        use = rng.choice(["", "{{ loop.index }}", "{{ loop.first }}{{ loop.last }}", "{{ x }}",
                          "{{ loop.length }}{{ loop.revindex0 }}",
                          "{{ loop.previtem }}{{ loop.nextitem }}", "{{ loop.cycle('a', 'b') }}",
                          "{% if loop.index0 == 1 %}{% break %}{% endif %}",
                          "{% if x %}{% continue %}{% endif %}", "{{ loop.changed(x) }}", "{{ loop.depth }}"])
        return tag(rng, head) + use + inner + (tag(rng, "else") + "none" if rng.random() < 0.2 else "") + tag(rng, "endfor")
    if kind < 9:
        return tag(rng, rng.choice([f"set y = {e}", "set a, c = 1, 2", f"set v = {e}", "set ns = namespace(q=1)"])) + "{{ y }}"
    if kind < 10:
        return (tag(rng, rng.choice(["macro g(a, c=2)", "macro g(a='q')", "macro g()"])) + inner
                + "{{ a }}{{ varargs }}{{ kwargs }}" + tag(rng, "endmacro")
                + rng.choice(["{{ g(1) }}", "{{ g(1, 2, 3) }}", "{{ g(a=" + e + ") }}", "{{ g(q=1) }}",
                              "{% call g(1) %}C{% endcall %}", "{{ g }}"]))
    if kind < 11:
        return rng.choice([tag(rng, "filter upper") + inner + tag(rng, "endfilter"),
                           tag(rng, "set q") + inner + tag(rng, "endset") + "{{ q|length }}",
                           tag(rng, f"with q = {e}") + inner + "{{ q }}" + tag(rng, "endwith"),
                           "{% raw %}{{ x }}" + tag(rng, "endraw"), "{#" + sign(rng) + " c " + rng.choice(["", "-"]) + "#}",
                           "{% set ns = namespace(i=0) %}{% for x in l %}{% set ns.i = ns.i + x %}{% endfor %}{{ ns.i }}"])
    return rng.choice(["text", " \n", "\n\n", "  ", "{", "}}", "é", "\r\n", "{% generation %}g{% endgeneration %}"])


def body(rng, depth=0):
    return "".join(statement(rng, depth) + rng.choice(["", "", "\n", " ", "  \n  ", "x"]) for _ in range(rng.randrange(1, 4)))


def template(rng):
    return "{{ " + expression(rng) + " }}" if rng.random() < 0.5 else body(rng)
