package api

// HostConnections are established connections that a host reports.
type HostConnections struct {
	Groups []ConnectionGroup `json:"groups,omitempty"`
	More   bool              `json:"more,omitempty"`  // there are more groups
	Error  string            `json:"error,omitempty"` // why they are not known
}

// ConnectionGroup are established connections that differ in their source ports at most.
type ConnectionGroup struct {
	From        string `json:"from,omitempty"` // the endpoint's key; empty = no endpoint that the host knows
	To          string `json:"to,omitempty"`
	Source      string `json:"source"`
	Destination string `json:"destination"` // a service's backend
	Protocol    uint8  `json:"protocol"`
	Port        uint16 `json:"port,omitempty"` // of protocols with ports
	Count       uint64 `json:"count"`
}
