// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Reading a frame. Everything is copied by bpf_skb_load_bytes, which fails beyond the packet,
// so truncated packets end here.
#pragma once

#include "services.h"

#define FROM_PORT 1
#define FROM_TUNNEL 2
#define FROM_UPLINK 3
#define FROM_HOST 4

#define ETH_IP 0x0800
#define ETH_ARP 0x0806
#define ETH_IP6 0x86dd

#define P_ICMP 1
#define P_IGMP 2
#define P_TCP 6
#define P_UDP 17
#define P_ICMP6 58
#define P_DCCP 33
#define P_UDPLITE 136
#define P_SCTP 132

#define TCP_FIN 1
#define TCP_SYN 2
#define TCP_RST 4
#define TCP_PSH 8
#define TCP_ACK 16
#define TCP_URG 32

#define KIND_OTHER 0
#define KIND_ARP 1
#define KIND_IP 2

struct eth {
	__u8 dst[6], src[6];
	__be16 proto;
} __attribute__((packed));

struct arp {
	__be16 hw, proto;
	__u8 hwlen, plen;
	__be16 op;
	__u8 smac[6], sip[4], tmac[6], tip[4];
} __attribute__((packed));

struct ip4 {
	__u8 vihl, tos;
	__be16 len, id, frag;
	__u8 ttl, proto;
	__be16 csum;
	__u8 src[4], dst[4];
};

struct ip6 {
	__be32 vtcfl;
	__be16 len;
	__u8 next, hops;
	struct addr src, dst;
};

// ip is what is read of an IP header, outer or quoted.
struct ip {
	struct flow f;
	__u32 l4; // offset of the transport header
	__u32 end; // of the packet; the rest of the frame is padding
	__u32 frag_id, frag_from, frag_to; // bytes of the datagram that a fragment has
	__u8 v6, fragment, later, more; // later: not the first fragment
	__u8 type, code, tcp_flags, pad;
};

struct pkt {
	struct eth eth;
	__u8 kind, from, nd, multicast;
	__u32 ifindex, net, domain, encap, tag;
	__u32 identity, set; // of the port that it comes from
	__u32 len;
	struct arp arp;
	struct ip ip, inner;
	struct addr sender; // ARP sender, or IP source
	struct addr target; // ND target
	struct addr mapped; // scratch
	__u8 has_sender, path;
	__u8 reinjected; // it has waited for the first fragment of its datagram
	__u8 routed; // it goes to to_mac on to_net, another network of the domain
	__u8 cross_network; // another host routed it here, from another network of the domain
	__u8 to_routed; // the host's stack sent it to a routed network
	__u8 host_socket; // of a connection whose client is a socket of the host
	__u8 src_in_subnets; // for the router: the sender's address is in its network's subnets
	__u8 to_mac[6];
	__u32 to_net;
	// connection
	struct flow orig;
	struct ct_key ck;
	struct ct fresh;
	struct ct_key victim;
	__u32 owner; // whose share the connection counts towards
	__u8 reply, known, error, invalid;
	__u32 other_host; // that a client outside came by, or that the packet goes to; 0 = none
	struct tunnel_source end;
	__u8 half_open; // the connection is half open, if there is one
	__u8 replaces; // its key is of another connection, which has ended
	// service
	__u8 nat; // NAT_NONE, NAT_REQUEST, NAT_REPLY
	__u8 hairpin; // the client is its own backend
	__u8 relayed; // the relay address asks its backend in place of a client outside
	__u8 new_translation; // the translation is a new one
	__u8 pool; // pool of backends
	__u8 client_kind; // CLIENT_INTERNAL, CLIENT_EXTERNAL or CLIENT_HOST
	__u16 counted; // index of its service counter, twice, + 1 for a reply
	__u16 vip_index, client_index; // of the generations of the virtual address and the client
	__u32 nat_generation; // both added up
	__u32 vip; // number of the virtual address
	__u32 service; // number of the service that has the port
	struct flow pre_nat, post_nat; // also of a quoted packet
	struct flow quoted_pre_nat, quoted_post_nat;
	struct translation tr, old;
	struct ct_key tk; // of a translation, as the client sends
	struct frontend_key pk;
	struct exposed_key xk;
	struct backend_key bk;
	struct affine_key ak;
	struct affine affine;
	// keys, which need no stack here
	struct station_key sk;
	struct domain_addr hk;
	struct subnet_key nk;
	struct rule_key rk;
	struct frag_key fk;
	struct frag frag;
	struct member_key mk;
	struct joined_key jk;
	struct nat_entry cache_entry;
	__u32 epoch; // read before anything else
	__u32 version; // of a verdict on the connection of ck
	__u16 lo_index, hi_index; // of the generations of its ends
	__u32 src_owner_version, dst_owner_version; // of the ends of orig
	__u8 dst_is_endpoint; // an endpoint has the destination address
	__u8 tos; // DSCP that the sending port's packets get
	__u32 slot; // counters of the sending port
	__u32 remote_family; // of the host that sent it by tunnel, whose address is in key; 0 = none
	struct ip4 h4;
	struct ip6 h6;
	struct bpf_tunnel_key key;
	__u8 buf[40];
	// policy evaluation
	__u32 peer_identity, peer_net;
	__u64 rule;
	__u64 generation, peer_hi, peer_lo;
	__u32 weight;
	__u16 port; // destination port
	__u32 admitted, refused;
	__u64 out_rule;
	__u32 judged_set, out_set, in_set; // the set evaluated last, and those of the ends that are here
	__u8 judged_dir, judged_tier; // judged_tier denied by default; TIERS = none did
	__u8 audits; // an evaluated set has rules that log, or audits
};

#define NAT_NONE 0
#define NAT_REQUEST 1 // from a client to a service
#define NAT_REPLY 2

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct pkt);
	__uint(max_entries, 1);
} scratch SEC(".maps");

// current_packet is the packet that begin_packet began. Global functions fetch it: the verifier
// reads each of them once, not for each state of its callers, which halves the time in which
// netplugin starts, and Linux 6.1 accepts no key of a map that came as their argument.
static __always_inline struct pkt *current_packet(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&scratch, &zero);
}

static __always_inline int same(const void *a, const void *b, int n)
{
	const __u8 *x = a, *y = b;
	__u8 d = 0;
#pragma unroll
	for (int i = 0; i < n; i++)
		d |= x[i] ^ y[i];
	return d == 0;
}

static __always_inline int same_addr(const struct addr *a, const struct addr *b)
{
	const __u32 *x = (const void *)a, *y = (const void *)b;
	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2] && x[3] == y[3];
}

static __always_inline int zero_addr(const struct addr *a)
{
	const __u32 *x = (const void *)a;
	return !(x[0] | x[1] | x[2] | x[3]);
}

static __always_inline void map_ipv4(struct addr *a, const __u8 *ip)
{
	__u32 *x = (void *)a;
	x[0] = x[1] = 0;
	x[2] = bpf_htonl(0xffff);
	__builtin_memcpy(&a->b[12], ip, 4);
}

// is_to_mapped tells whether an IPv6 packet goes to an IPv4-mapped address, by which the maps
// hold IPv4; no machine has one (RFC 4291 section 2.5.5.2).
static __always_inline int is_to_mapped(const struct pkt *p)
{
	const __u32 *x = (const void *)&p->ip.f.dst;
	return p->ip.v6 && !(x[0] | x[1]) && x[2] == bpf_htonl(0xffff);
}

// link_local is the address that belongs to a MAC (RFC 4291 appendix A).
static __always_inline void link_local(struct addr *a, const __u8 *m)
{
	__builtin_memset(a, 0, sizeof(*a));
	a->b[0] = 0xfe;
	a->b[1] = 0x80;
	a->b[8] = m[0] ^ 2;
	a->b[9] = m[1];
	a->b[10] = m[2];
	a->b[11] = 0xff;
	a->b[12] = 0xfe;
	a->b[13] = m[3];
	a->b[14] = m[4];
	a->b[15] = m[5];
}

static __always_inline int is_link_local(const struct addr *a)
{
	return (*(const __be32 *)a->b & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

// is_grouped tells whether endpoints can join a multicast group: beyond the link, as
// desired.Grouped says.
static __always_inline int is_grouped(const struct addr *a)
{
	const __u32 *x = (const void *)a;
	if (!(x[0] | x[1]) && x[2] == bpf_htonl(0xffff))
		return (a->b[12] & 0xf0) == 0xe0 && (a->b[12] != 0xe0 || a->b[13] || a->b[14]);
	return a->b[0] == 0xff && (a->b[1] & 15) > 2;
}

// domain_of is where an address is unique: its domain, or its network if it is link-local.
static __always_inline __u32 domain_of(const struct pkt *p, const struct addr *a)
{
	return is_link_local(a) ? p->net : p->domain;
}

// has_invalid_flags tells whether TCP flags are impossible: none at all, FIN, PSH or URG
// without ACK, or SYN with FIN or RST (so says Open vSwitch's connection tracking, and but for
// PSH Linux's).
static __always_inline int has_invalid_flags(__u8 f)
{
	if (f & TCP_SYN && f & (TCP_FIN | TCP_RST))
		return 1;
	return !(f & TCP_ACK) && (!(f & (TCP_SYN | TCP_RST)) || f & (TCP_FIN | TCP_PSH | TCP_URG));
}

// read_l4 reads ports or ICMP fields; 0 = fine. Quoted packets may end after
// eight bytes (RFC 792).
static __noinline int read_l4(struct __sk_buff *skb, struct pkt *p, struct ip *h, __u32 quoted)
{
	__u8 *b = p->buf;
	if (h->later)
		return 0;
	__u32 least = h->f.proto == P_TCP ? 20 : h->f.proto == P_SCTP ? 12 : 8;
	switch (h->f.proto) {
	case P_TCP:
	case P_UDP:
	case P_SCTP:
	case P_ICMP:
	case P_ICMP6:
		if (!quoted && h->l4 + least > h->end)
			return -1;
	}
	switch (h->f.proto) {
	case P_TCP:
		if (bpf_skb_load_bytes(skb, h->l4, b, 8))
			return -1;
		if (!quoted) {
			if (bpf_skb_load_bytes(skb, h->l4 + 8, b + 8, 12))
				return -1;
			__u32 header = (b[12] >> 4) * 4;
			h->tcp_flags = b[13];
			if (header < 20 || h->l4 + header > h->end || has_invalid_flags(b[13]))
				return -1;
		}
		break;
	case P_UDP:
	case P_SCTP:
		if (bpf_skb_load_bytes(skb, h->l4, b, 8))
			return -1;
		if (!quoted && h->f.proto == P_SCTP && bpf_skb_load_bytes(skb, h->l4 + 8, b + 8, 4))
			return -1;
		if (h->f.proto == P_UDP && !quoted) { // RFC 768; a fragment has the length of the whole
			__u32 len = (__u32)b[4] << 8 | b[5], there = h->end - h->l4;
			if (len < 8 ? len || there <= 65535 : len > there && !h->fragment)
				return -1;
		}
		break;
	case P_ICMP:
	case P_ICMP6:
		if (bpf_skb_load_bytes(skb, h->l4, b, 8))
			return -1;
		h->type = b[0];
		h->code = b[1];
		h->f.sport = h->f.dport = (__u16)b[4] << 8 | b[5];
		return 0;
	default:
		return 0;
	}
	h->f.sport = (__u16)b[0] << 8 | b[1];
	h->f.dport = (__u16)b[2] << 8 | b[3];
	return 0;
}

// note_fragment_range stores which bytes of its datagram a fragment has; 0 = fine. All but the
// last fragment have a multiple of eight bytes (RFC 791, RFC 8200 section 4.5).
static __always_inline int note_fragment_range(struct ip *h, __u32 from, __u32 at)
{
	__u32 len = h->end - at;
	h->frag_from = from;
	h->frag_to = from + len;
	return h->fragment && (from + len > 65535 || (h->more && (!len || len & 7)));
}

// has_wrong_checksum tells whether an IPv4 header's checksum is wrong; p->h4 has its first 20
// bytes.
static __always_inline int has_wrong_checksum(struct __sk_buff *skb, struct pkt *p, __u32 off, __u32 hl)
{
	const __u16 *w = (const void *)&p->h4;
	__u32 sum = 0, more = hl - 20;
#pragma unroll
	for (int i = 0; i < 10; i++)
		sum += w[i];
	asm volatile("" : "+r"(more)); // old verifiers follow only bounds that are compared just before the use, each by itself
	if (more > sizeof(p->buf))
		return 1;
	asm volatile("" : "+r"(more));
	if (more >= 4) {
		if (bpf_skb_load_bytes(skb, off + 20, p->buf, more))
			return 1;
		__s64 s = bpf_csum_diff(0, 0, (__be32 *)p->buf, more, sum);
		sum = (s & 0xffff) + ((__u32)s >> 16);
	}
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum != 0xffff;
}

static __noinline int read_ip4(struct __sk_buff *skb, struct pkt *p, struct ip *h, __u32 off, __u32 quoted)
{
	if (bpf_skb_load_bytes(skb, off, &p->h4, sizeof(p->h4)))
		return -1;
	__u32 hl = (p->h4.vihl & 15) * 4, total = bpf_ntohs(p->h4.len), fo = bpf_ntohs(p->h4.frag);
	if (p->h4.vihl >> 4 != 4 || hl < 20)
		return -1;
	// With segmentation offload a packet beyond 64 KiB has total length 0.
	if (!quoted && ((total && (total < hl || off + total > skb->len)) || (!total && skb->len < 65536)))
		return -1;
	if (!quoted && (fo & 0x8000 || !p->h4.ttl || has_wrong_checksum(skb, p, off, hl)))
		return -1;
	map_ipv4(&h->f.src, p->h4.src);
	map_ipv4(&h->f.dst, p->h4.dst);
	h->f.proto = p->h4.proto;
	h->l4 = off + hl;
	h->end = quoted || !total ? skb->len : off + total;
	h->more = (fo & 0x2000) != 0;
	h->later = (fo & 0x1fff) != 0;
	h->fragment = h->more || h->later;
	h->frag_id = bpf_ntohs(p->h4.id);
	// A later fragment that would overwrite the first one's ports (RFC 3128).
	if ((fo & 0x1fff) == 1 && h->f.proto == P_TCP)
		return -1;
	if (!quoted && note_fragment_range(h, (fo & 0x1fff) * 8, h->l4))
		return -1;
	return read_l4(skb, p, h, quoted);
}

__noinline int read_ip6(struct __sk_buff *skb, struct ip *h, __u32 off, __u32 quoted)
{
	struct pkt *p = current_packet();
	if (!p || !h)
		return -1;
	if (bpf_skb_load_bytes(skb, off, &p->h6, sizeof(p->h6)))
		return -1;
	__u32 len = bpf_ntohs(p->h6.len);
	if ((*(__u8 *)&p->h6) >> 4 != 6)
		return -1;
	if (!quoted && ((len && off + 40 + len > skb->len) || (!len && p->h6.next != 59 && skb->len < 65536)))
		return -1;
	if (!quoted && !p->h6.hops)
		return -1;
	h->v6 = 1;
	h->f.src = p->h6.src;
	h->f.dst = p->h6.dst;
	__u8 next = p->h6.next, *b = p->buf;
	off += 40;
	h->end = quoted || !len ? skb->len : off + len;
	for (int i = 0; i < 8; i++) {
		if (next != 0 && next != 43 && next != 44 && next != 51 && next != 60)
			break;
		if (bpf_skb_load_bytes(skb, off, b, 8))
			return -1;
		if (next == 44) {
			__u32 fo = (__u32)b[2] << 8 | b[3];
			h->more = fo & 1;
			h->later = (fo & 0xfff8) != 0;
			h->fragment = 1;
			h->frag_id = (__u32)b[4] << 24 | (__u32)b[5] << 16 | (__u32)b[6] << 8 | b[7];
			next = b[0];
			off += 8;
			if (!quoted && (off > h->end || note_fragment_range(h, fo & 0xfff8, off)))
				return -1;
			if (h->later)
				break;
			continue;
		}
		off += next == 51 ? (b[1] + 2) * 4 : (b[1] + 1) * 8;
		next = b[0];
	}
	if (off > h->end)
		return -1;
	if (!h->later && (next == 0 || next == 43 || next == 44 || next == 51 || next == 60))
		return -1; // too many extension headers
	h->f.proto = next;
	h->l4 = off;
	return read_l4(skb, p, h, quoted);
}

// read_frame reads a frame; 0 = fine, otherwise the drop reason.
static __noinline int read_frame(struct __sk_buff *skb, struct pkt *p)
{
	if (bpf_skb_load_bytes(skb, 0, &p->eth, sizeof(p->eth)))
		return DROP_INVALID;
	p->multicast = p->eth.dst[0] & 1;
	if (p->eth.src[0] & 1)
		return DROP_SPOOF;
	switch (bpf_ntohs(p->eth.proto)) {
	case ETH_ARP:
		if (bpf_skb_load_bytes(skb, 14, &p->arp, sizeof(p->arp)) || p->arp.hw != bpf_htons(1) ||
		    p->arp.proto != bpf_htons(ETH_IP) || p->arp.hwlen != 6 || p->arp.plen != 4)
			return DROP_INVALID;
		p->kind = KIND_ARP;
		map_ipv4(&p->sender, p->arp.sip);
		p->has_sender = *(__u32 *)p->arp.sip != 0;
		return 0;
	case ETH_IP:
		if (read_ip4(skb, p, &p->ip, 14, 0))
			return DROP_INVALID;
		break;
	case ETH_IP6:
		if (read_ip6(skb, &p->ip, 14, 0))
			return DROP_INVALID;
		break;
	default:
		return DROP_NOT_IP;
	}
	p->kind = KIND_IP;
	p->sender = p->ip.f.src;
	p->has_sender = !zero_addr(&p->sender);
	if (p->ip.v6 && p->ip.f.proto == P_ICMP6 && !p->ip.fragment && p->ip.type >= 133 && p->ip.type <= 137) {
		p->nd = p->ip.type;
		if ((p->nd == 135 || p->nd == 136) && bpf_skb_load_bytes(skb, p->ip.l4 + 8, &p->target, 16))
			return DROP_INVALID;
	}
	return 0;
}
