package api

import "encoding/json"

// ClusterStatus is the answer of GET /api/v1/status: what an operator looks at
// first. Well is the answer in one word; Wrong says what is not.
type ClusterStatus struct {
	Well     bool      `json:"well"`     // no finding is an error
	Findings []Finding `json:"findings"` // the worst first
	Wrong    []string  `json:"wrong"`    // the findings that are errors, a sentence each
	Notices  []string  `json:"notices"`  // the other findings

	Version   string        `json:"version"` // of the netmaster that answers
	Revision  int64         `json:"revision"`
	Masters   []Master      `json:"masters"`
	Stores    []StoreServer `json:"stores"`
	Hosts     []Host        `json:"hosts"`
	Endpoints int           `json:"endpoints"`
	Pools     []Pool        `json:"pools"`             // VLANs, VNIs, and the fullest networks from 80 % on
	Tenants   []string      `json:"tenants,omitempty"` // the status is limited to what these have, as a tenant-admin sees it; none = it is all of the cluster's
}

// MarshalJSON leaves out what a tenant-admin is not shown, instead of telling that there is
// none.
func (s ClusterStatus) MarshalJSON() ([]byte, error) {
	type plain ClusterStatus
	if s.Tenants == nil {
		return json.Marshal(plain(s))
	}
	type none *struct{} // fields of its names hide those of plain
	return json.Marshal(struct {
		plain

		Revision none `json:"revision,omitempty"`
		Masters  none `json:"masters,omitempty"`
		Stores   none `json:"stores,omitempty"`
	}{plain: plain(s)})
}

// Master is a netmaster that is registered.
type Master struct {
	Address string `json:"address"` // ip:port
	Host    string `json:"host"`
	Role    string `json:"role"` // leader, follower
	Version string `json:"version"`
}

// StoreServer is a server of the cluster's store.
type StoreServer struct {
	Address string   `json:"address"`
	Version string   `json:"version,omitempty"`
	Leads   bool     `json:"leads,omitempty"`
	Size    int64    `json:"size,omitempty"`  // bytes of the database
	Quota   int64    `json:"quota,omitempty"` // bytes that it may take; 0 = not told
	Took    float64  `json:"tookSeconds"`     // until it answered
	Alarms  []string `json:"alarms,omitempty"`
	Error   string   `json:"error,omitempty"` // why it does not answer
}

// Host is a host as its agent tells of it. HostAlive and HostAway are its
// states.
type Host struct {
	Name         string               `json:"name"`
	State        string               `json:"state"`
	Ready        bool                 `json:"ready"`              // as its /readyz said last
	LastWord     string               `json:"lastWord,omitempty"` // RFC 3339, by the host's clock: when its agent last told what follows
	Age          int64                `json:"ageSeconds"`         // of the last word; -1 = there is none
	Driver       string               `json:"driver,omitempty"`
	DriverWhy    string               `json:"driverWhy,omitempty"`
	Version      string               `json:"version,omitempty"`
	Control      string               `json:"control,omitempty"`
	VTEP         string               `json:"vtep,omitempty"`
	Addresses    []string             `json:"addresses,omitempty"` // that count as the host's: enrolled, or added by an administrator; none = connections do not authenticate the host
	VXLANPort    int                  `json:"vxlanPort,omitempty"` // UDP port of its tunnels, while it is alive
	Endpoints    int                  `json:"endpoints"`           // that the cluster has there
	Attachments  int                  `json:"attachments"`         // that the agent knows
	Ports        int                  `json:"ports"`               // programmed
	Pending      int                  `json:"pending"`             // wanted but not programmed
	Revision     int64                `json:"revision"`            // of the last desired state applied
	VerifiedAge  int64                `json:"verifiedAgeSeconds"`  // since the data plane was last compared with the desired state; -1 = not yet
	Conditions   []Condition          `json:"conditions,omitempty"`
	Problems     map[string]string    `json:"problems,omitempty"`     // object -> sentence; the first hundred
	Error        string               `json:"error,omitempty"`        // of the data plane as a whole
	Tables       map[string]TableFill `json:"tables,omitempty"`       // of the data plane
	Draining     bool                 `json:"draining,omitempty"`     // services send its providers no new connections, as an operator said
	AwaySeconds  int64                `json:"awaySeconds,omitempty"`  // while it is away: for how long netmasters have listened to it in vain
	EvictSeconds int64                `json:"evictSeconds,omitempty"` // while it is away: how much longer netmasters will listen until its endpoints are given up; 0 = for ever, or they do not count
	Tenants      []string             `json:"tenants,omitempty"`      // a tenant-admin of these asked: endpoints are theirs, and the host's own figures are left out
	Format       int                  `json:"format,omitempty"`       // of what its agent keeps there and says to others; an agent that knows only lower ones refuses to start
}

// MarshalJSON leaves out what a tenant-admin is not shown, instead of telling zeros.
func (h Host) MarshalJSON() ([]byte, error) {
	type plain Host
	if h.Tenants == nil {
		return json.Marshal(plain(h))
	}
	type none *struct{} // fields of its names hide those of plain
	return json.Marshal(struct {
		plain

		Attachments none `json:"attachments,omitempty"`
		Ports       none `json:"ports,omitempty"`
		Pending     none `json:"pending,omitempty"`
		Revision    none `json:"revision,omitempty"`
		VerifiedAge none `json:"verifiedAgeSeconds,omitempty"`
	}{plain: plain(h)})
}

// The states of a Host: its agent is registered, or is not heard of.
const (
	HostAlive = "alive"
	HostAway  = "away"
)

// TableFill tells how full a table of a data plane is.
type TableFill struct {
	Entries  uint64 `json:"entries"`
	Capacity uint64 `json:"capacity"` // 0 = unbounded
}

// Pool is something of which a cluster has so many.
type Pool struct {
	Name string `json:"name"` // vlans, vnis, or addresses of TENANT:NETWORK
	Used uint64 `json:"used"`
	Size uint64 `json:"size"`
}

// HostRemoval is the answer of DELETE /api/v1/hosts/{name}, and of POST
// /api/v1/hosts/{name}/evict.
type HostRemoval struct {
	Host              string `json:"host"`
	EndpointsReleased int    `json:"endpointsReleased"`
}
