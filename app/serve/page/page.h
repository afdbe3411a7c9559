/* page.h - the page at /, embedded by cmake/embed.cmake from the files beside this header. */
#ifndef AERIE_APP_SERVE_PAGE_H
#define AERIE_APP_SERVE_PAGE_H

#include <stddef.h>

typedef struct serve_page_file {
    const char *path, *type;   /* "/page.js", "text/javascript; charset=utf-8" */
    const unsigned char *data; /* [n] */
    size_t n;
} serve_page_file;

extern const serve_page_file serve_page_files[]; /* ends with a path of NULL */

/* The headers of these files: nothing may be loaded from other origins, and scripts and styles must not be inline. */
#define SERVE_PAGE_POLICY                                                                                                      \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "            \
    "form-action 'none'; frame-ancestors 'none'"

#endif
