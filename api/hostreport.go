package api

// HostReportVersion is what this version's agents tell of their hosts; a
// netmaster refuses a later one.
const HostReportVersion = 1

// HostReport is what an agent keeps in the cluster, which its netmasters write
// for it (POST /plugin/host): its lease on the host's name, the host's record, and
// where it is registered. It tells it again every few seconds: a host that no
// netmaster hears of any more counts as away.
type HostReport struct {
	Version      int    `json:"version"` // HostReportVersion
	Host         string `json:"host"`
	Installation string `json:"installation"`       // UUID of the agent's state directory
	Boot         string `json:"boot,omitempty"`     // of the host's kernel
	Since        string `json:"since"`              // RFC 3339, by the host's clock: when the agent began
	Control      string `json:"control"`            // address of the host
	VTEP         string `json:"vtep"`               // address of its tunnels
	IPv6         string `json:"ipv6,omitempty"`     // address by which it speaks to others by IPv6
	VXLANPort    int    `json:"vxlanPort"`          // UDP port of its tunnels
	Driver       string `json:"driver,omitempty"`   // of its data plane
	Store        string `json:"store,omitempty"`    // mark of the store that it follows
	Format       int    `json:"format"`             // of what the agent keeps on the host
	AgentVersion string `json:"agentVersion"`       // for people
	TakeHost     bool   `json:"takeHost,omitempty"` // take the name over from an installation that is not alive
	// Listening are ip:port at which the agent answers beyond its host.
	Listening []string `json:"listening,omitempty"`
	// Confirms: the agent knows of changes that wait to be confirmed.
	Confirms bool `json:"confirms,omitempty"`
	// AnswersProbes: the host's data plane answers tunnel probes.
	AnswersProbes bool `json:"answersProbes,omitempty"`
	// Look: see whether all of it is in the store; otherwise it says only that the
	// agent lives.
	Look bool `json:"look,omitempty"`
	// Leaving: the agent ends, and the host is away from now on.
	Leaving bool `json:"leaving,omitempty"`
}

// HostReportResponse is the answer.
type HostReportResponse struct {
	// Taken is why the name, or the tunnel's address, is not for this agent; empty =
	// it is.
	Taken string `json:"taken,omitempty"`
	// Former: it may be a former run of this very installation, which will count as
	// away soon.
	Former bool   `json:"former,omitempty"`
	Wrote  string `json:"wrote,omitempty"` // what was missing or wrong, and was written
	Heir   string `json:"heir,omitempty"`  // the installation that had the name before, when it was another
}

// HostStatusReport is what an agent observes (POST /plugin/hostStatus).
type HostStatusReport struct {
	Version      int                  `json:"version"` // HostReportVersion
	Host         string               `json:"host"`
	Installation string               `json:"installation"`
	Driver       string               `json:"driver"`
	DriverWhy    string               `json:"driverWhy,omitempty"`
	AgentVersion string               `json:"agentVersion,omitempty"`
	Updated      string               `json:"updated"`            // RFC 3339, by the host's clock
	Revision     int64                `json:"revision"`           // of the last desired state applied
	Verified     string               `json:"verified,omitempty"` // RFC 3339, by the host's clock: when the last comparison of the whole data plane began
	Ports        int                  `json:"ports"`              // programmed
	Pending      int                  `json:"pending"`            // wanted but not programmed
	Error        string               `json:"error,omitempty"`
	Problems     map[string]string    `json:"problems,omitempty"` // object -> sentence
	Attachments  int                  `json:"attachments,omitempty"`
	Ready        bool                 `json:"ready,omitempty"`
	Conditions   []Condition          `json:"conditions,omitempty"` // the ones that do not hold
	Kinds        map[string]int       `json:"kinds,omitempty"`      // how many problems, by kind
	Tables       map[string]TableFill `json:"tables,omitempty"`
	BGP          *BgpStatus           `json:"bgp,omitempty"` // nil = the host has no BGP settings

	Surroundings *UnderlayNetworks `json:"surroundings,omitempty"`

	Published PublishedPorts `json:"published,omitzero"`
}

// PublishedPorts are the ports of a host that lead to containers.
type PublishedPorts struct {
	Ports    []PublishedPort `json:"ports,omitempty"`    // at most 256
	Unlisted int             `json:"unlisted,omitempty"` // how many more there are
}

// PublishedPort leads a port of a host to a container there.
type PublishedPort struct {
	Endpoint string `json:"endpoint"`         // its key
	Protocol string `json:"protocol"`         // tcp, udp, or 132 (SCTP)
	HostIP   string `json:"hostIP,omitempty"` // empty = all addresses of the host; 0.0.0.0, :: = all of a family
	HostPort int    `json:"hostPort"`
	Port     int    `json:"port"` // the container's
}

// UnderlayNetworks are the networks around a host that tenants' networks must not meet.
type UnderlayNetworks struct {
	Addresses []string `json:"addresses,omitempty"` // gateways and name servers, at most 64
	VLANs     []int    `json:"vlans,omitempty"`     // of which the host itself has interfaces, at most 64
}

// BgpStatus is how a host's BGP speaker fares.
type BgpStatus struct {
	Admin     string   `json:"admin"`           // "enabled", or why it does not speak
	Neighbors string   `json:"neighbors"`       // of each its address and state, separated by commas
	Routes    int      `json:"routes"`          // learned
	First     []string `json:"first,omitempty"` // of those
	Announced int      `json:"announced"`       // prefixes
	// Prefixes are the announced ones, the first 200.
	Prefixes []string `json:"prefixes,omitempty"`
}

// HostHeartbeats tells the netmaster that leads which agents another one has heard of
// since the last time (POST /plugin/hostsHeard).
type HostHeartbeats struct {
	Hosts []string `json:"hosts"`
}

// L2AnnouncerReport tells for which addresses of load balancers a host could answer its
// neighbours, and does not beyond them (POST /plugin/answer).
type L2AnnouncerReport struct {
	Version      int      `json:"version"` // HostReportVersion
	Host         string   `json:"host"`
	Installation string   `json:"installation"`
	Run          int64    `json:"run"` // of the agent; later runs have higher ones
	Seq          uint64   `json:"seq"` // of the report, within the run
	Able         []string `json:"able"`
}

// L2AnnouncerResponse are the addresses that it answers for. It has them for a short time before it
// asks.
type L2AnnouncerResponse struct {
	Held []string `json:"held"`
}
