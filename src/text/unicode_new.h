/* unicode_new.h - generated table: characters assigned in Unicode 15.1 and 16.0, with their classes.
 *
 * Used only where utf8proc calls a character unassigned, so that the ids of a text do not depend on
 * the age of the system's library. The tokenizers of Hugging Face use these classes.
 * Source: DerivedGeneralCategory.txt of Unicode 16.0. Sorted, ranges do not touch each other.
 */
#ifndef AE_TEXT_UNICODE_NEW_H
#define AE_TEXT_UNICODE_NEW_H

static const struct {
    uint32_t first, last;
    uint8_t class;
} unicode_new[] = {
    {0x0897, 0x0897, AE_UNI_MARK},
    {0x1B4E, 0x1B4F, AE_UNI_PUNCT},
    {0x1B7F, 0x1B7F, AE_UNI_PUNCT},
    {0x1C89, 0x1C8A, AE_UNI_LETTER},
    {0x2427, 0x2429, AE_UNI_SYMBOL},
    {0x2FFC, 0x2FFF, AE_UNI_SYMBOL},
    {0x31E4, 0x31E5, AE_UNI_SYMBOL},
    {0x31EF, 0x31EF, AE_UNI_SYMBOL},
    {0xA7CB, 0xA7CD, AE_UNI_LETTER},
    {0xA7DA, 0xA7DC, AE_UNI_LETTER},
    {0x105C0, 0x105F3, AE_UNI_LETTER},
    {0x10D40, 0x10D49, AE_UNI_NUMBER},
    {0x10D4A, 0x10D65, AE_UNI_LETTER},
    {0x10D69, 0x10D6D, AE_UNI_MARK},
    {0x10D6E, 0x10D6E, AE_UNI_PUNCT},
    {0x10D6F, 0x10D85, AE_UNI_LETTER},
    {0x10D8E, 0x10D8F, AE_UNI_SYMBOL},
    {0x10EC2, 0x10EC4, AE_UNI_LETTER},
    {0x10EFC, 0x10EFC, AE_UNI_MARK},
    {0x11380, 0x11389, AE_UNI_LETTER},
    {0x1138B, 0x1138B, AE_UNI_LETTER},
    {0x1138E, 0x1138E, AE_UNI_LETTER},
    {0x11390, 0x113B5, AE_UNI_LETTER},
    {0x113B7, 0x113B7, AE_UNI_LETTER},
    {0x113B8, 0x113C0, AE_UNI_MARK},
    {0x113C2, 0x113C2, AE_UNI_MARK},
    {0x113C5, 0x113C5, AE_UNI_MARK},
    {0x113C7, 0x113CA, AE_UNI_MARK},
    {0x113CC, 0x113D0, AE_UNI_MARK},
    {0x113D1, 0x113D1, AE_UNI_LETTER},
    {0x113D2, 0x113D2, AE_UNI_MARK},
    {0x113D3, 0x113D3, AE_UNI_LETTER},
    {0x113D4, 0x113D5, AE_UNI_PUNCT},
    {0x113D7, 0x113D8, AE_UNI_PUNCT},
    {0x113E1, 0x113E2, AE_UNI_MARK},
    {0x116D0, 0x116E3, AE_UNI_NUMBER},
    {0x11BC0, 0x11BE0, AE_UNI_LETTER},
    {0x11BE1, 0x11BE1, AE_UNI_PUNCT},
    {0x11BF0, 0x11BF9, AE_UNI_NUMBER},
    {0x11F5A, 0x11F5A, AE_UNI_MARK},
    {0x13460, 0x143FA, AE_UNI_LETTER},
    {0x16100, 0x1611D, AE_UNI_LETTER},
    {0x1611E, 0x1612F, AE_UNI_MARK},
    {0x16130, 0x16139, AE_UNI_NUMBER},
    {0x16D40, 0x16D6C, AE_UNI_LETTER},
    {0x16D6D, 0x16D6F, AE_UNI_PUNCT},
    {0x16D70, 0x16D79, AE_UNI_NUMBER},
    {0x18CFF, 0x18CFF, AE_UNI_LETTER},
    {0x1CC00, 0x1CCEF, AE_UNI_SYMBOL},
    {0x1CCF0, 0x1CCF9, AE_UNI_NUMBER},
    {0x1CD00, 0x1CEB3, AE_UNI_SYMBOL},
    {0x1E5D0, 0x1E5ED, AE_UNI_LETTER},
    {0x1E5EE, 0x1E5EF, AE_UNI_MARK},
    {0x1E5F0, 0x1E5F0, AE_UNI_LETTER},
    {0x1E5F1, 0x1E5FA, AE_UNI_NUMBER},
    {0x1E5FF, 0x1E5FF, AE_UNI_PUNCT},
    {0x1F8B2, 0x1F8BB, AE_UNI_SYMBOL},
    {0x1F8C0, 0x1F8C1, AE_UNI_SYMBOL},
    {0x1FA89, 0x1FA89, AE_UNI_SYMBOL},
    {0x1FA8F, 0x1FA8F, AE_UNI_SYMBOL},
    {0x1FABE, 0x1FABE, AE_UNI_SYMBOL},
    {0x1FAC6, 0x1FAC6, AE_UNI_SYMBOL},
    {0x1FADC, 0x1FADC, AE_UNI_SYMBOL},
    {0x1FADF, 0x1FADF, AE_UNI_SYMBOL},
    {0x1FAE9, 0x1FAE9, AE_UNI_SYMBOL},
    {0x1FBCB, 0x1FBEF, AE_UNI_SYMBOL},
    {0x2EBF0, 0x2EE5D, AE_UNI_LETTER},
};

#endif
