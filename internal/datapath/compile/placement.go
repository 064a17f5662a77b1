package compile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// placement decides which endpoints are in the desired state, as local ports or remote
// ones, and removes from it the endpoints that have moved or gone.
//
// Takes: marked endpoints; networks, MAC addresses.
// Gives: ports to subjects; the place of each endpoint; removals from Ports, Remotes,
// Bandwidth.
type placement struct {
	self model.HostName

	inv      *inventory
	subjects *subjects
	out      *output
	problems *problems
	dirtyEps *marks[*endpoint]
}

// winsMAC reports whether e is the one that gets its MAC: local endpoints come
// first, then the smallest id. Control never hands a MAC out twice.
func (pm *placement) winsMAC(e *endpoint) (bool, *endpoint) {
	win := e
	for _, o := range e.net.macs[e.MAC] {
		if local := o.Host == pm.self; local != (win.Host == pm.self) {
			if local {
				win = o
			}
		} else if cmp.Less(o.Key.ID, win.Key.ID) {
			win = o
		}
	}
	return win == e, win
}

// compile decides which changed endpoints are in the desired state and as
// what, and takes out of their former place the ones that have moved or gone.
func (pm *placement) compile() {
	for e := range pm.dirtyEps.of {
		in := !e.deleted && e.net.isPresent()
		text := ""
		if in {
			won, winner := pm.winsMAC(e)
			if in = won; !won {
				text = fmt.Sprintf("its MAC %s belongs to endpoint %s: it stays shut", e.MAC, winner.Key)
			} else if e.identity() == model.IdentityUnknown {
				text = "has no identity: others take it for unknown"
			}
		}
		if cur := pm.inv.networks[e.Key.Network]; !e.deleted || cur == nil || cur.eps[e.Key.ID] == nil {
			pm.problems.set("endpoint "+e.Key.String(), text)
		}
		at, here := e.homeSegment(), e.Host == pm.self
		port, remote := in && here && at.id != 0, in && e.net.id != 0 && (!here || at != e.net)
		if e.isPort && !port {
			pm.out.Ports = pm.out.Ports.Delete(e.ifName)
			pm.out.Bandwidth = pm.out.Bandwidth.Delete(e.ifName)
		}
		pm.subjects.move(e, port)
		key := desired.RemoteKey{Network: e.net.id, MAC: e.MAC}
		if e.isRemote && (!remote || key != e.remote) {
			pm.out.Remotes = pm.out.Remotes.Delete(e.remote)
		}
		e.isPort, e.isRemote, e.remote = port, remote, key
		if len(e.segmentRemotes)+len(e.net.segments) > 0 {
			pm.placeOnSegments(e, in)
		}
	}
}

// placeOnSegments decides on which segments an endpoint is a remote one: on all but its own,
// and on its own too when it is on another host.
func (pm *placement) placeOnSegments(e *endpoint, in bool) {
	var now []desired.RemoteKey
	for _, s := range e.net.segments {
		if in && s.id != 0 && (s != e.segment || e.Host != pm.self) {
			now = append(now, desired.RemoteKey{Network: s.id, MAC: e.MAC})
		}
	}
	for _, k := range e.segmentRemotes {
		if !slices.Contains(now, k) {
			pm.out.Remotes = pm.out.Remotes.Delete(k)
		}
	}
	e.segmentRemotes = now
}
