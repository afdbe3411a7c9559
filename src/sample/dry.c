/* dry.c - DRY, "don't repeat yourself": penalizes the token that would continue a repetition.
 *
 * If the newest n tokens occur earlier in the window too, the token that followed them there loses multiplier * base^(n -
 * allowed length), for the largest such n, where n >= allowed length. No repetition reaches back over a breaker (a newline, a
 * colon, ...), and a token that contains a breaker is never penalized.
 * Lengths come from the Z-function of the reversed window, in linear time. Breakers are looked for in the tokens' bytes,
 * across borders, and only as far back as the longest repetition.
 * Source: P. E. Weidmann, text-generation-webui pull request 5677; parameters as llama.cpp's. llama.cpp finds a breaker that
 * spans tokens only when its rest is tokenized in the canonical way; here the text decides.
 */
#include "sample/sampler_int.h"

/* Returns whether the bytes before token `at` end with bytes[0..n). */
static bool text_before_ends_in(const ae_sampler *s, const int32_t *tokens, size_t at, const char *bytes, size_t n)
{
    while (n) {
        if (!at || tokens[at - 1] < 0) return false; /* rows that are not tokens have no text */
        uint32_t length;
        const char *piece = ae_vocab_piece_view(s->vocab, tokens[--at], true, &length);
        const size_t k = length < n ? length : n;
        if (memcmp(piece + (length - k), bytes + (n - k), k)) return false;
        n -= k;
    }
    return true;
}

static bool holds(const char *text, size_t n, const char *part, size_t n_part)
{
    for (size_t i = 0; i + n_part <= n; i++)
        if (text[i] == part[0] && !memcmp(text + i, part, n_part)) return true;
    return false;
}

/* Returns whether some breaker is in the token's own text. */
static bool is_breaker(const ae_sampler *s, int32_t token)
{
    if (!s->vocab) return false;
    uint32_t n;
    const char *piece = ae_vocab_piece_view(s->vocab, token, true, &n);
    for (size_t b = 0; b < s->draw.params.n_dry_breakers; b++)
        if (holds(piece, n, s->draw.params.dry_breakers[b], strlen(s->draw.params.dry_breakers[b]))) return true;
    return false;
}

/* Returns whether some breaker ends in tokens[at], wherever it begins. */
static bool breaker_ends_at(const ae_sampler *s, const int32_t *tokens, size_t at)
{
    if (!s->vocab) return false;
    if (is_breaker(s, tokens[at])) return true;
    uint32_t n;
    const char *piece = ae_vocab_piece_view(s->vocab, tokens[at], true, &n);
    for (size_t b = 0; b < s->draw.params.n_dry_breakers; b++) {
        const char *text = s->draw.params.dry_breakers[b];
        const size_t length = strlen(text);
        for (size_t rest = 1; rest < length && rest <= n; rest++)
            if (!memcmp(piece, text + (length - rest), rest) && text_before_ends_in(s, tokens, at, text, length - rest))
                return true;
    }
    return false;
}

/* Sets z[k] to how many of the newest tokens occur again k places earlier. Returns the largest. */
static uint32_t find_repeats(const int32_t *newest, uint32_t n, uint32_t *z)
{
    uint32_t left = 0, end = 0, longest = 0; /* [left, end): the match that reaches farthest back */
    for (uint32_t k = 1; k < n; k++) {
        uint32_t length = 0;
        if (k < end) length = z[k - left] < end - k ? z[k - left] : end - k;
        while (k + length < n && newest[-(ptrdiff_t)length] == newest[-(ptrdiff_t)(k + length)] &&
               newest[-(ptrdiff_t)length] >= 0) /* no repetition spans rows that are not tokens */
            length++;
        if (k + length > end) {
            left = k;
            end = k + length;
        }
        z[k] = length;
        if (length > longest) longest = length;
    }
    return longest;
}

static float power(float base, uint32_t exponent)
{
    double result = 1.0, factor = (double)base;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1) result *= factor;
        factor *= factor;
    }
    return (float)result;
}

static void weaken(ae_sampler *s, int32_t id, uint32_t length)
{
    const ae_sampling *p = &s->draw.params;
    uint32_t exponent = length - (uint32_t)p->dry_allowed_length;
    if (p->dry_base > 1.000001f) { /* the exponent is limited so that the power stays a finite float */
        const double most = 88.7228391 / ae_log((double)p->dry_base);
        if ((double)exponent > most) exponent = (uint32_t)most;
    }
    s->room.row[id] -= p->dry_multiplier * power(p->dry_base, exponent);
}

void ae_step_dry(ae_sampler *s, const int32_t *tokens, size_t n_tokens)
{
    const ae_sampling *p = &s->draw.params;
    const uint32_t allowed = (uint32_t)p->dry_allowed_length;
    size_t window = n_tokens;
    if (p->dry_penalty_last_n >= 0 && (size_t)p->dry_penalty_last_n < window) window = (size_t)p->dry_penalty_last_n;
    if (window > s->n_ctx) window = s->n_ctx;
    const uint32_t n = (uint32_t)window;
    if (n <= allowed) return;
    uint32_t limit = find_repeats(tokens + n_tokens - 1, n, s->repeats);
    if (limit < allowed) return;
    for (uint32_t i = 0; i < limit; i++)
        if (breaker_ends_at(s, tokens, n_tokens - 1 - i)) limit = i;
    if (limit < allowed) return;
    ae_to_row(&s->room);
    /* marks the longest repetition for each token, plus one so that it is not 0 */
    for (uint32_t k = 1; k < n; k++) {
        const uint32_t length = s->repeats[k] < limit ? s->repeats[k] : limit;
        const int32_t id = tokens[n_tokens - k];
        const bool known = id >= 0 && (uint32_t)id < s->draw.n_vocab;
        if (length >= allowed && known && s->seen[id] < length + 1) s->seen[id] = length + 1;
    }
    for (uint32_t k = 1; k < n; k++) {
        const int32_t id = tokens[n_tokens - k];
        if (id < 0 || (uint32_t)id >= s->draw.n_vocab || !s->seen[id]) continue;
        if (!is_breaker(s, id)) weaken(s, id, s->seen[id] - 1);
        s->seen[id] = 0;
    }
}
