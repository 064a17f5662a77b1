package cluster

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// ServiceAgent is the name under which agents register.
const ServiceAgent = "netplugin.vtep"

// ServiceMaster is the name under which netmasters register.
const ServiceMaster = "netmaster"

// AgentScope and MasterScope are the scopes of all registrations of agents, and of
// netmasters.
var (
	AgentScope  = servicesOf(ServiceAgent)
	MasterScope = servicesOf(ServiceMaster)
)

// RegisteredHosts returns the hosts whose agent is registered: it has said so within
// ServiceTTL.
func RegisteredHosts(ctx context.Context, st store.Reader) (map[model.HostName]Service, error) {
	services, err := Services(ctx, st, ServiceAgent)
	if err != nil {
		return nil, err
	}
	alive := make(map[model.HostName]Service, len(services))
	for _, x := range services {
		alive[model.HostName(x.Hostname)] = x
	}
	return alive, nil
}

// DecodeAgent reads an agent's registration.
func DecodeAgent(kv store.KV) (Service, bool) {
	x, ok := decodeService(kv)
	return x, ok && x.ServiceName == ServiceAgent
}

// Decode reads any registration.
func Decode(kv store.KV) (Service, bool) { return decodeService(kv) }
