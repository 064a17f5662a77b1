// SPDX-License-Identifier: (MIT OR GPL-2.0)
// The short way: what the long one decided about packets of an established TCP
// or UDP connection over IPv4, found by look-ups in arrays before anything else
// (places.h). It counts under the stamp of the decision (the epoch, and the turns of
// both ends) and for at most ten seconds; then a packet goes the long way again, which
// keeps the connection alive and judges it anew. What is unusual about a packet
// (options, fragments, SYN, RST, lengths that do not fit, an end that is no endpoint)
// sends it the long way. A FIN is noted in the connection's entry besides.
#pragma once

#include "counted.h"
#include "places.h"

#define LONG_WAY -2

// fast is what was decided about a packet.
struct fast {
	struct lane *lane;
	struct allowed *by;
	struct served *served; // 0 = it is not translated
	struct ct *ends; // the connection that the packet ends, if it does
	__u64 fin; // and its state for that
};

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
static __always_inline __u32 served_turns(const struct served *s)
{
	__u32 place = s->end_turn;
	__u32 *ended = bpf_map_lookup_elem(&endings, &place);
	return turn_at(s->vip_turn) + (ended ? *(volatile __u32 *)ended : 0);
}

// stamp_of is the stamp in force for two addresses.
static __always_inline __u32 stamp_of(const struct lane *l, __u32 epoch)
{
	return epoch + turn_at(l->lo_turn) + turn_at(l->hi_turn);
}

// in_lane tells whether a packet is one of a lane's.
static __always_inline int in_lane(const struct lane *l, const struct fast_header *h, __u32 stamp, __u64 now)
{
	if (WORD(h, 0) != WORD(l->head, 0) || (WORD(h, 1) ^ WORD(l->head, 1)) & bpf_cpu_to_be64(~0xffULL)) // all but the TOS
		return 0;
	return l->stamp == stamp && lives_on(l->until, now);
}

#define WHOLE 1
#define WHOLE_END 2

// whole tells whether there is nothing unusual about a packet of len bytes, or nothing but
// a FIN; 0 = there is.
static __always_inline int whole(const struct fast_header *h, void *end, __u32 len, __u64 ends)
{
	__u32 total = bpf_ntohs(AT(h, len)), l4, is = WHOLE;
	if (AT(h, frag) & bpf_htons(0xbfff) || total < 28 || total + 14 > len || !h->ttl || !summed(h, ends))
		return 0;
	if (h->proto == P_TCP) {
		if ((void *)h + 54 > end)
			return 0;
		l4 = (h->offset >> 4) * 4;
		if (l4 < 20 || (h->flags & (TCP_SYN | TCP_RST | TCP_ACK)) != TCP_ACK)
			return 0;
		if (h->flags & TCP_FIN)
			is = WHOLE_END;
	} else {
		l4 = bpf_ntohs(AT(h, udp_len));
		if (l4 < 8)
			return 0;
	}
	return l4 + 20 <= total ? is : 0;
}

// ended finds the open connection that a packet of a lane ends, if the long way would let
// it by as it stands.
static __noinline struct ct *ended(struct fast *f, __u64 ends, __u32 ports, __u32 stamp)
{
	struct ct_key k = {};
	__u32 src = ends, dst = ends >> 32, flip = src > dst;
	if (!f || src == dst)
		return 0;
	k.domain = f->lane->domain;
	k.proto = P_TCP;
	k.lo_port = bpf_ntohs(flip ? ports >> 16 : ports);
	k.hi_port = bpf_ntohs(flip ? ports : ports >> 16);
	if (flip)
		ends = ends << 32 | ends >> 32;
	src = ends;
	dst = ends >> 32;
	map4(&k.lo, (void *)&src);
	map4(&k.hi, (void *)&dst);
	struct ct *c = bpf_map_lookup_elem(&conns, &k);
	if (!c || c->stamp != stamp || c->state & (CT_WAY | CT_SERVICE))
		return 0;
	f->fin = flip == c->flipped ? CT_FIN : CT_FIN << 1;
	return c;
}

// note_end notes in a connection's entry that one of its ends has ended it.
static __always_inline void note_end(struct fast *f)
{
	if (!f->ends)
		return;
	__u8 state = f->ends->state | f->fin;
	if (state != f->ends->state)
		f->ends->state = state;
	f->ends->seen = bpf_ktime_get_coarse_ns();
}

// remembered finds what was decided about a packet of len bytes; 0 = nothing
// that counts. The first 42 bytes are there. The packet itself is looked at first: those
// that open a connection would find nothing, by misses of the cache. Translations are
// asked for where nothing else is found: a host without services has none.
static __always_inline int remembered(struct fast *f, struct fast_header *h, void *end, __u32 len, const struct settings *g, __u32 epoch, __u32 ifindex, __u32 tag)
{
	__u64 ends = AT(h, ends), from = (__u64)tag << 32 | ifindex, now = bpf_jiffies64();
	__u32 ports = AT(h, ports), proto = h->proto, cpu = bpf_get_smp_processor_id();
	int is = whole(h, end, len, ends);
	if (!is)
		return 0;
	struct lane *l = lane_of(cpu, ends, from);
	f->served = 0;
	f->ends = 0;
	if (l) {
		__u32 stamp = stamp_of(l, epoch);
		struct pass *c = in_lane(l, h, stamp, now) ? pass_of(cpu, ends, ports, l->domain, proto) : 0;
		if (c && c->stamp == stamp && lives_on(c->until, now) && c->ways & 1 << backwards(ends, ports)) {
			f->lane = l;
			f->by = &c->by;
			if (is == WHOLE)
				return 1;
			f->ends = ended(f, ends, ports, stamp);
			return f->ends != 0;
		}
	}
	if (!g->services || is != WHOLE)
		return 0;
	struct served *s = served_of(cpu, ends, from, ports, proto);
	if (!s || !in_lane(&s->lane, h, stamp_of(&s->lane, epoch) + served_turns(s), now))
		return 0;
	f->lane = &s->lane;
	f->by = &s->by;
	f->served = s;
	return 1;
}

// remembered_frame is remembered for a whole frame.
static __always_inline int remembered_frame(struct fast *f, struct __sk_buff *skb, const struct settings *g, __u32 epoch, __u32 tag)
{
	void *h = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	if (h + 42 > end || skb->vlan_present)
		return 0;
	return remembered(f, h, end, skb->len, g, epoch, skb->ifindex, tag);
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
static __noinline int serve_on(struct __sk_buff *skb, struct served *f)
{
	struct served_header h;
	__u64 flags = 0, to, len = skb->len;
	if (!f || bpf_skb_load_bytes(skb, 0, &h, sizeof(h)))
		return -1;
	__u32 hl = (h.vihl & 15) * 4, ports = h.ports, diff, sum;
	if (f->lane.hop == HOP_ROUTED) {
		if (h.ttl < 2)
			return -1;
		h.ttl--;
	}
	to = f->to_ends;
	diff = differ((__u64)h.ends[1] << 32 | h.ends[0], to);
	sum = (__u16)~h.csum + (diff & 0xffff) + (diff >> 16);
	if (f->lane.hop == HOP_ROUTED)
		sum += (__u16)~bpf_htons(0x100); // one hop less
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	h.csum = ~sum;
	__builtin_memcpy(h.macs, f->lane.macs, 12);
	h.ends[0] = to;
	h.ends[1] = to >> 32;
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
	count_way(f->counted, len);
	return 0;
}

// hop_on makes a packet of a lane that has a hop what its next station gets; 0 = it is.
static __noinline int hop_on(struct __sk_buff *skb, struct lane *l)
{
	__u8 b[26]; // the frame's header, and the packet's up to the checksum
	if (!l)
		return -1;
	if (l->hop == HOP_MACS)
		return bpf_skb_store_bytes(skb, 0, l->macs, 12, 0);
	if (bpf_skb_load_bytes(skb, 0, b, sizeof(b)) || b[22] < 2)
		return -1;
	b[22]--;
	__u32 sum = (__u32)b[24] << 8 | b[25];
	sum += 0x100; // one hop less, in the header's sum one more (RFC 1141)
	sum += sum >> 16;
	b[24] = sum >> 8;
	b[25] = sum;
	__builtin_memcpy(b, l->macs, 12);
	return bpf_skb_store_bytes(skb, 0, b, sizeof(b), 0);
}

// changes tells whether a packet's next station gets it otherwise than it came.
static __always_inline int changes(const struct fast *f)
{
	return f->served || f->lane->hop;
}

// change makes a packet what its next station gets; 0 = it is.
static __always_inline int change(struct __sk_buff *skb, struct fast *f)
{
	return f->served ? serve_on(skb, f->served) : hop_on(skb, f->lane);
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

// as_came is the packet under way as the frame has it.
static __always_inline const struct flow *as_came(const struct pkt *p)
{
	return p->nat ? &p->was : &p->ip.f;
}

static __always_inline __u64 ends_of(const struct flow *f)
{
	const __u32 *src = (const void *)&f->src, *dst = (const void *)&f->dst;
	return (__u64)dst[3] << 32 | src[3];
}

static __always_inline __u32 ports_of(const struct flow *f)
{
	return (__u32)bpf_htons(f->dport) << 16 | bpf_htons(f->sport);
}

static __always_inline __u64 from_of(const struct pkt *p)
{
	return (__u64)(p->from == FROM_TUNNEL ? p->tag : 0) << 32 | p->ifindex;
}

// forget takes away what was decided about the connection in whose place another
// one begins: the packet that opens that one has to go the long way.
static __noinline int forget(struct pkt *p)
{
	const struct flow *f = as_came(p);
	__u64 ends = ends_of(f);
	__u32 ports = ports_of(f), cpu = bpf_get_smp_processor_id();
	if (p->nat) {
		struct served *s = served_of(cpu, ends, from_of(p), ports, f->proto);
		if (s)
			s->lane.until = 0;
	} else {
		struct pass *c = pass_of(cpu, ends, ports, p->domain, f->proto);
		if (c)
			c->until = 0;
	}
	return 0;
}

// let_pass notes that packets of the connection under way may take their lanes, in the
// direction of this one, and in the other one if both ends take part: for which the
// connection's entry, whose destination is at the port in, says that it was judged.
static __noinline int let_pass(struct pkt *p, __u32 in, __u32 both)
{
	__u64 ends = ends_of(&p->ip.f), now = bpf_jiffies64();
	__u32 ports = ports_of(&p->ip.f), proto = p->ip.f.proto;
	struct pass *c = pass_place(bpf_get_smp_processor_id(), ends, ports, p->domain, proto, now);
	if (!c)
		return 0;
	if (p->reply && in != (p->from == FROM_PORT ? p->ifindex : 0))
		both = 0;
	__u32 ways = both ? 3 : 1 << backwards(ends, ports);
	c->ends = ordered_ends(ends, ports);
	c->id = (__u64)p->domain << 32 | ordered_ports(ends, ports);
	c->proto = proto;
	c->by.out = p->out_rule;
	c->by.in = p->rule;
	c->ways = ways;
	c->stamp = p->stamp;
	c->until = now + fast_ticks;
	return 0;
}

// remember keeps what was decided about a packet of a known connection, whose entry
// has its destination at the port in; both = both ends take part in it.
static __noinline int remember(struct pkt *p, struct settings *g, struct station *s, __u32 in, __u32 both)
{
	struct served *f = &p->fast;
	struct lane *l = &f->lane;
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
	__u32 cpu = bpf_get_smp_processor_id(), ports = ports_of(as_came(p));
	__u64 now = bpf_jiffies64();
	l->ends = ends_of(as_came(p));
	l->from = from_of(p);
	l->domain = p->domain;
	l->tx_slot = p->slot;
	l->stamp = p->stamp;
	l->lo_turn = p->lo_turn;
	l->hi_turn = p->hi_turn;
	__builtin_memcpy(l->head, &p->eth, 14);
	l->head[14] = 0x45;
	__builtin_memcpy(l->macs, &p->eth, 12);
	l->hop = p->routed ? HOP_ROUTED : p->across ? HOP_MACS : HOP_NONE;
	if (p->routed)
		__builtin_memcpy(l->macs, p->to_mac, 6);
	if ((l->hop || p->nat == NAT_BACK) && !l->tag)
		__builtin_memcpy(l->macs + 6, g->router, 6);
	l->until = now + fast_ticks;
	if (!p->nat) {
		struct lane *place = lane_place(cpu, l->ends, l->from, now);
		if (!place)
			return 0;
		*place = *l;
		return let_pass(p, in, both);
	}
	f->by.out = p->out_rule;
	f->by.in = p->rule;
	f->ports = ports;
	f->proto = proto;
	f->vip_turn = p->vip_turn;
	f->end_turn = p->end_turn;
	f->counted = p->counted;
	f->to_ends = ends_of(&p->becomes);
	f->to_ports = ports_of(&p->becomes);
	if (p->nat == NAT_THERE) // the frame is the router's
		__builtin_memcpy(l->head, g->router, 6);
	struct served *place = served_place(cpu, l->ends, l->from, ports, proto, now);
	if (place)
		*place = *f;
	return 0;
}
