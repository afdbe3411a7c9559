/* test_convert_library.c - src/convert without the program: remarks and progress come by callback, nothing is printed, and a conversion
 * that is cancelled or fails leaves no file. What files hold: tests/app/test_convert.c. */
#include "convert_rig.inc"

#include <dirent.h>

#include "convert/convert.h"

typedef struct listener {
    unsigned n_warnings, n_notes, n_steps, cancel_at; /* cancel_at: the step that says no; 0 = none */
    uint64_t last, total;
    char sentence[256];
} listener;

static void on_log(void *user, aerie_log_level level, const char *sentence)
{
    listener *l = user;
    l->n_warnings += level == AERIE_LOG_WARNING;
    l->n_notes += level == AERIE_LOG_INFO;
    snprintf(l->sentence, sizeof l->sentence, "%s", sentence);
}

static bool on_step(void *user, const char *step, uint64_t done, uint64_t total)
{
    listener *l = user;
    if (strcmp(step, "writing") || done > total || (l->n_steps && (done < l->last || total != l->total)))
        fail_msg("%s: %llu of %llu after %llu", step, (unsigned long long)done, (unsigned long long)total,
                 (unsigned long long)l->last);
    l->last = done;
    l->total = total;
    return ++l->n_steps != l->cancel_at;
}

static size_t n_files(const char *folder)
{
    size_t n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

static aerie_status convert(const char *folder, const char *out, listener *l, aerie_error *error)
{
    char from[256], to[256];
    ae_convert *c;
    snprintf(from, sizeof from, "%s/%s", cli_folder, folder);
    snprintf(to, sizeof to, "%s/%s", cli_folder, out);
    const ae_convert_options options = {.checkpoint = from, .output = to, .type = AE_TYPE_Q4_K,
                                        .producer = AE_CONVERT_PRODUCER_AUTO, .log = {l ? on_log : NULL, l},
                                        .progress = l ? on_step : NULL, .user = l};
    aerie_status status = ae_convert_open(&c, &options, error);
    if (status != AERIE_OK) {
        assert_null(c);
        return status;
    }
    status = ae_convert_run(c, error);
    if (status == AERIE_OK) {
        const ae_convert_report r = ae_convert_reported(c);
        assert_string_equal(r.kind, "EAGLE-3");
        assert_int_equal(r.head->n_draft, 100);
        assert_true(r.n_tensors > 10 && r.bytes > 0);
        assert_null(r.check);
        if (l) assert_int_equal(l->last, r.bytes);
    }
    ae_convert_free(c);
    return status;
}

static void by_callback(void **state)
{
    (void)state;
    const spec head = {TINY, MID};
    write_head("plain", &head, CONFIG("\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}," USUAL_TAPS));
    listener l = {.n_steps = 0};
    aerie_error error = {0};
    if (convert("plain", "plain.gguf", &l, &error) != AERIE_OK) fail_msg("%s", error.text);
    assert_int_equal(l.n_warnings, 1); /* dynamic RoPE scaling */
    assert_int_equal(l.n_notes, 1);    /* rows of 64 are no blocks of Q4_K */
    assert_non_null(strstr(l.sentence, "do not fit"));
    assert_true(l.n_steps > 100);
    ae_gguf_close(open_file("plain.gguf"));
    if (convert("plain", "silent.gguf", NULL, &error) != AERIE_OK) fail_msg("%s", error.text);
}

static void leaves_nothing(void **state)
{
    (void)state;
    const spec head = {TINY, MID};
    aerie_error error = {0};
    write_head("again", &head, CONFIG(USUAL_TAPS));
    const size_t before = n_files(cli_folder);
    for (unsigned at = 1; at < 400; at = 3 * at + 1) {
        listener l = {.cancel_at = at};
        assert_int_equal(convert("again", "again.gguf", &l, &error), AERIE_ERROR_CANCELLED);
        assert_int_equal(l.n_steps, at);
        assert_int_equal(n_files(cli_folder), before);
    }
    assert_int_equal(convert("again", "again/model.safetensors", NULL, &error), AERIE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "is being read"));
    assert_int_equal(convert("nothing", "nothing.gguf", NULL, &error), AERIE_ERROR_IO);
    make_folder("other");
    st_make m = {0};
    st_make_floats(&m, "vision.patch.weight", "vision.patch.weight", 4, 4);
    write_checkpoint("other", &m, "{}");
    assert_int_equal(convert("other", "other.gguf", NULL, &error), AERIE_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "not a drafter head"));
    assert_int_equal(n_files(cli_folder), before + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_callback),
        cmocka_unit_test(leaves_nothing),
    };
    return cmocka_run_group_tests(tests, cli_setup, cli_teardown);
}
