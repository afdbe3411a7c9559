#!/usr/bin/env python3
"""Write jinja_cases.json: small templates and what Python's jinja2 makes of them.

usage: make_jinja_cases.py
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "golden" / "chat"))
import oracle  # noqa: E402

VARIABLES = {
    "name": "World", "n": 7, "pi": 3.14159, "yes": True, "no": False, "nothing": None, "empty": "",
    "words": ["pear", "Apple", "fig"], "numbers": [3, 1, 2], "nested": {"a": {"b": [10, {"c": "deep"}]}},
    "people": [{"name": "Bo", "age": 30, "tags": ["x"]}, {"name": "al", "age": 25, "tags": []}, {"name": "Cy", "age": 30}],
    "d": {"b": 2, "a": 1, "C": 3}, "uni": "naïve 日本語 😀", "multi": "one\ntwo\r\n\nfour", "html": "<a href=\"x\">'&'</a>",
    "spaced": "  x y  ", "zero": 0, "big": 1e16, "small": 1.5e-7, "third": 0.1, "keyed": {"items": [1], "get": "mine"},
    "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}],
}

# One expression per line, each printed by {{ }}.
EXPRESSIONS = r"""
name
missing
missing ~ "x"
missing.attr
missing["x"]
missing + 1
missing == other
missing == none
"abc" "def" 'g'
'a\tb\n\\ \x41 \u00e9 \101 \q \'"'
"日本\"語"
"\é\日"
1_000 + 0x1F + 0b11 + 0o17
1.5e3
1e3
.5
3.0
1e16
1e15
123456789012345680.0
0.0001
0.00001
1.0e-10
100000000000000000000
-7 // 2
-7 % 3
7 % -3
7.5 // 2
-7.5 % 2
7 / 2
8 / 2
2 ** 10
2 ** -1
2 ** 0.5
-2 ** 2
2 ** 3 ** 2
1 / 0
1 % 0
1 // 0.0
1 + 2 * 3 - 4
(1 + 2) * 3
"a" * 3
3 * "ab"
[1, 2] * 2
"a" + 1
1 + "a"
1 - "a"
[1] + [2, 3]
(1,) + (2,)
[1] + (2,)
1 ~ 2 ~ none ~ true
+5
-"a"
- - 5
not true
not 0
not ""
1 and 2
0 and 2
0 or "x"
none or false
1 < 2 < 3
1 < 3 < 2
1 == 1.0
true == 1
"a" < "b"
"a" < 1
[1, 2] < [1, 3]
[1, 2] == [1, 2]
(1, 2) == [1, 2]
{"a": 1} == {"a": 1.0}
none < 1
1 in [1, 2]
1 not in [1, 2]
"a" in "cat"
1 in "cat"
"a" in {"a": 1}
"x" in none
[1] in {"a": 1}
missing in [1]
missing in {"a": 1}
1 in missing
1 if true else 2
1 if false else 2
1 if false
(1 if false) is defined
(1 if false) + 1
1 if no else 2 if yes else 3
[1, "a", none, true, 1.5, [2], (3,), {"k": "v"}]
(1, 2)
()
[]
{}
{"a": 1, "b": [1, 2], 3: none, true: "x"}
{"a": 1, "a": 2}
{[1]: 2}
[1, 2,]
(1,)
"it's"
["it's", 'a"b', 'a\'b"c', "\n\t\\\x00\x7f\u00e9\u200b\U0001F600"]
nested.a.b[0]
nested["a"]["b"][1].c
nested.a.b.1.c
nested.x
nested.x.y
numbers[0]
numbers[-1]
numbers[5]
numbers["a"]
numbers[1:]
numbers[:-1]
numbers[::-1]
numbers[::2]
numbers[5:1:-2]
numbers[-100:100]
numbers[::0]
numbers[:none]
name[1:3]
name[::-1]
uni[6:9]
uni[::-1]
uni[-1]
uni[100]
name[0]
nothing[1:]
d[1:]
nothing.x
nothing["x"]
n.x
n[0]
d.a
d.items
d.items()
d["items"] is callable
d.keys()
d.values()
d.items()|list
d.get("a")
d.get("z")
d.get("z", 9)
d.get()
d.pop("a")
d.update({"q": 1})
d.pop
d.pop is defined
d.copy()
keyed.items
keyed["items"]
keyed.get
keyed["get"]
numbers.append(4)
numbers.append
numbers.index(2)
numbers.index(9)
numbers.count(3)
(1, 1).count(1)
name.__class__
name.__class__.x
name()
none()
d()
name.upper()
name.foo
name.foo()
"ß".upper()
"ÀÉ".lower()
"ΣΑΣ".lower()
"hello wORLD it's".title()
"hello wORLD".capitalize()
"Hello".swapcase()
spaced.strip()
spaced.lstrip()
spaced.rstrip()
"xxhixx".strip("x")
"xyhixy".strip("yx")
"xxhixx".lstrip("x")
"\u00a0\u3000a\u2003".strip()
"日本".strip("本")
"a,b,,c".split(",")
"a,b,,c".split(",", 1)
"a,b,,c".rsplit(",", 1)
"  a  b c ".split()
"  a  b c ".split(none, 1)
"  a  b c ".rsplit(none, 1)
"a<think>b</think>c".split("</think>")[-1]
"abc".split("")
"".split(",")
"".split()
multi.splitlines()
multi.splitlines(true)
"a\n".splitlines()
"abc".startswith("ab")
"abc".startswith(("x", "a"))
"abc".startswith("b", 1)
"abc".startswith(1)
"abc".endswith("bc")
"abc".endswith("")
"abcabc".replace("b", "X")
"abcabc".replace("b", "X", 1)
"abc".replace("", "-")
"日本".replace("", "-")
"-".join(["a", "b"])
"-".join(["a", 1])
"".join("abc")
uni.find("本")
uni.find("zz")
uni.rfind("a")
"abc".index("c")
"abc".index("z")
"banana".count("an")
"banana".count("")
"aaa".count("aa")
"a-b-c".partition("-")
"a-b-c".rpartition("-")
"abc".partition("-")
"prefix-x".removeprefix("prefix-")
"x.txt".removesuffix(".txt")
"ab".ljust(5) ~ "|"
"ab".rjust(5, "*")
"ab".center(5, "*")
"abc".center(6, "*")
"-4".zfill(5)
"123".isdigit()
"12a".isdigit()
"".isdigit()
"abc".isalpha()
"ab1".isalnum()
" \t".isspace()
"AB1".isupper()
"ab".islower()
"Ab Cd".istitle()
"{} and {}".format(1, "b")
"{0}{1}{0}".format("a", "b")
"{x}!".format(x=3)
"{:5}|{:<5}|{:>5}|{:^5}|".format("a", "b", "c", "d")
"{:.2f} {:05d}".format(3.14159, 42)
"{}".format()
"{{}}".format()
"%s is %d and %.2f" % ("a", 5, 2.5)
"%s" % "x"
"%5s|%-5s|" % ("a", "b")
"%d" % "x"
"%s %s" % ("a",)
"%%"  % ()
"%(k)s" % {"k": 1}
"%x %X %o %05d %+d" % (255, 255, 8, 42, 5)
"%r" % "a"
"%s" % none
"%i" % 3.7
name|upper
name | lower|title
"hello-world foo_bar (baz) it's"|title
"  hi "|trim
"xxhixx"|trim("x")
5|trim
none|upper
missing|upper
missing|trim
missing|default("x")
missing|d("x")
missing|default
none|default("x")
""|default("x", true)
""|default("x", boolean=true)
name|length
uni|length
d|length
numbers|count
missing|length
5|length
none|length
words|join
words|join(", ")
[1, none, true]|join("-")
people|join(",", attribute="name")
people|join(",", "name")
"abc"|join(".")
missing|join(",")
5|join(",")
"aXbX"|replace("X", "y")
"aXbX"|replace("X", "y", 1)
5|replace("5", "6")
d|tojson
d|tojson(indent=2)
nested|tojson(indent=4)
[]|tojson(indent=2)
[[], {}]|tojson(indent=2)
uni|tojson
uni|tojson(ensure_ascii=true)
html|tojson
"\x00\x1f\x7f\u2028\"\\/"|tojson
[1, 1.0, 1e100, none, true, "x"]|tojson
{"b": 1, "a": {"d": 1, "c": 2}}|tojson(sort_keys=true)
d|tojson(separators=(",", ":"))
d|tojson(indent="--")
d|tojson(indent=0)
{1: 2, none: 3, true: 4, 1.5: 5}|tojson
missing|tojson
(1, 2)|tojson
range(3)|tojson
d.items()|tojson
d.items()|list|tojson
d|items|list
missing|items|list
numbers|items
5|string + "x"
none|string
[1, 2]|string
"42"|int
"42.7"|int
"abc"|int
"abc"|int(5)
"0x1F"|int(base=16)
" 12 "|int
"1_000"|int
3.9|int
-3.9|int
true|int
none|int
[]|int(3)
missing|int
"1.5"|float
"abc"|float
"1e3"|float
"inf"|float
"nan"|float
3|float
numbers|first
numbers|last
[]|first
""|last
[]|first is defined
"abc"|first
d|first
people|map(attribute="name")|list
people|map(attribute="tags.0")|list
people|map(attribute="zip", default="?")|list
words|map("upper")|list
words|map("replace", "p", "q")|join(" ")
words|map("nofilter")|list
words|map|list
words|map("upper")
(words|map("upper")) is string
words|map("upper")|length
people|selectattr("age", "equalto", 30)|map(attribute="name")|join(",")
people|selectattr("tags")|list|length
people|selectattr("tags", "defined")|list|length
people|rejectattr("age", ">", 28)|map(attribute="name")|list
people|selectattr("age", "in", [25, 26])|map(attribute="name")|list
numbers|select("odd")|list
numbers|reject("odd")|list
[0, 1, "", "a", none]|select|list
[0, 1, "", "a", none]|reject|list
numbers|select("divisibleby", 3)|list
numbers|select("nosuch")|list
[]|select("nosuch")|list
words|sort
words|sort(reverse=true)
words|sort(case_sensitive=true)
people|sort(attribute="name")|map(attribute="name")|list
people|sort(attribute="age,name")|map(attribute="name")|list
people|sort(attribute="age", reverse=true)|map(attribute="name")|list
[1, "a"]|sort
[3, 1, 2, 1]|unique|list
["a", "A", "b"]|unique|list
["a", "A", "b"]|unique(case_sensitive=true)|list
[[1]]|unique|list
numbers|reverse|list
"abc"|reverse
numbers|reverse
d|reverse|list
numbers|sum
people|sum(attribute="age")
numbers|sum(start=10)
words|sum
numbers|min
numbers|max
words|min
words|max
[]|min
people|max(attribute="age")
-5|abs
(-5)|abs
-5.5|abs
"a"|abs
3.14159|round(2)
2.5|round
3.5|round
42|round
2.675|round(2)
3.14159|round(2, "ceil")
3.14159|round(1, "floor")
3.1|round(0, "up")
1234.5|round(-2)
"a\nb\n\nc"|indent
"a\nb\n\nc"|indent(2, true)
"a\nb\n\nc"|indent(2, blank=true)
"a\nb\n"|indent(width=">>")
""|indent(first=true)
5|indent
html|safe
html|escape
html|e|e
html|forceescape
(html|safe)|escape
(html|safe) + "<b>"
"<b>" + (html|safe)
("<i>"|safe) ~ "<b>"
("<i>"|safe) * 2
("<i>"|safe).join(["<", "b"])
("%s"|safe) % "<"
[html|safe]
("<i>"|safe)|upper + "<"
("<i>"|safe)|replace("i", "<")
("a,b"|safe).split(",")
("a"|safe)[0] + "<"
"%s-%s"|format("a", 1)
"%(a)s"|format(a=2)
d|dictsort
d|dictsort(case_sensitive=true)
d|dictsort(by="value")
d|dictsort(reverse=true)
d|dictsort(by="x")
numbers|dictsort
[1, 2, 3]|batch(2)|list
[1, 2, 3]|batch(2, "x")|list
[1, 2, 3, 4]|slice(3)|list
[1, 2, 3, 4]|slice(3, "x")|list
people|groupby("age")
people|groupby("age")|map(attribute="grouper")|list
"one two  three, four"|wordcount
"foo bar baz qux"|truncate(9)
"foo bar baz qux"|truncate(9, true)
"foo bar baz qux"|truncate(11)
"foo bar baz qux"|truncate(11, false, "..", 0)
"foo"|center(9) ~ "|"
name|attr("upper")
d|attr("a")
"abc"|list
d|list
missing|list
5|list
name|nofilter
name|upper(1)
name|default(x=1)
name is defined
missing is defined
missing is undefined
missing is not defined
nothing is none
name is string
d is mapping
numbers is mapping
numbers is sequence
d is sequence
name is sequence
missing is sequence
5 is sequence
numbers is iterable
5 is iterable
missing is iterable
none is iterable
5 is number
true is number
5.0 is number
5 is integer
true is integer
5.0 is integer
5.0 is float
true is boolean
1 is boolean
true is true
1 is true
false is false
3 is odd
4 is even
9 is divisibleby 3
9 is divisibleby(4)
"a" is odd
5 is eq 5
5 is equalto(5)
5 is ne 6
5 is lt 6
5 is greaterthan 4
5 is ge 5
5 is in [5]
"a" is in "abc"
1 is sameas 1
true is sameas true
none is sameas none
name is callable
range is callable
missing is callable
"abc" is lower
"ABC" is upper
"upper" is filter
"nofilter" is filter
"odd" is test
name is nosuchtest
5 is not string
not 5 is string
5 is string or true
1 is defined is defined
(html|safe) is escaped
range(3)
range(3)|list
range(1, 10, 3)|list
range(5, 0, -2)|list
range(3)[1]
range(10)[2:5]
range(0)
range(1, 2, 0)
range(200000)
range("a")
range()
dict(a=1, b=2)
dict({"a": 1}, b=2)
dict([["a", 1]])
namespace(a=1).a
namespace(a=1).b
namespace(a=1)
namespace({"a": 1}).a
strftime_now("%Y-%m-%d")
strftime_now("%d %b %Y, %A %B %H:%M:%S %I%p %j %y %% %-d %e %a")
raise_exception("stop: " ~ name)
9223372036854775807
"a" if true else missing.x.y
[1, 2, 3][1:][0]
"x"|upper|lower|length + 1
-n|abs
n is defined and n > 5
{"a": {"b": 1}}.a.b
"a b"|replace(" ", "_")|upper ~ "!"
messages|map(attribute="content")|join(" ")
messages[0].role == "user" and messages[-1]["content"] != ""
(messages|selectattr("role", "equalto", "tool")|list) or "no tools"
"yes" if messages|selectattr("role", "equalto", "tool") else "no"
[[1, 2], [3]]|sum(start=[])
"abc"[1]
"abc"["upper"]()
n.real is defined
"é" < "z"
1.0 == 1
[none, missing]
big
small
third
third + 0.2
1e22
1.7976931348623157e308
5e-324
123456.789e3
1 2
{{ }}
a b
[1, 2
(1
{1: 2
1 +
.x
a.
a[
a[]
f(a b)
f(a=1, 2)
f(**x, *y)
f(a=1, a=2)
"abc
a ! b
a $ b
a ? b : c
x|
x is
x is not
x if
not
1 ==
== 1
in x
"\x4"
"\ud800"
"\N{DASH}"
99999999999999999999999
a; b
a, b
*a
lambda: 1
'a' 'b
a = 1
)
]
}
(]
[)
a..b
a.1.b
1.a
1..2
"""

# Whole templates, separated by lines of "=====".
TEMPLATES = r"""
Hello {{ name }}!
=====
{% if yes %}A{% elif no %}B{% else %}C{% endif %}
=====
{% if no %}A{% elif nothing %}B{% else %}C{% endif %}
=====
{% if no %}A{% endif %}|
=====
{% for x in numbers %}{{ x }},{% endfor %}
=====
{% for x in [] %}{{ x }}{% else %}none{% endfor %}
=====
{% for x in missing %}{{ x }}{% else %}none{% endfor %}
=====
{% for x in nothing %}{{ x }}{% endfor %}
=====
{% for x in 5 %}{{ x }}{% endfor %}
=====
{% for x in numbers %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }} {{ loop.previtem }}/{{ loop.nextitem }};{% endfor %}
=====
{% for x in numbers if x > 1 %}{{ loop.index }}:{{ x }} {% else %}none{% endfor %}
=====
{% for x in numbers if x > 10 %}{{ x }}{% else %}none{% endfor %}
=====
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
=====
{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}
=====
{% for k in d %}{{ k }}{% endfor %}
=====
{% for c in uni %}{{ c }}.{% endfor %}
=====
{% for a, b in [[1, 2], [3, 4]] %}{{ a }}-{{ b }} {% endfor %}
=====
{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}
=====
{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}
=====
{% for (a, b) in [[1, 2]] %}{{ a }}{{ b }}{% endfor %}
=====
{% for x in numbers %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}
=====
{% for x in numbers %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}
=====
{% for x in numbers %}{% break %}{% else %}else{% endfor %}
=====
{% for x in numbers %}{% continue %}{% else %}else{% endfor %}
=====
{% for x in numbers %}{% for y in numbers %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}
=====
{% break %}
=====
{% for x in numbers %}{{ loop.cycle("a", "b") }}{{ loop.changed(x // 2) }} {% endfor %}
=====
{% for p in [{"n": 1, "c": [{"n": 2, "c": []}]}] recursive %}{{ p.n }}@{{ loop.depth }}({{ loop(p.c) }}){% endfor %}
=====
{% for x in numbers %}{% set y = x %}{% endfor %}{{ y is defined }}
=====
{% set y = 0 %}{% for x in numbers %}{% set y = y + x %}{{ y }} {% endfor %}{{ y }}
=====
{% set ns = namespace(y=0) %}{% for x in numbers %}{% set ns.y = ns.y + x %}{% endfor %}{{ ns.y }}
=====
{% set ns.y = 1 %}
=====
{% set d.y = 1 %}
=====
{% set a, b = 1, 2 %}{{ a }}{{ b }}
=====
{% set a, b = [3, 4] %}{{ a }}{{ b }}
=====
{% set a = 1, 2 %}{{ a }}
=====
{% set ns = namespace() %}{% set ns.a, b = 1, 2 %}{{ ns.a }}{{ b }}
=====
{% set x %}Hi {{ name }}{% endset %}[{{ x }}]{{ x|length }}
=====
{% set x | upper | replace("H", "J") %}Hi {{ name }}{% endset %}[{{ x }}]
=====
{% set x = 1 %}{% if yes %}{% set x = 2 %}{% endif %}{{ x }}
=====
{% set name = name ~ "!" %}{{ name }}
=====
{% for x in numbers %}{% set name = "in" %}{% endfor %}{{ name }}
=====
{% macro m(a, b=2, c=a) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(b=5, a=4) }} {{ m() }}
=====
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
=====
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
=====
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}
=====
{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}
=====
{% macro m(a=1, b) %}{% endmacro %}
=====
{% macro m(x) %}{% if x > 0 %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(5) }}
=====
{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(5) }}
=====
{% macro m() %}{{ y }}{% endmacro %}{% set y = 3 %}{{ m() }}
=====
{% macro m() %}{% set y = 3 %}{% endmacro %}{{ m() }}{{ y is defined }}
=====
{{ m() }}{% macro m() %}x{% endmacro %}
=====
{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}in {{ name }}{% endcall %}
=====
{% macro m(l) %}{% for x in l %}<{{ caller(x) }}>{% endfor %}{% endmacro %}{% call(u) m(numbers) %}u={{ u }}{% endcall %}
=====
{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}
=====
{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}
=====
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*[1]) }}{{ m(**{"a": 2}) }}
=====
{% macro m() %}[{{ 1 }}]{% endmacro %}{{ m() | upper ~ m()|length }}{{ m.name }}
=====
{% filter upper %}Hi {{ name }}{% endfilter %}
=====
{% filter indent(2)|upper %}a
b{% endfilter %}
=====
{% with a=1, b=2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}
=====
{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}
=====
{% set a = 5 %}{% with a=1, b=a %}{{ a }}{{ b }}{% endwith %}
=====
{% block x %}in {{ name }}{% endblock %}|{% block y %}y{% endblock y %}
=====
{% print 1, 2 %}{% print name %}
=====
{# comment #}a{# multi
line #}b
=====
{#- a -#}  b  {#- c -#}
=====
{#
=====
{% raw %}{{ x }}{% if %}{% endraw %}
=====
a {%- raw -%}  {{ x }}  {%- endraw -%} b
=====
{% raw %}
x
{% endraw %}
y
=====
{% raw %}never
=====
a  {{- " b " -}}  c
=====
a  {%- if yes -%}  b  {%- endif -%}  c
=====
  {% if yes %}
  a
  {% endif %}
b
=====
  {%+ if yes %}
  a
  {%+ endif +%}
b
=====
x {% if yes %}
a{% endif %}
b
=====
{{ 1 }}
{{ 2 }}

{{ 3 }}
=====
a
{% set x = 1 %}
b
{# c #}
d
=====
  {# c #}  x
  {{ 1 }}
=====
{% generation %}a {{ name }}{% set z = 1 %}{% endgeneration %}{{ z is defined }}
=====
{% for x in numbers %}{% generation %}{{ x }}{{ loop.last }}{% endgeneration %}{% endfor %}
=====
{% if yes %}{{ name|nofilter }}{% endif %}
=====
{% if no %}{{ name|nofilter }}{% endif %}ok
=====
{% if no %}{% for x in numbers %}{{ name|nofilter }}{% endfor %}{% endif %}ok
=====
{% if no %}{{ name is nosuchtest }}{% endif %}ok
=====
{{ (name|nofilter) if no else "ok" }}
=====
{{ [name|nofilter, 1] if no else "ok" }}{{ "ok" if yes else name|nofilter }}
=====
{{ [name|nofilter] ~ (1 if yes) }}
=====
{{ (1 if yes) ~ (name|nofilter) }}
=====
{% raw %}
=====
a{#-
=====
{% set x = words|map("upper") %}{{ x|list }}{{ x|list }}
=====
{% set x = words|map("upper") %}{% if x %}true{% endif %}{% for y in x %}{{ y }}{% endfor %}{% for y in x %}{{ y }}{% else %}gone{% endfor %}
=====
{% for g, l in people|groupby("age") %}{{ g }}:{{ l|map(attribute="name")|join(",") }};{% endfor %}
=====
{% for g in people|groupby("age") %}{{ g.grouper }}:{{ g.list|length }};{% endfor %}
=====
{% set loop = 5 %}{{ loop }}
=====
{% for x in numbers %}{% set loop = 5 %}{% endfor %}
=====
{% for loop in numbers %}{% endfor %}
=====
{% set true = 1 %}
=====
{% set 1 = 2 %}
=====
{% set a.b.c = 2 %}
=====
{% if %}{% endif %}
=====
{% if yes %}
=====
{% endif %}
=====
{% for %}{% endfor %}
=====
{% for x numbers %}{% endfor %}
=====
{% for x in numbers %}
=====
{% for x in numbers %}{% else %}{% else %}{% endfor %}
=====
{% if yes %}{% else %}{% elif no %}{% endif %}
=====
{% macro %}{% endmacro %}
=====
{% macro m %}{% endmacro %}
=====
{% macro m( %}{% endmacro %}
=====
{% macro m(a b) %}{% endmacro %}
=====
{% macro m(1) %}{% endmacro %}
=====
{% call 1 %}{% endcall %}
=====
{% filter nosuch %}{% endfilter %}
=====
{% filter %}{% endfilter %}
=====
{% set x %}
=====
{% set %}
=====
{% unknown %}
=====
{% %}
=====
{%
=====
{{
=====
{{ 1
=====
{{ 1 }
=====
{% if yes }}x{% endif %}
=====
{{ 1 %}
=====
{% do numbers %}
=====
{% include "x" %}
=====
{% extends "x" %}
=====
{% import "x" as y %}
=====
{% from "x" import y %}
=====
{% block a %}
=====
{% with a %}{% endwith %}
=====
{% generation %}
=====
{% for x in [1, 2] %}{{ x }}{% endfor x %}
=====
{% set x = %}
=====
{% set x = 1 2 %}
=====
}} %} #} { % {
=====
{{ "}}" }}{{ "%}" }}{{ {"a": {"b": 1}}}}
=====
{{ '{{' }}{% if "%}" %}x{% endif %}
=====
a{{ name }}
b{{ name }}

=====
{% set s = namespace(t="") %}{% for m in messages %}{% set s.t = s.t + m.role + ":" + m["content"] + "\n" %}{% endfor %}{{ s.t }}
=====
{%- for m in messages %}
    {%- if m.role == "user" %}
        {{- "<u>" + m.content }}
    {%- else %}
        {{- "<a>" + m.content }}
    {%- endif %}
{%- endfor %}
=====
{% if messages[0]['role'] == 'system' %}S{% else %}N{% endif %}
=====
{% set tools = [] %}{% if not tools %}no{% endif %}{% if tools is defined and tools is not none and tools|length > 0 %}yes{% endif %}
=====
{% for x in numbers -%}
  {{ x }}
{%- endfor %}
=====
{% for x in range(3) %}{% if not loop.first %}, {% endif %}{{ x }}{% endfor %}
=====
{% for x in numbers %}{% macro q() %}{{ x }}{% endmacro %}{{ q() }}{% endfor %}
=====
{% set q = {"a": [1]} %}{% set w = q %}{{ w is sameas q }}{{ w.a.copy() is sameas q.a }}
=====
{% if x is not defined %}{% set x = 9 %}{% endif %}{{ x }}
=====
{% set x = x|default(4) %}{{ x }}
=====
{% if yes: %}colon{% endif %}
=====
{{ loop }}|{% for x in [1] %}{% endfor %}{{ loop is defined }}
=====
{{ (words|map("length")|list)[1] }}{{ words|map("first")|join }}
=====
{%- set ns = namespace(found=false) -%}{%- for m in messages[::-1] -%}{%- if m.role == "user" and not ns.found -%}{{ loop.index0 }}{%- set ns.found = true -%}{%- endif -%}{%- endfor -%}
=====
{% set a = [1] %}{% set b = a + [2] %}{{ a }}{{ b }}
=====
{% if nothing is none and not nothing and nothing is not string %}ok{% endif %}
=====
{{ caller }}{{ kwargs is defined }}
=====
{% set ns = namespace(f=none) %}{% for x in numbers %}{% set y = x * 2 %}{% if x == 1 %}{% macro q() %}{{ x }}{{ y }}{% endmacro %}{% set ns.f = q %}{{ ns.f() }}{% endif %}{% endfor %}
=====
{% for x in numbers %}{% set y = x %}{% for z in numbers %}{% set y = y + z %}{{ y }} {% endfor %}{{ y }};{% endfor %}
=====
{{ self is defined }}
=====
{% for x in numbers recursive %}{{ x }}{% endfor %}
=====
{% for m in messages %}{{ m.role }}{% if loop.nextitem is defined %}->{{ loop.nextitem.role }}{% endif %} {% endfor %}
"""


# Left out: cases where Python prints an address, uses integers beyond 64 bits, or needs template inheritance.
LEFT_OUT = {"numbers|items", "words|map(\"upper\")", "numbers|reverse", "d.items", "d.pop is callable", "keyed.items",
            "keyed.get", "name|attr(\"upper\")",
            "100000000000000000000", "99999999999999999999999", "{{ self is defined }}", "\"\\N{DASH}\"", "n.real is defined"}


def main():
    templates = ["{{ " + e + " }}" for e in EXPRESSIONS.strip("\n").split("\n") if e not in LEFT_OUT]
    templates += [t for t in TEMPLATES.strip("\n").split("\n=====\n") if t not in LEFT_OUT]
    cases = [{"template": t, **oracle.render(t, VARIABLES)} for t in templates]
    with open(HERE / "jinja_cases.json", "w", encoding="utf-8", newline="\n") as f:
        json.dump({"variables": VARIABLES, "cases": cases}, f, ensure_ascii=True, indent=1)
        f.write("\n")
    print(len(cases), "cases,", sum("error" in c for c in cases), "of them errors")


if __name__ == "__main__":
    main()
