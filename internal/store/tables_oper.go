package store

import (
	"context"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// OperPrefix holds observed status; nothing is compiled from it.
//
//	oper/host/H       HostStatus, written by H's agent
//	oper/monitor/ID   MonitorRequest, written by a netmaster with a lease
const OperPrefix = Root + "oper/"

const hostStatusScope = OperPrefix + "host/"

// HostStatusScope is the scope of all hosts' status.
const HostStatusScope = hostStatusScope

// HostStatus is what an agent observes of its host: written when it changes, and
// once a minute, which makes it the host's last word. Whether the host is alive
// its registration tells (AliveHosts).
type HostStatus struct {
	Host      model.HostName    `json:"host"`
	Driver    string            `json:"driver"`
	DriverWhy string            `json:"driverWhy,omitempty"` // a sentence: why the host has this one
	Version   string            `json:"version,omitempty"`
	Updated   string            `json:"updated"`  // RFC 3339, by the host's clock
	Revision  int64             `json:"revision"` // of the last picture applied
	Ports     int               `json:"ports"`    // programmed
	Pending   int               `json:"pending"`  // wanted but not programmed
	Error     string            `json:"error,omitempty"`
	Problems  map[string]string `json:"problems,omitempty"` // object -> sentence; the first hundred

	Attachments int                  `json:"attachments,omitempty"`
	Ready       bool                 `json:"ready,omitempty"`      // as /readyz says
	Conditions  []HostCondition      `json:"conditions,omitempty"` // those that do not hold; nil from agents that tell none
	Kinds       map[string]int       `json:"kinds,omitempty"`      // how many problems, by the kind of their object
	Tables      map[string]TableFill `json:"tables,omitempty"`     // of the data plane, as of the last word
}

// HostCondition is a condition of a host's health that does not hold.
type HostCondition struct {
	Name    string `json:"name"`
	Notice  bool   `json:"notice,omitempty"` // the host is ready all the same
	Message string `json:"message"`
}

// TableFill tells how full a table is.
type TableFill struct {
	Entries  uint64 `json:"entries"`
	Capacity uint64 `json:"capacity"` // 0 = unbounded
}

// ServiceAgent is the name under which agents register.
const ServiceAgent = "netplugin.vtep"

// AgentScope is the scope of all agents' registrations.
var AgentScope = servicesOf(ServiceAgent)

// AliveHosts returns the hosts whose agent is registered: it has said so within
// ServiceTTL.
func AliveHosts(ctx context.Context, s Store) (map[model.HostName]Service, error) {
	services, err := Services(ctx, s, ServiceAgent)
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
func DecodeAgent(kv KV) (Service, bool) {
	x, ok := decodeService(kv)
	return x, ok && x.ServiceName == ServiceAgent
}

// HostStatuses holds what agents observe, by host.
var HostStatuses = NewTable(TableSpec[model.HostName, HostStatus]{
	Noun: "host status", Version: 1, Unlisted: true,
	KeyOf: func(s HostStatus) model.HostName { return s.Host },
	Scope: func(model.HostName) string { return hostStatusScope },
	Name:  func(k model.HostName) string { return Segment(string(k)) },
})

// EndpointsOn reads all endpoints on a host. It goes through every tenant's
// state: for what happens once in the life of a process.
func EndpointsOn(ctx context.Context, s Store, host model.HostName) ([]model.Endpoint, error) {
	kvs, _, err := s.Range(ctx, tenantsPrefix)
	if err != nil {
		return nil, err
	}
	var out []model.Endpoint
	for _, kv := range kvs {
		if !strings.Contains(kv.Key, "/endpoints/") {
			continue
		}
		ch, err := Decode(Event{KV: kv})
		if err != nil {
			continue // unreadable: not known to be on the host
		}
		if ep, ok := ch.Value.(model.Endpoint); ok && ep.Host == host {
			out = append(out, ep)
		}
	}
	return out, nil
}
