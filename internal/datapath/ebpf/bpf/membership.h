// SPDX-License-Identifier: (MIT OR GPL-2.0)
// IGMP and MLD. Their messages go to the agent, which keeps the members of groups; no other
// endpoint gets them.
#pragma once

#include "send.h"

#define MEMBERSHIP_BYTES 1520 // of a frame that the agent gets
#define MESSAGES_PER_PORT 50 // a second, of one port
#define MESSAGES_PER_UPLINK 200
#define MESSAGES_PER_SECOND 2000

// agent_message is a message to the agent.
struct agent_message {
	__u32 ifindex; // of the port that sent it; 0 = it came by the uplink
	__u32 net, len, pad;
	__u8 frame[MEMBERSHIP_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} memberships SEC(".maps");

struct agent_budget {
	__u64 second;
	__u32 used, pad;
};

// Messages of each port in this second; 0 = of all.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, __u32);
	__type(value, struct agent_budget);
	__uint(max_entries, 4096);
} agent_budgets SEC(".maps");

static __always_inline int is_membership(const struct pkt *p)
{
	if (p->kind != KIND_IP)
		return 0;
	if (!p->ip.v6)
		return p->ip.f.proto == P_IGMP;
	return p->ip.f.proto == P_ICMP6 && !p->ip.later && ((p->ip.type >= 130 && p->ip.type <= 132) || p->ip.type == 143);
}

// is_message_allowed tells whether a sender may send the agent one more message now.
static __noinline int is_message_allowed(__u32 who, __u32 most)
{
	__u64 second = bpf_ktime_get_coarse_ns() / 1000000000ULL;
	struct agent_budget *t = bpf_map_lookup_elem(&agent_budgets, &who);
	if (!t) {
		struct agent_budget first = { .second = second, .used = 1 };
		bpf_map_update_elem(&agent_budgets, &who, &first, BPF_ANY);
		return 1;
	}
	if (t->second != second) {
		t->second = second;
		t->used = 0;
	}
	return __sync_fetch_and_add(&t->used, 1) < most;
}

// send_to_agent sends the first len bytes of a frame to the agent.
static __noinline void send_to_agent(struct __sk_buff *skb, __u32 ifindex, __u32 net, __u32 len)
{
	struct agent_message *t = bpf_ringbuf_reserve(&memberships, sizeof(*t), 0);
	if (!t)
		return;
	t->ifindex = ifindex;
	t->net = net;
	t->len = len;
	t->pad = 0;
	asm volatile("" : "+r"(len)); // as in has_wrong_checksum
	if (len < 14 || len > MEMBERSHIP_BYTES || bpf_skb_load_bytes(skb, 0, t->frame, len)) {
		bpf_ringbuf_discard(t, 0);
		return;
	}
	bpf_ringbuf_submit(t, 0);
}

static __always_inline void report_membership(struct __sk_buff *skb, struct pkt *p)
{
	__u32 port = p->from == FROM_PORT, len = skb->len;
	if (len <= MEMBERSHIP_BYTES && is_message_allowed(p->ifindex, port ? MESSAGES_PER_PORT : MESSAGES_PER_UPLINK) && is_message_allowed(0, MESSAGES_PER_SECOND))
		send_to_agent(skb, port ? p->ifindex : 0, p->net, len);
}

// is_report tells whether a message is a report or a leave. Other messages (queries, router
// discovery) are for routers to send, and no endpoint is one: switches of the physical network
// send all multicast to each router.
static __always_inline int is_report(const struct pkt *p)
{
	__u8 type = p->ip.type;
	if (p->ip.v6)
		return type != 130;
	return type == 0x12 || type == 0x16 || type == 0x17 || type == 0x22;
}

// membership handles such a message. The agent and the physical network send queries.
static __noinline int membership(struct __sk_buff *skb, struct pkt *p)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	if (!g || p->from == FROM_TUNNEL)
		return dropped(DROP_UNKNOWN_DEST); // its own host has reported it
	if (!p->ip.v6 && bpf_skb_load_bytes(skb, p->ip.l4, &p->ip.type, 1))
		return dropped(DROP_INVALID);
	if (p->from == FROM_PORT && !is_report(p))
		return dropped(DROP_SPOOF);
	report_membership(skb, p);
	if (p->from == FROM_PORT && p->encap == ENCAP_VLAN)
		return to_uplink(skb, p, g);
	return TC_DROP;
}
