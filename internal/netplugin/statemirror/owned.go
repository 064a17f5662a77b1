package statemirror

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// Attachment is what is known of an attachment that stands.
type Attachment struct {
	Key      attach.Key
	Endpoint model.EndpointKey
	MAC      model.MAC  // of the container's interface; zero = not known, nor its address
	IPv4     netip.Addr // likewise; invalid = it has none
}

// isEndpoint reports whether an endpoint is the attachment's: an endpoint of the same name
// may be from before, with another address.
func (o Attachment) isEndpoint(ep model.Endpoint) bool {
	return o.MAC == (model.MAC{}) || ep.MAC == o.MAC && ep.IPv4 == o.IPv4
}

// Lost returns the attachments whose endpoint the store lacks.
func (e *Endpoints) Lost() []Attachment {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lost(e.Agent.Own())
}

// lost returns those attachments whose endpoint the store, as it is now, lacks. A network
// that is not mirrored is not known to lack it.
func (e *Endpoints) lost(own []Attachment) (out []Attachment) {
	for _, o := range own {
		m := e.mirrors.endpoints(o.Endpoint.Network)
		if m == nil || !m.ready && !m.withheld { // of a host without endpoints there it is withheld
			continue
		}
		if ep, there := m.endpoint(o.Endpoint); !there || ep.Host != e.Host || !o.isEndpoint(ep) {
			out = append(out, o)
		}
	}
	return out
}

// HasStale reports whether the store has an endpoint of this host under an attachment's
// name that is not its own.
func (e *Endpoints) HasStale(o Attachment) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.mirrors.endpoints(o.Endpoint.Network)
	if m == nil || !m.ready {
		return false
	}
	ep, there := m.endpoint(o.Endpoint)
	return there && ep.Host == e.Host && !o.isEndpoint(ep)
}
