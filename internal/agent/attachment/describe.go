package attachment

import (
	"context"
	"maps"
	"slices"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/agent/netmaster"
	"github.com/contiv/netplugin/v2/internal/attach"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Describe tells netmaster what a runtime knows of an attachment's container:
// its name follows, and so do the services that its labels select. Labels that
// netmaster would not take are left out. Without the attachment: ErrNotFound.
func (a *Service) Describe(ctx context.Context, d attach.Description) error {
	e, ok := a.journal.get(d.Key)
	if !ok || e.State != StateDone {
		return model.Errorf(model.ErrNotFound, "describe %s: there is no such attachment on this host", d.Key)
	}
	c := a.masters.API()
	if c == nil {
		return netmaster.ErrNone
	}
	req := api.UpdateEndpointRequest{
		Event: api.EventStart, Tenant: string(e.Endpoint.Network.Tenant), Network: string(e.Endpoint.Network.Name),
		EndpointID: string(e.Endpoint.ID), ContainerID: d.ID, EPCommonName: d.Name,
	}
	if d.Stopped {
		req.Event = api.EventDie
	} else {
		req.Labels = usableLabels(d.Labels)
	}
	if _, err := c.UpdateEndpoint(ctx, req); err != nil {
		return netmaster.FromAPI("describe endpoint "+e.Endpoint.String(), err)
	}
	return nil
}

// usableLabels returns the labels within the limits of model.ValidateLabels; of
// too many, first those that policies can select by, then by name: an image with
// many labels must not push out the ones that an operator gave.
func usableLabels(labels map[string]string) map[string]string {
	out := map[string]string{}
	keys := slices.Sorted(maps.Keys(labels))
	selectable := func(k string) bool { return model.SelectableLabel(k, labels[k]) && !model.GeneratedLabel(k) }
	slices.SortStableFunc(keys, func(a, b string) int {
		switch x, y := selectable(a), selectable(b); {
		case x == y:
			return 0
		case x:
			return -1
		}
		return 1
	})
	for _, k := range keys {
		if len(out) < model.MaxLabels && model.ValidateLabels(map[string]string{k: labels[k]}) == nil {
			out[k] = labels[k]
		}
	}
	return out
}
