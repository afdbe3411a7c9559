/* number.h - numbers as text, the same in every locale.
 *
 * A program that uses the library may have set a locale whose decimal point is a comma; strtod, sscanf and printf follow it,
 * and these functions do not. They call the C library's functions with the thread's locale set to "C" for the call, so results
 * are correctly rounded.
 */
#ifndef AE_BASE_NUMBER_H
#define AE_BASE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

/* Like strtod: returns the number at the beginning of the text; *end points after it. */
double ae_number_parse(const char *text, char **end);
/* Returns whether the text is one finite decimal number and nothing else: no spaces, no hexadecimal digits. */
bool ae_number_is(const char *text, double *value);
/* Like snprintf of one double with a format such as "%.17g", or "%.*f", where `precision` is the star's value. */
int ae_number_print(char *out, size_t n, const char *format, int precision, double value);

#endif
