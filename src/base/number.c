/* number.c - implements number.h. */
#define _POSIX_C_SOURCE 200809L
#include "base/number.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The locale "C" and the one to restore. The C library has "C" ready; newlocale allocates nothing for it. */
typedef struct neutral {
    locale_t c, before;
} neutral;

static neutral enter(void)
{
    neutral n = {newlocale(LC_ALL_MASK, "C", (locale_t)0), (locale_t)0};
    if (n.c != (locale_t)0) n.before = uselocale(n.c);
    return n;
}

static void leave(neutral n)
{
    const int error = errno;
    if (n.c != (locale_t)0) {
        uselocale(n.before);
        freelocale(n.c);
    }
    errno = error;
}

double ae_number_parse(const char *text, char **end)
{
    const neutral n = enter();
    const double value = strtod(text, end);
    leave(n);
    return value;
}

bool ae_number_is(const char *text, double *value)
{
    char *end;
    if (strpbrk(text, "xX \t\n\v\f\r")) return false;
    errno = 0;
    *value = ae_number_parse(text, &end);
    return end != text && !*end && (!errno || fabs(*value) < 1) && isfinite(*value);
}

int ae_number_print(char *out, size_t n, const char *format, int precision, double value)
{
    const neutral c = enter();
    const int written = strchr(format, '*') ? snprintf(out, n, format, precision, value) : snprintf(out, n, format, value);
    leave(c);
    return written;
}
