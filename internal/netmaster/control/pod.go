package control

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// notePolicies counts a change of what policies in force are made of. The caller
// holds mu, as of the next two.
func (rv *RevisionView) notePolicies(ch tables.Change) {
	switch ch.Key.(type) {
	case model.NamespaceName, tables.GlobalKey:
		if !ch.Deleted() {
			rv.globalRev = max(rv.globalRev, ch.Mod)
		}
	}
	switch ch.Key.(type) {
	case model.PolicyKey, model.RuleKey, model.NamespaceName, model.TenantName, model.NetworkKey, model.GroupKey, tables.GlobalKey:
		rv.turnPolicies()
	}
}

func (rv *RevisionView) turnPolicies() {
	rv.policyTurn++
	rv.policies.Tell()
}

// enterPod enters which pod an endpoint was and is of.
func (pv *PodView) enterPod(k model.EndpointKey, old, now *model.Endpoint) {
	if old != nil && old.Pod.UID != "" {
		pv.countPod(*old, false)
		if pv.podEndpoints[old.Pod.UID] == k {
			delete(pv.podEndpoints, old.Pod.UID)
		}
	}
	if now == nil || now.Pod.UID == "" {
		delete(pv.freshPods, k)
		return
	}
	pv.countPod(*now, true)
	pv.podEndpoints[now.Pod.UID] = k
	pv.freshPods[k] = true
	pv.podsCame.Tell()
}

// PolicyTurn returns a number that is another one whenever policies, namespaces,
// tenants, networks, groups or the settings have changed, and what is closed when they
// do next.
func (rv *RevisionView) PolicyTurn() (turn uint64, next <-chan struct{}) {
	next = rv.policies.Next() // before the look, which then misses none
	return read(rv.mu, func() uint64 { return rv.policyTurn }), next
}

// GlobalRevision returns the revision at which a namespace or the settings were written
// last: what policies mean depends on them, and hosts follow them apart from tenants'
// rows. Each reaches it, since what was written then, or what deleted that since, is
// among what it follows. Deletions do not count: a host that lists later never hears of
// them, and a namespace that is gone has no pods.
func (rv *RevisionView) GlobalRevision() store.Revision {
	return read(rv.mu, func() store.Revision { return rv.globalRev })
}

// PodEndpoint finds the endpoint of a pod by the pod's UID.
func (pv *PodView) PodEndpoint(uid string) (e model.Endpoint, ok bool) {
	pv.mu.RLock()
	defer pv.mu.RUnlock()
	k, ok := pv.podEndpoints[uid]
	return pv.endpoints.endpoints[k], ok
}

// podPlace is where pods are: a tenant, of a namespace or ("") of any.
type podPlace struct {
	namespace model.NamespaceName
	tenant    model.TenantName
}

func (pv *PodView) countPod(e model.Endpoint, in bool) {
	for _, at := range [2]podPlace{{e.Namespace, e.Key.Network.Tenant}, {"", e.Key.Network.Tenant}} {
		if in {
			pv.podsIn[at]++
		} else if pv.podsIn[at]--; pv.podsIn[at] == 0 {
			delete(pv.podsIn, at)
		}
	}
}

// HasPods tells whether a tenant has endpoints of pods of a namespace, "" = of any.
func (pv *PodView) HasPods(t model.TenantName, namespace model.NamespaceName) bool {
	return read(pv.mu, func() bool { return pv.podsIn[podPlace{namespace, t}] > 0 })
}

// PodEndpoints returns the endpoints of pods, in no sequence.
func (pv *PodView) PodEndpoints() []model.Endpoint {
	pv.mu.RLock()
	defer pv.mu.RUnlock()
	out := make([]model.Endpoint, 0, len(pv.podEndpoints))
	for _, k := range pv.podEndpoints {
		out = append(out, pv.endpoints.endpoints[k])
	}
	return out
}

// FreshPods returns the endpoints of pods that were written since the call before.
func (pv *PodView) FreshPods() []model.Endpoint {
	pv.mu.Lock()
	defer pv.mu.Unlock()
	out := make([]model.Endpoint, 0, len(pv.freshPods))
	for k := range pv.freshPods {
		out = append(out, pv.endpoints.endpoints[k])
	}
	clear(pv.freshPods)
	return out
}

// PodsCame returns what is closed when the next endpoint of a pod is written.
func (es *Endpoints) PodsCame() <-chan struct{} { return es.podView.podsCame.Next() }

// FollowPod makes labels, named ports, rates and group of a pod's endpoint what those of
// want are, for the leader, who has the fence. An endpoint that is gone, or another pod's,
// is left alone; one that is so already is not written. A group that is not there is
// model.ErrNotFound, one on another network, or whose pool does not have the
// endpoint's address, model.ErrConflict or model.ErrInvalid.
func (es *Endpoints) FollowPod(ctx context.Context, fence store.Fence, want model.Endpoint) error {
	cl := es.commits.claim(Admin())
	rev, err := es.commits.update(ctx, fmt.Sprintf("update endpoint %q of pod %s/%s", want.Key, want.Namespace, want.Pod.Name), func(tx store.Tx) error {
		cl.rewind()
		fence.Require(tx)
		row, err := tables.Endpoints.Find(tx, want.Key)
		if err != nil || !row.Exists() || row.Value.Pod.UID != want.Pod.UID {
			return err
		}
		old := row.Value
		if SamePod(old, want) {
			return nil
		}
		n, pools, err := networkForAddress(tx, old.Key.Network, want.Group)
		if err != nil {
			return err
		}
		e := old
		e.Labels, e.Ports, e.Group, e.Rates = want.Labels, want.Ports, want.Group, want.Rates
		if err := e.Validate(); err != nil {
			return err
		}
		if e.Identity, err = identify(ctx, tx, cl, n, e); err != nil {
			return err
		}
		if e.Group != old.Group {
			if err := moveGroup(tx, n, pools, old, e.Group); err != nil {
				return err
			}
		}
		return tables.Endpoints.Put(tx, e)
	})
	cl.done(rev)
	return err
}

// SamePod tells whether two endpoints of a pod have the labels, ports, rates and
// group of one another.
func SamePod(a, b model.Endpoint) bool {
	return a.Group == b.Group && a.Rates == b.Rates && maps.Equal(a.Labels, b.Labels) && slices.Equal(a.Ports, b.Ports)
}

// moveGroup gives an endpoint's addresses, and its place among who uses a group, to
// another group.
func moveGroup(tx store.Tx, n model.Network, pools map[model.GroupName]model.AddrRange, e model.Endpoint, to model.GroupName) error {
	for _, a := range []struct {
		field string
		addr  netip.Addr
	}{{"IPAddress", e.IPv4}, {"IPv6Address", e.IPv6}} {
		if !a.addr.IsValid() {
			continue
		}
		row, err := wantAddr(tx, n, pools, to, a.field, a.addr)
		if err != nil {
			return err
		}
		row.Value.Group = to
		if err := tables.Addresses.Put(tx, row.Value); err != nil {
			return err
		}
	}
	target := func(g model.GroupName) tables.Target {
		return tables.TargetGroup(model.GroupKey{Tenant: n.Key.Tenant, Name: g})
	}
	if e.Group != "" {
		unrefer(tx, target(e.Group), "endpoint", e.Key.String())
	}
	if to == "" {
		return nil
	}
	return tables.References.Create(tx, tables.Reference{RefKey: tables.RefKey{Target: target(to), Kind: "endpoint", From: e.Key.String()}})
}
