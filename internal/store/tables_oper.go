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

// HostStatus is what an agent observes of its host's data plane.
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
