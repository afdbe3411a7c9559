/* count_insns.c - a plugin for qemu-user that prints how many instructions a program executed; for scripts/count-arm64.sh.
 *
 * Declares what it needs of QEMU's plugin interface (qemu-plugin.h, version 1; docs/devel/tcg-plugins.rst of QEMU), because
 * Debian ships an emulator that loads plugins but not the header. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
typedef struct qemu_info qemu_info;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };

extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, enum qemu_plugin_op, void *, uint64_t);
extern void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void *), void *);
extern void qemu_plugin_outs(const char *);

#define SEEN __attribute__((visibility("default")))
SEEN int qemu_plugin_version = 1;
SEEN int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info *info, int argc, char **argv);

static uint64_t n_executed;

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64, &n_executed, qemu_plugin_tb_n_insns(tb));
}

static void ended(qemu_plugin_id_t id, void *unused)
{
    char text[64];
    (void)id, (void)unused;
    snprintf(text, sizeof text, "instructions: %" PRIu64 "\n", n_executed);
    qemu_plugin_outs(text);
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info *info, int argc, char **argv)
{
    (void)info, (void)argc, (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
