package observe

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// Events get the names of endpoints, groups, policies and rules.
func TestEventsHaveNames(t *testing.T) {
	net := model.NetworkKey{Tenant: "blue", Name: "net"}
	a, b := netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("10.1.1.3")
	each := func(_ store.Revision, network func(model.Network), endpoint func(model.Endpoint), policy func(model.Policy), group func(model.Group)) store.Revision {
		network(model.Network{Key: net, ID: 7})
		group(model.Group{Key: model.GroupKey{Tenant: "blue", Name: "web"}, Network: "net", VLAN: 100, Segment: 8})
		policy(model.Policy{Key: model.PolicyKey{Tenant: "blue", Name: "p"}, Tier: model.TierContiv})
		endpoint(model.Endpoint{Key: model.EndpointKey{Network: net, ID: "e1"}, Group: "web", Container: "c1", IPv4: a, Labels: map[string]string{"app": "web"}})
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
				From:      api.FlowPeer{Endpoint: "blue:net:e1", Container: "c1", Group: "blue:web", Address: "10.1.1.2", Port: 1000, Labels: map[string]string{"app": "web"}},
				To:        api.FlowPeer{Endpoint: "blue:net:e2", Address: "10.1.1.3", Port: 80},
				Decisions: []api.FlowRule{{Direction: "in", Rule: "r", Policy: "blue:p", Tier: "contiv"}},
			},
		},
		{
			driver.FlowEvent{
				Time: at, Kind: driver.FlowDrop, Count: 1, Reason: driver.DropPolicy, Network: 8, Src: model.MAC{2, 0, 0, 0, 0, 3}.LinkLocal(), Dst: netip.MustParseAddr("fd00::9"), Proto: model.ProtoICMPv6,
				Decisions: []driver.Decision{{Direction: model.Out, Tier: model.TierKubernetes, DefaultOf: "blue:p1"}},
			},
			api.FlowEvent{
				Time: at, Host: "h1", Event: "drop", Count: 1, Verdict: "deny", Reason: "policy", Tenant: "blue", Network: "net", Protocol: "icmp6", ICMPType: &zero, Direction: "out",
				From:      api.FlowPeer{Endpoint: "blue:net:e2", Address: "fe80::ff:fe00:3"},
				To:        api.FlowPeer{Address: "fd00::9"},
				Decisions: []api.FlowRule{{Direction: "out", Default: "kubernetes", Tier: "kubernetes", Policies: []string{"blue:p1"}}},
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
				Time: at, Host: "h1", Event: "logged", Count: 1, Verdict: "deny", Protocol: "tcp", Direction: "in",
				Decisions: []api.FlowRule{{Direction: "in", Rule: "r", Policy: "blue:p", Tier: "contiv"}},
			},
		},
		{
			driver.FlowEvent{
				Time: at, Kind: driver.FlowWouldDeny, Count: 1, Proto: model.ProtoTCP, Policy: "blue:q",
				Decisions: []driver.Decision{{Direction: model.Out, Tier: model.TierKubernetes, DefaultOf: "blue:p1,blue:p2,blue:p3,blue:p4,blue:p5,blue:p6"}},
			},
			api.FlowEvent{
				Time: at, Host: "h1", Event: "would-deny", Count: 1, Verdict: "allow", Audited: "blue:q", Protocol: "tcp", Direction: "out",
				Decisions: []api.FlowRule{{Direction: "out", Default: "kubernetes", Tier: "kubernetes", Policies: []string{"blue:p1", "blue:p2", "blue:p3", "blue:p4"}, PoliciesLeftOut: 2}},
			},
		},
		{
			driver.FlowEvent{
				Time: at, Kind: driver.FlowWouldAllow, Count: 1, Proto: model.ProtoICMP, Policy: "blue:q", Established: true,
				Decisions: []driver.Decision{{Direction: model.In}},
			},
			api.FlowEvent{
				Time: at, Host: "h1", Event: "would-allow", Count: 1, Verdict: "deny", Audited: "blue:q", Protocol: "icmp", Living: true, Direction: "in",
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

// Events have present names: an address that has moved to another endpoint appears with
// that endpoint's name, and the index is not rebuilt at each event.
func TestFlowNamesFollow(t *testing.T) {
	key := model.NetworkKey{Tenant: "blue", Name: "net"}
	at := netip.MustParseAddr("10.1.1.2")
	now, rev, made := model.EndpointID("first"), store.Revision(1), 0
	n := &flowNames{each: func(unless store.Revision, network func(model.Network), endpoint func(model.Endpoint), _ func(model.Policy), _ func(model.Group)) store.Revision {
		if unless != rev {
			made++
			network(model.Network{Key: key, ID: 7})
			endpoint(model.Endpoint{Key: model.EndpointKey{Network: key, ID: now}, IPv4: at})
		}
		return rev
	}}
	for i, step := range []struct {
		rev  store.Revision
		id   model.EndpointID
		age  time.Duration // of the index
		want string
		made int
	}{
		{1, "first", 0, "blue:net:first", 1},
		{2, "second", namesAge / 2, "blue:net:first", 1}, // not again so soon
		{2, "second", namesAge, "blue:net:second", 2},
		{2, "second", namesAge, "blue:net:second", 2},
	} {
		rev, now = step.rev, step.id
		n.made, n.took = n.made.Add(-step.age), 0
		e := n.resolve(driver.FlowEvent{Kind: driver.FlowLogged, Network: 7, Src: at})
		if e.From.Endpoint != step.want || made != step.made {
			t.Errorf("step %d: %q, index made %d times, want %q and %d", i, e.From.Endpoint, made, step.want, step.made)
		}
		n.made = time.Now()
	}
	n.made, n.took, rev = n.made.Add(-namesAge), time.Hour, 3
	if n.resolve(driver.FlowEvent{Kind: driver.FlowLogged, Network: 7, Src: at}); made != 2 {
		t.Error("an index that takes an hour is made anew after less than a day")
	}
}

// Every field of an event, and no other, is in the page that programs go by.
func TestFlowFieldsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/flow-events.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	known := map[string]bool{}
	for _, of := range []reflect.Type{reflect.TypeFor[api.FlowEvent](), reflect.TypeFor[api.FlowPeer](), reflect.TypeFor[api.FlowRule]()} {
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			known[name] = true
			if !strings.Contains(text, "`"+name+"`") {
				t.Errorf("field %s of %s is not documented", name, of.Name())
			}
		}
	}
	rows := 0
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || !strings.Contains(cells[1], "`") {
			continue
		}
		rows++
		for name := range strings.SplitSeq(cells[1], ",") {
			if name = strings.Trim(name, " `"); !known[name] {
				t.Errorf("field %s is documented and is none", name)
			}
		}
	}
	if rows < 10 {
		t.Errorf("only %d rows of fields", rows)
	}
}

// An event of an endpoint with many or long labels has as many as there is room
// for.
func TestEventsHaveAsManyLabelsAsThereIsRoom(t *testing.T) {
	few := map[string]string{"app": "web"}
	if some, left := someLabels(few); len(some) != 1 || left != 0 {
		t.Errorf("%v, %d left out", some, left)
	}
	many := map[string]string{}
	for i := range model.MaxLabels {
		many[fmt.Sprintf("label%03d", i)] = strings.Repeat("<", model.MaxLabelValue/10)
	}
	some, left := someLabels(many)
	b, err := json.Marshal(some)
	if err != nil || len(b) > api.MaxFlowLabels || len(some) < 2 || len(some)+left != len(many) || some["label000"] == "" {
		t.Errorf("%d labels of %d bytes, %d left out, %v", len(some), len(b), left, err)
	}
}

// Each watcher gets the events that concern it, and hears how many it was too slow
// for.
func TestWatchersGetTheirEvents(t *testing.T) {
	ws := newWatchers()
	all := ws.add(cluster.MonitorRequest{Connections: true})
	drops := ws.add(cluster.MonitorRequest{From: "web"})
	other := ws.add(cluster.MonitorRequest{ToTenant: "red", To: "web", Connections: true})
	if wanted, opts, _ := ws.wants(); !wanted || !opts.Connections {
		t.Errorf("wants() = %v, %+v", wanted, opts)
	}
	web, db := api.FlowPeer{Group: "blue:web"}, api.FlowPeer{Group: "blue:db"}
	ws.publish(api.FlowEvent{Event: api.FlowDrop, Tenant: "blue", From: web, To: db})
	ws.publish(api.FlowEvent{Event: api.FlowDrop, Tenant: "blue", From: db, To: web})
	ws.publish(api.FlowEvent{Event: api.FlowConnection, Tenant: "blue", From: web, To: db})
	ws.publish(api.FlowEvent{Event: api.FlowLogged, Tenant: "blue", From: web, To: db})
	ws.publish(api.FlowEvent{Event: api.FlowLost, Count: 1})
	if len(all.events) != 5 || len(drops.events) != 2 || len(other.events) != 1 {
		t.Errorf("%d, %d and %d events", len(all.events), len(drops.events), len(other.events))
	}
	ws.remove(all)
	ws.remove(other)
	if wanted, opts, _ := ws.wants(); !wanted || opts.Connections {
		t.Errorf("wants() = %v, %+v", wanted, opts)
	}
	for range watcherQueue + 10 {
		ws.publish(api.FlowEvent{Event: api.FlowDrop, Tenant: "blue", From: web, Count: 2})
	}
	for len(drops.events) > 0 {
		<-drops.events
	}
	ws.publish(api.FlowEvent{Event: api.FlowDrop, Tenant: "blue", From: web})
	if e := <-drops.events; e.Event != api.FlowLost || e.Count != 24 {
		t.Errorf("after a flood: %+v, want 24 lost", e)
	}
	ws.close()
	if _, ok := <-ws.add(cluster.MonitorRequest{}).events; ok {
		t.Error("a closed agent has events")
	}
}
