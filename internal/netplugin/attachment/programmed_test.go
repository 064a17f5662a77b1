package attachment

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/masterclient"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
	"github.com/contiv/netplugin/v2/internal/store"
)

// TestMissing: a port is not taken for programmed before the picture knows the endpoint
// and all that was written of its tenant, and of the cluster, before it; however long it
// takes. Only what was deleted is not waited for without end.
func TestMissing(t *testing.T) {
	network := model.NetworkKey{Tenant: "blue", Name: "net1"}
	ep := model.Endpoint{Key: model.EndpointKey{Network: network, ID: "e1"}}
	cluster, err := statemirror.New(statemirror.Config{Host: "h1", StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	a := &Interfaces{&deps{cluster: cluster}}
	at := masterclient.Committed{Revision: 10, Global: 4, Written: 7, Deleted: 8}
	var all statemirror.Scope
	all.Tenant, all.All = "blue", true
	for _, test := range []struct {
		name                    string
		endpoints, rest, global store.Revision
		all                     bool
		early, late             bool
		upTo                    store.Revision
	}{
		{name: "all is known", endpoints: 10, rest: 8, global: 4, early: true, late: true, upTo: 10},
		{name: "by the mirror of all endpoints", endpoints: 10, rest: 8, global: 4, all: true, early: true, late: true, upTo: 10},
		{name: "the endpoint is not", endpoints: 9, rest: 8, global: 4},
		{name: "its network is not", rest: 8, global: 4},
		{name: "what was written is not", endpoints: 10, rest: 6, global: 4},
		{name: "what was deleted is not", endpoints: 10, rest: 7, global: 4, late: true, upTo: 7},
		{name: "namespaces are not", endpoints: 10, rest: 8, global: 3},
		{name: "the tenant is not", endpoints: 10, global: 4},
	} {
		var o statemirror.SyncStatus
		o.Report.Ports.Set("if", driver.PortStatus{})
		o.Revs = statemirror.Revs{{}: test.global}
		if test.rest != 0 {
			o.Revs[statemirror.TenantScope("blue")] = test.rest
		}
		switch {
		case test.all:
			o.Revs[all] = test.endpoints
		case test.endpoints != 0:
			o.Revs[statemirror.EndpointsScope(network)] = test.endpoints
		}
		for _, late := range []bool{false, true} {
			want := test.early
			if late {
				want = test.late
			}
			if err := a.missing(o, ep, "if", at, late); (err == nil) != want {
				t.Errorf("%s (late: %v): %v", test.name, late, err)
			}
		}
		if test.upTo != 0 && upTo(at, test.rest) != test.upTo {
			t.Errorf("%s: policies are said to be in force up to %d, want %d", test.name, upTo(at, test.rest), test.upTo)
		}
	}
	if got := upTo(masterclient.Committed{Revision: 10}, 6); got != 6 {
		t.Errorf("by a netmaster that does not say when the tenant changed: up to %d", got)
	}
}

// TestVethAnew: the pair of an attachment whose interface's name the data plane still has,
// of one that ended a moment ago, is made only after a pass without that port.
func TestVethAnew(t *testing.T) {
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
