// SPDX-License-Identifier: (MIT OR GPL-2.0)
// What the programs for sockets and for clients outside have in common.
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define AF_INET 2
#define AF_INET6 10
#define P_TCP 6
#define P_UDP 17

struct addr {
	__u32 w[4]; // in network order; IPv4 mapped into IPv6
};

// place is where a service is asked, or a backend: a port of an address.
struct place {
	struct addr ip;
	__u16 port; // host order
	__u8 proto, pad;
};

#define MAP(NAME, TYPE, KEY, VALUE, MAX, FLAGS)          \
	struct {                                         \
		__uint(type, TYPE);                      \
		__type(key, KEY);                        \
		__type(value, VALUE);                    \
		__uint(max_entries, MAX);                \
		__uint(map_flags, FLAGS);                \
		__uint(pinning, LIBBPF_PIN_BY_NAME);     \
	} NAME SEC(".maps")

static __always_inline int is_mapped(const struct addr *a)
{
	return !(a->w[0] | a->w[1]) && a->w[2] == bpf_htonl(0xffff);
}

static __always_inline void map4(struct addr *a, __u32 ip)
{
	a->w[0] = a->w[1] = 0;
	a->w[2] = bpf_htonl(0xffff);
	a->w[3] = ip;
}

// at_each_node is the place by which a port is found that is a service's at each node's
// address of a family.
static __always_inline struct place at_each_node(const struct place *at)
{
	struct place any = { .port = at->port, .proto = at->proto };
	if (is_mapped(&at->ip))
		any.ip.w[2] = bpf_htonl(0xffff);
	return any;
}
