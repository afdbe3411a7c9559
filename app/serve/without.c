/* without.c - `aerie serve` and `aerie router` in a program that was built without libmicrohttpd. Replaces router/ and this
 * folder except parse/, which other commands use, too. */
#include "cli/commands.h"

int app_serve(const app_options *options)
{
    (void)options;
    return app_error(APP_FAILED, "this aerie was built without libmicrohttpd, which 'serve' needs: install it "
                                 "(Debian: libmicrohttpd-dev) and build again");
}

int app_router(const app_options *options)
{
    (void)options;
    return app_error(APP_FAILED, "this aerie was built without libmicrohttpd, which 'router' needs: install it "
                                 "(Debian: libmicrohttpd-dev) and build again");
}

int app_decode_image(void)
{
    return APP_FAILED; /* nobody asks */
}
