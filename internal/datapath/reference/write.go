package reference

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// errInjected ends an Apply after the writes that BreakAfter grants.
var errInjected = errors.New("apply: interrupted by the data plane")

// write makes the objects that may differ, or with whole all there are, as the
// desired state has them, one at a time: what others refer to comes first and leaves
// last. complete is false when one was refused.
func (k *kernel) write(p *desiredStates, t changedObjects, whole bool, report *driver.Report) (complete bool, err error) {
	w := &writer{k: k, report: report, status: p.status, complete: true}
	var ports []string
	var remotes []desired.RemoteKey
	for c := range t.claimants {
		if c.local {
			ports = append(ports, c.port)
		} else {
			remotes = append(remotes, c.remote)
		}
	}
	networks, sets := slices.Collect(maps.Keys(t.networks)), slices.Collect(maps.Keys(t.sets))
	services := slices.Collect(maps.Keys(t.services))
	if whole {
		ports, remotes = withKeys(ports, k.objects.ports), withKeys(remotes, k.objects.remotes)
		networks, sets = withKeys(networks, k.objects.networks), withKeys(sets, k.objects.sets)
		services = withKeys(services, k.objects.services)
	}
	o, ix := k.objects, k.tables
	w.header(p.want)
	onNetworks := kind[model.NetworkID, desired.Network]{o.networks, accepted(p, p.want.Networks), networkName, (*desired.Network).Equal, ix.setNetwork}
	onSets := kind[desired.PolicySetID, desired.PolicySet]{o.sets, accepted(p, p.want.PolicySets), setName, (*desired.PolicySet).Equal, func(_, _ *desired.PolicySet) {}}
	onRemotes := kind[desired.RemoteKey, desired.Remote]{o.remotes, accepted(p, p.want.Remotes), remoteName, equal[desired.Remote], ix.stations.setRemote}
	onPorts := kind[string, desired.Port]{o.ports, accepted(p, p.want.Ports), portName, equal[desired.Port], ix.setPort}
	onServices := kind[model.ServiceKey, desired.Service]{o.services, accepted(p, p.want.Services), serviceName, (*desired.Service).Equal, ix.setService}
	onNetworks.put(w, networks)
	onSets.put(w, sets)
	onRemotes.put(w, remotes)
	onPorts.put(w, ports)
	onServices.put(w, services)
	onServices.sweep(w, services)
	onPorts.sweep(w, ports)
	onRemotes.sweep(w, remotes)
	onSets.sweep(w, sets)
	onNetworks.sweep(w, networks)
	was := ix.stations.was
	if whole {
		for a, s := range ix.stations.addrs { // also of domains that are no more
			if _, noted := was[a]; !noted {
				was[a] = s
			}
		}
	}
	if ix.stations.was = map[addrKey]station{}; whole || !w.complete || w.err != nil {
		k.tables = index(k.objects) // what was there, or is left, is no whole desired state: two may have one address
	}
	k.forgetGone(was)
	for _, key := range services {
		k.serviceChanged(key)
	}
	return w.complete, w.err
}

// withKeys returns the keys together with those of a map, each once.
func withKeys[K comparable, V any](keys []K, m map[K]V) []K {
	all := make(map[K]struct{}, len(keys)+len(m))
	for _, k := range keys {
		all[k] = struct{}{}
	}
	for k := range m {
		all[k] = struct{}{}
	}
	return slices.Collect(maps.Keys(all))
}

// accepted returns what a desired state has by a key, nil for what is refused.
func accepted[K comparable, V any](p *desiredStates, m desired.Map[K, *V]) func(K) *V {
	return func(k K) *V {
		if p.refused[k] != nil {
			return nil
		}
		v, _ := m.Get(k)
		return v
	}
}

func equal[T comparable](a, b *T) bool { return *a == *b }

// writer writes objects until the data plane breaks off.
type writer struct {
	k        *kernel
	report   *driver.Report
	complete bool                                    // nothing was refused
	status   desired.Map[string, *driver.PortStatus] // as judged, and what was refused since
	err      error
}

// do writes one object, unless the data plane refuses it.
func (w *writer) do(object, port string, op func()) {
	if w.err != nil {
		return
	}
	if w.k.refuse != nil {
		if err := w.k.refuse(object); err != nil {
			if w.complete = false; port == "" {
				w.report.Problems = append(w.report.Problems, driver.Problem{Object: object, Err: err})
				return
			}
			w.status = w.status.Set(port, &driver.PortStatus{Err: err})
			w.report.Ports = driver.SharePorts(w.status)
			return
		}
	}
	if w.k.budget == 0 {
		w.err = errInjected
		return
	}
	if w.k.budget > 0 {
		w.k.budget--
	}
	op()
	w.report.Changes++
}

func (w *writer) header(want desired.Host) {
	h := header{name: want.Name, vtep: want.VTEP, fwdMode: want.FwdMode, arpMode: want.ArpMode}
	if want.HostNAT != nil {
		h.way = *want.HostNAT
	}
	h.tunnels = want.Tunnels
	if old := w.k.objects.header.tunnels; !differs(h.tunnels, old) {
		h.tunnels = old
	}
	h.nodes = want.Nodes
	if old := w.k.objects.header.nodes; !differs(h.nodes, old) {
		h.nodes = old
	}
	h.shared = want.NodeAddrs
	if old := w.k.objects.header.shared; !differs(h.shared, old) {
		h.shared = old
	}
	h.groups = want.Groups
	if old := w.k.objects.header.groups; !differs(h.groups, old) {
		h.groups = old
	}
	if w.k.objects.header != h {
		w.do("host", "", func() {
			w.k.objects.header = h
			w.k.tables.setHeader(h)
		})
	}
}

// kind is how objects of one kind are written.
type kind[K comparable, V any] struct {
	have  map[K]*V
	want  func(K) *V
	name  func(K) string
	same  func(a, b *V) bool
	index func(old, now *V)
}

// put writes, in the order of their names, the objects that are wanted and differ
// from what is there.
func (x kind[K, V]) put(w *writer, keys []K) {
	keys = slices.DeleteFunc(slices.Clone(keys), func(key K) bool {
		want, have := x.want(key), x.have[key]
		return want == nil || have == want || have != nil && x.same(have, want)
	})
	x.sort(keys)
	for _, key := range keys {
		port, _ := any(key).(string)
		w.do(x.name(key), port, func() {
			x.index(x.have[key], x.want(key))
			x.have[key] = x.want(key)
		})
	}
}

// sweep removes the objects that are not wanted.
func (x kind[K, V]) sweep(w *writer, keys []K) {
	keys = slices.DeleteFunc(slices.Clone(keys), func(key K) bool { return x.have[key] == nil || x.want(key) != nil })
	x.sort(keys)
	for _, key := range keys {
		w.do(x.name(key), "", func() {
			x.index(x.have[key], nil)
			delete(x.have, key)
		})
	}
}

func (x kind[K, V]) sort(keys []K) {
	slices.SortFunc(keys, func(a, b K) int { return cmp.Compare(x.name(a), x.name(b)) })
}

func networkName(id model.NetworkID) string { return fmt.Sprintf("network %d", id) }
func setName(id desired.PolicySetID) string { return fmt.Sprintf("policy %d", id) }
func remoteName(k desired.RemoteKey) string { return fmt.Sprintf("remote %d/%s", k.Network, k.MAC) }
func portName(name string) string           { return "port " + name }
