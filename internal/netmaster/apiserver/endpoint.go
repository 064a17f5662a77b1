package apiserver

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiconv"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// Endpoints are no collection: runtimes create them, and lists to be applied.
var _ = register(kindSpec[endpointRequest, model.EndpointKey, model.Endpoint]{
	name:  "endpoint",
	parse: func(r endpointRequest) (model.Endpoint, error) { return endpointFromAPI(r.CreateEndpointRequest) }, render: endpointToRequest,
	change: changeAsIs(endpointUseCases, (*control.Endpoints).ChangeEndpoint),
})

// endpointRequest is an endpoint of a list.
type endpointRequest struct{ api.CreateEndpointRequest }

// ObjectKey returns "tenant:network:endpoint".
func (r endpointRequest) ObjectKey() string {
	return r.TenantName + ":" + r.NetworkName + ":" + r.EndpointID
}

// endpointKey parses the three fields that name an endpoint.
func endpointKey(tenant, network, id string) (k model.EndpointKey, err error) {
	if k.Network.Tenant, err = model.ParseTenantName(tenant); err != nil {
		return k, apiconv.Renamed(err, "TenantName")
	}
	if k.Network.Name, err = model.ParseNetworkName(network); err != nil {
		return k, apiconv.Renamed(err, "NetworkName")
	}
	k.ID, err = model.ParseEndpointID(id)
	return k, err
}

// endpointFromAPI parses a request; the addresses of the result are the
// preferred ones.
func endpointFromAPI(req api.CreateEndpointRequest) (e model.Endpoint, err error) {
	if e.Key, err = endpointKey(req.TenantName, req.NetworkName, req.EndpointID); err != nil {
		return e, err
	}
	if req.ConfigEP.Pod != nil {
		return e, model.InvalidField("Pod", req.ConfigEP.Pod.Name, "must be left out: endpoints of pods are made by createEndpoint alone")
	}
	group := req.ServiceName
	if group == "" {
		group = req.ConfigEP.ServiceName
	}
	if req.ConfigEP.ServiceName != "" && req.ConfigEP.ServiceName != group {
		return e, model.InvalidField("ServiceName", req.ConfigEP.ServiceName, "must be the same inside and outside ConfigEP, "+group)
	}
	if e.Group, err = apiconv.Optional(group, model.ParseGroupName); err != nil {
		return e, apiconv.Renamed(err, "ServiceName")
	}
	if e.Host, err = apiconv.Optional(req.ConfigEP.Host, model.ParseHostName); err != nil {
		return e, apiconv.Renamed(err, "Host")
	}
	if e.IPv4, err = apiconv.Optional(req.ConfigEP.IPAddress, func(t string) (netip.Addr, error) {
		return model.ParseAddr4("IPAddress", t)
	}); err != nil {
		return e, err
	}
	if e.IPv6, err = apiconv.Optional(req.ConfigEP.IPv6Address, func(t string) (netip.Addr, error) {
		return model.ParseAddr6("IPv6Address", t)
	}); err != nil {
		return e, err
	}
	if e.MAC, err = apiconv.Optional(req.ConfigEP.MacAddress, model.ParseMAC); err != nil {
		return e, apiconv.Renamed(err, "MacAddress")
	}
	e.Name, e.Container, e.Labels, e.LabelsLater = req.EPCommonName, req.ConfigEP.Container, req.ConfigEP.Labels, req.ConfigEP.LabelsLater
	ill, err := unhealthy(req.ConfigEP.Health)
	if err != nil {
		return e, err
	}
	e.Unhealthy = ill != nil && *ill
	e.Rates = ratesFromAPI(req.ConfigEP.Rates)
	return e, nil
}

func endpointToRequest(e model.Endpoint) endpointRequest {
	return endpointRequest{api.CreateEndpointRequest{
		TenantName: string(e.Key.Network.Tenant), NetworkName: string(e.Key.Network.Name), ServiceName: string(e.Group),
		EndpointID: string(e.Key.ID), EPCommonName: e.Name,
		ConfigEP: api.ConfigEP{
			Container: e.Container, Host: string(e.Host), IPAddress: addrText(e.IPv4), IPv6Address: addrText(e.IPv6),
			MacAddress: chosenMAC(e), ServiceName: string(e.Group), Labels: e.Labels, LabelsLater: e.LabelsLater,
			Rates: ratesToAPI(e.Rates),
		},
	}}
}

func endpointOper(v *control.View, e model.Endpoint) api.EndpointOper {
	o := api.EndpointOper{
		ContainerID:      e.Container,
		ContainerName:    e.Name,
		EndpointGroupKey: groupID(e.Key.Network.Tenant, e.Group),
		EndpointID:       string(e.Key.ID),
		HomingHost:       string(e.Host),
		IntfName:         compile.IfName(e.Key),
		IPAddress:        []string{addrText(e.IPv4), addrText(e.IPv6)},
		Labels:           labelText(e.Labels),
		LabelMap:         e.Labels,
		ChosenMac:        chosenMAC(e),
		MacAddress:       e.MAC.String(),
		Network:          networkID(e.Key.Network),
		ServiceName:      string(e.Group),
		Rates:            ratesToAPI(e.Rates),
	}
	o.EndpointGroupID = groupIdentity(v, e)
	if h, ok := v.Hosts.Get(e.Host); ok {
		o.VtepIP = addrText(h.VTEP)
	}
	o.Draining = v.Hosts.Drains(e)
	if e.Unhealthy {
		o.Health = api.Unhealthy
	}
	return o
}

// chosenMAC is the MAC address that somebody asked for; empty when it is made of
// the address.
func chosenMAC(e model.Endpoint) string {
	if e.MAC.Derived() {
		return ""
	}
	return e.MAC.String()
}

// groupIdentity is the id of an endpoint's group, 0 for none. A view that does
// not have the group yet gives way to the endpoint's identity, which is the
// same number unless its labels count.
func groupIdentity(v *control.View, e model.Endpoint) int {
	if e.Group == "" {
		return 0
	}
	if g, ok := v.Groups.Get(model.GroupKey{Tenant: e.Key.Network.Tenant, Name: e.Group}); ok {
		return int(g.ID)
	}
	return int(e.Identity)
}

func endpointOpers(v *control.View, es []model.Endpoint) []api.EndpointOper {
	var out []api.EndpointOper
	for _, e := range es {
		out = append(out, endpointOper(v, e))
	}
	return out
}

func endpointConfig(v *control.View, e model.Endpoint) api.EndpointConfig {
	o := api.EndpointConfig{
		ID:               networkID(e.Key.Network) + "-" + string(e.Key.ID),
		NetID:            networkID(e.Key.Network),
		EndpointID:       string(e.Key.ID),
		ServiceName:      string(e.Group),
		EndpointGroupKey: groupID(e.Key.Network.Tenant, e.Group),
		IPAddress:        addrText(e.IPv4),
		IPv6Address:      addrText(e.IPv6),
		MacAddress:       e.MAC.String(),
		HomingHost:       string(e.Host),
		IntfName:         compile.IfName(e.Key),
		Labels:           e.Labels,
		ContainerID:      e.Container,
		EPCommonName:     e.Name,
	}
	o.EndpointGroupID = groupIdentity(v, e)
	if h, ok := v.Hosts.Get(e.Host); ok {
		o.VtepIP = addrText(h.VTEP)
	}
	return o
}
