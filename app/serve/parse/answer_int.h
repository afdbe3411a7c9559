/* answer_int.h - what the files of the parser of answers share.
 *
 * Bytes that were not reported yet are held: held.data[from .. held.n). A state reads them from `pos` on and either takes some
 * or waits for more. Where a state fails, [from .. pos) becomes content and the search for tags goes on at `pos`: nothing is
 * read twice, so time is linear, and nothing is lost.
 */
#ifndef AERIE_APP_SERVE_PARSE_ANSWER_INT_H
#define AERIE_APP_SERVE_PARSE_ANSWER_INT_H

#include "serve/parse/answer.h"
#include "serve/parse/answer_value.h"

#define ANSWER_MAX_NAME 256  /* bytes of a tool's name */
#define ANSWER_MAX_HEAD 1024 /* limit of a name with the text around it, of a parameter's name, of harmony's headers */
#define ANSWER_MAX_GAP 64    /* bytes of white space that are skipped to see what follows a tag */
#define ANSWER_MAX_TEXTS 4
#define ANSWER_MAX_HEADS 5
#define ANSWER_MAX_MARKS 24

typedef enum answer_head { /* where the tool's name is, after the format's opening tag */
    ANSWER_HEAD_JSON,      /* nothing: the name is in the JSON */
    ANSWER_HEAD_NAME,      /* a name up to one of `ends` */
    ANSWER_HEAD_DEEPSEEK,  /* name<sep>{, or function<sep>name\n */
    ANSWER_HEAD_KIMI,      /* functions.name:0 */
    ANSWER_HEAD_PYTHON,    /* name( */
    ANSWER_HEAD_HARMONY,   /* answer_harmony.c */
} answer_head;

typedef enum answer_body {
    ANSWER_BODY_JSON,   /* arguments as JSON */
    ANSWER_BODY_PARAMS, /* a tag for each */
    ANSWER_BODY_LOOSE,  /* {key:value} */
    ANSWER_BODY_XML,    /* an element named like each parameter, and nested elements inside */
} answer_body;

struct answer_format {
    const char *name;
    const char *marks[3];               /* a template with all of them has this format */
    const char *open[ANSWER_MAX_TEXTS]; /* begin a section of calls in the text; none: the whole answer is the section */
    const char *close, *close2;         /* end the section; NULL: whatever is not a call does */
    const char *item, *item_close;      /* around a call; NULL: nothing */
    const char *ends[ANSWER_MAX_TEXTS]; /* end a name; one that also begins or ends a body is not taken */
    answer_head head;
    answer_body body;
    bool json;     /* also reads calls as {"name":, "arguments":} */
    bool keyed;    /* {"name": {arguments}} */
    bool function; /* also reads <function=name>..., with JSON or with parameters */
    bool bare;     /* the answer may begin with a call without any tag: its first byte is '{' or '[' */
    bool list;     /* commas, brackets and fences between calls are skipped */
    bool breaks_reasoning; /* its tags are control tokens: they count within reasoning too */
    bool special;          /* its tags may be control tokens */
    bool short_ids;        /* nine letters and digits, which Mistral's templates demand */
    const char *mark;      /* around strings of a LOOSE body */
    const char *param, *key_end, *value, *value_close; /* <param>key<key_end><value>text<value_close>; value may be NULL */
    bool lines;            /* values are on lines of their own */
    bool cdata;            /* values may stand in <![CDATA[...]]> */
    bool escaped;          /* names are written with &quot; and &amp; */
    const char *attributes; /* attributes after a name, up to this mark, are skipped */
    const char *block, *block_close; /* around all arguments as JSON */
    /* tool_choice: what the prompt ends with, before an object with `name_key` and `arguments_key`; before the arguments alone
     * (%s: the name). NULL: cannot be */
    const char *force_object, *force_arguments;
    const char *name_key, *arguments_key; /* NULL: "name", "arguments" */
    /* tool_choice auto: after one of `triggers` (none: one of `open`) the text must go on like one of `heads`. %s is a tool's
     * name, and its arguments follow; %d a digit; %o an object with name and arguments, %l a list of them. No heads: the text
     * is unrestricted.
     */
    const char *triggers[2], *heads[ANSWER_MAX_HEADS];
};

struct answer_tags {
    const char *name;
    const char *marks[2];   /* a template with one of them has these tags */
    const char *open[2], *close;
    const char *skip[4];    /* tags around the text that have no meaning */
    const char *recipient;  /* before the recipient of a message, up to `recipient_end`: open[0] is a message to the model
                             * itself */
    const char *recipient_end;
    const char *then;       /* ends the reasoning and begins the text; NULL: `close` */
    const char *begin;      /* the beginning of a text without reasoning before it; NULL: nothing */
    bool special;           /* may be control tokens */
    bool anywhere;          /* also valid after text; the others count only after white space */
};

typedef enum answer_step { ANSWER_ON, ANSWER_NEED, ANSWER_FAIL } answer_step;
typedef answer_step answer_state(answer_parser *p);

typedef enum answer_action {
    ANSWER_MARK_OPEN, /* of reasoning */
    ANSWER_MARK_CLOSE,
    ANSWER_MARK_SKIP,
    ANSWER_MARK_SECTION,
    ANSWER_MARK_MAYBE, /* a section within reasoning */
    ANSWER_MARK_RECIPIENT,
} answer_action;

typedef struct answer_mark {
    const char *text;
    size_t n;
    answer_action action;
} answer_mark;

struct answer_parser {
    answer_params params;
    const answer_format *format;
    const answer_tags *tags;
    answer_state *state;
    bool ended, failed, stopped; /* no byte follows; memory ran out; the sink returned false */
    bool cut;                    /* it ended because of a limit */
    app_text held;
    size_t from, pos;

    /* text that is ready to be reported */
    app_text out;
    answer_kind out_kind;

    /* text */
    bool reasoning, fresh, trim; /* in it; no content since the start or a call; white space is dropped */
    size_t solid;                       /* text up to here is certain */
    answer_mark marks[ANSWER_MAX_MARKS];
    size_t n_marks;
    bool first[256];

    /* the call */
    bool open, any;        /* an event CALL waits for its CALL_END; this section has had one */
    size_t n_calls, name_at, name_end;
    bool tagged;           /* the section began with a tag */
    char name[ANSWER_MAX_NAME + 1];
    char id[64];
    const json_t *tool;    /* its entry, or NULL */
    answer_value value;
    app_text word;         /* a key, a name, an id: as JSON */
    app_text arguments;    /* arguments that came before the name */
    answer_value told;     /* the arguments as reported */
    app_text scratch;
    bool telling;          /* some of them were */
    bool has_arguments, has_name, nested, string_value;
    size_t n_params;
    int key;
    int part;              /* of states with parts */
    app_text closer;       /* XML: the closing tag of the parameter */
    int depth;             /* XML: its opening tags that are not closed */
    const answer_format *closing; /* the format whose tags end the call being read */
};

/* ---- answer.c ---- */
void answer_tell(answer_parser *p, answer_kind kind, const char *text, size_t n); /* joins deltas */
/* Reports CALL with p->name; an empty id creates one. What was held up to pos counts as reported. */
void answer_begin_call(answer_parser *p);
/* Reports CALL_END; what was held up to pos counts as reported. */
void answer_end_call(answer_parser *p, bool complete);
/* Whether `text` is at pos: 1, 0, or -1 if it is too early to tell. Takes nothing. */
int answer_at(const answer_parser *p, const char *text);
int answer_at_place(const answer_parser *p, size_t place, const char *text);
bool answer_skip_space(answer_parser *p); /* false: nothing is left to look at */
void answer_to_text(answer_parser *p, bool reasoning, bool trim);
answer_state answer_text, answer_section;

/* ---- answer_call.c ---- */
answer_state answer_name, answer_object, answer_arguments, answer_params_state, answer_python, answer_deepseek_name;
answer_step answer_object_begin(answer_parser *p);
answer_step answer_name_begin(answer_parser *p, const answer_format *format);
answer_step answer_arguments_begin(answer_parser *p);
/* Reads up to one of `ends`: returns its index, and the bytes of the name in *n; -1: too early; -2: too long. */
int answer_find_end(answer_parser *p, const char *const *ends, size_t *n);
void answer_tell_arguments(answer_parser *p, const char *text);
answer_step answer_call_ends(answer_parser *p); /* the call is complete; another one may follow */
/* Reports bytes of p->value as arguments. */
answer_value_result answer_tell_value(answer_parser *p);
/* Returns the request's entry for a tool: its name and its parameters' schema. NULL: there is none. */
const json_t *answer_tool_named(const json_t *tools, const char *name);
const json_t *answer_tool_schema(const json_t *tool);
const char *answer_tool_name(const json_t *tool);

/* ---- answer_params.c ---- */
void answer_tell_key(answer_parser *p, const char *key, size_t n); /* {"key": or ,"key": */
answer_step answer_params_end(answer_parser *p);

/* ---- answer_type.c ---- */
typedef enum answer_type { /* how a value without quotes is meant */
    ANSWER_TYPE_UNKNOWN,
    ANSWER_TYPE_STRING,
    ANSWER_TYPE_NULLABLE, /* a string or null */
    ANSWER_TYPE_OTHER,
    ANSWER_TYPE_LIST,     /* an array, or null */
    ANSWER_TYPE_OBJECT,
} answer_type;
/* Returns the schema of member `key` (NULL: of the items) of a value that `schema` describes; `schema` is a part of `root`.
 * NULL: none. */
const json_t *answer_schema_of(const json_t *root, const json_t *schema, const char *key);
answer_type answer_schema_type(const json_t *root, const json_t *schema);

/* ---- answer_harmony.c ---- */
answer_state answer_harmony;
void answer_harmony_body(answer_parser *p); /* content follows */

/* ---- answer_format.c ---- */
extern const answer_format answer_function_tags; /* <function=name>, within other formats */

#endif
