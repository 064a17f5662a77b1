package attachment

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// checkNoOverlap refuses an interface on a network whose addresses another interface of the
// container has a subnet for: the container would send all of it by one of the two, with an
// address that this one must not use.
func (a *attacher) checkNoOverlap(r attach.Request, network model.Network) error {
	for _, e := range a.journal.all() {
		if e.State != StateDone || e.Result == nil || e.Request.Container != r.Container || e.Request.Key == r.Key {
			continue
		}
		for _, has := range e.Result.Addresses {
			for _, subnet := range []netip.Prefix{network.Subnet, network.Subnet6} {
				if subnet.IsValid() && has.Prefix.Masked().Overlaps(subnet) {
					return model.Errorf(model.ErrConflict, "interface %q: network %q has the subnet %s, and interface %q of this container is in %s already, on network %q: it could not use both; give it a network with another subnet",
						r.IfName, network.Key, subnet, e.Request.IfName, has.Prefix.Masked(), e.Endpoint.Network)
				}
			}
		}
	}
	return nil
}
