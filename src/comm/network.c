/* network.c - which addresses MPI may use, and whether they are private (mpi.h).
 *
 * Open MPI and MPICH take lists of interfaces from the environment: names, or networks in CIDR form. Without a list every
 * interface may be used. Source: the manuals of both; RFC 1918, 4193, 6598, 3927, 4291. */
#define _DEFAULT_SOURCE
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/mpi.h"

static bool starts(const uint8_t *bytes, const uint8_t *prefix, unsigned n_bits)
{
    for (unsigned i = 0; i < n_bits; i++)
        if ((bytes[i / 8] ^ prefix[i / 8]) >> (7 - i % 8) & 1) return false;
    return true;
}

bool ae_comm_is_public(const uint8_t *bytes, size_t n)
{
    static const struct {
        uint8_t prefix[4];
        unsigned n_bits;
    } private4[] = {{{10}, 8}, {{172, 16}, 12}, {{192, 168}, 16}, {{169, 254}, 16}, {{127}, 8}, {{100, 64}, 10}};
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}, loopback[16] = {[15] = 1};
    if (n == 16) {
        if (starts(bytes, mapped, 96)) return ae_comm_is_public(bytes + 12, 4);
        return !(starts(bytes, (const uint8_t[]){0xfc}, 7) || starts(bytes, (const uint8_t[]){0xfe, 0x80}, 10) ||
                 starts(bytes, loopback, 128));
    }
    for (size_t i = 0; i < sizeof private4 / sizeof *private4; i++)
        if (starts(bytes, private4[i].prefix, private4[i].n_bits)) return false;
    return true;
}

/* Returns the length of an address and its bytes; 0: not an IPv4 or IPv6 address. */
static size_t bytes_of(const struct sockaddr *a, const uint8_t **bytes)
{
    if (a && a->sa_family == AF_INET) {
        *bytes = (const uint8_t *)&((const struct sockaddr_in *)(const void *)a)->sin_addr;
        return 4;
    }
    if (a && a->sa_family == AF_INET6) {
        *bytes = (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
        return 16;
    }
    return 0;
}

/* Returns whether item [n] of a list names this interface: by its name, or by a network that contains its address. */
static bool names(const char *item, size_t n, const struct ifaddrs *i)
{
    char text[80];
    uint8_t network[16];
    const uint8_t *bytes = NULL;
    if (!n || n >= sizeof text) return false;
    memcpy(text, item, n);
    text[n] = '\0';
    if (!strcmp(text, i->ifa_name)) return true;
    char *slash = strchr(text, '/');
    const size_t size = bytes_of(i->ifa_addr, &bytes);
    const int bits = slash ? atoi(slash + 1) : -1;
    if (slash) *slash = '\0';
    if (!slash || !size || bits < 0 || bits > (int)size * 8) return false;
    return inet_pton(size == 4 ? AF_INET : AF_INET6, text, network) == 1 && starts(bytes, network, (unsigned)bits);
}

static bool listed(const char *list, const struct ifaddrs *i)
{
    for (const char *at = list; *at;) {
        const size_t n = strcspn(at, ",");
        if (names(at, n, i)) return true;
        at += n + (at[n] == ',');
    }
    return false;
}

static const char *setting(const char *const *keys)
{
    for (; *keys; keys++) {
        const char *said = getenv(*keys);
        if (said && *said) return said;
    }
    return NULL;
}

/* Returns whether MPI may use the interface. MPI's messages and its launcher have separate lists; if either allows it, it
 * counts. */
static bool may_use(const struct ifaddrs *i)
{
    static const char *const data[] = {"OMPI_MCA_btl_tcp_if_include", "MPIR_CVAR_OFI_TCP_IFACE", "MPIR_CVAR_CH3_NETWORK_IFACE",
                                       "FI_TCP_IFACE", NULL};
    static const char *const control[] = {"OMPI_MCA_oob_tcp_if_include", "PRTE_MCA_prte_if_include",
                                          "PMIX_MCA_ptl_tcp_if_include",
                                          "HYDRA_IFACE", NULL};
    const char *a = setting(data), *b = setting(control);
    if (!a || !b) return true; /* without a list, any interface may be used */
    return listed(a, i) || listed(b, i);
}

/* Returns whether all ranks run on this machine, where they use shared memory or the machine's own addresses. */
static bool only_here(void)
{
    const char *all = getenv("OMPI_COMM_WORLD_SIZE"), *here = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    if (!all || !here) all = getenv("PMI_SIZE"), here = getenv("MPI_LOCALNRANKS");
    return all && here && !strcmp(all, here);
}

aerie_status ae_comm_check_network(aerie_error *error)
{
    struct ifaddrs *list;
    aerie_status status = AERIE_OK;
    if (only_here()) return AERIE_OK;
    if (getifaddrs(&list))
        return ae_fail(error, AERIE_ERROR_IO, "the network interfaces of this machine cannot be listed, so it is unknown "
                       "whether MPI may use a public address; --machines-insecure skips this check");
    for (const struct ifaddrs *i = list; i && status == AERIE_OK; i = i->ifa_next) {
        const uint8_t *bytes = NULL;
        char text[INET6_ADDRSTRLEN] = "";
        const size_t n = bytes_of(i->ifa_addr, &bytes);
        if (!n || !(i->ifa_flags & IFF_UP) || !ae_comm_is_public(bytes, n) || !may_use(i)) continue;
        inet_ntop(n == 4 ? AF_INET : AF_INET6, bytes, text, sizeof text);
        status = ae_fail(error, AERIE_ERROR_ARGUMENT, "MPI, which has no authentication, may use the public address %s of %s. "
                         "Restrict it to a private network: mpirun --mca btl_tcp_if_include 10.0.0.0/24 --mca "
                         "oob_tcp_if_include 10.0.0.0/24 (MPICH: -iface NAME), or see docs/machines.md; --machines-insecure "
                         "skips this check", text,
                         i->ifa_name);
    }
    freeifaddrs(list);
    return status;
}
