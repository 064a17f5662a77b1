package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	pathDoctor = "/api/v1/doctor"
	pathRepair = "/api/v1/doctor/repair"
	pathBundle = "/api/v1/bundle"
	pathReport = "/plugin/report/"
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
	CheckFabric       = "fabric"       // what an ACI fabric does not have
)

// Finding is something that is not as it should be: a condition of the object Where.
type Finding struct {
	Name     string `json:"name"`     // stable; docs/reference/conditions.md lists them
	Object   string `json:"object"`   // host, netmaster or cluster: of each a name means one condition
	Check    string `json:"check"`    // one of the Check constants
	Where    string `json:"where"`    // cluster, host NAME, netmaster ADDRESS, store ADDRESS, or an object
	Severity string `json:"severity"` // error, warning, notice
	Text     string `json:"text"`     // what it is
	Remedy   string `json:"remedy"`   // what to do
	Page     string `json:"page"`     // where it is documented
	// Repair is whether POST /api/v1/doctor/repair puts it right: empty = it does not.
	Repair string `json:"repair,omitempty"`
}

// String is the finding in one sentence, with what to do.
func (f Finding) String() string {
	text := f.Where + ": " + f.Text
	if rest, ok := strings.CutPrefix(f.Text, "it "); ok {
		text = f.Where + " " + rest
	} else if f.Where == WhereCluster {
		text = f.Text
	}
	if f.Remedy != "" {
		text += "; " + f.Remedy
	}
	return text
}

// WhereCluster is the Where of findings that are about no single object.
const WhereCluster = "cluster"

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

// IsHealthy reports whether there is nothing but notices and what was repaired.
func (d Diagnosis) IsHealthy() bool {
	for _, f := range d.Findings {
		if f.Severity != SeverityNotice && f.Repair != RepairDone {
			return false
		}
	}
	return true
}

// HostInspection is what a host tells of itself when the doctor asks: a finding's Where is
// the host.
type HostInspection struct {
	Findings []Finding `json:"findings"`
	Machine
}

// Machine is what a daemon tells of itself and where it runs.
type Machine struct {
	Version      string        `json:"version,omitempty"`
	Certificates []Certificate `json:"certificates,omitempty"`
	Disks        []Disk        `json:"disks,omitempty"`
	// Time is the clock there when this was told; zero = a daemon that does not tell it.
	Time time.Time `json:"time,omitzero"`
}

// Certificate is one that a daemon shows or trusts.
type Certificate struct {
	Use     string    `json:"use"` // such as "the API's", or "the authority in DIRECTORY"
	Subject string    `json:"subject"`
	Ends    time.Time `json:"ends"`
	// TellFrom is from when on the doctor tells of the end; zero = 30 days before.
	TellFrom time.Time `json:"tellFrom,omitzero"`
	Remedy   string    `json:"remedy,omitempty"` // what to do then; "" = what 'netctl pki' does
	// Error is why its files cannot be used any more: the daemon goes on with what it has read
	// before, until it restarts. Ends is zero where it has read nothing.
	Error string `json:"error,omitempty"`
}

// Disk is the file system of a directory that a daemon writes to.
type Disk struct {
	Use   string `json:"use"` // such as "state"
	Path  string `json:"path"`
	Free  uint64 `json:"free"`            // bytes that the daemon can still write
	Size  uint64 `json:"size"`            // bytes
	Error string `json:"error,omitempty"` // why it is not known
}

// BundleManifest says what is in a bundle.
type BundleManifest struct {
	Of      string       `json:"of"` // host NAME, or netmaster ADDRESS
	Version string       `json:"version"`
	Made    time.Time    `json:"made"`
	Parts   []BundlePart `json:"parts"`
}

// BundlePart is a file of a bundle.
type BundlePart struct {
	Name    string `json:"name"`
	Bytes   int64  `json:"bytes"`
	LeftOut int64  `json:"leftOut,omitempty"` // bytes, of what was too long
	Error   string `json:"error,omitempty"`   // why it, or a part of it, could not be had
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

// DeliverReport sends what a host tells of itself to the netmaster that has asked for it
// under an id; the body is read once.
func (c *Client) DeliverReport(ctx context.Context, id, host string, body io.Reader) error {
	resp, err := c.open(ctx, http.MethodPost, pathReport+url.PathEscape(id)+"?host="+url.QueryEscape(host), body)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Bundle writes what a host's netplugin, or ("") the netmaster that answers, packs for the
// search of faults to w: a tar archive whose last file is its manifest.
func (c *Client) Bundle(ctx context.Context, host string, w io.Writer) error {
	path := pathBundle
	if host != "" {
		path = "/api/v1/hosts/" + url.PathEscape(host) + "/bundle"
	}
	resp, err := c.open(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("receive the bundle: %w", err)
	}
	return nil
}
