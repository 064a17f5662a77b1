// SPDX-License-Identifier: (MIT OR GPL-2.0)
// IGMP and MLD: who hears which multicast group is the agent's to know. It gets their
// messages, and no other endpoint does.
#pragma once

#include "send.h"

#define MEMBERSHIP_BYTES 1520 // of a frame that the agent gets
#define TOLD_BY_ONE 50 // in a second, of one port
#define TOLD_BY_UPLINK 200
#define TOLD_BY_ALL 2000

// told is a message as the agent gets it.
struct told {
	__u32 ifindex; // of the port that it came from; 0 = it came by the uplink
	__u32 net, len, pad;
	__u8 frame[MEMBERSHIP_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} memberships SEC(".maps");

struct telling {
	__u64 second;
	__u32 used, pad;
};

// Who has told how much; 0 = all.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, __u32);
	__type(value, struct telling);
	__uint(max_entries, 4096);
} tellings SEC(".maps");

static __always_inline int is_membership(const struct pkt *p)
{
	if (p->kind != KIND_IP)
		return 0;
	if (!p->ip.v6)
		return p->ip.f.proto == P_IGMP;
	return p->ip.f.proto == P_ICMP6 && !p->ip.later && ((p->ip.type >= 130 && p->ip.type <= 132) || p->ip.type == 143);
}

// may_tell tells whether somebody may tell one more now.
static __noinline int may_tell(__u32 who, __u32 most)
{
	__u64 second = bpf_ktime_get_coarse_ns() / 1000000000ULL;
	struct telling *t = bpf_map_lookup_elem(&tellings, &who);
	if (!t) {
		struct telling first = { .second = second, .used = 1 };
		bpf_map_update_elem(&tellings, &who, &first, BPF_ANY);
		return 1;
	}
	if (t->second != second) {
		t->second = second;
		t->used = 0;
	}
	return __sync_fetch_and_add(&t->used, 1) < most;
}

// tell gives the agent the first len bytes of a frame.
static __noinline void tell(struct __sk_buff *skb, __u32 ifindex, __u32 net, __u32 len)
{
	struct told *t = bpf_ringbuf_reserve(&memberships, sizeof(*t), 0);
	if (!t)
		return;
	t->ifindex = ifindex;
	t->net = net;
	t->len = len;
	t->pad = 0;
	asm volatile("" : "+r"(len)); // as in bad_sum
	if (len < 14 || len > MEMBERSHIP_BYTES || bpf_skb_load_bytes(skb, 0, t->frame, len)) {
		bpf_ringbuf_discard(t, 0);
		return;
	}
	bpf_ringbuf_submit(t, 0);
}

static __always_inline void tell_membership(struct __sk_buff *skb, struct pkt *p)
{
	__u32 port = p->from == FROM_PORT, len = skb->len;
	if (len <= MEMBERSHIP_BYTES && may_tell(p->ifindex, port ? TOLD_BY_ONE : TOLD_BY_UPLINK) && may_tell(0, TOLD_BY_ALL))
		tell(skb, port ? p->ifindex : 0, p->net, len);
}

// of_member tells whether a message is of who hears groups: a report or a leave. All else
// that IGMP has (questions, who is a router) is routers', which no endpoint is: switches
// of the physical network send to who says so all that is sent to any group.
static __always_inline int of_member(const struct pkt *p)
{
	__u8 type = p->ip.type;
	if (p->ip.v6)
		return type != 130;
	return type == 0x12 || type == 0x16 || type == 0x17 || type == 0x22;
}

// membership takes such a message. Questions are asked by the agent, and by the physical
// network.
static __noinline int membership(struct __sk_buff *skb, struct pkt *p)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	if (!g || p->from == FROM_TUNNEL)
		return dropped(DROP_UNKNOWN_DEST); // its own host has heard it
	if (!p->ip.v6 && bpf_skb_load_bytes(skb, p->ip.l4, &p->ip.type, 1))
		return dropped(DROP_INVALID);
	if (p->from == FROM_PORT && !of_member(p))
		return dropped(DROP_SPOOF);
	tell_membership(skb, p);
	if (p->from == FROM_PORT && p->encap == ENCAP_VLAN)
		return to_uplink(skb, p, g);
	return TC_DROP;
}
