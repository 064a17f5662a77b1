package analysis

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/reachability"
	"github.com/contiv/netplugin/v2/internal/model"
)

// ParsePort reads PROTOCOL or PROTOCOL/PORT, PROTOCOL/LO-HI; "" = all. The error is of kind
// model.ErrInvalid.
func ParsePort(field, text string) (reachability.Ports, error) {
	if text == "" {
		return reachability.AllPorts(), nil
	}
	name, ports, has := strings.Cut(text, "/")
	m := model.PortMatch{Hi: 65535}
	var err error
	if m.Protocol, err = protocolNamed(field, name, text); err != nil {
		return reachability.Ports{}, err
	}
	bad := model.InvalidField(field, text, "must be PROTOCOL, or PROTOCOL/PORT or PROTOCOL/LOW-HIGH of tcp, udp and sctp with ports from 0 to 65535")
	if !has {
		return reachability.PortsOf(m), nil
	}
	low, high, isRange := strings.Cut(ports, "-")
	if !isRange {
		high = low
	}
	lo, errLo := strconv.ParseUint(low, 10, 16)
	hi, errHi := strconv.ParseUint(high, 10, 16)
	if errLo != nil || errHi != nil || lo > hi || !m.Protocol.HasPorts() {
		return reachability.Ports{}, bad
	}
	m.Lo, m.Hi = uint16(lo), uint16(hi)
	return reachability.PortsOf(m), nil
}

func protocolNamed(field, name, text string) (model.Protocol, error) {
	switch name {
	case "sctp":
		return model.ProtoSCTP, nil
	case "icmp6":
		return model.ProtoICMPv6, nil
	}
	p, err := model.ParseProtocol(name)
	if err != nil || name == "" {
		return 0, model.InvalidField(field, text, "must begin with tcp, udp, sctp, icmp, icmp6, or the number of a protocol")
	}
	return p, nil
}

// FormatPort writes a set of ports as ParsePort reads it, and all protocols as "all".
func FormatPort(m model.PortMatch) string {
	var name string
	switch m.Protocol {
	case model.AnyProtocol:
		name = "all"
	case model.ProtoSCTP:
		name = "sctp"
	case model.ProtoICMPv6:
		name = "icmp6"
	default:
		name = m.Protocol.String()
	}
	switch {
	case m.Lo == 0 && m.Hi == 65535:
		return name
	case m.Lo == m.Hi:
		return fmt.Sprintf("%s/%d", name, m.Lo)
	}
	return fmt.Sprintf("%s/%d-%d", name, m.Lo, m.Hi)
}
