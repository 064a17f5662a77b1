// SPDX-License-Identifier: (MIT OR GPL-2.0)
// The short way: what the long one decided about packets of an established TCP
// or UDP connection over IPv4, found by one look-up before anything else. An
// entry counts under the stamp of the decision (the epoch, and the turns of both
// ends) and for at most a thousand ticks (1 to 10 s); then a packet goes the
// long way again, which keeps the connection alive and judges it anew. What is
// unusual about a packet (options, fragments, SYN, FIN, RST, lengths that do not
// fit, an end that is no endpoint) sends it the long way.
#pragma once

#include "conntrack.h"
#include "counted.h"

#define FAST_TICKS 1000
#define IDLE_TICKS (10 * FAST_TICKS) // of a rule that nothing hits: packets take the long way more often
#define LONG_WAY -2

// Of the number of pairs of places that each processor has; the driver sets it,
// and makes the map as big.
const volatile __u32 fast_bits = 12;

// Each processor has its own: a connection's pair is found without the kernel's
// help, and nobody else writes there. It stands in either place of the pair; others
// that live are left alone, three times of four, or connections in turn would take
// their places from each other without end. Not pinned: programs of another version
// begin with an empty one.
struct fast_pair {
	struct fast way[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct fast_pair);
	__uint(max_entries, 1);
} fast SEC(".maps");

struct fast_header {
	__u8 macs[12];
	__be16 eth;
	__u8 vihl, tos;
	__be16 len, id, frag;
	__u8 ttl, proto;
	__be16 csum;
	__u64 ends; // addresses
	__be32 ports;
	__be16 udp_len, udp_csum; // or the sequence number
	__be32 ack;
	__u8 offset, flags;
} __attribute__((packed));

// AT is a field of a packet in one load: the compiler takes those of packed
// structures byte by byte.
#define AT(h, field) (*(__typeof__(((struct fast_header *)0)->field) *)((void *)(h) + __builtin_offsetof(struct fast_header, field)))
#define WORD(h, n) (((const __u64 *)(h))[n])

static __always_inline struct fast_pair *fast_places(__u64 ends, __u32 ports, __u32 ifindex)
{
	const __u64 odd = 0x9e3779b97f4a7c15ULL; // 2^64 by the golden ratio (Knuth 6.4)
	__u64 h = (ends ^ ends >> 29) * odd + ((__u64)ports << 32 | ifindex);
	h = (h ^ h >> 32) * odd;
	__u32 i = bpf_get_smp_processor_id() << fast_bits | h >> (64 - fast_bits);
	return bpf_map_lookup_elem(&fast, &i);
}

static __always_inline int is_fast(const struct fast *f, __u64 ends, __u32 ports, __u32 ifindex, __u32 tag, __u32 proto)
{
	return f->key.ends == ends && f->key.ports == ports && f->key.ifindex == ifindex && f->key.tag == tag && f->key.proto == proto;
}

// fast_place finds where a connection stands, or would.
static __always_inline struct fast *fast_place(const struct fast_key *k)
{
	struct fast_pair *pair = fast_places(k->ends, k->ports, k->ifindex);
	if (!pair)
		return 0;
	struct fast *a = &pair->way[0], *b = &pair->way[1];
	if (is_fast(a, k->ends, k->ports, k->ifindex, k->tag, k->proto))
		return a;
	if (is_fast(b, k->ends, k->ports, k->ifindex, k->tag, k->proto))
		return b;
	__u64 now = bpf_jiffies64();
	if ((__s64)(a->until - now) < 0)
		return a;
	if ((__s64)(b->until - now) < 0)
		return b;
	__u32 any = bpf_get_prandom_u32();
	return any & 3 ? 0 : any & 4 ? a : b;
}

// summed tells whether the header's checksum is right.
static __always_inline int summed(const struct fast_header *h, __u64 ends)
{
	const __u32 *w = (const void *)&h->vihl;
	__u64 sum = (__u64)w[0] + w[1] + w[2] + (__u32)ends + (ends >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16) == 0xffff;
}

// served_turns is what the stamp of a translation has besides.
static __always_inline __u32 served_turns(const struct fast *f)
{
	__u32 place = f->end_turn;
	__u32 *ended = bpf_map_lookup_elem(&endings, &place);
	return turn_at(f->vip_turn) + (ended ? *(volatile __u32 *)ended : 0);
}

// remembered finds what was decided about a packet of len bytes; 0 = nothing
// that counts. The first 42 bytes are there.
static __always_inline struct fast *remembered(struct fast_header *h, void *end, __u32 len, __u32 epoch, __u32 ifindex, __u32 tag)
{
	__u64 ends = AT(h, ends);
	__u32 ports = AT(h, ports);
	struct fast_pair *pair = fast_places(ends, ports, ifindex);
	if (!pair)
		return 0;
	struct fast *f = &pair->way[0];
	if (!is_fast(f, ends, ports, ifindex, tag, h->proto)) {
		f = &pair->way[1];
		if (!is_fast(f, ends, ports, ifindex, tag, h->proto))
			return 0;
	}
	if (WORD(h, 0) != WORD(f->head, 0) || (WORD(h, 1) ^ WORD(f->head, 1)) & bpf_cpu_to_be64(~0xffULL)) // all but the TOS
		return 0;
	if (f->stamp != epoch + turn_at(f->lo_turn) + turn_at(f->hi_turn) + (f->hop & HOP_SERVED ? served_turns(f) : 0) || (__s64)(f->until - bpf_jiffies64()) < 0 || AT(h, frag) & bpf_htons(0xbfff))
		return 0;
	__u32 total = bpf_ntohs(AT(h, len)), l4;
	if (total < 28 || total + 14 > len || !h->ttl || !summed(h, ends))
		return 0;
	if (f->key.proto == P_TCP) {
		if ((void *)h + 54 > end)
			return 0;
		l4 = (h->offset >> 4) * 4;
		if (l4 < 20 || (h->flags & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK)) != TCP_ACK)
			return 0;
	} else {
		l4 = bpf_ntohs(AT(h, udp_len));
		if (l4 < 8)
			return 0;
	}
	return l4 + 20 > total ? 0 : f;
}

// remembered_frame is remembered for a whole frame.
static __always_inline struct fast *remembered_frame(struct __sk_buff *skb, __u32 epoch, __u32 tag)
{
	void *h = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	if (h + 42 > end || skb->vlan_present)
		return 0;
	return remembered(h, end, skb->len, epoch, skb->ifindex, tag);
}

// differ is what a checksum changes by, when 64 bits become others.
static __always_inline __u32 differ(__u64 from, __u64 to)
{
	__u64 sum = (__u64)(__u32)to + (to >> 32) + (__u32)~from + (__u32)(~from >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	return (__u32)sum + (__u32)(sum >> 32);
}

struct served_header {
	__u8 macs[12];
	__be16 eth;
	__u8 vihl, tos;
	__be16 len, id, frag;
	__u8 ttl, proto;
	__be16 csum;
	__u32 ends[2], ports;
} __attribute__((packed));

// serve_on is hop_on for what is translated.
static __noinline int serve_on(struct __sk_buff *skb, struct fast *f)
{
	struct served_header h;
	__u64 flags = 0, to, len = skb->len;
	if (!f || bpf_skb_load_bytes(skb, 0, &h, sizeof(h)))
		return -1;
	__u32 hl = (h.vihl & 15) * 4, ports = h.ports, diff, sum;
	if (f->hop & HOP_ROUTED) {
		if (h.ttl < 2)
			return -1;
		h.ttl--;
	}
	to = (__u64)f->to_ends[1] << 32 | f->to_ends[0];
	diff = differ((__u64)h.ends[1] << 32 | h.ends[0], to);
	sum = (__u16)~h.csum + (diff & 0xffff) + (diff >> 16);
	if (f->hop & HOP_ROUTED)
		sum += (__u16)~bpf_htons(0x100); // one hop less
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	h.csum = ~sum;
	__builtin_memcpy(h.macs, f->macs, 12);
	h.ends[0] = f->to_ends[0];
	h.ends[1] = f->to_ends[1];
	h.ports = f->to_ports;
	__u32 at = 14 + hl + (h.proto == P_TCP ? 16 : 6);
	if (h.proto == P_UDP)
		flags = BPF_F_MARK_MANGLED_0;
	if (bpf_l4_csum_replace(skb, at, 0, diff, flags | BPF_F_PSEUDO_HDR))
		return -1;
	if (ports != h.ports && bpf_l4_csum_replace(skb, at, 0, differ(ports, h.ports), flags))
		return -1;
	if (bpf_skb_store_bytes(skb, 0, &h, sizeof(h), 0))
		return -1;
	count_way(f->key.counted, len);
	return 0;
}

// hop_on makes a packet what its next station gets; 0 = it is.
static __noinline int hop_on(struct __sk_buff *skb, struct fast *f)
{
	__u8 b[26]; // the frame's header, and the packet's up to the checksum
	if (!f)
		return -1;
	if (f->hop & HOP_SERVED)
		return serve_on(skb, f);
	if (f->hop == HOP_MACS)
		return bpf_skb_store_bytes(skb, 0, f->macs, 12, 0);
	if (bpf_skb_load_bytes(skb, 0, b, sizeof(b)) || b[22] < 2)
		return -1;
	b[22]--;
	__u32 sum = (__u32)b[24] << 8 | b[25];
	sum += 0x100; // one hop less, in the header's sum one more (RFC 1141)
	sum += sum >> 16;
	b[24] = sum >> 8;
	b[25] = sum;
	__builtin_memcpy(b, f->macs, 12);
	return bpf_skb_store_bytes(skb, 0, b, sizeof(b), 0);
}

// fits tells whether a packet, or each segment that it will be cut into, is at
// most mtu bytes of IP.
static __always_inline int fits(struct __sk_buff *skb, __u32 mtu)
{
	struct fast_header *h = (void *)(long)skb->data;
	__u32 size = skb->gso_size;
	if (skb->len <= mtu + 14)
		return 1;
	if (!size || (void *)(h + 1) > (void *)(long)skb->data_end)
		return 0;
	return 20 + (h->proto == P_TCP ? (h->offset >> 4) * 4 : 8) + size <= mtu;
}

// underlay_to is the interface that a packet to a host of the same link leaves by
// with a tunnel header of ours; 0 = the VXLAN device sends it.
static __always_inline __u32 underlay_to(const struct settings *g, const struct station *s)
{
	return s->vtep_family == 4 && !((bpf_htonl(*(const __u32 *)s->vtep) ^ g->vtep) & g->vtep_mask) ? g->underlay : 0;
}

// name_fast makes the key of the packet under way.
static __always_inline void name_fast(const struct pkt *p, struct fast_key *k)
{
	const struct flow *f = p->nat ? &p->was : &p->ip.f; // as the frame has it
	k->ifindex = p->ifindex;
	k->tag = p->from == FROM_TUNNEL ? p->tag : 0;
	__builtin_memcpy(&k->ends, &f->src.b[12], 4);
	__builtin_memcpy((void *)&k->ends + 4, &f->dst.b[12], 4);
	k->ports = (__u32)bpf_htons(f->dport) << 16 | bpf_htons(f->sport);
	k->proto = f->proto;
	k->counted = 0;
}

// forget takes away what was decided about the connection in whose place another
// one begins: the packet that opens that one has to go the long way.
static __noinline int forget(struct pkt *p)
{
	struct fast *place;
	name_fast(p, &p->fast.key);
	place = fast_place(&p->fast.key);
	if (place)
		place->until = 0;
	return 0;
}

// remember keeps what was decided about a packet of a known connection.
static __noinline int remember(struct pkt *p, struct settings *g, struct station *s)
{
	struct fast *f = &p->fast, *place;
	struct fast_key *k = &f->key;
	__u8 proto = p->ip.f.proto;
	if (!s || p->ip.v6 || (proto != P_TCP && proto != P_UDP) || p->from == FROM_UPLINK || p->from == FROM_HOST)
		return 0;
	if (p->ip.tcp_flags & (TCP_FIN | TCP_SYN | TCP_RST))
		return 0;
	if (s->ifindex) {
		__u32 to = s->ifindex;
		struct port *o = bpf_map_lookup_elem(&ports, &to);
		if (!o)
			return 0;
		f->rx_slot = o->slot;
		f->ifindex = to;
		f->tag = f->underlay = 0;
		f->vtep_family = p->remote_family;
		__builtin_memcpy(f->vtep, p->key.remote_ipv6, 16);
	} else if (p->from == FROM_PORT && p->encap == ENCAP_VXLAN && s->vtep_family && g->vxlan) {
		f->ifindex = g->vxlan;
		f->tag = p->tag;
		f->vtep_family = s->vtep_family;
		__builtin_memcpy(f->vtep, s->vtep, 16);
		f->underlay = underlay_to(g, s);
	} else {
		return 0;
	}
	if (p->nat && f->vtep_family == 6)
		return 0; // there is no room for both
	name_fast(p, k);
	f->tx_slot = p->slot;
	f->out_rule = p->out_rule;
	f->in_rule = p->rule;
	f->stamp = p->stamp;
	f->lo_turn = p->lo_turn;
	f->hi_turn = p->hi_turn;
	__builtin_memcpy(f->head, &p->eth, 14);
	__builtin_memcpy(f->macs, &p->eth, 12);
	f->hop = p->routed ? HOP_ROUTED : p->across ? HOP_MACS : HOP_NONE;
	if (p->routed)
		__builtin_memcpy(f->macs, p->to_mac, 6);
	if ((f->hop || p->nat == NAT_BACK) && !f->tag)
		__builtin_memcpy(f->macs + 6, g->router, 6);
	if (p->nat) {
		k->counted = p->counted;
		f->hop |= HOP_SERVED;
		f->vip_turn = p->vip_turn;
		f->end_turn = p->end_turn;
		__builtin_memcpy(&f->to_ends[0], &p->becomes.src.b[12], 4);
		__builtin_memcpy(&f->to_ends[1], &p->becomes.dst.b[12], 4);
		f->to_ports = (__u32)bpf_htons(p->becomes.dport) << 16 | bpf_htons(p->becomes.sport);
		if (p->nat == NAT_THERE) // the frame is the router's
			__builtin_memcpy(f->head, g->router, 6);
	}
	f->head[14] = 0x45;
	f->until = bpf_jiffies64() + FAST_TICKS;
	place = fast_place(k);
	if (place)
		*place = *f;
	return 0;
}
