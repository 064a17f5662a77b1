// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Egress through the host's stack: the virtual router, and 1:1 NAT between an endpoint's
// address and its host-local NAT address. Checksums are corrected by the difference, which is
// right for packets with offloads too.
#pragma once

#include "packet.h"

#define PATH_NONE 0
#define PATH_TO_HOST 1 // to the host's stack
#define PATH_FROM_HOST 2 // from the host's stack
#define PATH_UNREACHABLE 3 // to the router, which drops it
#define PATH_ROUTED 4 // to an endpoint of another network of the domain
#define PATH_NO_ENDPOINT 5 // to an address of another network without an endpoint
#define PATH_NO_ROUTE 6 // no route: the sender gets an ICMP error
#define PATH_SERVICE 7 // to a virtual address
#define PATH_HAIRPIN 8 // to a link-local service address
#define PATH_OTHER_HOST 9 // from the router's MAC to another host: a reply to a client outside that came by it, or to a node
#define PATH_EXTERNAL_CLIENT 10 // a reply to a client outside of a service, through this host's stack

static __always_inline __be32 last4(const struct addr *a)
{
	return *(const __be32 *)&a->b[12];
}

// has_egress tells whether the router forwards packets to an address: unicast, outside the
// network, and no host-local NAT address but the host's own.
static __always_inline int has_egress(const struct settings *g, const struct port *o, __be32 to)
{
	__u8 first = *(__u8 *)&to;
	return (o->private_ip || o->routed) && (to & o->mask) != o->subnet && (to == g->host_ip || (to & g->private_mask) != g->private_net) &&
	       first != 0 && first != 127 && first < 224;
}

// in_subnets tells whether an address of the packet is in a network's subnets.
static __always_inline int in_subnets(const struct pkt *p, const struct addr *a, __be32 subnet, __be32 mask, const struct addr *subnet6, const struct addr *mask6)
{
	const __u32 *x = (const void *)a, *s = (const void *)subnet6, *m = (const void *)mask6;
	if (!p->ip.v6)
		return mask && (last4(a) & mask) == subnet;
	__u32 differs = 0;
#pragma unroll
	for (int i = 0; i < 4; i++)
		differs |= (x[i] ^ s[i]) & m[i];
	return m[0] && !differs;
}

// in_own_subnets tells whether an address of the packet is in its sender's subnets.
static __always_inline int in_own_subnets(const struct pkt *p, const struct port *o, const struct addr *a)
{
	return in_subnets(p, a, o->subnet, o->mask, &o->subnet6, &o->mask6);
}

// is_private6 tells whether an address is an IPv6 host-local NAT address.
static __always_inline int is_private6(const struct settings *g, const struct addr *a)
{
	const __u32 *x = (const void *)a, *s = (const void *)&g->private6;
	return s[0] && x[0] == s[0] && x[1] == s[1] && x[2] == s[2];
}

// relay_ip is desired.HostNAT.Relay.
static __always_inline __be32 relay_ip(const struct settings *g)
{
	return bpf_htonl(bpf_ntohl(g->host_ip) - 1);
}

// is_relay_addr tells whether an address is the host's relay address.
static __always_inline int is_relay_addr(const struct settings *g, const struct addr *a, __u32 v6)
{
	return g->host && last4(a) == relay_ip(g) && (!v6 || is_private6(g, a));
}

// has_egress6 is has_egress for IPv6: no ::/64, link-local or multicast addresses either.
static __always_inline int has_egress6(const struct pkt *p, const struct settings *g, const struct port *o, const struct addr *to)
{
	const __u32 *x = (const void *)to;
	if ((zero_addr(&o->private6) && !(o->routed && !zero_addr(&g->private6))) || in_own_subnets(p, o, to))
		return 0;
	if (is_private6(g, to))
		return last4(to) == g->host_ip;
	return (x[0] | x[1]) && to->b[0] != 0xff && !is_link_local(to);
}

// routed_network_at finds the routed network that has an address.
static __noinline struct segment *routed_network_at(struct pkt *p, const struct addr *a)
{
	if (!a)
		return 0;
	p->nk.bits = DOMAIN_BITS + 128;
	p->nk.domain = 0;
	p->nk.ip = *a;
	return bpf_map_lookup_elem(&natives, &p->nk);
}

// node_at returns the number of the node that has an address: NODE_LOCAL, or as in map
// tunnels; NO_NODE = none has it.
#define NO_NODE 0xfffffffe
static __always_inline __u32 node_at(struct pkt *p, const struct addr *a)
{
	p->hk.ip = *a;
	__u32 *n = bpf_map_lookup_elem(&nodes, &p->hk.ip);
	return n ? *n : NO_NODE;
}

// routed_network_path is the path of a packet from a container of a routed network to
// elsewhere: to the host, or through the tunnel to the node that has the address.
static __noinline int routed_network_path(struct pkt *p)
{
	if (routed_network_at(p, &p->ip.f.dst))
		return PATH_UNREACHABLE;
	__u32 node = node_at(p, &p->ip.f.dst);
	if (node == NODE_LOCAL || node == NO_NODE)
		return PATH_TO_HOST;
	p->other_host = node;
	return PATH_OTHER_HOST;
}

// egress_path tells whether a container's unicast packet leaves through the host.
static __always_inline int egress_path(struct pkt *p, const struct settings *g, const struct port *o)
{
	int direct;
	if (!g->host)
		return PATH_NONE;
	direct = same(p->eth.dst, g->router, 6);
	if (!direct && !(p->ip.v6 ? o->diverts6 : o->diverts))
		return PATH_NONE;
	__be32 to = last4(&p->ip.f.dst);
	int open = p->ip.v6 ? has_egress6(p, g, o, &p->ip.f.dst) : has_egress(g, o, to);
	int here = to == g->host_ip && (!p->ip.v6 || is_private6(g, &p->ip.f.dst));
	// A link-local source gets no replies from beyond its network.
	int own = !p->ip.v6 || same_addr(&p->ip.f.src, &o->ip6);
	// No container sends to a tunnel port: hosts believe what comes there.
	int tunnel = !p->ip.later && p->ip.f.proto == P_UDP && bpf_htons(p->ip.f.dport) == g->vxlan_port;
	if (direct)
		return !open || !own || tunnel ? PATH_UNREACHABLE : o->routed ? routed_network_path(p) : PATH_TO_HOST;
	if (open && here && tunnel)
		return PATH_UNREACHABLE;
	if (open && (here || (!p->ip.later && p->ip.f.dport == 53 && (p->ip.f.proto == P_UDP || p->ip.f.proto == P_TCP))))
		return own ? PATH_TO_HOST : PATH_UNREACHABLE;
	return PATH_NONE;
}

// rewrite_addr changes one address of the IPv4 header at offset ip, its checksum and, where
// l4 is not 0, the transport's.
static __always_inline int rewrite_addr(struct __sk_buff *skb, __u32 ip, __u32 field, __u32 l4, __u32 proto, __be32 from, __be32 to)
{
	__u32 at = 0, flags = BPF_F_PSEUDO_HDR | sizeof(to);
	if (l4 && proto == P_TCP)
		at = l4 + 16;
	if (l4 && (proto == P_UDP || proto == P_UDPLITE)) {
		at = l4 + 6;
		flags |= BPF_F_MARK_MANGLED_0; // no checksum stays none
	}
	if (l4 && proto == P_DCCP)
		at = l4 + 6;
	if (at && bpf_l4_csum_replace(skb, at, from, to, flags))
		return -1;
	if (bpf_l3_csum_replace(skb, ip + 10, from, to, sizeof(to)))
		return -1;
	return bpf_skb_store_bytes(skb, ip + field, &to, sizeof(to), 0);
}

#define IP_SRC 12
#define IP_DST 16

static __always_inline int is_error4(__u8 type)
{
	return type == 3 || type == 4 || type == 5 || type == 11 || type == 12;
}

// rewrite_quoted changes an address in the packet that an ICMP error quotes. The quoted
// header's checksum changes with it, so the error's stays the same.
static __always_inline int rewrite_quoted(struct __sk_buff *skb, struct pkt *p, __u32 at, __u32 field, __be32 from, __be32 to)
{
	if (bpf_skb_load_bytes(skb, at + field, p->buf, 4))
		return 0; // it quotes too little
	if (*(__be32 *)p->buf != from)
		return 0;
	return rewrite_addr(skb, at, field, 0, 0, from, to);
}

#define IP6_SRC 8
#define IP6_DST 24

// rewrite_addr6 changes one address of a frame's IPv6 header, the other one in the packet that
// an ICMPv6 error quotes, and the checksums.
static __noinline int rewrite_addr6(struct __sk_buff *skb, struct pkt *p, __u32 field, struct addr *from, struct addr *to)
{
	__u32 l4 = p->ip.l4, quoted = l4 + 8 + (field == IP6_SRC ? IP6_DST : IP6_SRC), at = 0, flags = BPF_F_PSEUDO_HDR;
	__u8 proto = p->ip.f.proto;
	if (!from || !to)
		return -1;
	__s64 diff = bpf_csum_diff((__be32 *)from, sizeof(*from), (__be32 *)to, sizeof(*to), 0);
	if (!p->ip.later) {
		if (proto == P_TCP)
			at = l4 + 16;
		else if (proto == P_UDP || proto == P_UDPLITE || proto == P_DCCP)
			at = l4 + 6;
		else if (proto == P_ICMP6)
			at = l4 + 2;
		if (proto == P_UDP || proto == P_UDPLITE)
			flags |= BPF_F_MARK_MANGLED_0;
		if (proto == P_ICMP6 && p->ip.type < 128 && !bpf_skb_load_bytes(skb, quoted, p->buf, sizeof(*from)) &&
		    same_addr((struct addr *)p->buf, from) &&
		    (bpf_l4_csum_replace(skb, at, 0, diff, 0) || bpf_skb_store_bytes(skb, quoted, to, sizeof(*to), 0)))
			return -1;
	}
	if (at && bpf_l4_csum_replace(skb, at, 0, diff, flags))
		return -1;
	// IPv6 has no header checksum that would balance the address in the device's sum.
	return bpf_skb_store_bytes(skb, 14 + field, to, sizeof(*to), BPF_F_RECOMPUTE_CSUM);
}

// snat_to_host gives an allowed packet its NAT address as source, and the router's MAC.
static __noinline int snat_to_host(struct __sk_buff *skb, struct pkt *p)
{
	__u32 zero = 0, ifindex = p->ifindex;
	struct settings *g = bpf_map_lookup_elem(&settings, &zero);
	struct port *o = bpf_map_lookup_elem(&ports, &ifindex);
	if (!g || !o)
		return -1;
	__be32 own = last4(&o->ip4);
	if (o->routed)
		return bpf_skb_store_bytes(skb, 0, g->router, 6, 0);
	if (p->ip.v6)
		return rewrite_addr6(skb, p, IP6_SRC, &o->ip6, &o->private6) || bpf_skb_store_bytes(skb, 0, g->router, 6, 0);
	if (p->error && rewrite_quoted(skb, p, p->ip.l4 + 8, IP_DST, own, o->private_ip))
		return -1;
	if (rewrite_addr(skb, 14, IP_SRC, p->ip.later ? 0 : p->ip.l4, p->ip.f.proto, own, o->private_ip))
		return -1;
	return bpf_skb_store_bytes(skb, 0, g->router, 6, 0);
}

// dnat_from_host gives the host's packet to a NAT address the endpoint's address and MAC.
static __noinline int dnat_from_host(struct __sk_buff *skb, struct pkt *p, struct settings *g, struct port *o)
{
	__u32 hl = (p->h4.vihl & 15) * 4, l4 = 14 + hl, proto = p->h4.proto;
	__be32 own = last4(&o->ip4);
	int later = (p->h4.frag & bpf_htons(0x1fff)) != 0;
	if (hl < 20)
		return -1;
	if (!later && proto == P_ICMP) {
		if (bpf_skb_load_bytes(skb, l4, p->buf, 1))
			return -1;
		if (is_error4(p->buf[0]) && rewrite_quoted(skb, p, l4 + 8, IP_SRC, o->private_ip, own))
			return -1;
	}
	if (rewrite_addr(skb, 14, IP_DST, later ? 0 : l4, proto, o->private_ip, own))
		return -1;
	__builtin_memcpy(p->buf, o->mac, 6);
	__builtin_memcpy(p->buf + 6, g->router, 6);
	return bpf_skb_store_bytes(skb, 0, p->buf, 12, 0);
}

// dnat_from_host6 is dnat_from_host for IPv6; the frame has been read.
static __noinline int dnat_from_host6(struct __sk_buff *skb, struct pkt *p, struct settings *g, struct port *o)
{
	if (!g || !o || rewrite_addr6(skb, p, IP6_DST, &o->private6, &o->ip6))
		return -1;
	__builtin_memcpy(p->buf, o->mac, 6);
	__builtin_memcpy(p->buf + 6, g->router, 6);
	return bpf_skb_store_bytes(skb, 0, p->buf, 12, 0);
}
