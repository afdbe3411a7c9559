/* debug.c - AERIE_DEBUG: prints a line on standard error for each pass, and the tree of each sequence that drafted.
 * Owns the words of the variable and the text of the lines. aerie_session_watch_passes reports the passes. The word "status"
 * belongs to the library (base/err.h). Text of tokens is escaped like all messages. */
#include <stdlib.h>
#include <string.h>

#include "aerie_measure.h"
#include "setup/load.h"

/* Returns whether the list in AERIE_DEBUG contains the word. */
static bool has_word(const char *word)
{
    const char *list = getenv("AERIE_DEBUG");
    const size_t n_word = strlen(word);
    for (size_t n; list && *list; list += n + (list[n] != '\0')) {
        n = strcspn(list, ",");
        if (n == n_word && memcmp(list, word, n) == 0) return true;
    }
    return false;
}

static void show_pass(const aerie_pass *p)
{
    char network[48] = "", predicted[128] = "";
    if (p->n_levels)
        snprintf(network, sizeof network, ", network %u: %u levels for %u", (unsigned)p->network, (unsigned)p->n_levels,
                 (unsigned)p->n_asked);
    if (p->plain_seconds > 0)
        snprintf(predicted, sizeof predicted, ", predicted %.2f tokens in %.3f ms, plain %.3f ms, budget %.2f%s%s",
                 p->expected_tokens, 1e3 * p->expected_seconds, 1e3 * p->plain_seconds, p->budget,
                 p->measures_plain ? ", measures plain decoding" : "", p->explores ? ", explores" : "");
    app_note("pass %llu: %u sequences, %u rows%s, context %u%s, proposed %u, verified %u+%u, accepted %u+%u, "
             "%u tokens in %.3f ms (target %.3f, drafts %.3f)%s", (unsigned long long)p->number,
             (unsigned)p->n_sequences, (unsigned)p->n_rows,
             p->prompts ? " with prompts" : "", (unsigned)p->n_context, network, (unsigned)p->n_proposed,
             (unsigned)p->n_verified[0], (unsigned)p->n_verified[1], (unsigned)p->n_accepted[0], (unsigned)p->n_accepted[1],
             (unsigned)p->n_tokens, 1e3 * p->seconds, 1e3 * p->target_seconds, 1e3 * p->draft_seconds, predicted);
}

static bool was_accepted(const aerie_pass_tree *tree, uint32_t node)
{
    for (uint32_t i = 0; i < tree->n_accepted; i++)
        if (tree->accepted[i] == (int32_t)node) return true;
    return false;
}

/* Prints the nodes below `parent`, depth first. Parents come before their children, so the recursion ends. */
static void show_children(const aerie_model *model, const aerie_pass_tree *tree, int32_t parent, int depth)
{
    static const char *const by[] = {"nobody", "n-gram", "network", "both"};
    for (uint32_t i = (uint32_t)(parent + 1); i < tree->n_nodes; i++) {
        char *text = NULL;
        size_t n = 0;
        if (tree->parents[i] != parent) continue;
        if (aerie_model_detokenize(model, &tree->tokens[i], 1, true, &text, &n, NULL) != AERIE_OK) text = NULL;
        app_note("  %*s%d '%s' %.3f %s%s", 2 * depth, "", (int)tree->tokens[i], text ? text : "",
                 (double)tree->probabilities[i], by[tree->proposed_by[i] & 3], was_accepted(tree, i) ? " accepted" : "");
        aerie_free(text);
        show_children(model, tree, (int32_t)i, depth + 1);
    }
}

static void show_trees(const aerie_model *model, const aerie_pass *p)
{
    for (uint32_t i = 0; i < p->n_trees; i++) {
        app_note("tree of slot %u: %u nodes, %u accepted", (unsigned)p->trees[i].slot, (unsigned)p->trees[i].n_nodes,
                 (unsigned)p->trees[i].n_accepted);
        show_children(model, &p->trees[i], -1, 0);
    }
}

static void on_pass(void *user, const aerie_pass *pass)
{
    (void)user;
    show_pass(pass);
}

static void on_trees(void *user, const aerie_pass *pass)
{
    show_trees(user, pass);
}

static void on_both(void *user, const aerie_pass *pass)
{
    show_pass(pass);
    show_trees(user, pass);
}

int app_debug_session(aerie_session *session, aerie_model *model)
{
    aerie_error error = {0};
    const bool pass = has_word("pass"), tree = has_word("tree");
    if (!pass && !tree) return APP_DONE;
    return app_report(APP_WORKING, aerie_session_watch_passes(session, !tree ? on_pass : !pass ? on_trees : on_both, model,
                                                              &error), &error);
}
