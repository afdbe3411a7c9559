/* pretok_rules.c - the pre-tokenizers by name: data only.
 *
 * Patterns are those of the models' tokenizer.json (names and grouping as in llama.cpp, to which
 * `tokenizer.ggml.pre` belongs). \s is written out as White_Space, since PCRE2's holds U+180E too.
 * What a scanner stands for is written beside it; the tests compare the two.
 */
#include "text/pretok_int.h"

#define WS "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define SPACES "[" WS "]+(?![^" WS "])|[" WS "]+"
#define NEWLINE_SPACES "[" WS "]*[\\r\\n]+|" SPACES
#define APOSTROPHES "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define PREFIX "[^\\r\\n\\p{L}\\p{N}]?"
#define OTHERS " ?[^" WS "\\p{L}\\p{N}]+"

#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" OTHERS "|" SPACES
#define CL100K_PATTERN(number) \
    APOSTROPHES "|" PREFIX "\\p{L}+|" number "|" OTHERS "[\\r\\n]*|" NEWLINE_SPACES
#define CAMEL_PATTERN(tail, number) \
    PREFIX UPPER "*" LOWER "+" tail "|" PREFIX UPPER "+" LOWER "*" tail "|" number "|" OTHERS "[\\r\\n/]*|" NEWLINE_SPACES

#define GPT2 {AE_STEP_GPT2, {0, 0, false}, GPT2_PATTERN}
#define LLAMA3 {AE_STEP_LLAMA3, {AE_UNI_LETTER, 3, true}, CL100K_PATTERN("\\p{N}{1,3}")}
#define QWEN2 {AE_STEP_LLAMA3, {AE_UNI_LETTER, 1, true}, CL100K_PATTERN("\\p{N}")}
#define NUMBERS(n) {AE_STEP_NUMBERS, {0, n, false}, NULL}
#define NEWLINES {AE_STEP_NEWLINES, {0, 0, false}, NULL}
#define TRAILING {AE_STEP_TRAILING, {0, 0, false}, NULL}
#define PATTERN(text) {AE_STEP_PATTERN, {0, 0, false}, text}

/* Letters of the scripts with case, as deepseek-llm spells them. */
#define CASED                                                                                                       \
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼι" \
    "ῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻" \
    "𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"

const ae_pretok_rule ae_pretok_rules[] = {
    {"default", 0,
     {PATTERN("[\\p{P}$+<=>^~|]+"), GPT2, NUMBERS(0), PATTERN("[0-9][0-9][0-9]")}},
    {"gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe gigachat a.x-4.0 mellum "
     "modern-bert mpt olmo jais trillion granite-docling exaone4", 0, {GPT2}},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b", 0, {NUMBERS(1), GPT2}},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     AE_RULE_IGNORE_MERGES | AE_RULE_BOS, {LLAMA3}},
    {"dbrx smaug-bpe glm4 chatglm-bpe", 0, {LLAMA3}},
    {"qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2", 0, {QWEN2}},
    {"qwen35", 0,
     {{AE_STEP_LLAMA3, {AE_UNI_LETTER | AE_UNI_MARK, 1, true},
       APOSTROPHES "|" PREFIX "[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" NEWLINE_SPACES}}},
    {"bailingmoe bailingmoe2 llada-moe", 0, {QWEN2}},
    {"seed-coder", 0,
     {{AE_STEP_LLAMA3, {AE_UNI_LETTER, 1, false},
       APOSTROPHES "|" PREFIX "\\p{L}+|\\p{N}|" OTHERS "|" NEWLINE_SPACES}}},
    {"minicpm5", AE_RULE_IGNORE_MERGES,
     {NUMBERS(3), {AE_STEP_LLAMA3, {AE_UNI_LETTER, 0, true}, CL100K_PATTERN("\\p{N}+")}}},
    {"deepseek-coder", 0,
     {NEWLINES, PATTERN("[" WS "]?\\p{L}+"), PATTERN("[" WS "]?\\p{P}+"), PATTERN("[一-龥ࠀ-一가-퟿]+"), NUMBERS(1)}},
    {"deepseek-llm", 0,
     {NEWLINES, PATTERN("[" WS "]?[" CASED "]+"), PATTERN("[" WS "]?[!-/:-~！-／：-～‘-‟　-。]+"), TRAILING,
      PATTERN("[一-龥ࠀ-一가-퟿]+"), NUMBERS(0)}},
    {"deepseek-v3 hunyuan-dense joyai-llm", 0,
     {NUMBERS(3), PATTERN("[一-龥぀-ゟ゠-ヿ]+"),
      PATTERN("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
              " ?[\\p{P}\\p{S}]+[\\r\\n]*|" NEWLINE_SPACES)}},
    {"falcon", 0,
     {PATTERN("[\\p{P}$+<=>^~|`]+"), GPT2, PATTERN("[0-9][0-9][0-9]")}},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", 0, {PATTERN(CAMEL_PATTERN(APOSTROPHES "?", "\\p{N}{1,3}"))}},
    {"tekken", AE_RULE_IGNORE_MERGES | AE_RULE_BOS, {PATTERN(CAMEL_PATTERN("", "\\p{N}"))}},
    {"youtu", AE_RULE_IGNORE_MERGES,
     {PATTERN("[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+"),
      PATTERN(CAMEL_PATTERN(APOSTROPHES "?", "\\p{N}"))}},
    {"bloom gpt3-finnish poro-chat", 0, {PATTERN(" ?[^(" WS "|.,!?…。，、।۔،)]+")}},
    {"viking", 0, {PATTERN(" ?[^(" WS "|.,!?…。，、।۔،)]+"), NUMBERS(1)}},
    {"chameleon", AE_RULE_BOS,
     {PATTERN("<sentinel:[0-9]+>"), PATTERN("IMGIMG[A-I]{1,4}Z"), PATTERN("[\\t\\n]|    |  "), NUMBERS(1),
      PATTERN("[\\p{P}!-/:-@\\[-`{-~]"), GPT2}},
    {"exaone-moe", 0,
     {PATTERN(APOSTROPHES "|" PREFIX "(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++|\\p{N}|" OTHERS "[\\r\\n/]?|[" WS
              "]*[\\r\\n]|" SPACES)}},
    {NULL, 0, {{AE_STEP_END, {0, 0, false}, NULL}}},
};
