// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Tunnel probes (internal/datapath/driver/tunnelprobe.go): a request of a known host returns to
// it as an answer of the same size; the agent gets the beginning of answers.
#pragma once

#include "membership.h"
#include "externalclients.h"

#define PROBE_VNI 0 // no network has it
#define ETH_PROBE 0x88b6
#define PROBE_MAGIC 0x63547031
#define PROBE_MAC 0x02c0f200 // of the destination; then a zero byte, and one of these
#define PROBE_REQUEST 1
#define PROBE_ANSWER 2
#define PROBES 0xffffffff // in agent_budgets, in place of a port
#define PROBES_OF_ALL 2000 // in a second

struct probe {
	__be32 dst;
	__u8 zero, kind, src[6];
	__be16 proto;
	__be32 magic;
	__u8 nonce[8];
} __attribute__((packed));

// probe handles frames from the tunnel with the VNI of probes.
static __noinline int probe(struct __sk_buff *skb, struct pkt *p)
{
	struct probe *f = (void *)p->buf;
	__u8 answer = PROBE_ANSWER;
	if (skb->vlan_present || bpf_skb_load_bytes(skb, 0, f, sizeof(*f)) || f->proto != bpf_htons(ETH_PROBE) || f->magic != bpf_htonl(PROBE_MAGIC) || f->dst != bpf_htonl(PROBE_MAC) || f->zero)
		return dropped(DROP_NETWORK);
	if (!tunnel_host(p))
		return dropped(DROP_UNKNOWN_SOURCE);
	if (!is_message_allowed(PROBES, PROBES_OF_ALL))
		return TC_DROP;
	if (f->kind == PROBE_ANSWER) {
		send_to_agent(skb, PROBES, 0, sizeof(*f));
		return TC_DROP;
	}
	if (f->kind != PROBE_REQUEST || bpf_skb_store_bytes(skb, 5, &answer, 1, 0) || tunnel_key(skb, PROBE_VNI, p->end.family, p->end.vtep, 0))
		return dropped(DROP_NETWORK);
	return bpf_redirect(p->ifindex, 0);
}
