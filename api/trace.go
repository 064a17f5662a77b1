package api

import (
	"context"
	"net/http"
)

// TraceRequest asks for one packet to be sent from an endpoint (POST /api/v1/analysis/trace).
type TraceRequest struct {
	From string `json:"from"` // one endpoint, as in a ReachabilityRequest
	To   string `json:"to"`   // one endpoint, service or address
	Port string `json:"port"` // tcp/PORT, udp/PORT, or icmp
	// Tenant is whose services are meant; empty = default.
	Tenant string `json:"tenant,omitempty"`
}

// Trace is what became of a packet, beside what policies and routes say.
type Trace struct {
	From     string `json:"from"` // key of the endpoint that sent it
	To       string `json:"to"`   // as asked
	Protocol string `json:"protocol"`
	// Source and Destination are ADDRESS:PORT in the packet; of icmp the addresses.
	Source      string `json:"source"`
	Destination string `json:"destination"`
	// Expected is the answer to the same question by Reachability, for the packet's family.
	Expected Reachability `json:"expected"`
	// Verdict is what was measured: yes, the packet arrived or was answered; no; or unknown, when
	// it could not be sent or no host of a receiver looked for it.
	Verdict string `json:"verdict"`
	// Agrees: what was measured is what was expected.
	Agrees bool        `json:"agrees"`
	Hosts  []TraceHost `json:"hosts"` // that have an end of it, the sender's first
}

// TraceUnknown is the verdict when nothing could be measured.
const TraceUnknown = "unknown"

// TraceHost is what one host saw of the packet.
type TraceHost struct {
	Host     string      `json:"host"`
	Sent     bool        `json:"sent,omitempty"`     // from the endpoint's namespace
	Answer   string      `json:"answer,omitempty"`   // what came back to it, for people
	Watched  []string    `json:"watched,omitempty"`  // keys of endpoints at which it was looked for
	Arrived  []string    `json:"arrived,omitempty"`  // keys of those at which it was seen
	Events   []FlowEvent `json:"events,omitempty"`   // what the data plane decided about it
	Problems []string    `json:"problems,omitempty"` // what could not be done
}

// Trace sends a packet and follows it.
func (c *Client) Trace(ctx context.Context, r TraceRequest) (out Trace, err error) {
	err = c.Do(ctx, http.MethodPost, "/api/v1/analysis/trace", r, &out)
	return out, err
}
