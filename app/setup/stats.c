/* stats.c - prints the statistics of a generation, as a line and as JSON. */
#include <string.h>

#include "setup/load.h"

double app_rate(double count, double seconds)
{
    return seconds > 0 ? count / seconds : 0;
}

void app_stats_add(aerie_stats *sum, const aerie_stats *stats)
{
    sum->n_prompt += stats->n_prompt;
    sum->n_cached += stats->n_cached;
    sum->n_generated += stats->n_generated;
    sum->n_passes += stats->n_passes;
    sum->n_drafted += stats->n_drafted;
    sum->n_accepted += stats->n_accepted;
    for (size_t i = 0; i < AERIE_MAX_DRAFT; i++) {
        sum->drafted_at[i] += stats->drafted_at[i];
        sum->accepted_at[i] += stats->accepted_at[i];
        sum->tried_at[i] += stats->tried_at[i];
    }
    for (size_t i = 0; i < AERIE_MAX_DRAFTERS; i++) {
        sum->drafted_by[i] += stats->drafted_by[i];
        sum->accepted_by[i] += stats->accepted_by[i];
    }
    sum->prompt_seconds += stats->prompt_seconds;
    sum->decode_seconds += stats->decode_seconds;
    sum->target_seconds += stats->target_seconds;
    sum->draft_seconds += stats->draft_seconds;
    sum->sample_seconds += stats->sample_seconds;
    sum->n_masks += stats->n_masks;
    sum->n_mask_hits += stats->n_mask_hits;
    sum->n_mask_checks += stats->n_mask_checks;
    sum->mask_seconds += stats->mask_seconds;
    sum->stop = stats->stop;
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

/* Writes how much each of several drafters contributed; "" for one drafter. */
static const char *by_drafter(char out[512], const aerie_stats *s, const aerie_session *session)
{
    size_t n = 0;
    *out = '\0';
    if (!session || !aerie_session_drafter_name(session, 1)) return out;
    for (uint32_t i = 0; i < AERIE_MAX_DRAFTERS && aerie_session_drafter_name(session, i); i++)
        n += (size_t)snprintf(out + n, 512 - n, "%s%s %u token%s in %u pass%s", i ? ", " : "; drafters: ",
                              aerie_session_drafter_name(session, i), (unsigned)s->accepted_by[i],
                              app_plural(s->accepted_by[i]), (unsigned)s->drafted_by[i], s->drafted_by[i] == 1 ? "" : "es");
    return out;
}

void app_say_stats(const aerie_stats *s, size_t n_prompts, double seconds, const aerie_session *session)
{
    char depths[1024] = "";
    size_t n = 0;
    for (size_t i = 0; i < AERIE_MAX_DRAFT && n < sizeof depths - 32; i++) {
        if (s->drafted_at[i] == 0) continue;
        n += (size_t)snprintf(depths + n, sizeof depths - n, "%s%zu:%u/%u", n ? " " : "", i + 1,
                              (unsigned)s->accepted_at[i], (unsigned)s->drafted_at[i]);
    }
    char together[96] = "";
    if (n_prompts > 1) {
        snprintf(together, sizeof together, "; %zu prompts in %.2f s, %.2f tokens/s together", n_prompts, seconds,
                 app_rate(s->n_generated, seconds));
    }
    char masks[160] = "";
    if (s->n_masks || s->n_mask_hits || s->n_mask_checks) {
        snprintf(masks, sizeof masks, "; grammar: %llu masks computed, %llu found, %llu tokens tried, %.1f%% of the time",
                 (unsigned long long)s->n_masks, (unsigned long long)s->n_mask_hits, (unsigned long long)s->n_mask_checks,
                 percent(s->mask_seconds, s->decode_seconds));
    }
    char shared[96], drafters[512];
    app_shared_tokens(shared, session);
    const double rest = percent(s->target_seconds, s->decode_seconds);
    app_note("prompt %u token%s (%u cached), %.2f tokens/s; generated %u token%s, %.2f tokens/s; %u target pass%s; "
             "drafted %u, accepted %u (%.0f%%)%s%s%s%s%s; time: target %.1f%%, draft %.1f%%, sampling %.1f%%%s%s",
             (unsigned)s->n_prompt, app_plural(s->n_prompt), (unsigned)s->n_cached,
             app_rate(s->n_prompt - s->n_cached, s->prompt_seconds), (unsigned)s->n_generated, app_plural(s->n_generated),
             app_rate(s->n_generated, s->decode_seconds), (unsigned)s->n_passes, s->n_passes == 1 ? "" : "es",
             (unsigned)s->n_drafted, (unsigned)s->n_accepted, percent(s->n_accepted, s->n_drafted), n ? ", by depth " : "",
             depths, by_drafter(drafters, s, session), *shared ? "; " : "", shared, rest,
             percent(s->draft_seconds, s->decode_seconds), percent(s->sample_seconds, s->decode_seconds), masks, together);
}

json_t *app_json_depths(const aerie_stats *stats)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < AERIE_MAX_DRAFT; i++) {
        if (stats->drafted_at[i] == 0) continue;
        app_json_append(list, json_pack("{s:I, s:I, s:I, s:I}", "depth", (json_int_t)(i + 1), "drafted",
                                              (json_int_t)stats->drafted_at[i], "tried",
                                              (json_int_t)stats->tried_at[i], "accepted",
                                              (json_int_t)stats->accepted_at[i]));
    }
    return list;
}

static const char *stop_name(aerie_stop stop)
{
    switch (stop) {
    case AERIE_STOP_NONE: return "none";
    case AERIE_STOP_EOG: return "end";
    case AERIE_STOP_LENGTH: return "length";
    case AERIE_STOP_CONTEXT: return "context";
    case AERIE_STOP_CALLER: return "interrupted";
    case AERIE_STOP_STRING: return "stop string";
    case AERIE_STOP_GRAMMAR: return "grammar";
    case AERIE_STOP_DEAD_END: return "dead end";
    }
    return "none";
}

json_t *app_json_stats(const aerie_stats *s)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:f, s:s}",
                     "n_prompt", (json_int_t)s->n_prompt, "n_cached", (json_int_t)s->n_cached, "n_generated",
                     (json_int_t)s->n_generated, "n_passes", (json_int_t)s->n_passes, "n_drafted", (json_int_t)s->n_drafted,
                     "n_accepted", (json_int_t)s->n_accepted, "by_depth", app_json_depths(s), "prompt_seconds",
                     s->prompt_seconds, "decode_seconds", s->decode_seconds, "target_seconds", s->target_seconds,
                     "draft_seconds", s->draft_seconds, "sample_seconds", s->sample_seconds, "prompt_per_second",
                     app_rate(s->n_prompt - s->n_cached, s->prompt_seconds), "generated_per_second",
                     app_rate(s->n_generated, s->decode_seconds), "n_masks", (json_int_t)s->n_masks, "n_mask_hits",
                     (json_int_t)s->n_mask_hits, "n_mask_checks", (json_int_t)s->n_mask_checks, "mask_seconds", s->mask_seconds,
                     "stop", stop_name(s->stop));
}

static json_t *text(const char *bytes)
{
    return app_json_text(bytes, strlen(bytes));
}

static json_t *json_sampling(const aerie_sampling *p)
{
    const struct {
        const char *name;
        double value;
    } reals[] = {
        {"temperature", (double)p->temperature}, {"top_p", (double)p->top_p}, {"min_p", (double)p->min_p},
        {"typical_p", (double)p->typical_p}, {"top_n_sigma", (double)p->top_n_sigma},
        {"repeat_penalty", (double)p->repeat_penalty}, {"presence_penalty", (double)p->presence_penalty},
        {"frequency_penalty", (double)p->frequency_penalty}, {"dry_multiplier", (double)p->dry_multiplier},
        {"dry_base", (double)p->dry_base}, {"xtc_probability", (double)p->xtc_probability},
        {"xtc_threshold", (double)p->xtc_threshold}, {"dynatemp_range", (double)p->dynatemp_range},
        {"dynatemp_exp", (double)p->dynatemp_exponent}, {"mirostat_ent", (double)p->mirostat_tau},
        {"mirostat_lr", (double)p->mirostat_eta},
    };
    json_t *json = json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:o}", "top_k", (int)p->top_k, "repeat_last_n",
                             (int)p->penalty_last_n, "dry_allowed_length", (int)p->dry_allowed_length, "dry_penalty_last_n",
                             (int)p->dry_penalty_last_n, "mirostat", (int)p->mirostat, "min_keep", (int)p->min_keep, "seed",
                             app_json_u64(p->seed));
    for (size_t i = 0; json && i < sizeof reals / sizeof *reals; i++)
        app_json_put(json, reals[i].name, app_json_real(reals[i].value));
    json_t *samplers = json_array(), *bias = json_array();
    for (size_t i = 0; i < AERIE_MAX_SAMPLERS && p->samplers[i] != AERIE_SAMPLER_END; i++)
        app_json_append(samplers, json_string(aerie_sampler_name(p->samplers[i])));
    for (size_t i = 0; i < p->n_logit_bias; i++)
        app_json_append(bias,
                              json_pack("[i, o]", (int)p->logit_bias[i].token, app_json_real((double)p->logit_bias[i].bias)));
    app_json_put(json, "samplers", samplers);
    app_json_put(json, "logit_bias", bias);
    return json;
}

json_t *app_json_settings(const app_models *models, const app_options *options, const aerie_session *session)
{
    const aerie_spec *spec = &options->session.spec;
    json_t *sampling = json_sampling(&options->sampling);
    json_t *speculation = json_pack("{s:s, s:I, s:I, s:f, s:b, s:b}", "type", aerie_session_spec_name(session), "n_max",
                                    (json_int_t)spec->n_max, "n_min", (json_int_t)spec->n_min, "p_min",
                                    (double)spec->p_min, "tree", (int)spec->tree, "fixed", (int)options->test.fixed);
    aerie_overlap o;
    if (aerie_session_overlap(session, &o, sizeof o))
        app_json_put(speculation, "overlap",
                            json_pack("{s:I, s:I, s:I, s:f, s:f}", "n_target", (json_int_t)o.n_target, "n_draft",
                                      (json_int_t)o.n_draft, "n_shared", (json_int_t)o.n_shared, "vocab_share", o.vocab_share,
                                      "text_share", o.text_share));
    json_t *all = json_pack("{s:s, s:o, s:o, s:o, s:o, s:s}", "version", aerie_version(), "model", text(options->model),
                            "arch", text(models->info.arch), "name", text(models->info.name), "tokenizer",
                            text(models->info.tokenizer), "cpu_level", models->info.cpu_level);
    json_t *run = json_pack("{s:I, s:I, s:I, s:I, s:s, s:I, s:b, s:o, s:o}", "n_ctx",
                            (json_int_t)aerie_session_n_ctx(session), "n_batch", (json_int_t)options->session.n_batch,
                            "n_seqs", (json_int_t)options->session.n_seqs, "n_threads", (json_int_t)options->n_threads,
                            "kv_type", aerie_kv_type_name(options->session.kv_type),
                            "n_predict", (json_int_t)options->n_predict, "chat_template",
                            (int)app_uses_template(models, options), "sampling", sampling, "speculation", speculation);
    if (!all || json_object_update(all, run)) {
        json_decref(all);
        json_decref(run);
        return NULL;
    }
    json_decref(run);
    app_json_put(all, "load",
                        json_pack("{s:f, s:f, s:I, s:I}", "seconds", models->info.load_seconds, "fill_seconds",
                                  models->info.fill_seconds, "bytes", (json_int_t)models->info.load_bytes,
                                  "weight_bytes", (json_int_t)models->info.weight_bytes));
    return all;
}
