package model

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

var _ = register(Kind{
	Collection: "netprofiles", Name: "netprofile", Order: 70,
})

// NetProfileKey names a net profile within the cluster.
type NetProfileKey struct {
	Tenant TenantName `json:"tenant"`
	Name   string     `json:"name"`
}

func (k NetProfileKey) String() string { return string(k.Tenant) + ":" + k.Name }

// ParseNetProfileKey parses "tenant:profile". The error is of kind ErrInvalid.
func ParseNetProfileKey(s string) (NetProfileKey, error) {
	t, n, err := parseKey("profileName", s, MaxName)
	return NetProfileKey{t, n}, err
}

// NetProfile limits what each endpoint of the groups that name it sends and receives,
// and marks what it sends.
type NetProfile struct {
	Key              NetProfileKey `json:"key"`
	Bandwidth        Bandwidth     `json:"bandwidth,omitzero"` // of what it sends
	DSCP             int           `json:"dscp,omitempty"`     // 0-63 (RFC 2474 section 3); 0 = packets are not marked
	Burst            int           `json:"burst,omitempty"`    // kilobytes (1000 bytes), 2-10486; 0 = chosen from the bandwidth
	ReceiveBandwidth Bandwidth     `json:"receiveBandwidth,omitzero"`
	ReceiveBurst     int           `json:"receiveBurst,omitempty"` // as Burst
	// Object is the Kubernetes object that it belongs to, "" = it is the users'. Control
	// writes it, and requests do not set it.
	Object string `json:"object,omitempty"`
}

// Limits of net profiles.
const (
	MaxDSCP  = 63
	MinBurst = 2
	MaxBurst = 10486
	// MaxBandwidth is the highest limit, in kilobits a second: 10,000 Gbit/s.
	MaxBandwidth = 10_000_000_000
)

// Bandwidth is a limit of traffic; the zero value means none.
type Bandwidth struct {
	Kbps uint64 `json:"kbps"` // kilobits (1000 bits) a second
	Text string `json:"text"` // as the user wrote it
}

const wantBandwidth = "must be a number and a unit, k, m or g with b or bps behind it or not, such as 10 kbps, 100mbps, 5Mb or 2g, of at most 10000g; or empty for no limit"

var bandwidthRE = pattern(`^([1-9][0-9]*) *([kmgKMG])([bB]([pP][sS])?)?$`)

// ParseBandwidth parses a limit such as "10 kbps"; empty is no limit. Units are
// powers of 1000. The error is of kind ErrInvalid.
func ParseBandwidth(s string) (Bandwidth, error) { return parseBandwidth("bandwidth", s) }

// ParseReceiveBandwidth is ParseBandwidth for the field receiveBandwidth.
func ParseReceiveBandwidth(s string) (Bandwidth, error) {
	return parseBandwidth("receiveBandwidth", s)
}

func parseBandwidth(field, s string) (Bandwidth, error) {
	if s == "" {
		return Bandwidth{}, nil
	}
	m := bandwidthRE().FindStringSubmatch(s)
	if m == nil || len(m[1]) > 11 {
		return Bandwidth{}, InvalidField(field, s, wantBandwidth)
	}
	n, err := strconv.ParseUint(m[1], 10, 64)
	switch strings.ToLower(m[2]) {
	case "m":
		n *= 1000
	case "g":
		n *= 1000 * 1000
	}
	if err != nil || n > MaxBandwidth {
		return Bandwidth{}, InvalidField(field, s, wantBandwidth)
	}
	return Bandwidth{n, s}, nil
}

// Validate checks all fields. The error is of kind ErrInvalid.
func (p NetProfile) Validate() error {
	if _, err := ParseTenantName(string(p.Key.Tenant)); err != nil {
		return err
	}
	if err := parseName("profileName", p.Key.Name, MaxName); err != nil {
		return err
	}
	if err := errors.Join(validLimit("bandwidth", p.Bandwidth, "burst", p.Burst), validLimit("receiveBandwidth", p.ReceiveBandwidth, "receiveBurst", p.ReceiveBurst)); err != nil {
		return err
	}
	if p.DSCP < 0 || p.DSCP > MaxDSCP {
		return InvalidField("DSCP", p.DSCP, "must be between 0 (packets are not marked) and 63")
	}
	return nil
}

// validLimit checks the two fields of one direction.
func validLimit(field string, b Bandwidth, burstField string, burst int) error {
	parsed, err := parseBandwidth(field, b.Text)
	switch {
	case err != nil:
		return err
	case parsed != b:
		return InvalidField(field, b.Text, fmt.Sprintf("must mean %d kbps", b.Kbps))
	case burst != 0 && (burst < MinBurst || burst > MaxBurst):
		return InvalidField(burstField, burst, "must be between 2 and 10486 kilobytes, or 0 to choose it from the bandwidth")
	}
	return nil
}
