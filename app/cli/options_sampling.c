/* options_sampling.c - parses --samplers, --sampling-seq, --logit-bias, --dry-sequence-breaker and --stop. */
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"

/* Owns the lists to which app_options.sampling points, and the texts whose escapes were replaced. */
struct app_sampling_lists {
    aerie_logit_bias *bias;
    char **texts; /* [n_texts] owned */
    size_t n_texts, capacity;
};

void app_sampling_free(app_options *options)
{
    struct app_sampling_lists *lists = options->sampling_lists;
    free(options->logit_bias.items);
    free(options->dry_breakers.items);
    free(options->stop.items);
    if (!lists) return;
    for (size_t i = 0; i < lists->n_texts; i++) free(lists->texts[i]);
    free(lists->texts);
    free(lists->bias);
    free(lists);
    options->sampling_lists = NULL;
}

/* ---- Order ------------------------------------------------------------------------------------- */

static int wrong_sampler(const char *option, const char *name, size_t n)
{
    char known[256] = "";
    for (int i = AERIE_SAMPLER_END + 1; aerie_sampler_name((aerie_sampler)i); i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s (%c)", used ? ", " : "", aerie_sampler_name((aerie_sampler)i),
                 aerie_sampler_letter((aerie_sampler)i));
    }
    return app_error(APP_USAGE, "%s knows %s; found '%.*s'", option, known, (int)(n < 64 ? n : 64), name);
}

static int add_sampler(app_options *options, size_t *n, aerie_sampler sampler, const char *option)
{
    if (*n + 1 >= AERIE_MAX_SAMPLERS) return app_error(APP_USAGE, "%s takes at most %d steps", option, AERIE_MAX_SAMPLERS - 1);
    options->sampling.samplers[(*n)++] = sampler;
    options->sampling.samplers[*n] = AERIE_SAMPLER_END;
    return APP_DONE;
}

static int settle_names(app_options *options)
{
    size_t n = 0;
    int bad = APP_DONE;
    options->sampling.samplers[0] = AERIE_SAMPLER_END;
    for (const char *p = options->samplers; *p && !bad;) {
        char name[32];
        aerie_sampler sampler;
        const size_t length = strcspn(p, ";");
        snprintf(name, sizeof name, "%.*s", (int)(length < 31 ? length : 31), p);
        if (length > 31 || !aerie_sampler_parse(name, &sampler)) bad = wrong_sampler("--samplers", p, length);
        else bad = add_sampler(options, &n, sampler, "--samplers");
        p += length;
        if (*p == ';') p++;
    }
    return bad;
}

static int settle_letters(app_options *options)
{
    size_t n = 0;
    int bad = APP_DONE;
    options->sampling.samplers[0] = AERIE_SAMPLER_END;
    for (const char *p = options->sampler_seq; *p && !bad; p++) {
        aerie_sampler sampler;
        if (!aerie_sampler_parse((const char[]){*p, '\0'}, &sampler)) bad = wrong_sampler("--sampling-seq", p, 1);
        else bad = add_sampler(options, &n, sampler, "--sampling-seq");
    }
    return bad;
}

/* ---- Lists ------------------------------------------------------------------------------------------ */

/* Reads llama.cpp's notation: token id, sign, number. */
static bool parse_bias(const char *text, aerie_logit_bias *bias)
{
    char *end;
    errno = 0;
    if (!isdigit((unsigned char)*text)) return false;
    const long long token = strtoll(text, &end, 10);
    if (errno || token > INT32_MAX || (*end != '+' && *end != '-')) return false;
    const double sign = *end++ == '-' ? -1 : 1;
    const char *number = end;
    if ((!isdigit((unsigned char)*number) && *number != '.' && strcmp(number, "inf")) || strpbrk(number, "xX")) return false;
    const double value = app_number(number, &end);
    if (*end || end == number || isnan(value)) return false;
    *bias = (aerie_logit_bias){(int32_t)token, (float)(sign * value)};
    return true;
}

static int settle_bias(app_options *options)
{
    struct app_sampling_lists *lists = options->sampling_lists;
    const size_t n = options->logit_bias.n;
    if (!n) return APP_DONE;
    if (!(lists->bias = calloc(n, sizeof *lists->bias))) return app_error_memory("the options");
    for (size_t i = 0; i < n; i++)
        if (!parse_bias(options->logit_bias.items[i], &lists->bias[i]))
            return app_error(APP_USAGE, "--logit-bias takes a token id, + or -, and a number: 15043+1, 15043-inf; found '%s'",
                             options->logit_bias.items[i]);
    options->sampling.logit_bias = lists->bias;
    options->sampling.n_logit_bias = n;
    return APP_DONE;
}

/* Replaces the escapes in the texts, unless --no-escape was given, and refuses empty texts. */
static int settle_texts(app_options *options, app_texts *texts, const char *option)
{
    struct app_sampling_lists *lists = options->sampling_lists;
    for (size_t i = 0; i < texts->n; i++) {
        if (!*texts->items[i]) return app_error(APP_USAGE, "%s needs a text that is not empty", option);
        if (!options->escape) continue;
        char **grown = app_grow(lists->texts, lists->n_texts, &lists->capacity, sizeof *grown);
        if (!grown) return app_error_memory("the options");
        lists->texts = grown;
        char *copy = grown[lists->n_texts] = strdup(texts->items[i]);
        if (!copy) return app_error_memory("the options");
        lists->n_texts++;
        const size_t n = app_unescape(copy, strlen(copy));
        if (strlen(copy) != n)
            return app_error(APP_USAGE, "%s: a text cannot hold a NUL byte; found '%s'", option, texts->items[i]);
        texts->items[i] = copy;
    }
    return APP_DONE;
}

static int settle_breakers(app_options *options)
{
    const app_texts *texts = &options->dry_breakers;
    if (!texts->n) return APP_DONE;
    const int bad = settle_texts(options, &options->dry_breakers, "--dry-sequence-breaker");
    if (bad) return bad;
    const bool none = texts->n == 1 && strcmp(texts->items[0], "none") == 0;
    options->sampling.dry_breakers = texts->items;
    options->sampling.n_dry_breakers = none ? 0 : texts->n;
    return APP_DONE;
}

static int settle_stops(app_options *options)
{
    const int bad = settle_texts(options, &options->stop, "--stop");
    if (bad) return bad;
    if (options->stop.n > AERIE_MAX_STOPS) return app_error(APP_USAGE, "--stop can be given %d times at most", AERIE_MAX_STOPS);
    for (size_t i = 0; i < options->stop.n; i++)
        if (strlen(options->stop.items[i]) > AERIE_MAX_STOP_BYTES)
            return app_error(APP_USAGE, "--stop takes texts of at most %d bytes; found one of %zu", AERIE_MAX_STOP_BYTES,
                             strlen(options->stop.items[i]));
    return APP_DONE;
}

int app_sampling_settle(app_options *options)
{
    if (!(options->sampling_lists = calloc(1, sizeof *options->sampling_lists))) return app_error_memory("the options");
    if (options->sampling.mirostat == 1)
        return app_error(APP_USAGE, "--mirostat takes 0 (off) or 2 (mirostat 2.0); found '1'");
    if (options->samplers && options->sampler_seq)
        return app_error(APP_USAGE, "--samplers and --sampling-seq exclude each other");
    if (options->n_logprobs && !options->json && !options->jsonl)
        return app_error(APP_USAGE, "--logprobs needs --json or --jsonl");
    int bad = APP_DONE;
    if (options->samplers) bad = settle_names(options);
    if (!bad && options->sampler_seq) bad = settle_letters(options);
    if (!bad) bad = settle_bias(options);
    if (!bad) bad = settle_breakers(options);
    if (!bad) bad = settle_stops(options);
    return bad;
}
