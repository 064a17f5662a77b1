package server

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// portMapping is an item of the capability portMappings.
type portMapping struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"` // empty = tcp
	HostIP        string `json:"hostIP"`   // empty = all of the host's addresses
}

// bindings are the ports of the host that a container asks for. A mapping that is there
// twice is one.
func (c conf) bindings() ([]attach.PortBinding, error) {
	var out []attach.PortBinding
	for i, m := range c.RuntimeConfig.Ports {
		bad := func(field string, value any, why string) error {
			return types.NewError(types.ErrInvalidNetworkConfig, "invalid port mapping",
				fmt.Sprintf("runtimeConfig.portMappings[%d].%s %v: %s", i, field, value, why))
		}
		for field, n := range map[string]int{"hostPort": m.HostPort, "containerPort": m.ContainerPort} {
			if n < 1 || n > 65535 {
				return nil, bad(field, n, "must be between 1 and 65535")
			}
		}
		proto, ok := map[string]model.Protocol{"": model.ProtoTCP, "tcp": model.ProtoTCP, "udp": model.ProtoUDP, "sctp": model.ProtoSCTP}[strings.ToLower(m.Protocol)]
		if !ok {
			return nil, bad("protocol", quote(m.Protocol), "must be tcp, udp or sctp")
		}
		b := attach.PortBinding{Proto: proto, HostPort: uint16(m.HostPort), ContainerPort: uint16(m.ContainerPort)}
		var err error
		if m.HostIP != "" {
			if b.HostIP, err = netip.ParseAddr(m.HostIP); err != nil || b.HostIP.Zone() != "" {
				return nil, bad("hostIP", quote(m.HostIP), "must be an address of the host, or empty for all")
			}
		}
		if b, err = b.Check(); err != nil {
			return nil, err
		}
		if !slices.Contains(out, b) {
			out = append(out, b)
		}
	}
	return out, nil
}
