/* test_chat.c - prompts of conversations through aerie.h: a prompt begins with one BOS, whoever writes it, and with none where
 * the model has none; later ones are the template's own.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "aerie.h"
#include "vocab_make.h"

static aerie_model *load(bool spm, const vocab_make *how)
{
    char path[] = "/tmp/aerie_chat_XXXXXX";
    ae_buf file = {0};
    aerie_error error = {0};
    aerie_model *model;
    aerie_model_params params = aerie_model_params_default();
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    params.vocab_only = true;
    if (spm) vocab_make_spm(&file, how);
    else vocab_make_bpe(&file, how);
    assert_int_equal(write(fd, file.data, file.n), file.n);
    assert_int_equal(close(fd), 0);
    if (aerie_model_load(&model, path, &params, &error) != AERIE_OK) fail_msg("%s", error.text);
    ae_buf_free(&file);
    unlink(path);
    return model;
}

/* How many BOS a prompt begins with, and how many it has in all. */
typedef struct count {
    size_t first, all;
} count;

static count count_bos(const aerie_model *model, const char *text, size_t n)
{
    int32_t *tokens;
    size_t n_tokens;
    count c = {0};
    aerie_error error = {0};
    aerie_model_info info;
    aerie_model_info_get(model, &info);
    if (aerie_chat_tokenize(model, text, n, &tokens, &n_tokens, &error) != AERIE_OK) fail_msg("%s", error.text);
    assert_true(n_tokens > 2);
    while (c.first < n_tokens && info.bos >= 0 && tokens[c.first] == info.bos) c.first++;
    for (size_t i = 0; i < n_tokens; i++) c.all += info.bos >= 0 && tokens[i] == info.bos;
    aerie_free(tokens);
    return c;
}

/* The same by both ways to a prompt. */
static void check(bool spm, vocab_make how, const char *tmpl, count wanted)
{
    static const aerie_message messages[] = {{"user", "hello"}, {"assistant", "world"}, {"user", "hello"}};
    static const char json[] = "[{\"role\": \"user\", \"content\": \"hello\"}, "
                               "{\"role\": \"assistant\", \"content\": \"world\"}, "
                               "{\"role\": \"user\", \"content\": \"hello\"}]";
    const aerie_chat chat = {.messages = {json, sizeof json - 1, NULL}};
    char *text, *other;
    size_t n, n_other;
    aerie_error error = {0};
    how.chat_template = tmpl;
    aerie_model *model = load(spm, &how);
    if (aerie_chat_prompt(model, messages, 3, true, &text, &n, &error) != AERIE_OK) fail_msg("%s", error.text);
    if (aerie_chat_render(model, &chat, &other, &n_other, &error) != AERIE_OK) fail_msg("%s", error.text);
    assert_string_equal(text, other);
    const count c = count_bos(model, text, n);
    if (c.first != wanted.first || c.all != wanted.all)
        fail_msg("%s, spm %d, add %d: begins with %zu BOS of %zu, not %zu of %zu", text, spm, how.add_bos, c.first, c.all,
                 wanted.first, wanted.all);
    aerie_free(text);
    aerie_free(other);
    aerie_model_free(model);
}

static const char writes[] = "{{ bos_token }}{% for m in messages %}{{ m.role + m.content }}{% endfor %}",
                  writes_none[] = "{% for m in messages %}{{ m.role + m.content }}{% endfor %}",
                  each_turn[] = "{% for m in messages %}{% if m.role == 'user' %}{{ bos_token }}{% endif %}{{ m.content }}"
                                "{% endfor %}";

static void one_bos_whoever_writes_it(void **state)
{
    (void)state;
    for (int spm = 0; spm < 2; spm++) {
        const vocab_make adds = {.add_bos = true};
        check(spm, adds, writes, (count){1, 1});
        check(spm, adds, writes_none, (count){1, 1});
        check(spm, adds, each_turn, (count){1, 2});
    }
}

static void the_template_decides_where_the_tokenizer_adds_none(void **state)
{
    (void)state;
    check(false, (vocab_make){0}, writes, (count){1, 1});
    check(false, (vocab_make){0}, writes_none, (count){0, 0});
    check(false, (vocab_make){0}, each_turn, (count){1, 2});
}

static void none_where_the_model_has_none(void **state)
{
    (void)state;
    static const char *const templates[] = {writes, writes_none, each_turn};
    for (int i = 0; i < 3; i++) {
        check(false, (vocab_make){.no_bos = true}, templates[i], (count){0, 0});
        check(false, (vocab_make){.no_bos = true, .add_bos = true}, templates[i], (count){0, 0});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_bos_whoever_writes_it),
        cmocka_unit_test(the_template_decides_where_the_tokenizer_adds_none),
        cmocka_unit_test(none_where_the_model_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
