package control

import (
	"context"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// DrainEndpoint says that services send an endpoint no new connections, or (not
// drain) that they do again. It holds until the container ends.
func (es *Endpoints) DrainEndpoint(ctx context.Context, a Actor, k model.EndpointKey, drain bool) (model.Endpoint, store.Revision, error) {
	verb := "drain"
	if !drain {
		verb = "undrain"
	}
	var e model.Endpoint
	rev, err := es.commits.update(ctx, a, fmt.Sprintf("%s endpoint %q", verb, k), func(tx store.Tx) (err error) {
		if e, err = tables.Endpoints.Get(tx, k); err != nil || e.Draining == drain {
			return err
		}
		e.Draining = drain
		return tables.Endpoints.Put(tx, e)
	})
	return e, rev, err
}
