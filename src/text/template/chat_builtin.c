/* chat_builtin.c - chat templates that many models share, written as Jinja.
 *
 * Owns: the texts. They say how a prompt is laid out and no more: no tools, no thinking. BOS is left to the tokenizer.
 * Source: the layouts that model cards publish; names as llama.cpp gives them.
 */
#include <string.h>

#include "text/template/chat.h"

#define EACH "{% for m in messages %}"
#define END "{% endfor %}"
#define OPEN(text) "{% if add_generation_prompt %}" text "{% endif %}"
#define BY_ROLE(system, user, assistant) \
    "{% if m.role == 'system' %}" system "{% elif m.role == 'user' %}" user "{% else %}" assistant "{% endif %}"
#define TEXT "{{ m.content }}"
#define TRIMMED "{{ m.content|trim }}"
#define NL "{{ '\\n' }}"
/* Turns of a layout that begins with a system message or, without one, with the user's. */
#define TURNS(open, system, user, assistant) \
    "{% set ns = namespace(open=false) %}" EACH "{% if not ns.open %}" open "{% set ns.open = true %}{% endif %}" \
    BY_ROLE(system, user, assistant "{% set ns.open = false %}") END
#define LLAMA2(system, text, between) \
    TURNS("{% if not loop.first %}" between "{% endif %}[INST] ", system, text " [/INST]", text "</s>")
#define LLAMA2_SYS(text) "<<SYS>>" NL text NL "<</SYS>>" NL NL
#define DS_EOS "<\xef\xbd\x9c" "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"
#define DS_USER "<\xef\xbd\x9cUser\xef\xbd\x9c>"
#define DS_ASSISTANT "<\xef\xbd\x9c" "Assistant\xef\xbd\x9c>"

static const struct builtin {
    const char *name, *text;
} builtins[] = {
    {"chatglm3", "[gMASK]sop" EACH "<|{{ m.role }}|>" NL " " TEXT END OPEN("<|assistant|>")},
    {"chatglm4", "[gMASK]<sop>" EACH "<|{{ m.role }}|>" NL TEXT END OPEN("<|assistant|>" NL)},
    {"chatml", EACH "<|im_start|>{{ m.role }}" NL TEXT "<|im_end|>" NL END OPEN("<|im_start|>assistant" NL)},
    {"command-r", EACH "<|START_OF_TURN_TOKEN|>" BY_ROLE("<|SYSTEM_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>") TRIMMED
                  "<|END_OF_TURN_TOKEN|>" END OPEN("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>")},
    {"deepseek", EACH BY_ROLE(TEXT, "### Instruction:" NL TEXT NL, "### Response:" NL TEXT NL "<|EOT|>" NL) END
                 OPEN("### Response:" NL)},
    {"deepseek2", EACH BY_ROLE(TEXT NL NL, "User: " TEXT NL NL, "Assistant: " TEXT DS_EOS) END OPEN("Assistant:")},
    {"deepseek3", EACH BY_ROLE(TEXT NL NL, DS_USER TEXT, DS_ASSISTANT TEXT DS_EOS) END OPEN(DS_ASSISTANT)},
    {"exaone3", EACH BY_ROLE("[|system|]" TRIMMED "[|endofturn|]" NL, "[|user|]" TRIMMED NL,
                             "[|assistant|]" TRIMMED "[|endofturn|]" NL) END OPEN("[|assistant|]")},
    {"falcon3", EACH "<|{{ m.role }}|>" NL TEXT NL END OPEN("<|assistant|>" NL)},
    {"gemma", TURNS("<start_of_turn>{{ 'model' if m.role == 'assistant' else 'user' }}" NL, TRIMMED NL NL,
                    TRIMMED "<end_of_turn>" NL "{% set ns.open = false %}", TRIMMED "<end_of_turn>" NL)
              OPEN("<start_of_turn>model" NL)},
    {"gemma4", EACH "<|turn>{{ 'model' if m.role == 'assistant' else m.role }}" NL TRIMMED "<turn|>" NL END
               OPEN("<|turn>model" NL)},
    {"gpt-oss", EACH "<|start|>{{ m.role }}" BY_ROLE("", "", "<|channel|>final") "<|message|>" TEXT "<|end|>" END
                OPEN("<|start|>assistant")},
    {"granite", EACH "<|start_of_role|>{{ m.role }}<|end_of_role|>" TEXT "<|end_of_text|>" NL END
                OPEN("<|start_of_role|>assistant<|end_of_role|>")},
    {"kimi-k2", EACH BY_ROLE("<|im_system|>system", "<|im_user|>user", "<|im_assistant|>assistant") "<|im_middle|>" TEXT
                "<|im_end|>" END OPEN("<|im_assistant|>assistant<|im_middle|>")},
    {"llama2", LLAMA2(TEXT NL, TEXT, "")},
    {"llama2-sys", LLAMA2(LLAMA2_SYS(TEXT), TEXT, "")},
    {"llama2-sys-bos", LLAMA2(LLAMA2_SYS(TEXT), TEXT, "{{ bos_token }}")},
    {"llama2-sys-strip", LLAMA2(LLAMA2_SYS(TRIMMED), TRIMMED, "")},
    {"llama3", EACH "<|start_header_id|>{{ m.role }}<|end_header_id|>" NL NL TRIMMED "<|eot_id|>" END
               OPEN("<|start_header_id|>assistant<|end_header_id|>" NL NL)},
    {"llama4", EACH "<|header_start|>{{ m.role }}<|header_end|>" NL NL TRIMMED "<|eot|>" END
               OPEN("<|header_start|>assistant<|header_end|>" NL NL)},
    {"megrez", EACH "<|role_start|>{{ m.role }}<|role_end|>" TEXT "<|turn_end|>" END
               OPEN("<|role_start|>assistant<|role_end|>")},
    {"minicpm", EACH "{% if m.role == 'user' %}<\xe7\x94\xa8\xe6\x88\xb7>" TRIMMED "<AI>{% else %}" TRIMMED "{% endif %}" END},
    {"mistral-v1", TURNS(" [INST] ", TEXT NL NL, TEXT " [/INST]", " " TEXT "</s>")},
    {"mistral-v3", TURNS("[INST] ", TEXT NL NL, TEXT "[/INST]", " " TRIMMED "</s>")},
    {"mistral-v3-tekken", TURNS("[INST]", TEXT NL NL, TEXT "[/INST]", TEXT "</s>")},
    {"mistral-v7", EACH BY_ROLE("[SYSTEM_PROMPT] " TEXT "[/SYSTEM_PROMPT]", "[INST] " TEXT "[/INST]", " " TEXT "</s>") END},
    {"mistral-v7-tekken", EACH BY_ROLE("[SYSTEM_PROMPT]" TEXT "[/SYSTEM_PROMPT]", "[INST]" TEXT "[/INST]", TEXT "</s>") END},
    {"monarch", EACH "{% if not loop.first %}<s>{% endif %}{{ m.role }}" NL TEXT "</s>" NL END OPEN("<s>assistant" NL)},
    {"openchat", EACH BY_ROLE(TEXT, "GPT4 Correct User: " TEXT, "GPT4 Correct Assistant: " TEXT) "<|end_of_turn|>" END
                 OPEN("GPT4 Correct Assistant:")},
    {"orion", EACH BY_ROLE(TEXT NL NL, "Human: " TEXT NL NL "Assistant: </s>", TEXT "</s>") END},
    {"phi3", EACH "<|{{ m.role }}|>" NL TEXT "<|end|>" NL END OPEN("<|assistant|>" NL)},
    {"phi4", EACH "<|im_start|>{{ m.role }}<|im_sep|>" TEXT "<|im_end|>" END OPEN("<|im_start|>assistant<|im_sep|>")},
    {"seed_oss", EACH "<seed:bos>{{ m.role }}" NL TEXT "<seed:eos>" END OPEN("<seed:bos>assistant" NL)},
    {"vicuna", EACH BY_ROLE(TEXT NL NL, "USER: " TEXT NL, "ASSISTANT: " TEXT "</s>" NL) END OPEN("ASSISTANT:")},
    {"vicuna-orca", EACH BY_ROLE("SYSTEM: " TEXT NL, "USER: " TEXT NL, "ASSISTANT: " TEXT "</s>" NL) END OPEN("ASSISTANT:")},
    {"zephyr", EACH "<|{{ m.role }}|>" NL TEXT "{{ eos_token or '</s>' }}" NL END OPEN("<|assistant|>" NL)},
};
#define N_BUILTINS (sizeof builtins / sizeof *builtins)

const char *ae_chat_builtin(const char *name)
{
    for (size_t i = 0; i < N_BUILTINS; i++)
        if (!strcmp(builtins[i].name, name)) return builtins[i].text;
    return NULL;
}

const char *ae_chat_builtin_name(size_t i)
{
    return i < N_BUILTINS ? builtins[i].name : NULL;
}
