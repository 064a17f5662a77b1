package attachment

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
)

// Attached returns what an attachment that stands was answered with.
func (a *Service) Attached(k attach.Key) (attach.Result, bool) {
	e, ok := a.journal.get(k)
	if !ok || e.State != StateDone || e.Result == nil {
		return attach.Result{}, false
	}
	return *e.Result, true
}

// AttachedBy lists the attachments that stand and came from a source.
func (a *Service) AttachedBy(source string) []attach.Key {
	var out []attach.Key
	for _, e := range a.journal.all() {
		if e.State == StateDone && e.Request.Source == source {
			out = append(out, e.Key())
		}
	}
	return out
}

// RouteReplies has what a container sends from an attachment's addresses leave by that
// attachment's own gateways, and these serve where its runtime has set no other default
// route, or that one's interface is gone. It is for runtimes that configure interfaces
// themselves; detaching does not undo it: RemoveReplyRoutes does.
func (a *Service) RouteReplies(k attach.Key) error {
	res, ok := a.Attached(k)
	if !ok {
		return model.Errorf(model.ErrNotFound, "there is no attachment %s", k)
	}
	addresses, gateways := addressesAndGateways(res)
	return vethpair.RouteReplies(res.HostIf, addresses, gateways)
}

// RemoveReplyRoutes undoes RouteReplies while the interface is still in its container; of what is
// gone there is nothing to undo.
func (a *Service) RemoveReplyRoutes(k attach.Key) error {
	res, ok := a.Attached(k)
	if !ok {
		return nil
	}
	return vethpair.RemoveReplyRoutes(res.HostIf)
}

// addressesAndGateways are the addresses of an attachment's interface and the gateways of its default
// routes.
func addressesAndGateways(res attach.Result) (addresses []netip.Prefix, gateways []netip.Addr) {
	for _, ad := range res.Addresses {
		addresses = append(addresses, ad.Prefix)
		if ad.Gateway.IsValid() {
			gateways = append(gateways, ad.Gateway)
		}
	}
	for _, router := range []netip.Addr{res.Router, res.Router6} {
		if router.IsValid() {
			gateways = append(gateways, router)
		}
	}
	return addresses, gateways
}
