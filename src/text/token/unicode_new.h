/* unicode_new.h - generated table: characters assigned in Unicode 15.1 and 16.0, with their classes.
 *
 * Used only where utf8proc calls a character unassigned, so that the ids of a text do not depend on
 * the age of the system's library. The tokenizers of Hugging Face use these classes.
 * Source: DerivedGeneralCategory.txt of Unicode 16.0. Sorted by code point.
 */
#ifndef AE_TEXT_UNICODE_NEW_H
#define AE_TEXT_UNICODE_NEW_H

enum {
    UPPER_LETTER = AE_UNI_LETTER | AE_UNI_UPPER,
    LOWER_LETTER = AE_UNI_LETTER | AE_UNI_LOWER,
    CASELESS = AE_UNI_LETTER | AE_UNI_UPPER | AE_UNI_LOWER,
    MARK = AE_UNI_MARK | AE_UNI_UPPER | AE_UNI_LOWER,
    NUMBER = AE_UNI_NUMBER,
    PUNCT = AE_UNI_PUNCT,
    SYMBOL = AE_UNI_SYMBOL,
};

static const struct {
    uint32_t first, last;
    uint16_t class;
} unicode_new[] = {
    {0x0897, 0x0897, MARK},
    {0x1B4E, 0x1B4F, PUNCT},
    {0x1B7F, 0x1B7F, PUNCT},
    {0x1C89, 0x1C89, UPPER_LETTER},
    {0x1C8A, 0x1C8A, LOWER_LETTER},
    {0x2427, 0x2429, SYMBOL},
    {0x2FFC, 0x2FFF, SYMBOL},
    {0x31E4, 0x31E5, SYMBOL},
    {0x31EF, 0x31EF, SYMBOL},
    {0xA7CB, 0xA7CC, UPPER_LETTER},
    {0xA7CD, 0xA7CD, LOWER_LETTER},
    {0xA7DA, 0xA7DA, UPPER_LETTER},
    {0xA7DB, 0xA7DB, LOWER_LETTER},
    {0xA7DC, 0xA7DC, UPPER_LETTER},
    {0x105C0, 0x105F3, CASELESS},
    {0x10D40, 0x10D49, NUMBER},
    {0x10D4A, 0x10D4F, CASELESS},
    {0x10D50, 0x10D65, UPPER_LETTER},
    {0x10D69, 0x10D6D, MARK},
    {0x10D6E, 0x10D6E, PUNCT},
    {0x10D6F, 0x10D6F, CASELESS},
    {0x10D70, 0x10D85, LOWER_LETTER},
    {0x10D8E, 0x10D8F, SYMBOL},
    {0x10EC2, 0x10EC4, CASELESS},
    {0x10EFC, 0x10EFC, MARK},
    {0x11380, 0x11389, CASELESS},
    {0x1138B, 0x1138B, CASELESS},
    {0x1138E, 0x1138E, CASELESS},
    {0x11390, 0x113B5, CASELESS},
    {0x113B7, 0x113B7, CASELESS},
    {0x113B8, 0x113C0, MARK},
    {0x113C2, 0x113C2, MARK},
    {0x113C5, 0x113C5, MARK},
    {0x113C7, 0x113CA, MARK},
    {0x113CC, 0x113D0, MARK},
    {0x113D1, 0x113D1, CASELESS},
    {0x113D2, 0x113D2, MARK},
    {0x113D3, 0x113D3, CASELESS},
    {0x113D4, 0x113D5, PUNCT},
    {0x113D7, 0x113D8, PUNCT},
    {0x113E1, 0x113E2, MARK},
    {0x116D0, 0x116E3, NUMBER},
    {0x11BC0, 0x11BE0, CASELESS},
    {0x11BE1, 0x11BE1, PUNCT},
    {0x11BF0, 0x11BF9, NUMBER},
    {0x11F5A, 0x11F5A, MARK},
    {0x13460, 0x143FA, CASELESS},
    {0x16100, 0x1611D, CASELESS},
    {0x1611E, 0x1612F, MARK},
    {0x16130, 0x16139, NUMBER},
    {0x16D40, 0x16D6C, CASELESS},
    {0x16D6D, 0x16D6F, PUNCT},
    {0x16D70, 0x16D79, NUMBER},
    {0x18CFF, 0x18CFF, CASELESS},
    {0x1CC00, 0x1CCEF, SYMBOL},
    {0x1CCF0, 0x1CCF9, NUMBER},
    {0x1CD00, 0x1CEB3, SYMBOL},
    {0x1E5D0, 0x1E5ED, CASELESS},
    {0x1E5EE, 0x1E5EF, MARK},
    {0x1E5F0, 0x1E5F0, CASELESS},
    {0x1E5F1, 0x1E5FA, NUMBER},
    {0x1E5FF, 0x1E5FF, PUNCT},
    {0x1F8B2, 0x1F8BB, SYMBOL},
    {0x1F8C0, 0x1F8C1, SYMBOL},
    {0x1FA89, 0x1FA89, SYMBOL},
    {0x1FA8F, 0x1FA8F, SYMBOL},
    {0x1FABE, 0x1FABE, SYMBOL},
    {0x1FAC6, 0x1FAC6, SYMBOL},
    {0x1FADC, 0x1FADC, SYMBOL},
    {0x1FADF, 0x1FADF, SYMBOL},
    {0x1FAE9, 0x1FAE9, SYMBOL},
    {0x1FBCB, 0x1FBEF, SYMBOL},
    {0x2EBF0, 0x2EE5D, CASELESS},
};

#endif
