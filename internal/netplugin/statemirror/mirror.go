package statemirror

import (
	"context"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// mirror is one watched prefix.
type mirror struct {
	part   Scope
	cancel context.CancelFunc // nil = it does not run yet
	ready  bool               // the snapshot is in
	// withheld: the netmaster keeps it from this host, which has no endpoint that it
	// concerns. Then it is not ready.
	withheld bool
	partial  bool           // kinds of rows are left out: this host has no endpoint that they concern
	err      error          // why it does not follow now; nil = it follows
	warn     *time.Timer    // logs that it does not
	rev      store.Revision // of the last batch
	place    string         // likewise
	changed  store.Revision // of the last change, but for what a list has found deleted
	unused   time.Time      // since when nothing needs it
	listing

	staged    bool        // one of all endpoints of a tenant that is not entered yet: others are
	seen      map[any]any // unless the store is followed: what values would be by the store that is not
	values    map[any]any // by typed key: everything delivered and not deleted
	rules     *tables.InForce
	endpoints map[model.EndpointKey]endpointRow // of this host
	networks  map[model.NetworkKey]model.Network
	groups    map[model.GroupKey]model.Group
	unreadable
}

// listing is of which store a mirror has listed.
type listing struct {
	of     store.Incarnation
	listed store.Revision // of the last list
	older  bool           // likewise: it is of a store that went back, as its journal says
	behind bool           // the store went back, and this one has still to list
	floor  store.Revision // what had been seen of the store before the next list began: it cannot be older
	again  bool           // it is being listed again
}

// end stops a mirror.
func (m *mirror) end() {
	if m.cancel != nil {
		m.cancel()
	}
}

// endpoint returns an endpoint as the store has it now.
func (m *mirror) endpoint(k model.EndpointKey) (model.Endpoint, bool) {
	values := m.values
	if m.seen != nil {
		values = m.seen
	}
	ep, ok := values[k].(model.Endpoint)
	return ep, ok
}

// stage enters a change into the staged records of a mirror.
func stage(staged map[any]any, ch tables.Change) {
	switch {
	case ch.Key == nil:
	case ch.Value == nil:
		delete(staged, ch.Key)
	default:
		staged[ch.Key] = ch.Value
	}
}
