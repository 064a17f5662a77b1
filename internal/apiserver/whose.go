package apiserver

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/control"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Whose finds what requests name without saying whose it is, by the same rules as the
// routes: names of networks and groups, ids of networks.
type Whose struct{ Control *control.Controller }

// FindEndpoints returns all endpoints whose key, id, container or name is text.
func (w Whose) FindEndpoints(ctx context.Context, text string) ([]model.Endpoint, error) {
	v, err := w.Control.View(ctx)
	if err != nil {
		return nil, err
	}
	found := v.FindEndpoints(text)
	if k, err := model.ParseEndpointKey(text); err == nil {
		if e, there := v.Endpoint(k); there {
			found = append(slices.Clip(found), e)
		}
	}
	return found, nil
}

// NamedEndpoint returns the endpoint with an id on a network, or on that of a group, of
// a tenant; none = there is no such.
func (w Whose) NamedEndpoint(ctx context.Context, tenant, networkOrGroupName, id string) ([]model.Endpoint, error) {
	v, err := w.Control.View(ctx)
	if err != nil {
		return nil, err
	}
	k, err := networkOrGroup(v, model.TenantName(tenant), networkOrGroupName)
	if err != nil {
		return nil, nil //nolint:nilerr // what is on no network is nobody's
	}
	if e, there := v.Endpoint(model.EndpointKey{Network: k, ID: model.EndpointID(id)}); there {
		return []model.Endpoint{e}, nil
	}
	return nil, nil
}

// AddressHosts returns the hosts that an address is reserved for, or that have its
// endpoint; "" is that it is nobody's own.
func (w Whose) AddressHosts(ctx context.Context, networkID, address string) ([]string, error) {
	text, _, _ := strings.Cut(address, "/")
	a, err := netip.ParseAddr(text)
	if err != nil {
		return nil, nil //nolint:nilerr // the route refuses it
	}
	v, err := w.Control.View(ctx)
	if err != nil {
		return nil, err
	}
	n, _, err := resolveNetworkID(v, networkID)
	if err != nil {
		return nil, nil //nolint:nilerr // the route refuses it
	}
	host, err := w.Control.AddressHost(ctx, n.Key, a)
	if errors.Is(err, model.ErrNotFound) {
		return nil, nil
	}
	return []string{string(host)}, err
}
