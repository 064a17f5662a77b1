// SPDX-License-Identifier: (MIT OR GPL-2.0)
// Map layouts, shared by the programs and the driver. Addresses are 16 bytes, IPv4 as
// IPv4-mapped IPv6; ports and tags are in host order unless a comment says otherwise.
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define TC_NEXT -1
#define TC_DROP 2
#define TC_REDIRECT 7

#define ENCAP_VXLAN 1
#define ENCAP_VLAN 2

enum drop_reason {
	DROP_NONE,
	DROP_NO_PORT,
	DROP_NETWORK,
	DROP_SPOOF,
	DROP_UNKNOWN_SOURCE,
	DROP_UNKNOWN_DEST,
	DROP_POLICY,
	DROP_INVALID,
	DROP_NOT_IP,
	DROP_TOO_BIG,
	DROP_TTL,
	DROP_NO_PROVIDER,
	DROP_REASONS,
};

struct addr {
	__u8 b[16];
};

struct settings {
	__u32 epoch; // of all but endpoints and policies: a verdict of another epoch is stale
	__u32 flood; // ARP mode: 0 = proxy, 1 = flood
	__u32 vxlan; // interface index of the tunnel device; 0 = none
	__u32 uplink; // interface index of the uplink; 0 = none
	__u32 underlay; // interface with the tunnel address; 0 = the VXLAN device handles all tunnel packets
	__be32 vtep, vtep_mask; // own tunnel address, and the mask of its link
	__be16 vxlan_port;
	__u16 services; // SERVICES_ANY, SERVICES_EXPOSED
	__u32 monitor; // MONITOR_LISTENS, MONITOR_DROPS, MONITOR_CONNECTIONS
	__u32 host; // interface index of contivh0; 0 = no egress
	__be32 host_ip; // its address
	__be32 private_net, private_mask; // the host-local NAT subnet
	struct addr private6; // the same for IPv6, a /96, whose last 32 bits are as in IPv4; 0 = no egress
	__u8 router[6]; // MAC of the virtual router
	__u8 routed_networks; // there are routed networks
	__u8 pad;
	__u32 mtu, uplink_mtu; // of the tunnel device and the uplink, without Ethernet header
};

#define SERVICES_ANY 1 // there are some
#define SERVICES_EXPOSED 2 // and some for clients outside

struct port {
	__u32 net, domain;
	__u32 tag;
	__u32 encap;
	__u32 identity;
	__u32 set;
	struct addr ip4, ip6; // all zero = none
	__u8 mac[6];
	__u8 diverts6, diverts; // the host takes some IPv6 or IPv4 packets to the physical router
	__be32 private_ip; // host-local NAT address; 0 = no egress
	__be32 router_ip; // of the virtual router on its network; 0 = none
	struct addr router_ip6; // the same for IPv6
	__be32 subnet, mask; // of its network; mask 0 = none
	struct addr subnet6, mask6;
	struct addr private6; // as private_ip
	__u32 slot; // of its counters
	__u16 routed; // its network is routed: the host knows it by its own addresses
	__u8 queued; // what it receives goes through its interface's queue (queue.h)
	__u8 tos; // DSCP that its packets get, without ECN bits; 0 = not marked
};

struct tag_key {
	__u32 encap, tag;
};

// segment is a tag's network, and the domain of its addresses.
struct segment {
	__u32 net, domain;
};

// tunnel_source is this host's tunnel address, as in struct station.
struct tunnel_source {
	__u32 family; // 0 = the routing table chooses
	__u8 vtep[16];
};

struct network {
	__u32 encap, tag;
	__u32 ports, vteps; // numbers of members of each kind
};

struct station_key {
	__u32 net;
	__u8 mac[6];
	__u8 pad[2];
};

struct station {
	__u32 ifindex; // 0 = on another host
	__u32 set;
	__u32 vtep_family; // 0, 4 or 6
	__u8 vtep[16]; // IPv4: the first four bytes, in host order
};

// subnet_key finds the network of a domain by an address in its subnets.
struct subnet_key {
	__u32 bits; // of what follows
	__u32 domain;
	struct addr ip;
};
#define DOMAIN_BITS 32
#define JOINED 0x10000 // domains from here on are of joined networks

struct domain_addr {
	__u32 domain; // of a link-local address the network
	struct addr ip;
};

struct endpoint {
	__u32 identity;
	__u32 ifindex; // 0 = on another host
	__u32 set;
	__u32 owner_version; // changes when the address gets another endpoint; never 0
	__u32 net;
	__u8 mac[6];
	__u8 outside_subnets; // the address is in none of its network's subnets
	__u8 pad;
};

struct member_key {
	__u32 net, kind, index; // kind: 0 = local port, 1 = VTEP
};

// joined_key says that a port receives a multicast group.
struct joined_key {
	__u32 ifindex;
	struct addr group;
};

#define DIR_IN 0
#define DIR_OUT 1
#define TIERS 5

// Of rules with equal priority the action with the higher number decides.
#define ACT_ALLOW 1
#define ACT_PASS 2
#define ACT_DENY 3
#define ACTION_SHIFT 4 // in a rule's weight, below its priority
#define ACTION_MASK 3

#define PEER_ANY 0
#define PEER_IDENTITY 1
#define PEER_CIDR4 2
#define PEER_CIDR6 3

// stage is one tier in one direction.
#define LENGTH_WORDS 4
struct stage {
	__u64 lengths[2 * LENGTH_WORDS]; // of prefixes in use: IPv4, IPv6 from 0, 64 and 128 on; of any network, then of the packet's
	__u8 tier; // in keys of its rules
	__u8 action; // where no rule matches
	__u8 kinds; // of peers in use
	__u8 pad[5];
};

struct policy_set {
	__u64 generation; // of its rules
	__u32 instance; // in keys of its rules
	__u8 tiers[2]; // number of tiers by direction
	__u8 audits; // it has rules with Log or audited sets, whose events the driver evaluates
	__u8 pad;
	struct stage stages[2][TIERS];
};

struct rule_key {
	__u32 instance;
	__u8 dir, tier, kind;
	__u8 bits; // of the address
	__u64 hi, lo; // an address; or an identity, in lo
	__u32 scope; // network id; 0 = any
	__u8 proto, port_bits;
	__u16 port;
};
#define ANY_PROTOCOL 0xff // as port_bits; each peer that has rules has such an entry

// rule is the rule of a key: one up to a generation, and one from it on.
struct rule {
	__u64 generation;
	__u64 id[2];
	__u64 ports; // under ANY_PROTOCOL: lengths of port prefixes in use, for TCP, for UDP, for others
	__u32 weight[2]; // the highest decides; 0 = there is none
};
// Bit i of a mask stands for the length 16 - i.
#define PORT_MASK_BITS 17
#define PORT_MASK 0x1ffff

struct flow {
	struct addr src, dst;
	__u16 sport, dport;
	__u8 proto, pad[3];
};

struct ct_key {
	__u32 domain; // between link-local addresses the network
	__u8 proto;
	__u8 flip; // ICMP only: direction of the request
	__u16 lo_port, hi_port;
	__u16 pad;
	struct addr lo, hi;
};

#define CT_REPLIED 1 // there was a reply
#define CT_OPEN 2 // both ends take part; of TCP, the client has acknowledged the reply
#define CT_VIA_HOST 4 // judged as going to or coming from the host
#define CT_RESET 8
#define CT_FIN 16 // of the client; CT_FIN << 1 of the other end
#define CT_FINS (CT_FIN | CT_FIN << 1)
#define CT_SERVICE 64 // it is translated
#define CT_HOST_SOCKET 128 // its client is a socket of this host

struct ct {
	__u64 seen; // coarse monotonic clock, ns
	__u64 out_rule, in_rule; // rules that allowed it; 0 = none
	__u32 version; // of the verdict: epoch and generations of both ends, added up
	__u32 lo_owner_version, hi_owner_version; // of the ends; 0 = no known endpoint
	__u32 in_ifindex; // local port that it was judged for as destination
	__u32 slot; // of a half-open one, in map slots
	__u16 owner; // whose share it counts towards
	__u8 flipped; // the original direction is from hi to lo
	__u8 state;
	__u32 ingress_host; // number of the host by which its client outside came last; 0 = none
	__u32 pad;
};

// As pad of a translation's key: as the client sends, with the client as lo. A client outside
// is never mistaken for an endpoint that gets its address later.
#define CLIENT_SIDE 1
#define CLIENT_SIDE_EXTERNAL 2

// translation is a connection to a service. It is stored under the key as the client sends
// (client_key), and under the key of the connection to the backend, with which it ends.
struct translation {
	struct ct_key client_key; // hi is the virtual address
	__u32 index; // of the backend, with EXTERNAL_BACKEND
	struct addr backend;
	__u16 nat_port, backend_port; // of the client and the backend after NAT
	__u32 conn_domain; // domain of the connection's key
	__u64 seed, id; // of the service and the backend
};

#define EXTERNAL_BACKEND 0x80000000u // the backend is no endpoint

// slot is a slot of a half-open connection.
struct slot {
	__u32 owner; // 0 = free; SLOT_TAKEN = being written
	struct ct_key key;
};

// share is how many connections an owner has; owner 0: all.
struct share {
	__u32 half, open;
};

struct frag_key {
	__u32 domain, id;
	struct addr src, dst;
	__u32 proto;
};

#define FRAG_PARTS 64

struct part {
	__u16 from, to; // bytes of the datagram
};

struct frag {
	struct flow orig;
	__u8 reply;
	__u8 pad;
	__u16 parts; // that have been forwarded
	__u32 waits; // before the first one: how many wait, in slots given by part
	__u64 seen;
	struct part part[FRAG_PARTS];
};

// forward_entry is the forwarding of packets from one address to another that come from one
// interface or tunnel.
struct forward_entry {
	__u64 addrs; // source and destination, as in the packet
	__u64 from; // origin: interface, and above that the tunnel's tag, 0 on a port
	__u64 until; // in ticks
	__u8 head[16]; // of the frame: MACs, type, and the first two bytes of IPv4 without options
	__u32 version; // epoch and generations of both ends, as in struct ct
	__u16 lo_index, hi_index; // of the generations of the ends
	__u32 domain;
	__u32 to; // output: a port or the tunnel device
	__u16 hop; // HOP_NONE, HOP_MACS or HOP_ROUTED
	__u16 vtep_family;
	__u32 tag; // of the tunnel; 0 = to a port
	__u32 tx_slot, rx_slot; // counters of the ports at both ends that are here
	__u32 underlay; // interface by which it leaves with a tunnel header of ours, 0 = none; to a port: use its queue
	__u8 vtep[16]; // as in struct station; of packets from the tunnel the sender
	__u8 macs[12]; // MACs of the frame that leaves
	__u32 tos; // DSCP of tunnel packets, without ECN bits
	__u32 pad[5];
};

// allowing_rules are the rules that allowed a connection; 0 = none.
struct allowing_rules {
	__u64 out, in;
};

// verdict_entry allows a connection's packets to use forward entries. It is one cache line.
struct verdict_entry {
	__u64 addrs; // lower address first
	__u64 id; // ports in the same order, and above that the domain
	__u64 until; // in ticks
	__u32 version; // as in struct ct
	__u8 proto;
	__u8 ways; // directions that were judged: bit 0 from the lower end, bit 1 from the higher one
	__u16 pad;
	struct allowing_rules by;
	__u64 more[2]; // so that an entry is a whole cache line
};

// nat_entry is one direction of a translated connection, with its own forward entry.
struct nat_entry {
	struct forward_entry forward; // by the packet as it comes
	struct allowing_rules by;
	__u32 ports, proto; // as in the packet
	__u64 to_addrs; // addresses after NAT
	__u32 to_ports;
	__u16 vip_index, client_index; // of the generations of the virtual address and the client
	__u16 counted, pad[3]; // index of its counter (servicecounters.h)
	__u64 more[2];
};

struct counter {
	__u64 packets, bytes;
};

struct port_counter {
	struct counter rx, tx;
};

// tally counts for one rule on one processor. What other processors counted, and this one
// before the place went to another rule, is in hits.
struct tally {
	__u64 id; // 0 = free
	struct counter n;
	__u64 seen; // in ticks, by the slow path
};

#define HOP_NONE 0
#define HOP_MACS 1 // it leaves with other MACs
#define HOP_ROUTED 2 // and with TTL - 1

#define MAP(NAME, TYPE, KEY, VALUE, MAX, FLAGS)          \
	struct {                                         \
		__uint(type, TYPE);                      \
		__type(key, KEY);                        \
		__type(value, VALUE);                    \
		__uint(max_entries, MAX);                \
		__uint(map_flags, FLAGS);                \
		__uint(pinning, LIBBPF_PIN_BY_NAME);     \
	} NAME SEC(".maps")

MAP(settings, BPF_MAP_TYPE_ARRAY, __u32, struct settings, 1, 0);
MAP(tunnel_source, BPF_MAP_TYPE_ARRAY, __u32, struct tunnel_source, 1, 0);
MAP(tunnels, BPF_MAP_TYPE_HASH, struct tunnel_source, __u32, 16384, BPF_F_NO_PREALLOC); // numbers of other hosts by tunnel address
MAP(tunnel_ends, BPF_MAP_TYPE_HASH, __u32, struct tunnel_source, 16384, BPF_F_NO_PREALLOC); // and the reverse
MAP(ports, BPF_MAP_TYPE_HASH, __u32, struct port, 4096, BPF_F_NO_PREALLOC);
MAP(privates, BPF_MAP_TYPE_HASH, __be32, __u32, 4096, BPF_F_NO_PREALLOC); // interface index by host-local NAT address
MAP(tags, BPF_MAP_TYPE_HASH, struct tag_key, struct segment, 16384, BPF_F_NO_PREALLOC);
MAP(networks, BPF_MAP_TYPE_HASH, __u32, struct network, 16384, BPF_F_NO_PREALLOC);
MAP(subnets, BPF_MAP_TYPE_LPM_TRIE, struct subnet_key, __u32, 32768, BPF_F_NO_PREALLOC); // network by address, of joined ones
MAP(natives, BPF_MAP_TYPE_LPM_TRIE, struct subnet_key, struct segment, 16384, BPF_F_NO_PREALLOC); // the same of routed networks, all in domain 0
#define NODE_LOCAL 0xffffffff
MAP(nodes, BPF_MAP_TYPE_HASH, struct addr, __u32, 65536, BPF_F_NO_PREALLOC); // host number, as in tunnels, of the node with an address; 0 = unknown
MAP(stations, BPF_MAP_TYPE_HASH, struct station_key, struct station, 131072, BPF_F_NO_PREALLOC);
MAP(hosts, BPF_MAP_TYPE_HASH, struct domain_addr, struct endpoint, 393216, BPF_F_NO_PREALLOC);
// The generation of an address counts the changes of what is there. Two addresses may share
// one; then a change of one has the other's connections judged again.
#define GENERATION_BITS 16
MAP(turns, BPF_MAP_TYPE_ARRAY, __u32, __u32, 1 << GENERATION_BITS, 0);
MAP(members, BPF_MAP_TYPE_HASH, struct member_key, struct station, 131072, BPF_F_NO_PREALLOC);
MAP(joined, BPF_MAP_TYPE_HASH, struct joined_key, __u32, 16384, BPF_F_NO_PREALLOC); // the network
MAP(sets, BPF_MAP_TYPE_HASH, __u32, struct policy_set, 4096, BPF_F_NO_PREALLOC);
MAP(rules, BPF_MAP_TYPE_HASH, struct rule_key, struct rule, 1048576, BPF_F_NO_PREALLOC);
MAP(conns, BPF_MAP_TYPE_LRU_HASH, struct ct_key, struct ct, 131072, 0); // open ones
MAP(halfopen, BPF_MAP_TYPE_HASH, struct ct_key, struct ct, 65536, 0); // all others
MAP(slots, BPF_MAP_TYPE_ARRAY, __u32, struct slot, 65536, 0); // as many as halfopen has
// The number of an owner's connections is what the programs counted (spent) less what the
// driver removed (given). Index 0 counts all.
#define OWNERS 16384
MAP(spent, BPF_MAP_TYPE_ARRAY, __u32, struct share, OWNERS, 0);
MAP(given, BPF_MAP_TYPE_ARRAY, __u32, struct share, OWNERS, 0);
MAP(swept, BPF_MAP_TYPE_ARRAY, __u32, __u64, 1, 0); // last sweep of the driver, coarse monotonic clock, ns
MAP(translations, BPF_MAP_TYPE_HASH, struct ct_key, struct translation, 524288, BPF_F_NO_PREALLOC); // two for each connection
#define ENDINGS 65536
MAP(endings, BPF_MAP_TYPE_ARRAY, __u32, __u32, ENDINGS, 0); // ended translations of a client, by generation index
MAP(frags, BPF_MAP_TYPE_LRU_HASH, struct frag_key, struct frag, 4096, 0);
MAP(hits, BPF_MAP_TYPE_LRU_PERCPU_HASH, __u64, struct counter, 32768, 0);
#define TALLIES 4096
MAP(tallies, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct tally, TALLIES, 0);
// created counts the entries that the programs made in maps that evict: an entry that is
// neither there nor was deleted has been evicted.
#define EVICTED_HALF 0 // evictions themselves, which the programs make
#define CREATED_FRAG 1
#define CREATED_HIT 2
#define CREATED_AFFINE 3
MAP(created, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, __u64, 4, 0);
MAP(drops, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, __u64, DROP_REASONS, 0);
MAP(port_counters, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct port_counter, 4096, 0);

static __always_inline void count_created(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&created, &what);
	if (n)
		*n += 1;
}
