package control

import (
	"context"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/netmaster/liveness"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// HostStatus is what a host's agent observes of its data plane.
type HostStatus = tables.HostStatus

// BGPStatus is how a host's BGP speaker fares.
type BGPStatus = tables.BGPStatus

// UnderlayNetworks are the networks around a host.
type UnderlayNetworks = tables.Surroundings

// MaxUnderlayNetworks bounds what a host reports of them.
const MaxUnderlayNetworks = tables.MaxSurroundings

// PublishedPort leads a port of a host to a container there.
type PublishedPort = tables.PublishedPort

// MaxPublished is how many published ports a host reports at most.
const MaxPublished = tables.MaxPublished

// HostCondition is a condition of a host's health that does not hold.
type HostCondition = tables.HostCondition

// TableFill tells how full a table of a data plane is.
type TableFill = tables.TableFill

// NewHostWatch returns a watch of the hosts that has seen nothing yet.
func (hs *Hosts) NewHostWatch() *liveness.Watch {
	return liveness.NewWatch(hs.commits.store, hs.heartbeats, hs.hostView, hs.commits.log)
}

// HostStatuses reads what all agents have observed, in order of the hosts.
func (hs *Hosts) HostStatuses(ctx context.Context) ([]HostStatus, error) {
	kvs, _, err := hs.commits.store.Range(ctx, tables.HostStatusScope)
	if err != nil {
		return nil, fmt.Errorf("read the hosts' status: %w", err)
	}
	var out []HostStatus
	for _, kv := range kvs {
		row, err := tables.HostStatuses.Decode(kv)
		if err != nil {
			hs.commits.log.Error("a host's status cannot be read", "key", kv.Key, "error", err)
			continue
		}
		out = append(out, row.Value)
	}
	return out, nil
}
