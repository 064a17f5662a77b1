package apiserver

import (
	"context"
	"errors"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
)

// Agents' requests are about what their host has. Where a request does not name the host,
// the view says which host has it, by the same rules as the handlers.

// ofHost is about what an agent tells of a host.
func ofHost(name string) access.Resource {
	return access.Resource{Objects: []audit.Object{{Kind: "host", Key: name}}, Hosts: []string{name}}
}

// ofHostQuery is about the host that a query names.
func ofHostQuery(r *request) (access.Resource, error) {
	return ofHost(r.URL.Query().Get("host")), nil
}

func endpointObject(tenant, network, id string) []audit.Object {
	return []audit.Object{{Kind: "endpoint", Key: tenant + ":" + network + ":" + id}}
}

func ofCreateEndpoint(_ *request, in api.CreateEndpointRequest) (access.Resource, error) {
	return access.Resource{Objects: endpointObject(in.TenantName, in.NetworkName, in.EndpointID), Hosts: []string{in.ConfigEP.Host}}, nil
}

func (s *endpointHandlers) ofDeleteEndpoint(r *request, in api.DeleteEndpointRequest) (access.Resource, error) {
	return s.ofEndpoint(r.Context(), in.TenantName, in.NetworkName, in.EndpointID)
}

// byContainer reports whether a runtime tells the end of a container, as 1.x tells it: of
// all its endpoints.
func byContainer(in api.UpdateEndpointRequest) bool {
	return in.Event == api.EventDie && (in.EndpointID == "" || in.Tenant == "")
}

func (s *endpointHandlers) ofUpdateEndpoint(r *request, in api.UpdateEndpointRequest) (access.Resource, error) {
	if !byContainer(in) {
		return s.ofEndpoint(r.Context(), in.Tenant, in.Network, in.EndpointID)
	}
	v, err := s.control.View(r.Context())
	if err != nil {
		return access.Resource{}, err
	}
	res := access.Resource{Objects: []audit.Object{{Kind: "endpoint", Key: in.ContainerID}}}
	for _, e := range v.Endpoints.Find(in.ContainerID) {
		res.Hosts = append(res.Hosts, string(e.Host))
	}
	res.Unowned = len(res.Hosts) == 0
	return res, nil
}

// ofEndpoint is about the endpoint with an id on a network, or on the network of a tenant's
// group.
func (s *endpointHandlers) ofEndpoint(ctx context.Context, tenant, networkOrGroupName, id string) (access.Resource, error) {
	v, err := s.control.View(ctx)
	if err != nil {
		return access.Resource{}, err
	}
	res := access.Resource{Objects: endpointObject(tenant, networkOrGroupName, id), Unowned: true}
	k, err := networkOrGroup(v, model.TenantName(tenant), networkOrGroupName)
	if err != nil {
		return res, nil //nolint:nilerr // what is on no network is nobody's
	}
	if e, there := v.Endpoints.Get(model.EndpointKey{Network: k, ID: model.EndpointID(id)}); there {
		res.Hosts, res.Unowned = []string{string(e.Host)}, false
	}
	return res, nil
}

func ofAllocAddress(_ *request, in api.AllocAddressRequest) (access.Resource, error) {
	network := in.NetworkID
	if network == "" {
		network = in.AddressPool
	}
	return access.Resource{Objects: []audit.Object{{Kind: "address", Key: network + " " + in.PreferredIPv4Address}}, Hosts: []string{in.Host}}, nil
}

// ofReleaseAddress is about the hosts for which an address is reserved, or that have its
// endpoint; "" is an address of no host.
func (s *endpointHandlers) ofReleaseAddress(r *request, in api.ReleaseAddressRequest) (access.Resource, error) {
	res := access.Resource{Objects: []audit.Object{{Kind: "address", Key: in.NetworkID + " " + in.IPv4Address}}, Unowned: true}
	a, err := releasedAddress(in)
	if err != nil {
		return res, err
	}
	v, err := s.control.View(r.Context())
	if err != nil {
		return res, err
	}
	n, _, err := resolveNetworkID(v, in.NetworkID)
	if err != nil {
		return res, nil //nolint:nilerr // the handler refuses it
	}
	host, err := s.control.Addresses.AddressHost(r.Context(), n.Key, a)
	if errors.Is(err, model.ErrNotFound) {
		return res, nil
	}
	res.Hosts, res.Unowned = []string{string(host)}, false
	return res, err
}
