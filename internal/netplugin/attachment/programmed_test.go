package attachment

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/masterclient"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
	"github.com/contiv/netplugin/v2/internal/store"
)

// TestPortWaitsForNetmastersCommits: a port does not count as programmed before the desired state has the
// commits that netmaster named: of the endpoint, of its tenant and of the cluster.
func TestPortWaitsForNetmastersCommits(t *testing.T) {
	network := model.NetworkKey{Tenant: "blue", Name: "net1"}
	at := masterclient.EndpointRevisions{Endpoint: 10, Tenant: 8, Global: 4}
	var all statemirror.Scope
	all.Tenant, all.All = "blue", true
	for _, test := range []struct {
		name                    string
		endpoints, rest, global store.Revision
		all, noPort             bool
		port, err               error
		want                    string // empty = it is programmed
	}{
		{name: "all is known", endpoints: 10, rest: 8, global: 4},
		{name: "more is known", endpoints: 12, rest: 13, global: 14},
		{name: "by the mirror of all endpoints", endpoints: 10, rest: 8, global: 4, all: true},
		{name: "the endpoint is not", endpoints: 9, rest: 8, global: 4, want: "revision 9 of the endpoints of network blue:net1, not 10"},
		{name: "its network is not", rest: 8, global: 4, want: "revision 0 of the endpoints of network blue:net1, not 10"},
		{name: "the tenant is behind", endpoints: 10, rest: 7, global: 4, want: "revision 7 of tenant blue, not 8"},
		{name: "the tenant is not known", endpoints: 10, global: 4, want: "revision 0 of tenant blue, not 8"},
		{name: "namespaces are not", endpoints: 10, rest: 8, global: 3, want: "revision 3 of namespaces and settings, not 4"},
		{name: "there is no port", endpoints: 10, rest: 8, global: 4, noPort: true, want: "the port is not in the desired state"},
		{name: "the port fails", endpoints: 10, rest: 8, global: 4, port: errors.New("no interface"), want: "no interface"},
		{name: "the data plane fails", endpoints: 10, rest: 8, global: 4, err: errors.New("no switch"), want: "no switch"},
	} {
		o := statemirror.SyncStatus{Err: test.err, Revs: statemirror.Revs{{}: test.global}}
		if !test.noPort {
			o.Report.Ports.Set("if", driver.PortStatus{Err: test.port})
		}
		if test.rest != 0 {
			o.Revs[statemirror.TenantScope("blue")] = test.rest
		}
		switch {
		case test.all:
			o.Revs[all] = test.endpoints
		case test.endpoints != 0:
			o.Revs[statemirror.EndpointsScope(network)] = test.endpoints
		}
		err := unprogrammed(o, network, "if", at)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// TestPoliciesAreInForceAsOfTheEndpoint: policies are in force as of the endpoint, unless netmaster does not say
// when the tenant changed last.
func TestPoliciesAreInForceAsOfTheEndpoint(t *testing.T) {
	for _, test := range []struct {
		at           masterclient.EndpointRevisions
		tenant, want store.Revision
	}{
		{masterclient.EndpointRevisions{Endpoint: 10, Tenant: 8}, 8, 10},
		{masterclient.EndpointRevisions{Endpoint: 10, Tenant: 12}, 13, 10},
		{masterclient.EndpointRevisions{Endpoint: 10}, 6, 6},
		{masterclient.EndpointRevisions{Endpoint: 10}, 13, 10},
	} {
		if got := policiesOf(test.at, test.tenant); got != test.want {
			t.Errorf("%+v, the tenant known up to %d: up to %d, want %d", test.at, test.tenant, got, test.want)
		}
	}
}

// TestLeftoverVethPairIsMadeAgain: the pair of an attachment whose interface's name the data plane still has,
// of one that ended a moment ago, is made only after a pass without that port.
func TestLeftoverVethPairIsMadeAgain(t *testing.T) {
	var reached statemirror.SyncTracker
	pass := func(names ...string) {
		o := statemirror.SyncStatus{At: time.Now()}
		for _, n := range names {
			o.Report.Ports.Set(n, driver.PortStatus{})
		}
		reached.Set(o)
	}
	kicked := make(chan string, 9)
	a := &Interfaces{&deps{reached: &reached, agent: kicker{kicked: kicked}, cfg: Config{Timeout: time.Minute}}}
	e := Entry{HostIf: "cvaaaaaaaaaaaaa", Request: attach.Request{Netns: filepath.Join(t.TempDir(), "gone")}} // so that none is made
	pass("other")
	if out := a.makeVethAnew(t.Context(), e, 1400); !errors.Is(out.err, model.ErrNotFound) || len(kicked) != 0 {
		t.Errorf("a new name: %v, %d passes asked for", out.err, len(kicked))
	}
	pass("other", e.HostIf)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if out := a.makeVethAnew(ended, e, 1400); !errors.Is(out.err, model.ErrUnavailable) {
		t.Errorf("with the former port there: %v", out.err)
	}
	made := make(chan error, 1)
	go func() { made <- a.makeVethAnew(t.Context(), e, 1400).err }()
	<-kicked
	<-kicked
	pass("other")
	if err := <-made; !errors.Is(err, model.ErrNotFound) {
		t.Errorf("once it is gone: %v", err)
	}
}

// kicker is an agent that tells of kicks.
type kicker struct {
	Agent
	kicked chan<- string
}

func (k kicker) Kick(reason string) { k.kicked <- reason }
