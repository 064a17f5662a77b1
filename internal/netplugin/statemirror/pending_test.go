package statemirror

import (
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// withIdentity is testEndpoint with another identity.
func withIdentity(id model.Identity) model.Endpoint {
	e := testEndpoint
	e.Identity = id
	return e
}

// endpoint delivers testEndpoint with an identity, as of a revision.
func (x *manualState) endpoint(id model.Identity, at store.Revision) {
	x.t.Helper()
	x.deliver(x.single, store.Batch{Revision: at, Events: []store.Event{row(x.t, tables.Endpoints, withIdentity(id), at)}})
}

// identity delivers the record of an identity, as of a revision.
func (x *manualState) identity(id model.Identity, at store.Revision) {
	x.t.Helper()
	x.deliver(x.rest, store.Batch{Revision: at, Events: []store.Event{
		row(x.t, tables.Identities, model.IdentityRecord{ID: id, Network: testEndpoint.Key.Network}, at),
	}})
}

// port checks which identity the port of testEndpoint has in the desired state; 0 = there is
// no port.
func (x *manualState) port(when string, want model.Identity) {
	x.t.Helper()
	pic, _ := x.comp.Compile(1)
	got := model.Identity(0)
	if p, there := pic.Ports.Get(compile.IfName(testEndpoint.Key)); there {
		got = p.Identity
	}
	if got != want {
		x.t.Errorf("%s: the port has identity %d, want %d", when, got, want)
	}
}

// TestEndpointWaitsForItsIdentity delivers the row of an endpoint before the record of
// its new identity, as two mirrors may.
func TestEndpointWaitsForItsIdentity(t *testing.T) {
	x := newManualState(t)
	first, second, third := testEndpoint.Identity, testEndpoint.Identity+1, testEndpoint.Identity+2
	x.port("at first", first)
	x.identity(second, 9)
	x.endpoint(second, 9)
	x.port("the record first", second)
	x.endpoint(third, 11)
	x.port("the endpoint first", second)
	x.identity(third, 11)
	x.port("both are there", third)
	x.endpoint(third+1, 12)
	x.endpoint(first, 13)
	x.identity(third+1, 12)
	x.port("changed back meanwhile", first)
	x.endpoint(third+2, 14)
	x.deliver(x.single, store.Batch{Revision: 15, Events: []store.Event{gone(testEndpoint, 15)}})
	x.identity(third+2, 14)
	x.port("deleted meanwhile", 0)
}

// TestEndpointWaitsWhileTheTenantsMirrorIsBehind: an endpoint waits for the record of its identity for as long as the
// tenant's mirror is behind the endpoint's commit, however long that takes, and no longer.
func TestEndpointWaitsWhileTheTenantsMirrorIsBehind(t *testing.T) {
	first, missing := testEndpoint.Identity, testEndpoint.Identity+1
	for name, behind := range map[string]func(x *manualState){
		"changed": func(x *manualState) { x.endpoint(missing, 10) },
		"changed before other endpoints": func(x *manualState) {
			x.endpoint(missing, 10)
			x.deliver(x.single, store.Batch{Revision: 20, Events: []store.Event{row(x.t, tables.Endpoints, x.added, 20)}})
		},
		"revealed": func(x *manualState) {
			x.Endpoints.Hide(testEndpoint.Key)
			x.endpoint(missing, 10)
			x.Endpoints.Reveal(testEndpoint.Key)
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newManualState(t)
			was := first
			if name == "revealed" {
				was = 0
			}
			behind(x)
			x.identity(first+7, 9)
			for range 3 {
				x.mu.Lock()
				x.everySecond()
				x.mu.Unlock()
			}
			x.port("the tenant is behind", was)
			clear(x.mirrors.required) // there is no mirror of the global part
			c, ok := x.Compile()
			if !ok {
				t.Fatal("there is no desired state")
			}
			reported := false
			for _, p := range c.Problems {
				reported = reported || p.Object == "endpoint "+testEndpoint.Key.String() && strings.Contains(p.Text, "the record of its identity")
			}
			if !reported {
				t.Errorf("problems are %v", c.Problems)
			}
			x.identity(first+8, 10)
			x.port("the record is not in its commit", missing)
			if n := len(x.Endpoints.problems()); n != 0 {
				t.Errorf("%d endpoints are pending", n)
			}
			x.identity(missing, 30)
			x.port("the record comes after all", missing)
		})
	}
}
