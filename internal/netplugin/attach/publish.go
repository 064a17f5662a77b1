package attach

import (
	"fmt"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
)

// PortBinding publishes a port of a container on its host. On input HostPort 0
// asks for any free port, and HostPortEnd beyond HostPort for one of a range;
// what Publish returns has one host port each.
type PortBinding struct {
	Proto         model.Protocol `json:"proto"`           // TCP, UDP or SCTP
	HostIP        netip.Addr     `json:"hostIp,omitzero"` // zero = any address of the host; 0.0.0.0, :: = any of a family
	HostPort      uint16         `json:"hostPort,omitempty"`
	HostPortEnd   uint16         `json:"hostPortEnd,omitempty"` // 0 = HostPort
	ContainerPort uint16         `json:"containerPort"`
}

func (b PortBinding) String() string {
	ip := "*"
	if b.HostIP.IsValid() {
		ip = b.HostIP.String()
		if b.HostIP.Is6() {
			ip = "[" + ip + "]"
		}
	}
	return fmt.Sprintf("%s:%d->%d/%s", ip, b.HostPort, b.ContainerPort, b.Proto)
}

// Check refuses an invalid binding, and returns a valid one in its canonical form.
func (b PortBinding) Check() (PortBinding, error) {
	if !b.Proto.HasPorts() {
		return b, model.InvalidField("proto", b.Proto, "must be tcp, udp or sctp")
	}
	if b.HostIP = b.HostIP.Unmap(); b.HostIP.Zone() != "" {
		return b, model.InvalidField("hostIp", b.HostIP, "must be an address of the host without a zone, or empty for all")
	}
	if b.HostIP.IsMulticast() || b.HostIP == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return b, model.InvalidField("hostIp", b.HostIP, "must be an address of the host, or empty for all: multicast and broadcast addresses are none")
	}
	if b.ContainerPort == 0 {
		return b, model.InvalidField("containerPort", b.ContainerPort, "must be between 1 and 65535")
	}
	if b.HostPortEnd == 0 {
		b.HostPortEnd = b.HostPort
	}
	if b.HostPortEnd < b.HostPort {
		return b, model.InvalidField("hostPortEnd", b.HostPortEnd, fmt.Sprintf("must not be below hostPort %d", b.HostPort))
	}
	return b, nil
}

// Overlaps reports whether two bindings want the same port of the host.
func (b PortBinding) Overlaps(o PortBinding) bool {
	return b.Proto == o.Proto && b.HostPort == o.HostPort && (b.holds(o.HostIP) || o.holds(b.HostIP))
}

// holds reports whether an address, or any of it, is one that a binding is for.
func (b PortBinding) holds(a netip.Addr) bool {
	return !b.HostIP.IsValid() || b.HostIP == a || a.IsValid() && b.HostIP.IsUnspecified() && a.Is4() == b.HostIP.Is4()
}

// PublishRequest names all ports that an attachment publishes from now on: a port
// that it published before and that is not in Ports ends.
type PublishRequest struct {
	Key
	Ports []PortBinding `json:"ports"`
	// Reserved: the runtime keeps processes of the host from these ports itself, and could
	// not if somebody else did.
	Reserved bool `json:"reserved,omitempty"`
}

// PublishResult is what was published, in the order of the request, with the
// host ports that were chosen.
type PublishResult struct {
	Ports []PortBinding `json:"ports"`
}
