/* answer_int.h - what the files of the answer parser share.
 * Bytes that were not reported yet are held in held.data[from .. held.n). A state reads them from `pos` on and either takes
 * some or waits for more. If a state fails, [from .. pos) becomes content and the search for tags continues at `pos`: nothing
 * is read twice, so time is linear, and nothing is lost. */
#ifndef AERIE_APP_SERVE_PARSE_ANSWER_INT_H
#define AERIE_APP_SERVE_PARSE_ANSWER_INT_H

#include "serve/parse/answer.h"
#include "serve/parse/answer_value.h"

#define ANSWER_MAX_NAME 256  /* bytes of a tool's name */
#define ANSWER_MAX_HEAD 1024 /* limit of a name with its surrounding text, of a parameter's name, and of harmony's headers */
#define ANSWER_MAX_GAP 64    /* bytes of white space that may come before the text that follows a tag */
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
    ANSWER_BODY_XML,    /* an element with the name of each parameter, possibly with nested elements */
} answer_body;

struct answer_format {
    const char *name;
    const char *marks[3];               /* a template with all of them has this format */
    const char *open[ANSWER_MAX_TEXTS]; /* begin a section of calls; none: the whole answer is the section */
    const char *close, *close2;         /* end the section; NULL: anything that is not a call ends it */
    const char *item, *item_close;      /* around a call; NULL: none */
    const char *ends[ANSWER_MAX_TEXTS]; /* end a name; one that also begins or ends a body is left to be read again */
    answer_head head;
    answer_body body;
    bool json;     /* also reads calls of the form {"name":, "arguments":} */
    bool keyed;    /* {"name": {arguments}} */
    bool function; /* also reads <function=name>..., with JSON or with parameters */
    bool bare;     /* the answer may begin with a call without a tag, whose first byte is '{' or '[' */
    bool list;     /* commas, brackets and fences between calls are skipped */
    bool breaks_reasoning; /* its tags are control tokens, so they count inside reasoning, too */
    bool special;          /* its tags may be control tokens */
    bool short_ids;        /* ids have nine letters and digits, as Mistral's templates demand */
    const char *mark;      /* the mark around strings of a LOOSE body */
    const char *param, *key_end, *value, *value_close; /* <param>key<key_end><value>text<value_close>; value may be NULL */
    bool lines;            /* values are on separate lines */
    bool cdata;            /* values may stand in <![CDATA[...]]> */
    bool escaped;          /* names are written with &quot; and &amp; */
    const char *attributes; /* skips attributes after a name, up to this mark */
    const char *block, *block_close; /* around all arguments, which are JSON */
    /* For tool_choice: the end of the prompt before an object with `name_key` and `arguments_key`, and before the arguments
     * alone (%s: the name). NULL: not possible. */
    const char *force_object, *force_arguments;
    const char *name_key, *arguments_key; /* NULL: "name", "arguments" */
    /* For tool_choice auto: after one of `triggers` (none: one of `open`) the text must continue like one of `heads`. In a
     * head, %s is
     * a tool's name, followed by its arguments; %d a digit; %o an object with name and arguments, %l a list of them. Without
     * heads the text is unrestricted. */
    const char *triggers[2], *heads[ANSWER_MAX_HEADS];
};

struct answer_tags {
    const char *name;
    const char *marks[2];   /* a template with one of them has these tags */
    const char *open[2], *close;
    const char *skip[4];    /* tags around the text that have no meaning */
    const char *recipient;  /* comes before the recipient of a message, which `recipient_end` ends; open[0] addresses the model
                             * itself */
    const char *recipient_end;
    const char *then;       /* ends the reasoning and begins the text; NULL: `close` does */
    const char *begin;      /* begins a text without reasoning before it; NULL: nothing does */
    bool special;           /* may be control tokens */
    bool anywhere;          /* also recognized after text; the others only after white space */
};

typedef enum answer_step { ANSWER_ON, ANSWER_NEED, ANSWER_FAIL } answer_step;
typedef answer_step answer_state(answer_parser *p);

typedef enum answer_action {
    ANSWER_MARK_OPEN, /* of reasoning */
    ANSWER_MARK_CLOSE,
    ANSWER_MARK_SKIP,
    ANSWER_MARK_SECTION,
    ANSWER_MARK_MAYBE, /* a section inside reasoning */
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
    bool ended, failed, stopped; /* no more bytes come; memory was short; the sink returned false */
    bool cut;                    /* a limit ended the answer */
    app_text held;
    size_t from, pos;

    /* text that is ready to be reported */
    app_text out;
    answer_kind out_kind;

    /* text */
    bool reasoning, fresh, trim; /* inside reasoning; no content since the start or a call; white space is dropped */
    size_t solid;                       /* the text up to here is final */
    answer_mark marks[ANSWER_MAX_MARKS];
    size_t n_marks;
    bool first[256];

    /* the call */
    bool open, any;        /* a CALL event waits for its CALL_END; this section has had a call */
    size_t n_calls, name_at, name_end;
    bool tagged;           /* the section began with a tag */
    char name[ANSWER_MAX_NAME + 1];
    char id[64];
    const json_t *tool;    /* its entry, or NULL */
    answer_value value;
    app_text word;         /* a key, a name or an id, as JSON */
    app_text arguments;    /* arguments that came before the name */
    answer_value told;     /* state of the arguments as they were reported */
    app_text scratch;
    bool telling;          /* some of them were */
    bool has_arguments, has_name, nested, string_value;
    size_t n_params;
    int key;
    int part;              /* of states with parts */
    app_text closer;       /* XML: the closing tag of the parameter */
    int depth;             /* XML: number of its open tags */
    const answer_format *closing; /* the format whose tags end the current call */
};

/* ---- answer.c ---- */
void answer_tell(answer_parser *p, answer_kind kind, const char *text, size_t n); /* joins deltas */
/* Reports CALL with p->name; without an id it creates one. Bytes held up to pos count as reported. */
void answer_begin_call(answer_parser *p);
/* Reports CALL_END. Bytes held up to pos count as reported. */
void answer_end_call(answer_parser *p, bool complete);
/* Compares the bytes at pos with `text` without taking them. Returns 1, 0, or -1 if more bytes are needed. */
int answer_at(const answer_parser *p, const char *text);
int answer_at_place(const answer_parser *p, size_t place, const char *text);
bool answer_skip_space(answer_parser *p); /* false: no bytes are left */
void answer_to_text(answer_parser *p, bool reasoning, bool trim);
answer_state answer_text, answer_section;

/* ---- answer_call.c ---- */
answer_state answer_name, answer_object, answer_arguments, answer_params_state, answer_python, answer_deepseek_name;
answer_step answer_object_begin(answer_parser *p);
answer_step answer_name_begin(answer_parser *p, const answer_format *format);
answer_step answer_arguments_begin(answer_parser *p);
/* Reads up to one of `ends`. Returns its index and the length of the name in *n; -1 if more text is needed; -2 if it is too
 * long. */
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
typedef enum answer_type { /* how a value without quotes is read */
    ANSWER_TYPE_UNKNOWN,
    ANSWER_TYPE_STRING,
    ANSWER_TYPE_NULLABLE, /* a string or null */
    ANSWER_TYPE_OTHER,
    ANSWER_TYPE_LIST,     /* an array, or null */
    ANSWER_TYPE_OBJECT,
} answer_type;
/* Returns the schema of member `key` (NULL: of the items) of a value that `schema` describes, or NULL. `schema` is a part of
 * `root`. */
const json_t *answer_schema_of(const json_t *root, const json_t *schema, const char *key);
answer_type answer_schema_type(const json_t *root, const json_t *schema);

/* ---- answer_harmony.c ---- */
answer_state answer_harmony;
void answer_harmony_body(answer_parser *p); /* content follows */

/* ---- answer_format.c ---- */
extern const answer_format answer_function_tags; /* <function=name>, within other formats */

#endif
