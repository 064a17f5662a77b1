package apiserver

import (
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// hostToAPI is the answer for a host, with the rest of its grace time.
func (s *hostHandlers) hostToAPI(h control.HostState, now time.Time) api.Host {
	o := hostToAPI(h, now)
	if a := h.Away; a.Host != "" && !a.Evicted && s.evictAfter > 0 {
		o.EvictSeconds = max(1, int64(s.evictAfter/time.Second)-a.Seconds)
	}
	return o
}

// graceText is what becomes of the endpoints of a host that is away; empty = nothing does.
func graceText(h api.Host) string {
	if h.EvictSeconds == 0 || h.Endpoints == 0 {
		return ""
	}
	text := ", to be released in " + ageText(h.EvictSeconds)
	if h.AwaySeconds > 0 { // it is counted by the minute
		text += fmt.Sprintf(" (it has been away for %s)", ageText(h.AwaySeconds))
	}
	return text
}

// restarts is how long a host may be away that is only being restarted.
const restarts = 5 * time.Minute

// awayRemedy says what to do about a host that is away. To forget one is no advice while it
// may be restarting.
func awayRemedy(h api.Host) string {
	if h.Age >= 0 && time.Duration(h.Age)*time.Second < restarts {
		return "if it is not being restarted, start netplugin there"
	}
	if h.Endpoints > 0 {
		return fmt.Sprintf("start netplugin there; once the host is gone for good, 'netctl host rm --force %s' releases its endpoints and forgets it", h.Name)
	}
	return fmt.Sprintf("start netplugin there; once the host is gone for good, 'netctl host rm %s' forgets it", h.Name)
}

// manyAway says that nothing is concluded of who is away; empty = it is.
func manyAway(v *control.View, hosts []control.HostState) string {
	alive := map[model.HostName]bool{}
	for _, h := range hosts {
		alive[h.Name] = h.Alive
	}
	away, known := v.Hosts.CountAway(alive)
	if away < 2 || !v.Hosts.TooManyAway(alive) { // of one alone all has been said
		return ""
	}
	return fmt.Sprintf("%d of %d hosts are away: more than half, so the network or netmasters are likelier at fault than each host, and the cluster waits: it releases none of their endpoints, no time counts towards --evict-after, and services still send to their providers there", away, known)
}

// waitingText says what waits to be confirmed.
func waitingText(w control.Waiting) string {
	left := time.Duration(math.Ceil(w.Left.Seconds())) * time.Second
	if left <= 0 {
		return fmt.Sprintf("change %s was not confirmed in time: hosts have rolled it back, and it is being reverted", w.ID)
	}
	return fmt.Sprintf("change %s is unconfirmed: in %s hosts roll it back, unless it is confirmed (netctl confirm %s)", w.ID, left, w.ID)
}

// servicesLost names services whose rows somebody has deleted in the store.
func servicesLost(v *control.View) (out []api.Finding) {
	for _, a := range v.Services.LostServices() {
		f := condition.ObjectMissing.Finding("service "+string(a.Network.Tenant)+":"+a.Service,
			fmt.Sprintf("it does not exist or cannot be read, and its address %s of network %s is still allocated to it: the address does not work", a.Addr, a.Network))
		f.Remedy = "free its address with 'netctl doctor --repair', then create the service again"
		out = append(out, f)
	}
	return out
}

// servicesOverlapped names networks that lie in the ranges of Kubernetes' services'
// addresses.
func servicesOverlapped(v *control.View) (out []api.Finding) {
	ranges := v.AddressOwners.ServiceRanges()
	if len(ranges.Ranges) == 0 {
		return nil
	}
	for _, n := range v.Networks.List("") {
		for _, subnet := range []netip.Prefix{n.Subnet, n.Subnet6} {
			if by, overlaps := ranges.Overlapping(subnet); subnet.IsValid() && overlaps {
				out = append(out, condition.ServicesOverlap.Finding("network "+n.Key.String(), fmt.Sprintf("its subnet %s overlaps %s, a range of services' addresses (--service-cidr, or a ServiceCIDR of Kubernetes): services with addresses there are not served", subnet, by)))
			}
		}
	}
	return out
}
