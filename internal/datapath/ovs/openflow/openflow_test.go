package openflow

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// samples are flows that between them use every field, form and action.
var samples = []string{
	"table=0, priority=0 actions=drop",
	"cookie=0xc0f1010000000007, table=0, priority=100,in_port=3,vlan_tci=0x0000/0x1fff actions=set_field:0x5->reg0,set_field:0x100->reg1,resubmit(,1)",
	"table=0, priority=100,in_port=LOCAL,dl_vlan=100 actions=pop_vlan,resubmit(,2)",
	"table=0, priority=100,in_port=4,vlan_tci=0x1000/0x1000 actions=IN_PORT,LOCAL,output:7",
	"table=0, priority=99,tun_id=0x2711,tun_src=1.2.3.4,in_port=2 actions=set_field:0x2711->tun_id,set_field:1.2.3.4->tun_dst,set_field:fd00::1->tun_ipv6_dst,output:NXM_NX_REG5[]",
	"table=0, priority=97,in_port=2,pkt_mark=0xc0ffee77 actions=drop",
	"table=0, priority=98,tun_ipv6_src=fd00::/64,in_port=2 actions=drop",
	"table=0, priority=96,in_port=3,ip actions=set_field:46->ip_dscp,resubmit(,1)",
	"table=0, priority=96,in_port=3,ipv6 actions=set_field:46->ip_dscp,resubmit(,1)",
	"table=1, priority=5,in_port=3,dl_src=02:02:0a:01:01:02,arp,arp_op=1,arp_spa=10.1.1.2,arp_tpa=10.0.0.0/8,arp_sha=02:02:0a:01:01:02 actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],set_field:02:02:0a:01:01:03->eth_src,set_field:2->arp_op,move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],set_field:02:02:0a:01:01:03->arp_sha,move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],set_field:10.1.1.3->arp_spa,IN_PORT",
	"table=1, priority=6,reg0=0x3,icmp6,icmpv6_type=135,icmpv6_code=0,nd_target=fd00::2,nd_sll=02:00:00:00:00:01 actions=move:NXM_NX_IPV6_SRC[]->NXM_NX_IPV6_DST[],set_field:fd00::2->ipv6_src,set_field:136->icmpv6_type,set_field:2->nd_options_type,set_field:1610612736->nd_reserved,resubmit(,2)",
	"table=2, priority=6,icmp6,icmpv6_type=136,nd_target=fd00::2 actions=set_field:02:02:0a:01:01:02->nd_tll,IN_PORT",
	"table=3, priority=300,ct_state=+new-inv+trk,ct_nw_src=10.0.0.0/8,ct_nw_proto=6,ct_tp_dst=0x50/0xfff0,reg3=0x1,ip actions=ct(commit,zone=NXM_NX_REG0[0..15]),resubmit(,9)",
	"table=3, priority=301,ct_state=-inv+trk,ct_ipv6_dst=fd00::/8,ct_nw_proto=58,ipv6 actions=ct(table=4,zone=NXM_NX_REG0[0..15])",
	"table=3, priority=302,ct_state=+rpl+trk,ct_zone=7,ct_mark=0x1/0xf,ip actions=move:NXM_NX_REG1[]->NXM_NX_REG8[]",
	"table=3, priority=303,ct_state=+est+trk,ct_nw_dst=10.0.0.0/8,ct_nw_proto=17,ct_tp_src=53,ip actions=drop",
	"table=3, priority=304,ct_state=+new+trk,ip actions=ct(commit,zone=NXM_NX_REG0[0..15],nat(src=172.19.0.1)),ct(commit,zone=NXM_NX_REG0[0..15],nat(dst=10.1.1.2)),ct(table=4,zone=NXM_NX_REG0[0..15],nat)",
	"table=3, priority=305,ct_state=+new+trk,ipv6 actions=ct(commit,zone=NXM_NX_REG0[0..15],nat(src=fd00::ac13:1)),ct(commit,table=4,zone=NXM_NX_REG0[0..15],nat(dst=fd00::2))",
	"table=3, priority=305,udp actions=ct(commit,force,table=4,zone=NXM_NX_REG0[0..15])",
	"table=3, priority=305,tcp actions=ct(commit,table=4,zone=NXM_NX_REG8[0..15],nat(dst=10.1.1.2:8080),exec(set_field:0x1->ct_mark))",
	"table=3, priority=306,tcp6 actions=ct(commit,table=4,zone=NXM_NX_REG8[0..15],nat(dst=[fd00::2]:8080)),ct(commit,zone=NXM_NX_REG8[0..15],exec(set_field:0x7->ct_mark))",
	"table=3, priority=306,ct_label=0xc0a80702,udp actions=ct(commit,table=4,zone=NXM_NX_REG8[0..15],exec(set_field:0x2->ct_mark,move:NXM_NX_TUN_IPV4_SRC[]->NXM_NX_CT_LABEL[0..31])),ct(commit,zone=NXM_NX_REG8[0..15],exec(move:NXM_NX_TUN_IPV6_SRC[]->NXM_NX_CT_LABEL[]))",
	"table=3, priority=306,ct_label=0xfd000000000000000000000000000001,ipv6 actions=drop",
	"table=3, priority=307,tcp actions=learn(table=6,idle_timeout=100,priority=9,cookie=0xc0f3000000000007,limit=16384,eth_type=0x800,NXM_NX_REG7[],NXM_OF_IP_SRC[],load:NXM_OF_IP_DST[]->NXM_NX_REG12[])",
	"table=3, priority=308,tcp6 actions=learn(table=6,idle_timeout=65535,priority=9,cookie=0xc0f3000000000007,limit=1,eth_type=0x86dd,NXM_NX_REG7[],NXM_NX_IPV6_SRC[]=NXM_NX_IPV6_DST[],load:NXM_NX_IPV6_DST[]->NXM_NX_XXREG3[])",
	"table=4, priority=1,tcp,tp_src=80,tp_dst=0x1f00/0xff00,tcp_flags=-syn+ack actions=drop",
	"table=4, priority=2,udp,tp_src=53,tp_dst=54 actions=drop",
	"table=4, priority=3,udp6,tp_src=53 actions=drop",
	"table=4, priority=4,sctp,tp_dst=54 actions=drop",
	"table=4, priority=5,ip,nw_proto=47,nw_frag=later,nw_src=1.2.3.4,nw_dst=1.2.0.0/16 actions=drop",
	"table=4, priority=6,ipv6,nw_frag=no,ipv6_src=fe80::/10,ipv6_dst=ff00::/8 actions=drop",
	"table=4, priority=7,icmp,icmp_type=3,icmp_code=4 actions=drop",
	"table=5, priority=1,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00 actions=push_vlan:0x8100,set_field:4196->vlan_vid,output:3,pop_vlan",
	"table=5, priority=2,dl_type=0x88cc actions=drop",
	"table=5, priority=3,reg15=0x1/0xff,metadata=0x5 actions=drop",
	"table=5, priority=4,arp,arp_tha=02:02:0a:01:01:02 actions=drop",
	"table=5, priority=5,tcp actions=move:NXM_OF_TCP_SRC[]->NXM_OF_TCP_DST[],set_field:10.1.1.1->ip_dst",
	"table=5, priority=7,udp actions=CONTROLLER:128,set_field:0x7->reg15",
	"table=5, priority=8,ip,nw_ttl=1 actions=meter:3,CONTROLLER:1300",
	"table=5, priority=9,ip actions=dec_ttl,output:2",
	"table=5, priority=9,ipv6 actions=check_pkt_larger(1464)->NXM_NX_REG5[0],resubmit(,6)",
	"table=5, priority=10,udp actions=move:OXM_OF_IN_PORT[]->NXM_NX_REG8[]",
	"table=5, priority=10,ct_state=-inv+trk,udp actions=move:NXM_NX_CT_TP_DST[]->NXM_NX_REG9[16..31]",
	"table=5, priority=11,udp actions=controller(max_len=128,meter_id=256)",
	"table=5, priority=6,icmp6,icmpv6_type=136,nd_tll=02:02:0a:01:01:02 actions=drop",
}

// TestTextRoundTrip checks that parsing and printing are inverse, and that the
// wire form carries all of a flow.
func TestTextRoundTrip(t *testing.T) {
	for _, s := range append(samples, "table=3, priority=309,tcp actions=group:7") {
		f, err := ParseFlow(s)
		if err != nil {
			t.Errorf("parse: %v", err)
			continue
		}
		if diff := cmp.Diff(s, f.String()); diff != "" {
			t.Errorf("text (-want +got):\n%s", diff)
		}
		g, err := FromParts(f.Key(), f.Body())
		if err != nil {
			t.Errorf("wire form of %s: %v", s, err)
			continue
		}
		if diff := cmp.Diff(s, g.String()); diff != "" {
			t.Errorf("wire (-want +got):\n%s", diff)
		}
	}
}

// FuzzFlowStats feeds foreign bytes to the decoder of flow dumps: it must not
// panic, and what it accepts must print, parse and encode alike.
func FuzzFlowStats(f *testing.F) {
	for _, s := range samples {
		fl, err := ParseFlow(s)
		if err != nil {
			f.Fatal(err)
		}
		e := make([]byte, 48)
		e[2], e[12], e[13] = fl.Table, byte(fl.Priority>>8), byte(fl.Priority)
		e = appendInstructions(fl.Match.appendWire(e), fl.Actions)
		e[0], e[1] = byte(len(e)>>8), byte(len(e))
		f.Add(e)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = readFlowStats(b, false, func(s FlowStats) {
			if s.Err != nil {
				return
			}
			g, err := FromParts(s.Flow.Key(), s.Flow.Body())
			if err != nil {
				t.Fatalf("own encoding of %s: %v", s.Flow, err)
			}
			if g.Key() != s.Flow.Key() || g.Body() != s.Flow.Body() || g.String() != s.Flow.String() {
				t.Fatalf("decoded %s, again %s", s.Flow, g)
			}
		})
	})
}

// FuzzParseFlow checks that the text parser never panics and that what it
// accepts survives the wire.
func FuzzParseFlow(f *testing.F) {
	for _, s := range samples {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		fl, err := ParseFlow(s)
		if err != nil {
			return
		}
		g, err := FromParts(fl.Key(), fl.Body())
		if err != nil || g.String() != fl.String() {
			t.Fatalf("%q: parsed %s, through the wire %s: %v", s, fl, g, err)
		}
	})
}

// FuzzPacketIn feeds foreign bytes to the decoder of packets that the switch
// sends up: it must not panic.
func FuzzPacketIn(f *testing.F) {
	m := NewMatch(Eq(InPort, 3), Eq(Reg0, 7), Eq(Reg15, 0xffffffff)).appendWire(nil)
	b := append(append(make([]byte, 16), m...), 0, 0, 'f', 'r', 'a', 'm', 'e')
	b[7], b[15] = 12, 5
	p, err := readPacketIn(b)
	if err != nil || p.Table != 12 || p.Cookie != 5 || string(p.Frame) != "frame" ||
		p.Register(InPort) != 3 || p.Register(Reg0) != 7 || p.Register(Reg15) != 0xffffffff || p.Register(Reg1) != 0 {
		f.Errorf("%x was read as %+v, %v", b, p, err)
	}
	f.Add(b)
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = readPacketIn(b)
	})
}
