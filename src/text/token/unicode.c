/* unicode.c - see unicode.h. */
#include "text/token/unicode.h"

#include <utf8proc.h>

#include "text/token/unicode_new.h"

#define S4(c) c, c, c, c
#define S8(c) S4(c), S4(c)
enum { U = AE_UNI_LETTER | AE_UNI_UPPER, L = AE_UNI_LETTER | AE_UNI_LOWER, N = AE_UNI_NUMBER,
       P = AE_UNI_PUNCT, S = AE_UNI_SYMBOL, W = AE_UNI_SPACE,
       B = AE_UNI_SPACE | AE_UNI_NEWLINE };

const uint16_t ae_uni_ascii[128] = {
    S8(0), 0, W, B, W, W, B, 0, 0, S8(0), S8(0),    /* 00..1F */
    W, P, P, P, S, P, P, P, P, P, P, S, P, P, P, P, /* 20..2F */
    S8(N), N, N, P, P, S, S, S, P,                  /* 30..3F */
    P, U, U, U, S4(U), S8(U),                       /* 40..4F */
    S8(U), U, U, U, P, P, P, S, P,                  /* 50..5F */
    S, L, L, L, S4(L), S8(L),                       /* 60..6F */
    S8(L), L, L, L, P, S, P, S, 0,                  /* 70..7F */
};

uint32_t ae_uni_decode(const char *text, size_t n, uint32_t *n_bytes)
{
    const uint8_t *p = (const uint8_t *)text;
    *n_bytes = 1;
    if (p[0] < 0x80) return p[0];
    if (p[0] < 0xC2) return AE_UNI_BAD;
    if (p[0] < 0xE0) {
        if (n < 2 || (p[1] & 0xC0) != 0x80) return AE_UNI_BAD;
        *n_bytes = 2;
        return (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
    }
    if (p[0] < 0xF0) {
        if (n < 3 || (p[1] & 0xC0) != 0x80 || (p[2] & 0xC0) != 0x80) return AE_UNI_BAD;
        uint32_t code = (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
        if (code < 0x800 || (code >= 0xD800 && code < 0xE000)) return AE_UNI_BAD;
        *n_bytes = 3;
        return code;
    }
    if (p[0] > 0xF4 || n < 4 || (p[1] & 0xC0) != 0x80 || (p[2] & 0xC0) != 0x80 || (p[3] & 0xC0) != 0x80) {
        return AE_UNI_BAD;
    }
    uint32_t code = (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
    if (code < 0x10000 || code > 0x10FFFF) return AE_UNI_BAD;
    *n_bytes = 4;
    return code;
}

/* All numbers in the table are decimal digits (Nd). */
static uint16_t class_new(uint32_t code)
{
    size_t lo = 0, hi = sizeof unicode_new / sizeof unicode_new[0];
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (code > unicode_new[mid].last) {
            lo = mid + 1;
        } else if (code < unicode_new[mid].first) {
            hi = mid;
        } else {
            return unicode_new[mid].class;
        }
    }
    return 0;
}

uint16_t ae_uni_class(uint32_t code)
{
    if (code < 128) return ae_uni_ascii[code];
    if (code > 0x10FFFF) return 0;
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: return AE_UNI_LETTER | AE_UNI_UPPER;
    case UTF8PROC_CATEGORY_LL: return AE_UNI_LETTER | AE_UNI_LOWER;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return AE_UNI_LETTER | AE_UNI_UPPER | AE_UNI_LOWER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return AE_UNI_MARK | AE_UNI_UPPER | AE_UNI_LOWER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return AE_UNI_NUMBER;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return AE_UNI_PUNCT;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO: return AE_UNI_SYMBOL;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return AE_UNI_SPACE;
    case UTF8PROC_CATEGORY_CN: return class_new(code);
    default: return code == 0x85 ? AE_UNI_SPACE : 0; /* NEL is a control character, yet White_Space */
    }
}

bool ae_uni_is_digit(uint32_t code)
{
    if (code < 128) return code >= '0' && code <= '9';
    if (code > 0x10FFFF) return false;
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category == UTF8PROC_CATEGORY_ND || (category == UTF8PROC_CATEGORY_CN && (class_new(code) & AE_UNI_NUMBER));
}

bool ae_uni_is_word(uint32_t code)
{
    static const uint32_t others[][2] = {{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}, {0x24B6, 0x24E9},
                                         {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
    if (code > 0x10FFFF) return false;
    if ((ae_uni_class(code) & (AE_UNI_LETTER | AE_UNI_MARK)) || ae_uni_is_digit(code)) return true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (code >= others[i][0] && code <= others[i][1]) return true;
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_PC;
}

uint32_t ae_uni_encode(uint32_t code, char out[4])
{
    return (uint32_t)utf8proc_encode_char((utf8proc_int32_t)code, (utf8proc_uint8_t *)out);
}

bool ae_uni_is_valid(const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t n_bytes;
        if (ae_uni_decode(text + i, n - i, &n_bytes) == AE_UNI_BAD) return false;
        i += n_bytes;
    }
    return true;
}

/* Returns whether p[0..have) can be the beginning of a well-formed character of more than `have` bytes. */
static bool begins_character(const uint8_t *p, uint32_t have)
{
    uint32_t want = p[0] < 0xC2 ? 1 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : p[0] < 0xF5 ? 4 : 1;
    if (have >= want) return false;
    if (have < 2) return true;
    uint8_t lo = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
    uint8_t hi = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < lo || p[1] > hi) return false;
    return have < 3 || (p[2] & 0xC0) == 0x80;
}

uint32_t ae_uni_incomplete(const char *text, size_t n)
{
    for (uint32_t have = 1; have <= 3 && have <= n; have++) {
        const uint8_t *p = (const uint8_t *)text + n - have;
        if ((*p & 0xC0) == 0x80) continue;
        return begins_character(p, have) ? have : 0;
    }
    return 0;
}
