/* number.h - numbers as text, the same in every locale.
 *
 * A program that uses the library may have chosen a locale whose decimal point is a comma; strtod, sscanf and printf follow it.
 * These do not. They are the C library's own, called with the thread's locale set to "C" meanwhile: correctly rounded.
 */
#ifndef AE_BASE_NUMBER_H
#define AE_BASE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

/* As strtod: what a text begins with, and where it ends. */
double ae_number_parse(const char *text, char **end);
/* A text that is a decimal number and nothing else, neither spaces nor hexadecimal digits; finite. */
bool ae_number_is(const char *text, double *value);
/* As snprintf of one double by a format such as "%.17g" or "%.*f" with `precision` for the star. */
int ae_number_print(char *out, size_t n, const char *format, int precision, double value);

#endif
