// SPDX-License-Identifier: (MIT OR GPL-2.0)
// The fast path: cached decisions about packets of established TCP and UDP connections over
// IPv4, looked up in arrays before anything else (flowcache.h). A decision counts under its
// version (the epoch and the generations of both ends), and for at most ten seconds. Then a
// packet takes the slow path again, which refreshes the connection and its verdict. Unusual
// packets (options, fragments, SYN, RST, wrong lengths, an end without an endpoint) take the
// slow path. A FIN is noted in the connection's entry besides.
#pragma once

#include "servicecounters.h"
#include "flowcache.h"

#define SLOW_PATH -2

// fast_decision is the cached decision about a packet.
struct fast_decision {
	struct forward_entry *forward;
	struct allowing_rules *by;
	struct nat_entry *nat; // 0 = it is not translated
	struct ct *ended_conn; // the connection, if the packet has FIN
	__u64 fin; // and its state bit for that
};

struct fast_header {
	__u8 macs[12];
	__be16 eth;
	__u8 vihl, tos;
	__be16 len, id, frag;
	__u8 ttl, proto;
	__be16 csum;
	__u64 addrs; // source and destination
	__be32 ports;
	__be16 udp_len, udp_csum; // or the sequence number
	__be32 ack;
	__u8 offset, flags;
} __attribute__((packed));

// AT is a field of a packet in one load: the compiler reads packed structures byte by byte.
#define AT(h, field) (*(__typeof__(((struct fast_header *)0)->field) *)((void *)(h) + __builtin_offsetof(struct fast_header, field)))
#define WORD(h, n) (((const __u64 *)(h))[n])

// has_right_checksum tells whether the header's checksum is right.
static __always_inline int has_right_checksum(const struct fast_header *h, __u64 addrs)
{
	const __u32 *w = (const void *)&h->vihl;
	__u64 sum = (__u64)w[0] + w[1] + w[2] + (__u32)addrs + (addrs >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16) == 0xffff;
}

// nat_generation_of is what the version of a translated connection has besides.
static __always_inline __u32 nat_generation_of(const struct nat_entry *s)
{
	__u32 place = s->client_index;
	__u32 *ended = bpf_map_lookup_elem(&endings, &place);
	return generation_at(s->vip_index) + (ended ? *(volatile __u32 *)ended : 0);
}

// version_of is the present version for two addresses.
static __always_inline __u32 version_of(const struct forward_entry *l, __u32 epoch)
{
	return epoch + generation_at(l->lo_index) + generation_at(l->hi_index);
}

// matches_entry tells whether a forward entry is for a packet.
static __always_inline int matches_entry(const struct forward_entry *l, const struct fast_header *h, __u32 version, __u64 now)
{
	if (WORD(h, 0) != WORD(l->head, 0) || (WORD(h, 1) ^ WORD(l->head, 1)) & bpf_cpu_to_be64(~0xffULL)) // all but the TOS
		return 0;
	return l->version == version && is_live(l->until, now);
}

#define ELIGIBLE 1
#define ELIGIBLE_FIN 2

// is_eligible tells whether a packet of len bytes has nothing unusual: ELIGIBLE, ELIGIBLE_FIN
// = nothing but a FIN, 0 = it has.
static __always_inline int is_eligible(const struct fast_header *h, void *end, __u32 len, __u64 addrs)
{
	__u32 total = bpf_ntohs(AT(h, len)), l4, is = ELIGIBLE;
	if (AT(h, frag) & bpf_htons(0xbfff) || total < 28 || total + 14 > len || !h->ttl || !has_right_checksum(h, addrs))
		return 0;
	if (h->proto == P_TCP) {
		if ((void *)h + 54 > end)
			return 0;
		l4 = (h->offset >> 4) * 4;
		if (l4 < 20 || (h->flags & (TCP_SYN | TCP_RST | TCP_ACK)) != TCP_ACK)
			return 0;
		if (h->flags & TCP_FIN)
			is = ELIGIBLE_FIN;
	} else {
		l4 = bpf_ntohs(AT(h, udp_len));
		if (l4 < 8)
			return 0;
	}
	return l4 + 20 <= total ? is : 0;
}

// find_ended finds the open connection of a packet with FIN, if the slow path would allow the
// packet as the connection stands.
static __noinline struct ct *find_ended(struct fast_decision *f, __u64 addrs, __u32 ports, __u32 version)
{
	struct ct_key k = {};
	__u32 src = addrs, dst = addrs >> 32, flip = src > dst;
	if (!f || src == dst)
		return 0;
	k.domain = f->forward->domain;
	k.proto = P_TCP;
	k.lo_port = bpf_ntohs(flip ? ports >> 16 : ports);
	k.hi_port = bpf_ntohs(flip ? ports : ports >> 16);
	if (flip)
		addrs = addrs << 32 | addrs >> 32;
	src = addrs;
	dst = addrs >> 32;
	map_ipv4(&k.lo, (void *)&src);
	map_ipv4(&k.hi, (void *)&dst);
	struct ct *c = bpf_map_lookup_elem(&conns, &k);
	if (!c || c->version != version || c->state & (CT_VIA_HOST | CT_SERVICE))
		return 0;
	f->fin = flip == c->flipped ? CT_FIN : CT_FIN << 1;
	return c;
}

// note_fin notes in a connection's entry that one end has sent FIN.
static __always_inline void note_fin(struct fast_decision *f)
{
	if (!f->ended_conn)
		return;
	__u8 state = f->ended_conn->state | f->fin;
	if (state != f->ended_conn->state)
		f->ended_conn->state = state;
	f->ended_conn->seen = bpf_ktime_get_coarse_ns();
}

// fast_lookup finds the decision about a packet of len bytes; 0 = there is none. The first 42
// bytes are readable. The packet is checked first: one that opens a connection would only
// cause cache misses. Translations are looked up last, and only if the host has services.
static __always_inline int fast_lookup(struct fast_decision *f, struct fast_header *h, void *end, __u32 len, const struct settings *g, __u32 epoch, __u32 ifindex, __u32 tag)
{
	__u64 addrs = AT(h, addrs), from = (__u64)tag << 32 | ifindex, now = bpf_jiffies64();
	__u32 ports = AT(h, ports), proto = h->proto, cpu = bpf_get_smp_processor_id();
	int is = is_eligible(h, end, len, addrs);
	if (!is)
		return 0;
	struct forward_entry *l = find_forward(cpu, addrs, from);
	f->nat = 0;
	f->ended_conn = 0;
	if (l) {
		__u32 version = version_of(l, epoch);
		struct verdict_entry *c = matches_entry(l, h, version, now) ? find_verdict(cpu, addrs, ports, l->domain, proto) : 0;
		if (c && c->version == version && is_live(c->until, now) && c->ways & 1 << is_reversed(addrs, ports)) {
			f->forward = l;
			f->by = &c->by;
			if (is == ELIGIBLE)
				return 1;
			f->ended_conn = find_ended(f, addrs, ports, version);
			return f->ended_conn != 0;
		}
	}
	if (!g->services || is != ELIGIBLE)
		return 0;
	struct nat_entry *s = find_nat(cpu, addrs, from, ports, proto);
	if (!s || !matches_entry(&s->forward, h, version_of(&s->forward, epoch) + nat_generation_of(s), now))
		return 0;
	f->forward = &s->forward;
	f->by = &s->by;
	f->nat = s;
	return 1;
}

// fast_lookup_frame is fast_lookup for a whole frame.
static __always_inline int fast_lookup_frame(struct fast_decision *f, struct __sk_buff *skb, const struct settings *g, __u32 epoch, __u32 tag)
{
	void *h = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	if (h + 42 > end || skb->vlan_present)
		return 0;
	return fast_lookup(f, h, end, skb->len, g, epoch, skb->ifindex, tag);
}

// checksum_diff is the change of a checksum when 64 bits change.
static __always_inline __u32 checksum_diff(__u64 from, __u64 to)
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
	__u32 addrs[2], ports;
} __attribute__((packed));

// rewrite_fast_nat is rewrite_fast_l2 for translated packets.
static __noinline int rewrite_fast_nat(struct __sk_buff *skb, struct nat_entry *f)
{
	struct served_header h;
	__u64 flags = 0, to, len = skb->len;
	if (!f || bpf_skb_load_bytes(skb, 0, &h, sizeof(h)))
		return -1;
	__u32 hl = (h.vihl & 15) * 4, ports = h.ports, diff, sum;
	if (f->forward.hop == HOP_ROUTED) {
		if (h.ttl < 2)
			return -1;
		h.ttl--;
	}
	to = f->to_addrs;
	diff = checksum_diff((__u64)h.addrs[1] << 32 | h.addrs[0], to);
	sum = (__u16)~h.csum + (diff & 0xffff) + (diff >> 16);
	if (f->forward.hop == HOP_ROUTED)
		sum += (__u16)~bpf_htons(0x100); // TTL - 1
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	h.csum = ~sum;
	__builtin_memcpy(h.macs, f->forward.macs, 12);
	h.addrs[0] = to;
	h.addrs[1] = to >> 32;
	h.ports = f->to_ports;
	__u32 at = 14 + hl + (h.proto == P_TCP ? 16 : 6);
	if (h.proto == P_UDP)
		flags = BPF_F_MARK_MANGLED_0;
	if (bpf_l4_csum_replace(skb, at, 0, diff, flags | BPF_F_PSEUDO_HDR))
		return -1;
	if (ports != h.ports && bpf_l4_csum_replace(skb, at, 0, checksum_diff(ports, h.ports), flags))
		return -1;
	if (bpf_skb_store_bytes(skb, 0, &h, sizeof(h), 0))
		return -1;
	count_service_packet(f->counted, len);
	return 0;
}

// rewrite_fast_l2 writes MACs and TTL as a forward entry says; 0 = done.
static __noinline int rewrite_fast_l2(struct __sk_buff *skb, struct forward_entry *l)
{
	__u8 b[26]; // Ethernet header, and IPv4 header up to its checksum
	if (!l)
		return -1;
	if (l->hop == HOP_MACS)
		return bpf_skb_store_bytes(skb, 0, l->macs, 12, 0);
	if (bpf_skb_load_bytes(skb, 0, b, sizeof(b)) || b[22] < 2)
		return -1;
	b[22]--;
	__u32 sum = (__u32)b[24] << 8 | b[25];
	sum += 0x100; // TTL - 1 is + 1 in the checksum (RFC 1141)
	sum += sum >> 16;
	b[24] = sum >> 8;
	b[25] = sum;
	__builtin_memcpy(b, l->macs, 12);
	return bpf_skb_store_bytes(skb, 0, b, sizeof(b), 0);
}

// needs_rewrite tells whether a packet leaves with other headers than it came with.
static __always_inline int needs_rewrite(const struct fast_decision *f)
{
	return f->nat || f->forward->hop;
}

// rewrite_fast rewrites a packet's headers; 0 = done.
static __always_inline int rewrite_fast(struct __sk_buff *skb, struct fast_decision *f)
{
	return f->nat ? rewrite_fast_nat(skb, f->nat) : rewrite_fast_l2(skb, f->forward);
}

// is_within_mtu tells whether a packet, or each segment that it will be cut into, has at most mtu
// bytes of IP.
static __always_inline int is_within_mtu(struct __sk_buff *skb, __u32 mtu)
{
	struct fast_header *h = (void *)(long)skb->data;
	__u32 size = skb->gso_size;
	if (skb->len <= mtu + 14)
		return 1;
	if (!size || (void *)(h + 1) > (void *)(long)skb->data_end)
		return 0;
	return 20 + (h->proto == P_TCP ? (h->offset >> 4) * 4 : 8) + size <= mtu;
}

// underlay_to is the interface by which a packet to a host of the same link leaves with a
// tunnel header of ours; 0 = the VXLAN device sends it.
static __always_inline __u32 underlay_to(const struct settings *g, const struct station *s)
{
	return s->vtep_family == 4 && !((bpf_htonl(*(const __u32 *)s->vtep) ^ g->vtep) & g->vtep_mask) ? g->underlay : 0;
}

// original_flow is the flow of the packet as the frame came.
static __always_inline const struct flow *original_flow(const struct pkt *p)
{
	return p->nat ? &p->pre_nat : &p->ip.f;
}

static __always_inline __u64 addrs_of(const struct flow *f)
{
	const __u32 *src = (const void *)&f->src, *dst = (const void *)&f->dst;
	return (__u64)dst[3] << 32 | src[3];
}

static __always_inline __u32 ports_of(const struct flow *f)
{
	return (__u32)bpf_htons(f->dport) << 16 | bpf_htons(f->sport);
}

static __always_inline __u64 origin_of(const struct pkt *p)
{
	return (__u64)(p->from == FROM_TUNNEL ? p->tag : 0) << 32 | p->ifindex;
}

// invalidate_fast removes the decisions about a connection that a new one replaces: the new
// one's packets take the slow path.
static __noinline int invalidate_fast(struct pkt *p)
{
	const struct flow *f = original_flow(p);
	__u64 addrs = addrs_of(f);
	__u32 ports = ports_of(f), cpu = bpf_get_smp_processor_id();
	if (p->nat) {
		struct nat_entry *s = find_nat(cpu, addrs, origin_of(p), ports, f->proto);
		if (s)
			s->forward.until = 0;
	} else {
		struct verdict_entry *c = find_verdict(cpu, addrs, ports, p->domain, f->proto);
		if (c)
			c->until = 0;
	}
	return 0;
}

// cache_verdict stores that packets of the connection may use their forward entries: in the
// direction of this packet, and in the other one if both ends take part and the verdict was
// made for the port in, the connection's destination.
static __noinline int cache_verdict(struct pkt *p, __u32 in, __u32 both)
{
	__u64 addrs = addrs_of(&p->ip.f), now = bpf_jiffies64();
	__u32 ports = ports_of(&p->ip.f), proto = p->ip.f.proto;
	struct verdict_entry *c = place_verdict(bpf_get_smp_processor_id(), addrs, ports, p->domain, proto, now);
	if (!c)
		return 0;
	if (p->reply && in != (p->from == FROM_PORT ? p->ifindex : 0))
		both = 0;
	__u32 ways = both ? 3 : 1 << is_reversed(addrs, ports);
	c->addrs = ordered_addrs(addrs, ports);
	c->id = (__u64)p->domain << 32 | ordered_ports(addrs, ports);
	c->proto = proto;
	c->by.out = p->out_rule;
	c->by.in = p->rule;
	c->ways = ways;
	c->version = p->version;
	c->until = now + fast_ticks;
	return 0;
}

// cache_decision stores the decision about a packet of a known connection, whose destination
// is at the port in; both = both ends take part in it.
__noinline int cache_decision(struct settings *g, struct station *s, __u32 in, __u32 both)
{
	struct pkt *p = current_packet();
	if (!p || !g || !s)
		return 0;
	struct nat_entry *f = &p->cache_entry;
	struct forward_entry *l = &f->forward;
	__u8 proto = p->ip.f.proto;
	if (p->ip.v6 || (proto != P_TCP && proto != P_UDP) || p->from == FROM_UPLINK || p->from == FROM_HOST)
		return 0;
	if (p->ip.tcp_flags & (TCP_FIN | TCP_SYN | TCP_RST))
		return 0;
	if (s->ifindex) {
		__u32 to = s->ifindex;
		struct port *o = bpf_map_lookup_elem(&ports, &to);
		if (!o)
			return 0;
		l->rx_slot = o->slot;
		l->to = to;
		l->tag = l->tos = 0;
		l->underlay = o->queued;
		l->vtep_family = p->remote_family;
		__builtin_memcpy(l->vtep, p->key.remote_ipv6, 16);
	} else if (p->from == FROM_PORT && p->encap == ENCAP_VXLAN && s->vtep_family && g->vxlan) {
		l->rx_slot = 0;
		l->to = g->vxlan;
		l->tag = p->tag;
		l->tos = p->tos;
		l->vtep_family = s->vtep_family;
		__builtin_memcpy(l->vtep, s->vtep, 16);
		l->underlay = underlay_to(g, s);
	} else {
		return 0;
	}
	__u32 cpu = bpf_get_smp_processor_id(), ports = ports_of(original_flow(p));
	__u64 now = bpf_jiffies64();
	l->addrs = addrs_of(original_flow(p));
	l->from = origin_of(p);
	l->domain = p->domain;
	l->tx_slot = p->slot;
	l->version = p->version;
	l->lo_index = p->lo_index;
	l->hi_index = p->hi_index;
	__builtin_memcpy(l->head, &p->eth, 14);
	l->head[14] = 0x45;
	__builtin_memcpy(l->macs, &p->eth, 12);
	l->hop = p->routed ? HOP_ROUTED : p->cross_network ? HOP_MACS : HOP_NONE;
	if (p->routed)
		__builtin_memcpy(l->macs, p->to_mac, 6);
	if ((l->hop || p->nat == NAT_REPLY) && !l->tag)
		__builtin_memcpy(l->macs + 6, g->router, 6);
	l->until = now + fast_ticks;
	if (!p->nat) {
		struct forward_entry *place = place_forward(cpu, l->addrs, l->from, now);
		if (!place)
			return 0;
		*place = *l;
		return cache_verdict(p, in, both);
	}
	f->by.out = p->out_rule;
	f->by.in = p->rule;
	f->ports = ports;
	f->proto = proto;
	f->vip_index = p->vip_index;
	f->client_index = p->client_index;
	f->counted = p->counted;
	f->to_addrs = addrs_of(&p->post_nat);
	f->to_ports = ports_of(&p->post_nat);
	if (p->nat == NAT_REQUEST) // the frame is addressed to the router
		__builtin_memcpy(l->head, g->router, 6);
	struct nat_entry *place = place_nat(cpu, l->addrs, l->from, ports, proto, now);
	if (place)
		*place = *f;
	return 0;
}
