package api

import (
	"context"
	"net/http"
	"time"
)

const (
	pathDoctor = "/api/v1/doctor"
	pathRepair = "/api/v1/doctor/repair"
)

// How bad a Finding is. What is only a notice, an operator may choose to leave so.
const (
	SeverityError   = "error"   // something does not work, or will not soon
	SeverityWarning = "warning" // something is not as it should be
	SeverityNotice  = "notice"
)

// What a Finding is about.
const (
	CheckOwners       = "owners"       // what is allocated in the store, and whose it is
	CheckStore        = "store"        // the store's servers
	CheckNetmasters   = "netmasters"   // who leads, who answers
	CheckHosts        = "hosts"        // hosts that are away, silent, or not ready
	CheckDataPlane    = "data-plane"   // what a host's data plane has too much or too little
	CheckCertificates = "certificates" // that end
	CheckDisks        = "disks"        // that fill
	CheckVersions     = "versions"     // that differ
	CheckCapacity     = "capacity"     // pools and tables that are nearly full
)

// Finding is something that is not as it should be.
type Finding struct {
	Check    string `json:"check"`    // one of the Check constants
	Where    string `json:"where"`    // cluster, host NAME, netmaster ADDRESS, store ADDRESS, or an object
	Severity string `json:"severity"` // error, warning, notice
	Text     string `json:"text"`     // what it is
	Remedy   string `json:"remedy"`   // what to do
	// Repair is whether POST /api/v1/doctor/repair puts it right: empty = it does not.
	Repair string `json:"repair,omitempty"`
}

// The values of Finding.Repair; one that failed says why behind a colon.
const (
	RepairPossible = "possible"
	RepairDone     = "done"
	RepairFailed   = "failed"
)

// Diagnosis is the answer of GET /api/v1/doctor and of POST /api/v1/doctor/repair.
type Diagnosis struct {
	Version  string    `json:"version"`  // of the netmaster that answers
	Findings []Finding `json:"findings"` // the worst first
	Hosts    int       `json:"hosts"`    // that are known
	Answered int       `json:"answered"` // hosts that have told of themselves for this
}

// Well tells whether there is nothing but notices and what was repaired.
func (d Diagnosis) Well() bool {
	for _, f := range d.Findings {
		if f.Severity != SeverityNotice && f.Repair != RepairDone {
			return false
		}
	}
	return true
}

// Machine is what a daemon tells of itself and where it runs.
type Machine struct {
	Version      string        `json:"version,omitempty"`
	Certificates []Certificate `json:"certificates,omitempty"`
	Disks        []Disk        `json:"disks,omitempty"`
}

// Certificate is one that a daemon shows or trusts.
type Certificate struct {
	Use     string    `json:"use"` // such as "the API's", or "the authority in DIRECTORY"
	Subject string    `json:"subject"`
	Ends    time.Time `json:"ends"`
}

// Disk is the file system of a directory that a daemon writes to.
type Disk struct {
	Use   string `json:"use"` // such as "state"
	Path  string `json:"path"`
	Free  uint64 `json:"free"`            // bytes that the daemon can still write
	Size  uint64 `json:"size"`            // bytes
	Error string `json:"error,omitempty"` // why it is not known
}

// Doctor looks for what is wrong with the cluster.
func (c *Client) Doctor(ctx context.Context) (Diagnosis, error) {
	var out Diagnosis
	err := c.Do(ctx, http.MethodGet, pathDoctor, nil, &out)
	return out, err
}

// Repair puts right what the doctor can, and looks again.
func (c *Client) Repair(ctx context.Context) (Diagnosis, error) {
	var out Diagnosis
	err := c.Do(ctx, http.MethodPost, pathRepair, struct{}{}, &out)
	return out, err
}
