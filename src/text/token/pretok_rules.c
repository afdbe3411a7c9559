/* pretok_rules.c - the pre-tokenizers by name: data only.
 *
 * Patterns are those of the models' tokenizer.json (names and grouping as in llama.cpp, to which
 * `tokenizer.ggml.pre` belongs). \s is written out as White_Space, since PCRE2's holds U+180E too.
 * The pattern that a scanner implements is written beside it; the tests compare the two.
 */
#include "text/token/pretok_int.h"

#define WS "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define SPACES "[" WS "]+(?![^" WS "])|[" WS "]+"
#define NEWLINE_SPACES "[" WS "]*[\\r\\n]+|" SPACES
#define APOSTROPHES "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define PREFIX "[^\\r\\n\\p{L}\\p{N}]?"
#define OTHERS " ?[^" WS "\\p{L}\\p{N}]+"

#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" OTHERS "|" SPACES
#define BARE_PATTERN(number) PREFIX "\\p{L}+|" number "|" OTHERS "[\\r\\n]*|" NEWLINE_SPACES
#define CL100K_PATTERN(number) APOSTROPHES "|" BARE_PATTERN(number)
#define POWER(n) "[" WS "]{" n "}(?![^" WS "])|"
#define JAIS2_PATTERN                                                                                                  \
    APOSTROPHES "|" PREFIX "\\p{L}+|\\p{N}{1,3}|" OTHERS "[\\r\\n]*|[" WS "]*[\\r\\n]+|" POWER("512") POWER("256")       \
        POWER("128") POWER("64") POWER("32") POWER("16") POWER("8") POWER("4") POWER("1,2") "[" WS "]"
#define DEEPSEEK_WORDS                                                                                                   \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
#define CAMEL_WORDS(upper, lower, tail) PREFIX upper "*" lower "+" tail "|" PREFIX upper "+" lower "*" tail "|"
#define CAMEL_PATTERN(tail, number) CAMEL_WORDS(UPPER, LOWER, tail) number "|" OTHERS "[\\r\\n/]*|" NEWLINE_SPACES

/* The script property \p{Han}. Newer versions of PCRE2 read this as Script_Extensions, which has more characters. */
#define HAN                                                                                                       \
    "\\x{2e80}-\\x{2e99}\\x{2e9b}-\\x{2ef3}\\x{2f00}-\\x{2fd5}\\x{3005}\\x{3007}\\x{3021}-\\x{3029}"               \
    "\\x{3038}-\\x{303b}\\x{3400}-\\x{4dbf}\\x{4e00}-\\x{9fff}\\x{f900}-\\x{fa6d}\\x{fa70}-\\x{fad9}"             \
    "\\x{16fe2}\\x{16fe3}\\x{16ff0}\\x{16ff1}\\x{20000}-\\x{2a6df}\\x{2a700}-\\x{2b739}\\x{2b740}-\\x{2b81d}"       \
    "\\x{2b820}-\\x{2cea1}\\x{2ceb0}-\\x{2ebe0}\\x{2ebf0}-\\x{2ee5d}\\x{2f800}-\\x{2fa1d}\\x{30000}-\\x{3134a}"     \
    "\\x{31350}-\\x{323af}"
#define NOT_HAN(letters) "(?:(?![" HAN "])" letters ")"

#define GPT2 {AE_STEP_GPT2, {0}, GPT2_PATTERN}
#define WORDS(letters_, n, tail_, pattern) \
    {AE_STEP_LLAMA3, {.letters = (letters_), .n_numbers = (n), .tail = (tail_)}, pattern}
#define LLAMA3 WORDS(AE_UNI_LETTER, 3, '\n', CL100K_PATTERN("\\p{N}{1,3}"))
#define QWEN2 WORDS(AE_UNI_LETTER, 1, '\n', CL100K_PATTERN("\\p{N}"))
#define CAMEL(n, apostrophes_, pattern) \
    {AE_STEP_CAMEL, {.n_numbers = (n), .tail = '/', .apostrophes = (apostrophes_)}, pattern}
#define O200K CAMEL(3, true, CAMEL_PATTERN(APOSTROPHES "?", "\\p{N}{1,3}"))
#define NUMBERS(n) {AE_STEP_NUMBERS, {.n_numbers = (n)}, NULL}
#define THREES(which, pattern) {AE_STEP_THREES, {.threes = (which)}, pattern}
#define NEWLINES {AE_STEP_NEWLINES, {0}, NULL}
#define LINES {AE_STEP_LINES, {0}, "[^\\n]+|\\n+"}
#define TRAILING {AE_STEP_TRAILING, {0}, NULL}
#define PATTERN(text) {AE_STEP_PATTERN, {0}, text}

/* Letters of the scripts with case, as deepseek-llm lists them. Escaped, since some of these characters
 * change when a tool normalises this file. */
#define CASED                                                                                              \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}"        \
    "\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}"          \
    "-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}"                \
    "\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}"        \
    "\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}"                \
    "-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}"               \
    "\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}"        \
    "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}"                \
    "-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}"                \
    "\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}"        \
    "\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}"        \
    "\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}"                 \
    "-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}"               \
    "\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}"               \
    "-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}"                 \
    "-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

/* \w as ae_uni_is_word defines it. */
#define WORD                                                                                                           \
    "[\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}"       \
    "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}]"

/* Han, kana, Lao, Khmer, Burmese, Hangul and the second half of Thai, as AFMoE lists their blocks. */
#define ASIAN                                                                                                          \
    "\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}\\x{3040}-\\x{30ff}\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{2fdf}"      \
    "\\x{e40}-\\x{eff}\\x{1780}-\\x{17ff}\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}"       \
    "\\x{1100}-\\x{11ff}"

#define HAN_HANGUL "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define HAN_KANA "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"

const ae_pretok_rule ae_pretok_rules[] = {
    {"default", 0,
     {PATTERN("[\\p{P}$+<=>^~|]+"), GPT2, NUMBERS(0), PATTERN("[0-9][0-9][0-9]")}},
    {"gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe gigachat a.x-4.0 mellum "
     "modern-bert mpt olmo jais trillion granite-docling exaone4", 0, {GPT2}},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", 0, {NUMBERS(1), GPT2}},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     AE_RULE_IGNORE_MERGES | AE_RULE_BOS, {LLAMA3}},
    {"dbrx smaug-bpe chatglm-bpe", 0, {LLAMA3}},
    {"glm4 glm5", AE_RULE_IGNORE_MERGES, {LLAMA3}},
    {"jais-2", 0, {{AE_STEP_LLAMA3, {.letters = AE_UNI_LETTER, .n_numbers = 3, .tail = '\n', .powers = true}, JAIS2_PATTERN}}},
    {"qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2", 0, {QWEN2}},
    {"laguna", 0, {LINES, QWEN2}},
    {"ufakzeka", 0,
     {{AE_STEP_LLAMA3, {.letters = AE_UNI_LETTER, .n_numbers = 1, .tail = '\n', .bare = true}, BARE_PATTERN("\\p{N}")}}},
    {"qwen35", 0,
     {WORDS(AE_UNI_LETTER | AE_UNI_MARK, 1, '\n',
       APOSTROPHES "|" PREFIX "[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" NEWLINE_SPACES)}},
    {"bailingmoe bailingmoe2 llada-moe", 0, {QWEN2}},
    {"seed-coder", 0,
     {WORDS(AE_UNI_LETTER, 1, 0, APOSTROPHES "|" PREFIX "\\p{L}+|\\p{N}|" OTHERS "|" NEWLINE_SPACES)}},
    {"minicpm5", AE_RULE_IGNORE_MERGES,
     {NUMBERS(3), WORDS(AE_UNI_LETTER, 0, '\n', CL100K_PATTERN("\\p{N}+"))}},
    {"deepseek-coder", 0,
     {NEWLINES, PATTERN("[" WS "]?\\p{L}+"), PATTERN("[" WS "]?\\p{P}+"), PATTERN(HAN_HANGUL), NUMBERS(1)}},
    {"deepseek-llm", 0,
     {NEWLINES, PATTERN("[" WS "]?[" CASED "]+"), 
      PATTERN("[" WS "]?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+"),
      TRAILING,
      PATTERN(HAN_HANGUL), NUMBERS(0)}},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", 0,
     {NUMBERS(3), PATTERN(HAN_KANA), PATTERN(DEEPSEEK_WORDS "[\\r\\n]*|" NEWLINE_SPACES)}},
    {"spark2_5", 0, {NUMBERS(3), PATTERN(HAN_KANA), PATTERN(DEEPSEEK_WORDS "|[\\r\\n]|" SPACES), NUMBERS(1)}},
    {"afmoe", 0,
     {THREES(AE_THREES_NUMBERS, "\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))"), PATTERN("[" ASIAN "]+"),
      PATTERN(DEEPSEEK_WORDS "[\\r\\n]*|" NEWLINE_SPACES)}},
    {"falcon", 0,
     {PATTERN("[\\p{P}$+<=>^~|`]+"), GPT2, PATTERN("[0-9][0-9][0-9]")}},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", 0, {O200K}},
    {"granite-embed-multi-97m", AE_RULE_IGNORE_MERGES, {O200K}},
    {"tiny_aya cohere2moe", 0,
     {THREES(AE_THREES_WORDS, "\\p{Nd}{1,3}(?=(?:\\p{Nd}{3})*(?!" WORD "))"), O200K}},
    {"superbpe", 0, {NUMBERS(0), THREES(AE_THREES_BEFORE, "(?s).+?(?=(?:\\p{Nd}{3})+(?!\\p{Nd}))")}},
    {"kimi-k2", 0,
     {PATTERN("[" HAN "]+|" CAMEL_WORDS(NOT_HAN(UPPER), NOT_HAN(LOWER), APOSTROPHES "?") "\\p{N}{1,3}|" OTHERS "[\\r\\n]*|"
              NEWLINE_SPACES)}},
    {"tekken", AE_RULE_IGNORE_MERGES | AE_RULE_BOS, {CAMEL(1, false, CAMEL_PATTERN("", "\\p{N}"))}},
    {"youtu", AE_RULE_IGNORE_MERGES,
     {PATTERN("[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|"
              "[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}"
              "\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|"
              "[\\x{3105}-\\x{312f}]+|[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"),
      CAMEL(1, true, CAMEL_PATTERN(APOSTROPHES "?", "\\p{N}"))}},
    {"bloom gpt3-finnish poro-chat", 0,
     {PATTERN(" ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+")}},
    {"viking", 0, {PATTERN(" ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"), NUMBERS(1)}},
    {"chameleon", AE_RULE_BOS,
     {PATTERN("<sentinel:[0-9]+>"), PATTERN("IMGIMG[A-I]{1,4}Z"), PATTERN("[\\t\\n]|    |  "), NUMBERS(1),
      PATTERN("[\\p{P}!-/:-@\\[-`{-~]"), GPT2}},
    {"exaone-moe", 0,
     {PATTERN(APOSTROPHES "|" PREFIX "(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++|\\p{N}|" OTHERS "[\\r\\n/]?|[" WS
              "]*[\\r\\n]|" SPACES)}},
    {NULL, 0, {{AE_STEP_END, {0}, NULL}}},
};
