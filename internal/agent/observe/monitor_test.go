package observe

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// Events get the names of endpoints, groups, policies and rules.
func TestFlowNames(t *testing.T) {
	net := model.NetworkKey{Tenant: "blue", Name: "net"}
	a, b := netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("10.1.1.3")
	each := func(_ store.Revision, network func(model.Network), endpoint func(model.Endpoint)) store.Revision {
		network(model.Network{Key: net, ID: 7})
		endpoint(model.Endpoint{Key: model.EndpointKey{Network: net, ID: "e1"}, Group: "web", Container: "c1", IPv4: a})
		endpoint(model.Endpoint{Key: model.EndpointKey{Network: net, ID: "e2"}, IPv4: b, MAC: model.MAC{2, 0, 0, 0, 0, 3}})
		return 1
	}
	n := &flowNames{each: each, host: "h1"}
	at := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	zero := 0
	for _, tc := range []struct {
		in   driver.FlowEvent
		want api.FlowEvent
	}{
		{
			driver.FlowEvent{
				Time: at, Kind: driver.FlowDrop, Count: 3, Reason: driver.DropPolicy, Network: 7, Src: a, Dst: b, Proto: model.ProtoTCP, SrcPort: 1000, DstPort: 80,
				Decisions: []driver.Decision{{Direction: model.In, Rule: "blue:p:r"}},
			},
			api.FlowEvent{
				Time: at, Host: "h1", Event: "drop", Count: 3, Verdict: "deny", Reason: "policy", Tenant: "blue", Network: "net", Protocol: "tcp", Direction: "in",
				From:      api.FlowPeer{Endpoint: "blue:net:e1", Container: "c1", Group: "blue:web", Address: "10.1.1.2", Port: 1000},
				To:        api.FlowPeer{Endpoint: "blue:net:e2", Address: "10.1.1.3", Port: 80},
				Decisions: []api.FlowRule{{Direction: "in", Rule: "r", Policy: "blue:p"}},
			},
		},
		{
			driver.FlowEvent{
				Time: at, Kind: driver.FlowDrop, Count: 1, Reason: driver.DropPolicy, Network: 7, Src: model.MAC{2, 0, 0, 0, 0, 3}.LinkLocal(), Dst: netip.MustParseAddr("fd00::9"), Proto: model.ProtoICMPv6,
				Decisions: []driver.Decision{{Direction: model.Out, Tier: model.TierKubernetes}},
			},
			api.FlowEvent{
				Time: at, Host: "h1", Event: "drop", Count: 1, Verdict: "deny", Reason: "policy", Tenant: "blue", Network: "net", Protocol: "icmp6", ICMPType: &zero, Direction: "out",
				From:      api.FlowPeer{Endpoint: "blue:net:e2", Address: "fe80::ff:fe00:3"},
				To:        api.FlowPeer{Address: "fd00::9"},
				Decisions: []api.FlowRule{{Direction: "out", Default: "kubernetes"}},
			},
		},
		{
			driver.FlowEvent{
				Time: at, Kind: driver.FlowConnection, Count: 1, Network: 9, Src: a, Dst: b, Proto: model.ProtoSCTP, SrcMAC: model.MAC{2, 1},
				Decisions: []driver.Decision{{Direction: model.Out}, {Direction: model.In, Rule: "shut/blue:web"}},
			},
			api.FlowEvent{
				Time: at, Host: "h1", Event: "connection", Count: 1, Verdict: "allow", Protocol: "sctp",
				From: api.FlowPeer{Address: "10.1.1.2", MAC: "02:01:00:00:00:00"}, To: api.FlowPeer{Address: "10.1.1.3"},
				Decisions: []api.FlowRule{{Direction: "out"}, {Direction: "in", Rule: "shut/blue:web"}},
			},
		},
		{
			driver.FlowEvent{Time: at, Kind: driver.FlowDrop, Count: 1, Reason: driver.DropPolicy, Proto: model.AnyProtocol, Decisions: []driver.Decision{{Direction: model.In}}},
			api.FlowEvent{
				Time: at, Host: "h1", Event: "drop", Count: 1, Verdict: "deny", Reason: "policy", Direction: "in",
				Decisions: []api.FlowRule{{Direction: "in", Default: "closed"}},
			},
		},
		{
			driver.FlowEvent{
				Time: at, Kind: driver.FlowLogged, Count: 1, Proto: model.ProtoTCP,
				Decisions: []driver.Decision{{Direction: model.In, Rule: "blue:p:r", Action: model.Deny}},
			},
			api.FlowEvent{
				Time: at, Host: "h1", Event: "logged", Count: 1, Verdict: "deny", Protocol: "tcp",
				Decisions: []api.FlowRule{{Direction: "in", Rule: "r", Policy: "blue:p"}},
			},
		},
		{
			driver.FlowEvent{
				Time: at, Kind: driver.FlowWouldDeny, Count: 1, Proto: model.ProtoTCP, Policy: "blue:q",
				Decisions: []driver.Decision{{Direction: model.Out, Tier: model.TierKubernetes}},
			},
			api.FlowEvent{
				Time: at, Host: "h1", Event: "would-deny", Count: 1, Verdict: "allow", Audited: "blue:q", Protocol: "tcp",
				Decisions: []api.FlowRule{{Direction: "out", Default: "kubernetes"}},
			},
		},
		{
			driver.FlowEvent{
				Time: at, Kind: driver.FlowWouldAllow, Count: 1, Proto: model.ProtoTCP, Policy: "blue:q",
				Decisions: []driver.Decision{{Direction: model.In}},
			},
			api.FlowEvent{
				Time: at, Host: "h1", Event: "would-allow", Count: 1, Verdict: "deny", Audited: "blue:q", Protocol: "tcp",
				Decisions: []api.FlowRule{{Direction: "in"}},
			},
		},
		{driver.FlowEvent{Time: at, Kind: driver.FlowLost, Count: 9}, api.FlowEvent{Time: at, Host: "h1", Event: "lost", Count: 9}},
	} {
		if diff := cmp.Diff(tc.want, n.resolve(tc.in)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// Whoever watches gets what concerns him, and hears how much he was too slow for.
func TestWatchers(t *testing.T) {
	ws := newWatchers()
	all := ws.add(cluster.MonitorRequest{Connections: true})
	drops := ws.add(cluster.MonitorRequest{From: "web"})
	other := ws.add(cluster.MonitorRequest{ToTenant: "red", To: "web", Connections: true})
	if wanted, opts, _ := ws.wants(); !wanted || !opts.Connections {
		t.Errorf("wants() = %v, %+v", wanted, opts)
	}
	web, db := api.FlowPeer{Group: "blue:web"}, api.FlowPeer{Group: "blue:db"}
	ws.tell(api.FlowEvent{Event: api.FlowDrop, Tenant: "blue", From: web, To: db})
	ws.tell(api.FlowEvent{Event: api.FlowDrop, Tenant: "blue", From: db, To: web})
	ws.tell(api.FlowEvent{Event: api.FlowConnection, Tenant: "blue", From: web, To: db})
	ws.tell(api.FlowEvent{Event: api.FlowLogged, Tenant: "blue", From: web, To: db})
	ws.tell(api.FlowEvent{Event: api.FlowLost, Count: 1})
	if len(all.events) != 5 || len(drops.events) != 2 || len(other.events) != 1 {
		t.Errorf("%d, %d and %d events", len(all.events), len(drops.events), len(other.events))
	}
	ws.remove(all)
	ws.remove(other)
	if wanted, opts, _ := ws.wants(); !wanted || opts.Connections {
		t.Errorf("wants() = %v, %+v", wanted, opts)
	}
	for range watcherQueue + 10 {
		ws.tell(api.FlowEvent{Event: api.FlowDrop, Tenant: "blue", From: web, Count: 2})
	}
	for len(drops.events) > 0 {
		<-drops.events
	}
	ws.tell(api.FlowEvent{Event: api.FlowDrop, Tenant: "blue", From: web})
	if e := <-drops.events; e.Event != api.FlowLost || e.Count != 24 {
		t.Errorf("after a flood: %+v, want 24 lost", e)
	}
	ws.close()
	if _, ok := <-ws.add(cluster.MonitorRequest{}).events; ok {
		t.Error("a closed agent has events")
	}
}
