package compat

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
)

// shapes say what is compared of a field whose value the server is free to
// choose: which address is free depends on the order of search, and numbers and
// counts on what else was accepted.
var shapes = map[string]func(any) any{
	"ipAddress": each(address), "ipaddress": each(address), "serviceVip": each(address), "ipv6Address": each(address), "IPv4Address": each(address),
	"macAddress":              each(mac),
	"allocatedIPAddresses":    each(ranges(address)),
	"availableIPAddresses":    each(ranges(address)),
	"vlansInUse":              each(ranges(digits)),
	"vxlansInUse":             each(ranges(digits)),
	"allocatedAddressesCount": number, "endpointGroupId": number, "pktTag": number, "externalPktTag": number, "numNetworks": number,
	"intfName": each(text), "containerId": each(text), "containerID": each(text),
	"Version": each(text), "GitCommit": each(text), "BuildTime": each(text),
}

// each applies a shape to a text, or to those of a list.
func each(shape func(string) string) func(any) any {
	return func(v any) any {
		switch v := v.(type) {
		case string:
			return shape(v)
		case []any:
			out := make([]any, len(v))
			for i, x := range v {
				out[i] = each(shape)(x)
			}
			return out
		}
		return fmt.Sprintf("neither text nor list: %v", v)
	}
}

func number(v any) any {
	n, ok := v.(float64)
	switch {
	case !ok, n < 0, n != float64(int64(n)):
		return fmt.Sprintf("no whole number from 0: %v", v)
	}
	return "number"
}

func text(s string) string {
	if s == "" {
		return ""
	}
	return "text"
}

// address is "", or which family, with or without a length.
func address(s string) string {
	if s == "" {
		return ""
	}
	kind := "address"
	if p, err := netip.ParsePrefix(s); err == nil {
		s, kind = p.Addr().String(), "address with length"
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return "no address: " + s
	}
	return fmt.Sprintf("%s, IPv4 %t", kind, a.Is4())
}

func mac(s string) string {
	if m, err := net.ParseMAC(s); s != "" && (err != nil || len(m) != 6) {
		return "no MAC: " + s
	}
	return text(s)
}

func digits(s string) string {
	if _, err := strconv.ParseUint(s, 10, 24); err != nil {
		return "no number: " + s
	}
	return "number"
}

// ranges is the shape of a list such as "1-3, 7": the shapes of its ends, in their order.
func ranges(shape func(string) string) func(string) string {
	return func(s string) string {
		if s == "" {
			return ""
		}
		kinds := map[string]bool{}
		for part := range strings.SplitSeq(s, ",") {
			lo, hi, both := strings.Cut(strings.TrimSpace(part), "-")
			kinds[shape(lo)] = true
			if both {
				kinds[shape(hi)] = true
			}
		}
		if len(kinds) != 1 {
			return "ends of several kinds: " + s
		}
		for k := range kinds {
			return "ranges of " + k
		}
		return ""
	}
}

// TestShapesTellRubbishApart: rubbish has another shape than what it stands for.
func TestShapesTellRubbishApart(t *testing.T) {
	for name, bad := range map[string]any{
		"ipAddress": "rubbish", "macAddress": "", "allocatedIPAddresses": "rubbish", "availableIPAddresses": "nonsense", "vlansInUse": "bogus",
		"allocatedAddressesCount": -1.0, "numNetworks": "4711", "endpointGroupId": 1.5, "intfName": "", "containerId": 7.0,
	} {
		good := map[string]any{
			"ipAddress": "10.1.1.1", "macAddress": "02:02:0a:01:01:01", "allocatedIPAddresses": "10.1.1.1-10.1.1.3, 10.1.1.9", "availableIPAddresses": "10.1.1.4",
			"vlansInUse": "1-3, 7", "allocatedAddressesCount": 3.0, "numNetworks": 2.0, "endpointGroupId": 1.0, "intfName": "eth0", "containerId": "c",
		}[name]
		if shapes[name](good) == shapes[name](bad) {
			t.Errorf("%s: %v and %v are alike", name, good, bad)
		}
	}
}
