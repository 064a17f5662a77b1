package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

const monitorsPrefix = tables.OperPrefix + "monitor/"

// MonitorRequest asks the agents to tell a netmaster what their data planes
// drop, and which connections begin. It lies under oper/monitor/<id> with a
// lease, so it goes when that netmaster dies.
type MonitorRequest struct {
	ID          string           `json:"id"`      // random; who knows it may deliver
	Address     string           `json:"address"` // ip:port of the netmaster that takes the events
	Connections bool             `json:"connections,omitempty"`
	Host        model.HostName   `json:"host,omitempty"`       // only this host; empty = all
	FromTenant  model.TenantName `json:"fromTenant,omitempty"` // with From; empty = any
	From        model.GroupName  `json:"from,omitempty"`       // group of the sender; empty = any
	ToTenant    model.TenantName `json:"toTenant,omitempty"`
	To          model.GroupName  `json:"to,omitempty"`
	// Counts is a service (tenant:service): no events are wanted, but once what is
	// counted of it.
	Counts string `json:"counts,omitempty"`
	// Report says what the host is to tell once of itself, instead of events: one of the
	// Report constants. Counts is ReportCounts then, so that agents that know no reports
	// tell no events.
	Report string `json:"report,omitempty"`
	// Trace is the packet of a ReportTrace.
	Trace *PacketTrace `json:"trace,omitempty"`
	// Endpoints are the endpoints whose connections a ReportConnections has, by their keys.
	Endpoints []string `json:"endpoints,omitempty"`
	// Spread is within how many milliseconds hosts answer, each at its own moment.
	Spread int `json:"spread,omitempty"`
}

// What hosts are asked to tell of themselves.
const (
	ReportInspection   = "inspection"
	ReportBundle       = "bundle"
	ReportVerification = "verification"
	ReportTrace        = "trace"
	ReportConnections  = "connections"
	ReportCounts       = "-" // in Counts: no service
)

// PacketTrace is a packet that one host sends from an endpoint, and others look for.
type PacketTrace struct {
	Hosts     []model.HostName  `json:"hosts"`  // that are asked
	Sender    model.EndpointKey `json:"sender"` // whose namespace it is sent from
	Protocol  model.Protocol    `json:"protocol"`
	Src       netip.AddrPort    `json:"src"` // of ICMP the port is the request's identifier
	Dst       netip.AddrPort    `json:"dst"`
	Payload   string            `json:"payload"` // by which it is recognised, TracePayload characters
	Receivers []PacketReceiver  `json:"receivers,omitempty"`
}

// PacketReceiver is an endpoint that may get a packet.
type PacketReceiver struct {
	Endpoint model.EndpointKey `json:"endpoint"`
	At       netip.AddrPort    `json:"at"` // the packet's destination there
}

// TracePayload is the length of PacketTrace.Payload.
const TracePayload = 26

// OpenMonitor enters a request with a lease of its own, which ends with Close
// or is lost with the store.
func OpenMonitor(ctx context.Context, st store.Store, r MonitorRequest) (store.Session, error) {
	if r.ID == "" || r.Address == "" {
		return nil, model.Errorf(model.ErrInvalid, "open monitor %q: it needs an id and an address", r.ID)
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("open monitor: %w", err)
	}
	session, err := st.NewSession(context.WithoutCancel(ctx), ServiceTTL)
	if err != nil {
		return nil, fmt.Errorf("open monitor: %w", err)
	}
	if _, err := st.Update(ctx, func(tx store.Tx) error {
		tx.Put(monitorsPrefix+store.Segment(r.ID), b, session)
		return nil
	}); err != nil {
		_ = session.Close() // the first error tells more
		return nil, fmt.Errorf("open monitor: %w", err)
	}
	return session, nil
}

// WatchMonitors calls fn with all requests, ordered by id, now and after every
// change, until ctx ends or fn fails.
func WatchMonitors(ctx context.Context, st store.Mirrorer, fn func([]MonitorRequest) error) error {
	known := map[string]MonitorRequest{}
	return st.Mirror(ctx, []string{monitorsPrefix}, func(b store.Batch) error {
		for _, e := range b.Events {
			delete(known, e.KV.Key)
			var r MonitorRequest
			if !e.Deleted() && json.Unmarshal(e.KV.Value, &r) == nil && r.ID != "" {
				known[e.KV.Key] = r
			}
		}
		return fn(slices.SortedFunc(maps.Values(known), func(a, b MonitorRequest) int { return strings.Compare(a.ID, b.ID) }))
	})
}
