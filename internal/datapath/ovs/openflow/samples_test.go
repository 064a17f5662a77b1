package openflow

import "net/netip"

// Sample is a flow and how it prints.
type Sample struct {
	Text string
	Flow Flow
}

var (
	ip      = netip.MustParseAddr
	subnet  = netip.MustParsePrefix
	mac2    = MAC([6]byte{2, 2, 10, 1, 1, 2})
	mac3    = MAC([6]byte{2, 2, 10, 1, 1, 3})
	unicast = MAC([6]byte{1, 0, 0, 0, 0, 0})
)

// Samples are flows that between them use every field, form and action, but for groups,
// which a switch takes only where the group exists.
var Samples = []Sample{
	{
		"table=0, priority=0 actions=drop",
		Flow{},
	},
	{
		"cookie=0xc0f1010000000007, table=0, priority=100,in_port=3,vlan_tci=0x0000/0x1fff actions=set_field:0x5->reg0,set_field:0x100->reg1,resubmit(,1)",
		Flow{Priority: 100, Cookie: 0xc0f1010000000007, Match: NewMatch(Eq(InPort, 3), Eq(VlanVID, 0)), Actions: []Action{Set(Reg0, 5), Set(Reg1, 256), Resubmit{1}}},
	},
	{
		"table=0, priority=100,in_port=LOCAL,dl_vlan=100 actions=pop_vlan,resubmit(,2)",
		Flow{Priority: 100, Match: NewMatch(Eq(InPort, PortLocal), Eq(VlanVID, 0x1000|100)), Actions: []Action{PopVLAN{}, Resubmit{2}}},
	},
	{
		"table=0, priority=100,in_port=4,vlan_tci=0x1000/0x1000 actions=IN_PORT,LOCAL,output:7",
		Flow{Priority: 100, Match: NewMatch(Eq(InPort, 4), Masked(VlanVID, Uint(0x1000), Uint(0x1000))), Actions: []Action{Output{PortInPort}, Output{PortLocal}, Output{7}}},
	},
	{
		"table=0, priority=99,tun_id=0x2711,tun_src=1.2.3.4,in_port=2 actions=set_field:0x2711->tun_id,set_field:1.2.3.4->tun_dst,set_field:fd00::1->tun_ipv6_dst,output:NXM_NX_REG5[]",
		Flow{Priority: 99, Match: NewMatch(Eq(TunID, 0x2711), EqAddr(TunSrc, ip("1.2.3.4")), Eq(InPort, 2)), Actions: []Action{Set(TunID, 0x2711), SetField{TunDst, Addr(ip("1.2.3.4"))}, SetField{TunIPv6Dst, Addr(ip("fd00::1"))}, OutputReg{Reg5}}},
	},
	{
		"table=0, priority=97,in_port=2,pkt_mark=0xc0ffee77 actions=drop",
		Flow{Priority: 97, Match: NewMatch(Eq(InPort, 2), Eq(PktMark, 0xc0ffee77))},
	},
	{
		"table=0, priority=98,tun_ipv6_src=fd00::/64,in_port=2 actions=drop",
		Flow{Priority: 98, Match: NewMatch(InPrefix(TunIPv6Src, subnet("fd00::/64")), Eq(InPort, 2))},
	},
	{
		"table=0, priority=96,in_port=3,ip actions=set_field:46->ip_dscp,resubmit(,1)",
		Flow{Priority: 96, Match: NewMatch(Eq(InPort, 3), Eq(EthType, 0x0800)), Actions: []Action{Set(IPDSCP, 46), Resubmit{1}}},
	},
	{
		"table=0, priority=96,in_port=3,ipv6 actions=set_field:46->ip_dscp,resubmit(,1)",
		Flow{Priority: 96, Match: NewMatch(Eq(InPort, 3), Eq(EthType, 0x86dd)), Actions: []Action{Set(IPDSCP, 46), Resubmit{1}}},
	},
	{
		"table=1, priority=5,in_port=3,dl_src=02:02:0a:01:01:02,arp,arp_op=1,arp_spa=10.1.1.2,arp_tpa=10.0.0.0/8,arp_sha=02:02:0a:01:01:02 actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],set_field:02:02:0a:01:01:03->eth_src,set_field:2->arp_op,move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],set_field:02:02:0a:01:01:03->arp_sha,move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],set_field:10.1.1.3->arp_spa,IN_PORT",
		Flow{Table: 1, Priority: 5, Match: NewMatch(Eq(InPort, 3), EqValue(EthSrc, mac2), Eq(EthType, 0x0806), Eq(ArpOp, 1), EqAddr(ArpSpa, ip("10.1.1.2")), InPrefix(ArpTpa, subnet("10.0.0.0/8")), EqValue(ArpSha, mac2)), Actions: []Action{Move{From: EthSrc, To: EthDst}, SetField{EthSrc, mac3}, Set(ArpOp, 2), Move{From: ArpSha, To: ArpTha}, SetField{ArpSha, mac3}, Move{From: ArpSpa, To: ArpTpa}, SetField{ArpSpa, Addr(ip("10.1.1.3"))}, Output{PortInPort}}},
	},
	{
		"table=1, priority=6,reg0=0x3,icmp6,icmpv6_type=135,icmpv6_code=0,nd_target=fd00::2,nd_sll=02:00:00:00:00:01 actions=move:NXM_NX_IPV6_SRC[]->NXM_NX_IPV6_DST[],set_field:fd00::2->ipv6_src,set_field:136->icmpv6_type,set_field:2->nd_options_type,set_field:1610612736->nd_reserved,resubmit(,2)",
		Flow{Table: 1, Priority: 6, Match: NewMatch(Eq(Reg0, 3), Eq(EthType, 0x86dd), Eq(IPProto, 58), Eq(ICMPv6Type, 135), Eq(ICMPv6Code, 0), EqAddr(NdTarget, ip("fd00::2")), EqValue(NdSll, MAC([6]byte{2, 0, 0, 0, 0, 1}))), Actions: []Action{Move{From: IPv6Src, To: IPv6Dst}, SetField{IPv6Src, Addr(ip("fd00::2"))}, Set(ICMPv6Type, 136), Set(NdOptionsType, 2), Set(NdReserved, 0x60000000), Resubmit{2}}},
	},
	{
		"table=2, priority=6,icmp6,icmpv6_type=136,nd_target=fd00::2 actions=set_field:02:02:0a:01:01:02->nd_tll,IN_PORT",
		Flow{Table: 2, Priority: 6, Match: NewMatch(Eq(EthType, 0x86dd), Eq(IPProto, 58), Eq(ICMPv6Type, 136), EqAddr(NdTarget, ip("fd00::2"))), Actions: []Action{SetField{NdTll, mac2}, Output{PortInPort}}},
	},
	{
		"table=3, priority=300,ct_state=+new-inv+trk,ct_nw_src=10.0.0.0/8,ct_nw_proto=6,ct_tp_dst=0x50/0xfff0,reg3=0x1,ip actions=ct(commit,zone=NXM_NX_REG0[0..15]),resubmit(,9)",
		Flow{Table: 3, Priority: 300, Match: NewMatch(State(StateNew|StateTrk, StateInv), InPrefix(CtNwSrc, subnet("10.0.0.0/8")), Eq(CtNwProto, 6), Masked(CtTpDst, Uint(80), Uint(0xfff0)), Eq(Reg3, 1), Eq(EthType, 0x0800)), Actions: []Action{CT{ZoneField: Reg0, Commit: true}, Resubmit{9}}},
	},
	{
		"table=3, priority=301,ct_state=-inv+trk,ct_ipv6_dst=fd00::/8,ct_nw_proto=58,ipv6 actions=ct(table=4,zone=NXM_NX_REG0[0..15])",
		Flow{Table: 3, Priority: 301, Match: NewMatch(State(StateTrk, StateInv), InPrefix(CtIPv6Dst, subnet("fd00::/8")), Eq(CtNwProto, 58), Eq(EthType, 0x86dd)), Actions: []Action{CT{ZoneField: Reg0, Recirc: true, Table: 4}}},
	},
	{
		"table=3, priority=302,ct_state=+rpl+trk,ct_zone=7,ct_mark=0x1/0xf,ip actions=move:NXM_NX_REG1[]->NXM_NX_REG8[]",
		Flow{Table: 3, Priority: 302, Match: NewMatch(State(StateRpl|StateTrk, 0), Eq(CtZone, 7), Masked(CtMark, Uint(1), Uint(15)), Eq(EthType, 0x0800)), Actions: []Action{Move{From: Reg1, To: Reg8}}},
	},
	{
		"table=3, priority=303,ct_state=+est+trk,ct_nw_dst=10.0.0.0/8,ct_nw_proto=17,ct_tp_src=53,ip actions=drop",
		Flow{Table: 3, Priority: 303, Match: NewMatch(State(StateEst|StateTrk, 0), InPrefix(CtNwDst, subnet("10.0.0.0/8")), Eq(CtNwProto, 17), Eq(CtTpSrc, 53), Eq(EthType, 0x0800))},
	},
	{
		"table=3, priority=304,ct_state=+new+trk,ip actions=ct(commit,zone=NXM_NX_REG0[0..15],nat(src=172.19.0.1)),ct(commit,zone=NXM_NX_REG0[0..15],nat(dst=10.1.1.2)),ct(table=4,zone=NXM_NX_REG0[0..15],nat)",
		Flow{Table: 3, Priority: 304, Match: NewMatch(State(StateNew|StateTrk, 0), Eq(EthType, 0x0800)), Actions: []Action{CT{ZoneField: Reg0, Commit: true, NAT: NATSrc, To: ip("172.19.0.1")}, CT{ZoneField: Reg0, Commit: true, NAT: NATDst, To: ip("10.1.1.2")}, CT{ZoneField: Reg0, Recirc: true, Table: 4, NAT: NATKnown}}},
	},
	{
		"table=3, priority=305,ct_state=+new+trk,ipv6 actions=ct(commit,zone=NXM_NX_REG0[0..15],nat(src=fd00::ac13:1)),ct(commit,table=4,zone=NXM_NX_REG0[0..15],nat(dst=fd00::2))",
		Flow{Table: 3, Priority: 305, Match: NewMatch(State(StateNew|StateTrk, 0), Eq(EthType, 0x86dd)), Actions: []Action{CT{ZoneField: Reg0, Commit: true, NAT: NATSrc, To: ip("fd00::ac13:1")}, CT{ZoneField: Reg0, Commit: true, Recirc: true, Table: 4, NAT: NATDst, To: ip("fd00::2")}}},
	},
	{
		"table=3, priority=305,udp actions=ct(commit,force,table=4,zone=NXM_NX_REG0[0..15])",
		Flow{Table: 3, Priority: 305, Match: NewMatch(Eq(EthType, 0x0800), Eq(IPProto, 17)), Actions: []Action{CT{ZoneField: Reg0, Commit: true, Force: true, Recirc: true, Table: 4}}},
	},
	{
		"table=3, priority=305,tcp actions=ct(commit,table=4,zone=NXM_NX_REG8[0..15],nat(dst=10.1.1.2:8080),exec(set_field:0x1->ct_mark))",
		Flow{Table: 3, Priority: 305, Match: NewMatch(Eq(EthType, 0x0800), Eq(IPProto, 6)), Actions: []Action{CT{ZoneField: Reg8, Commit: true, Recirc: true, Table: 4, NAT: NATDst, To: ip("10.1.1.2"), Port: 8080, Mark: 1}}},
	},
	{
		"table=3, priority=306,tcp6 actions=ct(commit,table=4,zone=NXM_NX_REG8[0..15],nat(dst=[fd00::2]:8080)),ct(commit,zone=NXM_NX_REG8[0..15],exec(set_field:0x7->ct_mark))",
		Flow{Table: 3, Priority: 306, Match: NewMatch(Eq(EthType, 0x86dd), Eq(IPProto, 6)), Actions: []Action{CT{ZoneField: Reg8, Commit: true, Recirc: true, Table: 4, NAT: NATDst, To: ip("fd00::2"), Port: 8080}, CT{ZoneField: Reg8, Commit: true, Mark: 7}}},
	},
	{
		"table=3, priority=306,ct_label=0xc0a80702,udp actions=ct(commit,table=4,zone=NXM_NX_REG8[0..15],exec(set_field:0x2->ct_mark,move:NXM_NX_TUN_IPV4_SRC[]->NXM_NX_CT_LABEL[0..31])),ct(commit,zone=NXM_NX_REG8[0..15],exec(move:NXM_NX_TUN_IPV6_SRC[]->NXM_NX_CT_LABEL[]))",
		Flow{Table: 3, Priority: 306, Match: NewMatch(Eq(CtLabel, 0xc0a80702), Eq(EthType, 0x0800), Eq(IPProto, 17)), Actions: []Action{CT{ZoneField: Reg8, Commit: true, Recirc: true, Table: 4, Mark: 2, Label: TunSrc}, CT{ZoneField: Reg8, Commit: true, Label: TunIPv6Src}}},
	},
	{
		"table=3, priority=306,ct_label=0xfd000000000000000000000000000001,ipv6 actions=drop",
		Flow{Table: 3, Priority: 306, Match: NewMatch(EqValue(CtLabel, Value{0xfd00000000000000, 0x1}), Eq(EthType, 0x86dd))},
	},
	{
		"table=3, priority=307,tcp actions=learn(table=6,idle_timeout=100,priority=9,cookie=0xc0f3000000000007,limit=16384,eth_type=0x800,NXM_NX_REG7[],NXM_OF_IP_SRC[],load:NXM_OF_IP_DST[]->NXM_NX_REG12[])",
		Flow{Table: 3, Priority: 307, Match: NewMatch(Eq(EthType, 0x0800), Eq(IPProto, 6)), Actions: []Action{Learn{Table: 6, Priority: 9, Idle: 100, Limit: 16384, Cookie: 0xc0f3000000000007, EthType: 0x800, Same: Reg7, At: NwSrc, From: NwSrc, Load: NwDst, Into: Reg12}}},
	},
	{
		"table=3, priority=308,tcp6 actions=learn(table=6,idle_timeout=65535,priority=9,cookie=0xc0f3000000000007,limit=1,eth_type=0x86dd,NXM_NX_REG7[],NXM_NX_IPV6_SRC[]=NXM_NX_IPV6_DST[],load:NXM_NX_IPV6_DST[]->NXM_NX_XXREG3[])",
		Flow{Table: 3, Priority: 308, Match: NewMatch(Eq(EthType, 0x86dd), Eq(IPProto, 6)), Actions: []Action{Learn{Table: 6, Priority: 9, Idle: 65535, Limit: 1, Cookie: 0xc0f3000000000007, EthType: 0x86dd, Same: Reg7, At: IPv6Src, From: IPv6Dst, Load: IPv6Dst, Into: XXReg3}}},
	},
	{
		"table=4, priority=1,tcp,tp_src=80,tp_dst=0x1f00/0xff00,tcp_flags=-syn+ack actions=drop",
		Flow{Table: 4, Priority: 1, Match: NewMatch(Eq(EthType, 0x0800), Eq(IPProto, 6), Eq(TCPSrc, 80), Masked(TCPDst, Uint(0x1f00), Uint(0xff00)), Masked(TCPFlags, Uint(16), Uint(18)))},
	},
	{
		"table=4, priority=2,udp,tp_src=53,tp_dst=54 actions=drop",
		Flow{Table: 4, Priority: 2, Match: NewMatch(Eq(EthType, 0x0800), Eq(IPProto, 17), Eq(UDPSrc, 53), Eq(UDPDst, 54))},
	},
	{
		"table=4, priority=3,udp6,tp_src=53 actions=drop",
		Flow{Table: 4, Priority: 3, Match: NewMatch(Eq(EthType, 0x86dd), Eq(IPProto, 17), Eq(UDPSrc, 53))},
	},
	{
		"table=4, priority=4,sctp,tp_dst=54 actions=drop",
		Flow{Table: 4, Priority: 4, Match: NewMatch(Eq(EthType, 0x0800), Eq(IPProto, 132), Eq(SCTPDst, 54))},
	},
	{
		"table=4, priority=5,ip,nw_proto=47,nw_frag=later,nw_src=1.2.3.4,nw_dst=1.2.0.0/16 actions=drop",
		Flow{Table: 4, Priority: 5, Match: NewMatch(Eq(EthType, 0x0800), Eq(IPProto, 47), Eq(IPFrag, 3), EqAddr(NwSrc, ip("1.2.3.4")), InPrefix(NwDst, subnet("1.2.0.0/16")))},
	},
	{
		"table=4, priority=6,ipv6,nw_frag=no,ipv6_src=fe80::/10,ipv6_dst=ff00::/8 actions=drop",
		Flow{Table: 4, Priority: 6, Match: NewMatch(Eq(EthType, 0x86dd), Eq(IPFrag, 0), InPrefix(IPv6Src, subnet("fe80::/10")), InPrefix(IPv6Dst, subnet("ff00::/8")))},
	},
	{
		"table=4, priority=7,icmp,icmp_type=3,icmp_code=4 actions=drop",
		Flow{Table: 4, Priority: 7, Match: NewMatch(Eq(EthType, 0x0800), Eq(IPProto, 1), Eq(ICMPType, 3), Eq(ICMPCode, 4))},
	},
	{
		"table=5, priority=1,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00 actions=push_vlan:0x8100,set_field:4196->vlan_vid,output:3,pop_vlan",
		Flow{Table: 5, Priority: 1, Match: NewMatch(Masked(EthDst, unicast, unicast)), Actions: []Action{PushVLAN{}, Set(VlanVID, 0x1000|100), Output{3}, PopVLAN{}}},
	},
	{
		"table=5, priority=2,dl_type=0x88cc actions=drop",
		Flow{Table: 5, Priority: 2, Match: NewMatch(Eq(EthType, 0x88cc))},
	},
	{
		"table=5, priority=3,reg15=0x1/0xff,metadata=0x5 actions=drop",
		Flow{Table: 5, Priority: 3, Match: NewMatch(Masked(Reg15, Uint(1), Uint(255)), Eq(Metadata, 5))},
	},
	{
		"table=5, priority=4,arp,arp_tha=02:02:0a:01:01:02 actions=drop",
		Flow{Table: 5, Priority: 4, Match: NewMatch(Eq(EthType, 0x0806), EqValue(ArpTha, mac2))},
	},
	{
		"table=5, priority=5,tcp actions=move:NXM_OF_TCP_SRC[]->NXM_OF_TCP_DST[],set_field:10.1.1.1->ip_dst",
		Flow{Table: 5, Priority: 5, Match: NewMatch(Eq(EthType, 0x0800), Eq(IPProto, 6)), Actions: []Action{Move{From: TCPSrc, To: TCPDst}, SetField{NwDst, Addr(ip("10.1.1.1"))}}},
	},
	{
		"table=5, priority=7,udp actions=CONTROLLER:128,set_field:0x7->reg15",
		Flow{Table: 5, Priority: 7, Match: NewMatch(Eq(EthType, 0x0800), Eq(IPProto, 17)), Actions: []Action{Controller{MaxLen: 128}, Set(Reg15, 7)}},
	},
	{
		"table=5, priority=8,ip,nw_ttl=1 actions=meter:3,CONTROLLER:1300",
		Flow{Table: 5, Priority: 8, Match: NewMatch(Eq(EthType, 0x0800), Eq(IPTTL, 1)), Actions: []Action{Meter{3}, Controller{MaxLen: 1300}}},
	},
	{
		"table=5, priority=9,ip actions=dec_ttl,output:2",
		Flow{Table: 5, Priority: 9, Match: NewMatch(Eq(EthType, 0x0800)), Actions: []Action{DecTTL{}, Output{2}}},
	},
	{
		"table=5, priority=9,ipv6 actions=check_pkt_larger(1464)->NXM_NX_REG5[0],resubmit(,6)",
		Flow{Table: 5, Priority: 9, Match: NewMatch(Eq(EthType, 0x86dd)), Actions: []Action{CheckLarger{1464, Reg5}, Resubmit{6}}},
	},
	{
		"table=5, priority=10,udp actions=move:OXM_OF_IN_PORT[]->NXM_NX_REG8[]",
		Flow{Table: 5, Priority: 10, Match: NewMatch(Eq(EthType, 0x0800), Eq(IPProto, 17)), Actions: []Action{Move{From: InPort, To: Reg8}}},
	},
	{
		"table=5, priority=10,ct_state=-inv+trk,udp actions=move:NXM_NX_CT_TP_DST[]->NXM_NX_REG9[16..31]",
		Flow{Table: 5, Priority: 10, Match: NewMatch(State(StateTrk, StateInv), Eq(EthType, 0x0800), Eq(IPProto, 17)), Actions: []Action{Move{From: CtTpDst, To: Reg9, At: 16}}},
	},
	{
		"table=5, priority=11,udp actions=controller(max_len=128,meter_id=256)",
		Flow{Table: 5, Priority: 11, Match: NewMatch(Eq(EthType, 0x0800), Eq(IPProto, 17)), Actions: []Action{Controller{MaxLen: 128, Meter: 256}}},
	},
	{
		"table=5, priority=6,icmp6,icmpv6_type=136,nd_tll=02:02:0a:01:01:02 actions=drop",
		Flow{Table: 5, Priority: 6, Match: NewMatch(Eq(EthType, 0x86dd), Eq(IPProto, 58), Eq(ICMPv6Type, 136), EqValue(NdTll, mac2))},
	},
}

// grouped leads to a group.
var grouped = Sample{
	"table=3, priority=309,tcp actions=group:7",
	Flow{Table: 3, Priority: 309, Match: NewMatch(Eq(EthType, 0x0800), Eq(IPProto, 6)), Actions: []Action{GroupAction{7}}},
}
