// SPDX-License-Identifier: (MIT OR GPL-2.0)
// The fast path between hosts. In: on the interface with the tunnel address, packets of a
// connection that from_tunnel has just allowed from the same host are decapsulated here. Others
// go on to the host's stack and its VXLAN device. Out: packets to a host of the same link get
// their tunnel headers here, as the VXLAN device would write them.
#pragma once

#include "fastpath.h"

struct tunnel_header {
	__u8 macs[12];
	__be16 eth;
	__u8 vihl, tos;
	__be16 len, id, frag;
	__u8 ttl, proto;
	__be16 csum;
	__be32 src, dst;
	__be16 sport, dport, udp_len, udp_csum;
	__be32 flags, vni; // RFC 7348 section 5
} __attribute__((packed));

#define TUNNEL_BYTES 50
#define PACKET_HOST 0 // skb->pkt_type of what is for this host

// tunnel_header_of returns the header of a tunnel packet to this host that may be decapsulated
// here; 0 = the VXLAN device has to. 42 bytes of the inner frame are readable.
static __always_inline struct tunnel_header *tunnel_header_of(struct __sk_buff *skb, const struct settings *g)
{
	struct tunnel_header *t = (void *)(long)skb->data;
	void *end = (void *)(long)skb->data_end;
	if ((void *)t + TUNNEL_BYTES + 42 > end || skb->pkt_type != PACKET_HOST || t->eth != bpf_htons(ETH_IP) || t->vihl != 0x45 || t->frag & bpf_htons(0xbfff))
		return 0;
	if (t->proto != P_UDP || t->dport != g->vxlan_port || t->dst != g->vtep || t->udp_csum || t->flags != bpf_htonl(0x08000000))
		return 0;
	if ((t->tos & 3) == 3) // congestion: the device marks the inner packet
		return 0;
	if (skb->vlan_present || bpf_ntohs(t->len) + 14 != skb->len || bpf_ntohs(t->udp_len) + 34 != skb->len)
		return 0;
	return bpf_ntohl(t->vni) & 0xff ? 0 : t;
}

// has_right_outer_checksum tells whether a tunnel packet's own IP header has the right checksum.
static __always_inline int has_right_outer_checksum(const struct tunnel_header *t)
{
	const __u16 *w = (const void *)&t->vihl;
	__u32 sum = 0;
#pragma unroll
	for (int i = 0; i < 10; i++)
		sum += w[i];
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16) == 0xffff;
}

// fast_lookup_inner is fast_lookup for the packet in a tunnel packet; 0 = it takes the slow path.
static __always_inline int fast_lookup_inner(struct fast_decision *f, struct __sk_buff *skb, const struct settings *g, __u32 epoch)
{
	struct tunnel_header *t = tunnel_header_of(skb, g);
	void *end = (void *)(long)skb->data_end;
	if (!t)
		return 0;
	__u32 vni = bpf_ntohl(t->vni), src = bpf_ntohl(t->src);
	struct fast_header *h = (void *)t + TUNNEL_BYTES;
	// Only TCP may be several segments: the kernel would still take the buffer for a tunnel's when
	// it cuts datagrams for a socket. Merged packets of other protocols are longer than their first
	// header says.
	if (skb->gso_size && (h->proto != P_TCP || bpf_ntohs(h->len) + 14 + TUNNEL_BYTES != skb->len))
		return 0;
	return fast_lookup(f, h, end, skb->len - TUNNEL_BYTES, g, epoch, g->vxlan, vni >> 8) &&
	       f->forward->vtep_family == 4 && *(__u32 *)f->forward->vtep == src;
}

// Packets of this size fit every path (RFC 791: hosts accept 576 bytes).
#define SMALL 512

// decapsulate removes the tunnel headers; 0 = done. A verified inner checksum stays verified, so
// that big packets are not summed again.
static __always_inline int decapsulate(struct __sk_buff *skb)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO;
	int known = skb->len > SMALL && bpf_csum_level(skb, BPF_CSUM_LEVEL_QUERY) > 0;
	if (known)
		flags |= BPF_F_ADJ_ROOM_NO_CSUM_RESET;
	if (bpf_skb_adjust_room(skb, -TUNNEL_BYTES, BPF_ADJ_ROOM_MAC, flags))
		return -1;
	if (known)
		bpf_csum_level(skb, BPF_CSUM_LEVEL_DEC);
	return 0;
}

static __u32 idents; // of tunnel packets that may be fragmented

// encapsulate puts a frame into a tunnel packet and sends it; negative = it could not. A frame of
// several segments becomes one of several tunnel packets, which the device or the kernel cuts.
static __noinline int encapsulate(struct __sk_buff *skb, struct forward_entry *l, struct settings *g)
{
	struct {
		struct tunnel_header t;
		__u8 macs[12];
		__be16 eth;
	} __attribute__((packed)) n = {};
	struct bpf_redir_neigh to = { .nh_family = 2 /* AF_INET */ };
	__u32 len = skb->len, hash = bpf_get_hash_recalc(skb), sum;
	__u8 *data = (void *)(long)skb->data;
	if ((void *)data + 16 > (void *)(long)skb->data_end || len + TUNNEL_BYTES - 14 > 65535)
		return -1;
	__u8 ecn = data[15] & 3;
	n.t.eth = n.eth = bpf_htons(ETH_IP);
	n.t.vihl = 0x45;
	n.t.tos = l->tos | (ecn == 3 ? 2 : ecn); // RFC 6040 section 4.1
	n.t.len = bpf_htons(len + TUNNEL_BYTES - 14);
	if (len <= SMALL)
		n.t.frag = bpf_htons(0x4000);
	else
		n.t.id = bpf_htons(__sync_fetch_and_add(&idents, skb->gso_segs ? skb->gso_segs : 1));
	n.t.ttl = 64;
	n.t.proto = P_UDP;
	n.t.src = g->vtep;
	n.t.dst = to.ipv4_nh = bpf_htonl(*(__u32 *)l->vtep);
	hash ^= hash << 16; // the source port as the kernel chooses it
	n.t.sport = bpf_htons((__u16)(((__u64)hash * (60999 - 32768) >> 32) + 32768));
	n.t.dport = g->vxlan_port;
	n.t.udp_len = bpf_htons(len + TUNNEL_BYTES - 34);
	n.t.flags = bpf_htonl(0x08000000);
	n.t.vni = bpf_htonl(l->tag << 8);
	__builtin_memcpy(n.macs, l->macs, 12);
	sum = bpf_htons(0x4500 | n.t.tos) + n.t.len + n.t.id + n.t.frag + bpf_htons(64 << 8 | P_UDP);
	sum += (n.t.src & 0xffff) + (n.t.src >> 16) + (n.t.dst & 0xffff) + (n.t.dst >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	n.t.csum = ~sum;
	if (bpf_skb_adjust_room(skb, TUNNEL_BYTES, BPF_ADJ_ROOM_MAC,
				BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 | BPF_F_ADJ_ROOM_ENCAP_L4_UDP | BPF_F_ADJ_ROOM_ENCAP_L2(14) |
				BPF_F_ADJ_ROOM_ENCAP_L2_ETH | BPF_F_ADJ_ROOM_FIXED_GSO))
		return -1;
	if (bpf_skb_store_bytes(skb, 0, &n, sizeof(n), 0))
		return TC_DROP;
	return bpf_redirect_neigh(l->underlay, &to, sizeof(to), 0);
}
