package docker

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// publish publishes a container's ports by the endpoint that leads out of it.
// Docker itself publishes nothing on networks of plugins, and has no field in
// which to hear of a port that was chosen for it.
func (p *Plugin) publish(ctx context.Context, r connectivityRequest) (empty, error) {
	if len(r.Options.PortMap) == 0 {
		return empty{}, nil
	}
	req := attach.PublishRequest{Key: endpointAttachment(r.EndpointID)}
	for _, m := range r.Options.PortMap {
		b := attach.PortBinding{Proto: model.Protocol(m.Proto), HostPort: m.HostPort, HostPortEnd: m.HostPortEnd, ContainerPort: m.Port}
		if m.HostIP != "" {
			ip, err := netip.ParseAddr(m.HostIP)
			if err != nil {
				return empty{}, model.InvalidField("HostIP", m.HostIP, "must be an IP address")
			}
			b.HostIP = ip
		}
		req.Ports = append(req.Ports, b)
	}
	req.Ports = joined(req.Ports)
	res, err := p.backend.Publish(ctx, req)
	if err != nil {
		return empty{}, err
	}
	for _, b := range res.Ports {
		p.log.Info("published a port", "endpoint", short(r.EndpointID), "port", b.String())
	}
	return empty{}, nil
}

// joined makes one binding of the two by which Docker asks for all addresses of IPv4
// and of IPv6 (0.0.0.0 and ::), so that both get the same port.
func joined(ports []attach.PortBinding) []attach.PortBinding {
	var out []attach.PortBinding
	everywhere := func(a netip.Addr) bool { return !a.IsValid() || a.IsUnspecified() }
	for _, b := range ports {
		i := slices.IndexFunc(out, func(o attach.PortBinding) bool {
			both := everywhere(o.HostIP) && everywhere(b.HostIP) && o.HostIP != b.HostIP
			o.HostIP = b.HostIP
			return both && o == b
		})
		if i >= 0 {
			out[i].HostIP = netip.Addr{}
		} else {
			out = append(out, b)
		}
	}
	return out
}

// unpublish ends what publish did; an attachment that is gone is fine.
func (p *Plugin) unpublish(ctx context.Context, r endpointRequest) (empty, error) {
	key := endpointAttachment(r.EndpointID)
	if len(p.backend.Published(key)) == 0 {
		return empty{}, nil
	}
	if _, err := p.backend.Publish(ctx, attach.PublishRequest{Key: key}); err != nil && !errors.Is(err, model.ErrNotFound) {
		return empty{}, err
	}
	return empty{}, nil
}
