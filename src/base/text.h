/* text.h - texts as files hold them: byte order marks, encodings other than UTF-8, line ends of Windows.
 *
 * Every file of text that the library or the program reads goes through these functions. Owns no memory.
 */
#ifndef AE_BASE_TEXT_H
#define AE_BASE_TEXT_H

#include <stddef.h>

/* Returns the encoding of bytes[0..n) if it is not UTF-8: a name that iconv takes ("UTF-16", "UTF-16LE", "UTF-32"), detected by
 * the byte order mark or by the NUL bytes that UTF-16 has between Latin letters. NULL: UTF-8 or unknown. */
const char *ae_text_foreign(const char *bytes, size_t n);
/* Removes the byte order mark and, if all lines end in CR LF, the CRs. Returns the new length; nothing is written after it. */
size_t ae_text_settle(char *text, size_t n);

#endif
