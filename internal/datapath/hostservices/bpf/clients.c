// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Services for clients outside of this host. Packets that an interface receives for a
// service's frontend are redirected to the host's interface to the data plane, which
// translates them. Its answers are sent by the host's routes. The host's firewall and its
// connection tracking see neither.
#include "common.h"

#define TC_NEXT -1
#define TC_DROP 2

#define ETH_IP 0x0800
#define ETH_IP6 0x86dd
#define ETH_LEN 14

#define P_ICMP 1
#define P_FRAGMENT 44
#define P_ICMP6 58
#define P_SCTP 132
#define TCP_SYN 2
#define TCP_ACK 16

struct settings {
	__u32 device; // index of the interface to the data plane; 0 = none
	__u8 mac[6]; // its own
	__u8 pad[2];
	struct addr private_net[2], private_mask[2]; // host-local NAT addresses; mask 0 = none
};

// datagram identifies one that was fragmented.
struct datagram {
	struct addr src, dst;
	__u32 id, proto;
};

MAP(client_settings, BPF_MAP_TYPE_ARRAY, __u32, struct settings, 1, 0);
MAP(places, BPF_MAP_TYPE_HASH, struct place, __u32, 131072, BPF_F_NO_PREALLOC); // unspecified addresses stand for node_addresses
MAP(node_addresses, BPF_MAP_TYPE_HASH, struct addr, __u32, 4096, BPF_F_NO_PREALLOC); // this node's
MAP(datagrams, BPF_MAP_TYPE_LRU_HASH, struct datagram, __u32, 4096, 0); // whose first fragment was redirected

// packet has the fields of a packet that decide.
struct packet {
	struct place from, to;
	__u32 l4; // offset; 0 = a later fragment
	__u32 v6, id, fragment, len;
	__u8 tos, tcp_flags, type, pad;
};

struct ip4 {
	__u8 vihl, tos;
	__be16 len, id, frag;
	__u8 ttl, proto;
	__be16 sum;
	__be32 src, dst;
};

struct ip6 {
	__be32 flow;
	__be16 len;
	__u8 next, hops;
	struct addr src, dst;
};

struct fragment6 {
	__u8 next, reserved;
	__be16 offset;
	__be32 id;
};

// read_ip reads an IP header; 0 = there is none.
static __always_inline int read_ip(struct __sk_buff *skb, __u32 at, __u32 v6, struct packet *p)
{
	__u32 later = 0;
	p->v6 = v6;
	p->fragment = 0;
	if (!v6) {
		struct ip4 h;
		if (bpf_skb_load_bytes(skb, at, &h, sizeof(h)) || h.vihl >> 4 != 4 || (h.vihl & 15) < 5)
			return 0;
		map4(&p->from.ip, h.src);
		map4(&p->to.ip, h.dst);
		p->tos = h.tos;
		p->id = h.id;
		p->len = bpf_ntohs(h.len);
		p->from.proto = p->to.proto = h.proto;
		p->l4 = at + (h.vihl & 15) * 4;
		p->fragment = (h.frag & bpf_htons(0x3fff)) != 0;
		later = h.frag & bpf_htons(0x1fff);
	} else {
		struct ip6 h;
		if (bpf_skb_load_bytes(skb, at, &h, sizeof(h)) || bpf_ntohl(h.flow) >> 28 != 6)
			return 0;
		p->from.ip = h.src;
		p->to.ip = h.dst;
		p->tos = bpf_ntohl(h.flow) >> 20;
		p->len = bpf_ntohs(h.len) + sizeof(h);
		p->from.proto = p->to.proto = h.next;
		p->l4 = at + sizeof(h);
		if (h.next == P_FRAGMENT) {
			struct fragment6 f;
			if (bpf_skb_load_bytes(skb, p->l4, &f, sizeof(f)))
				return 0;
			p->from.proto = p->to.proto = f.next;
			p->id = f.id;
			p->l4 += sizeof(f);
			p->fragment = 1;
			later = f.offset & bpf_htons(0xfff8);
		}
	}
	if (later)
		p->l4 = 0;
	return 1;
}

static __always_inline int has_ports(__u8 proto)
{
	return proto == P_TCP || proto == P_UDP || proto == P_SCTP;
}

// read_ports reads the ports at p->l4.
static __always_inline int read_ports(struct __sk_buff *skb, struct packet *p)
{
	__be16 ports[2];
	if (bpf_skb_load_bytes(skb, p->l4, ports, sizeof(ports)))
		return 0;
	p->from.port = bpf_ntohs(ports[0]);
	p->to.port = bpf_ntohs(ports[1]);
	return 1;
}

static __always_inline int is_error(const struct packet *p)
{
	if (p->v6)
		return p->type >= 1 && p->type <= 4;
	return p->type == 3 || p->type == 4 || p->type == 5 || p->type == 11 || p->type == 12;
}

// has_frontend reports whether a service is at a place.
static __always_inline int has_frontend(const struct place *at)
{
	if (bpf_map_lookup_elem(&places, at))
		return 1;
	if (!bpf_map_lookup_elem(&node_addresses, &at->ip))
		return 0;
	struct place any = at_each_node(at);
	return bpf_map_lookup_elem(&places, &any) != 0;
}

static __always_inline struct datagram datagram_of(const struct packet *p)
{
	struct datagram d = {};
	d.src = p->from.ip;
	d.dst = p->to.ip;
	d.id = p->id;
	d.proto = p->to.proto;
	return d;
}

// track_first_fragment remembers a datagram whose first fragment was redirected.
static __always_inline void track_first_fragment(const struct packet *p, const struct datagram *d)
{
	__u32 one = 1;
	if (p->fragment && p->l4)
		bpf_map_update_elem(&datagrams, d, &one, BPF_ANY);
}

// is_for_service reports whether a packet from outside is for a service.
static __always_inline int is_for_service(struct __sk_buff *skb, struct packet *p)
{
	struct datagram d = datagram_of(p);
	if (!p->l4)
		return bpf_map_lookup_elem(&datagrams, &d) != 0;
	if (has_ports(p->to.proto)) {
		if (!read_ports(skb, p) || !has_frontend(&p->to))
			return 0;
		if (p->to.proto == P_TCP && bpf_skb_load_bytes(skb, p->l4 + 13, &p->tcp_flags, 1))
			return 0;
		track_first_fragment(p, &d);
		return 1;
	}
	if (p->to.proto != (p->v6 ? P_ICMP6 : P_ICMP) || bpf_skb_load_bytes(skb, p->l4, &p->type, 1) || !is_error(p))
		return 0;
	struct packet quoted = {}; // sent from the place
	return read_ip(skb, p->l4 + 8, p->v6, &quoted) && quoted.l4 && has_ports(quoted.from.proto) && read_ports(skb, &quoted) && has_frontend(&quoted.from);
}

static __always_inline int in_net(const struct addr *a, const struct addr *net, const struct addr *mask)
{
	return mask->w[3] | mask->w[2] | mask->w[1] | mask->w[0] && !(((a->w[0] ^ net->w[0]) & mask->w[0]) | ((a->w[1] ^ net->w[1]) & mask->w[1]) |
								     ((a->w[2] ^ net->w[2]) & mask->w[2]) | ((a->w[3] ^ net->w[3]) & mask->w[3]));
}

// lookup_route finds the route to an address.
static __always_inline int lookup_route(struct __sk_buff *skb, struct bpf_fib_lookup *route, const struct packet *p, const struct addr *src, const struct addr *dst, __u32 ifindex)
{
	route->ifindex = ifindex;
	route->l4_protocol = p->to.proto;
	if (p->v6) {
		route->family = AF_INET6;
		*(struct addr *)route->ipv6_src = *src;
		*(struct addr *)route->ipv6_dst = *dst;
		route->flowinfo = bpf_htonl((__u32)p->tos << 20);
	} else {
		route->family = AF_INET;
		route->ipv4_src = src->w[3];
		route->ipv4_dst = dst->w[3];
		route->tos = p->tos;
	}
	return bpf_fib_lookup(skb, route, sizeof(*route), 0);
}

// redirect_to sends a frame by an interface.
static __always_inline int redirect_to(struct __sk_buff *skb, __u32 ifindex, const __u8 *to, const __u8 *from)
{
	__u8 macs[12];
	__builtin_memcpy(macs, to, 6);
	__builtin_memcpy(macs + 6, from, 6);
	return bpf_skb_store_bytes(skb, 0, macs, sizeof(macs), 0) ? TC_DROP : bpf_redirect(ifindex, 0);
}

// from_client sees packets that an interface of the host receives.
SEC("tc")
int from_client(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct settings *g = bpf_map_lookup_elem(&client_settings, &zero);
	struct packet p = {};
	__u32 v6 = skb->protocol == bpf_htons(ETH_IP6);
	if (!g || !g->device || skb->vlan_present || (!v6 && skb->protocol != bpf_htons(ETH_IP)) || !read_ip(skb, ETH_LEN, v6, &p) || !is_for_service(skb, &p))
		return TC_NEXT;
	// A client outside has no host-local NAT address, and has a route back. For later packets
	// of a TCP connection the data plane knows that this was checked.
	if (in_net(&p.from.ip, &g->private_net[v6 & 1], &g->private_mask[v6 & 1]))
		return TC_DROP;
	if (p.to.proto != P_TCP || (p.tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN) {
		struct bpf_fib_lookup route = {};
		int code = lookup_route(skb, &route, &p, &p.to.ip, &p.from.ip, skb->ifindex);
		if (code != BPF_FIB_LKUP_RET_SUCCESS && code != BPF_FIB_LKUP_RET_NO_NEIGH && code != BPF_FIB_LKUP_RET_FRAG_NEEDED)
			return TC_DROP;
	}
	skb->mark = 0;
	return redirect_to(skb, g->device, g->mac, g->mac);
}

// to_client sees packets that the data plane gives to the host. Answers of services to clients
// outside do not pass the host's stack, which forwards no packet with its own source address.
SEC("tc")
int to_client(struct __sk_buff *skb)
{
	struct packet p = {};
	__u32 v6 = skb->protocol == bpf_htons(ETH_IP6);
	if (skb->vlan_present || (!v6 && skb->protocol != bpf_htons(ETH_IP)) || !read_ip(skb, ETH_LEN, v6, &p))
		return TC_NEXT;
	struct datagram d = datagram_of(&p);
	if (!bpf_map_lookup_elem(&node_addresses, &p.from.ip)) {
		if (!p.l4 ? !bpf_map_lookup_elem(&datagrams, &d) : !has_ports(p.from.proto) || !read_ports(skb, &p) || !has_frontend(&p.from))
			return TC_NEXT;
		track_first_fragment(&p, &d);
	}
	struct bpf_fib_lookup route = {};
	int code = lookup_route(skb, &route, &p, &p.from.ip, &p.to.ip, skb->ifindex);
	if (code == BPF_FIB_LKUP_RET_NOT_FWDED) // for this host itself
		return TC_NEXT;
	if (code == BPF_FIB_LKUP_RET_NO_NEIGH) {
		struct bpf_redir_neigh next = { .nh_family = route.family };
		if (v6)
			*(struct addr *)next.ipv6_nh = *(struct addr *)route.ipv6_dst;
		else
			next.ipv4_nh = route.ipv4_dst;
		return bpf_redirect_neigh(route.ifindex, &next, sizeof(next), 0);
	}
	if (code != BPF_FIB_LKUP_RET_SUCCESS)
		return TC_DROP;
	return redirect_to(skb, route.ifindex, route.dmac, route.smac);
}

char _license[] SEC("license") = "Dual MIT/GPL";
