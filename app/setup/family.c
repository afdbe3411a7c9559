/* family.c - chooses a known chat template for a model that has none, by the tokens with which a family's turns begin. */
#include <string.h>

#include "setup/chat_format.h"

/* Tried in this order, because vocabularies with marks of several families have those of ChatML in addition to their own.
 * `beside`:
 * NULL if the mark alone is enough. spm: the template that SentencePiece's vocabularies of the family get instead. */
static const struct {
    const char *mark, *beside, *name, *spm;
} families[] = {
    {"<|turn>", NULL, "gemma4", NULL},
    {"<start_of_turn>", NULL, "gemma", NULL},
    {"<|start_header_id|>", NULL, "llama3", NULL},
    {"<|header_start|>", NULL, "llama4", NULL},
    {"<|START_OF_TURN_TOKEN|>", NULL, "command-r", NULL},
    {"<|start_of_role|>", NULL, "granite", NULL},
    {"<\xef\xbd\x9cUser\xef\xbd\x9c>", NULL, "deepseek3", NULL},
    {"[|endofturn|]", NULL, "exaone3", NULL},
    {"<|role_start|>", NULL, "megrez", NULL},
    {"<|im_user|>", NULL, "kimi-k2", NULL},
    {"<seed:bos>", NULL, "seed_oss", NULL},
    {"<|channel|>", "<|message|>", "gpt-oss", NULL},
    {"[SYSTEM_PROMPT]", "[INST]", "mistral-v7-tekken", "mistral-v7"},
    {"[INST]", NULL, "mistral-v3-tekken", "mistral-v3"},
    {"[gMASK]", "<sop>", "chatglm4", NULL},
    {"[gMASK]", "sop", "chatglm3", NULL},
    {"<\xe7\x94\xa8\xe6\x88\xb7>", NULL, "minicpm", NULL},
    {"<|im_sep|>", "<|im_start|>", "phi4", NULL},
    {"<|im_start|>", NULL, "chatml", NULL},
    {"<|user|>", "<|end|>", "phi3", NULL},
    {"<|user|>", "<|assistant|>", "zephyr", NULL},
};

static bool is_token(const aerie_model *model, const char *text)
{
    int32_t *ids = NULL;
    size_t n = 0;
    if (!text) return true;
    const bool one = aerie_model_tokenize(model, text, strlen(text), false, true, &ids, &n, NULL) == AERIE_OK && n == 1;
    aerie_token_info info = {0};
    const bool found = one && aerie_model_token_info_get(model, ids[0], &info, sizeof info) &&
                       (info.type == AERIE_TOKEN_CONTROL || info.type == AERIE_TOKEN_USER_DEFINED);
    aerie_free(ids);
    return found;
}

/* Returns whether answers end as in ChatML, which says more than another family's marks in the vocabulary. */
static bool ends_as_chatml(const aerie_model *model)
{
    int32_t *ids = NULL;
    size_t n = 0;
    const bool ends = aerie_model_tokenize(model, "<|im_end|>", 10, false, true, &ids, &n, NULL) == AERIE_OK && n == 1 &&
                      ids[0] == aerie_model_token_special(model, AERIE_SPECIAL_EOS);
    aerie_free(ids);
    return ends && is_token(model, "<|im_start|>") && !is_token(model, "<|im_sep|>") && !is_token(model, "<|im_user|>");
}

const char *app_format_family(const aerie_model *model, const aerie_model_info *info)
{
    if (!model) return NULL;
    if (ends_as_chatml(model)) return "chatml";
    const bool spm = info->tokenizer && strncmp(info->tokenizer, "spm", 3) == 0;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (is_token(model, families[i].mark) && is_token(model, families[i].beside))
            return spm && families[i].spm ? families[i].spm : families[i].name;
    return NULL;
}
