package attachment

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
	"github.com/contiv/netplugin/v2/internal/netplugin/hostchanges"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
)

// On each infra network the host has an endpoint of its own, attached like a
// container's. What makes it other: the host's stack is behind it and outlives nothing,
// so a machine that was restarted gets the interface again, with the addresses that the
// journal has; and it goes when the network goes, not when somebody detaches it.

// infraEvery is how often the host's interfaces on infra networks are looked at.
const infraEvery = 2 * time.Second

// infraContainer begins, in place of a container's id, the key of such an attachment; the
// network's key follows. No container has an id with a slash.
const infraContainer = "infra/"

func infraKey(k model.NetworkKey) attach.Key {
	return attach.Key{Container: infraContainer + k.String(), IfName: string(k.Name)}
}

func isInfra(k attach.Key) bool { return strings.HasPrefix(k.Container, infraContainer) }

func endpointID(host model.HostName, r attach.Request) model.EndpointID {
	if r.OnHost {
		return model.HostEndpoint(host)
	}
	return EndpointID(host, r.Key)
}

// OfHost reports whether a veth leads to the host's own interface on an infra network.
func OfHost(host model.HostName, v vethpair.Veth) bool {
	key, ok := endpointOf(v)
	return ok && key.ID == model.HostEndpoint(host)
}

// InfraNetworks keeps the host's own endpoints on infra networks. It owns what is wrong with
// them, and which were taken back.
type InfraNetworks struct {
	*deps
	attacher *attacher
	releaser *releaser
	veths    *Interfaces
	infra    waiting.Bell // calls keepInfra
	// infraProblems are those of the host's own endpoints, by what they are of; nil = none.
	infraProblems atomic.Pointer[map[string]string]
}

// wantsInfra reports whether the host is to be on a network; ErrUnavailable while that is
// not known.
func (a *deps) wantsInfra(k model.NetworkKey) (bool, error) {
	wanted, known := a.cluster.Lookup.Infra()
	if !known {
		return false, model.Errorf(model.ErrUnavailable, "the infra networks are not known")
	}
	return wanted[k], nil
}

// keepInfra has the host on all infra networks, and on no others, until ctx ends.
func (a *InfraNetworks) keepInfra(ctx context.Context) {
	tick := time.NewTicker(infraEvery)
	defer tick.Stop()
	f := infraFollower{InfraNetworks: a, retries: waiting.NewBackoff[attach.Key](waiting.BackoffConfig{Base: time.Second, Max: 30 * time.Second})}
	for {
		f.follow(ctx)
		select {
		case <-a.infra:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// infraFollower is what keepInfra knows from one look to the next.
type infraFollower struct {
	*InfraNetworks
	retries *waiting.Backoff[attach.Key]
	ruled   bool // Own has been told that there is none
}

func (f *infraFollower) follow(ctx context.Context) {
	wanted, known := f.cluster.Lookup.Infra()
	if !known || f.agent.Able() != nil {
		return
	}
	problems := map[string]string{}
	for k := range wanted {
		if why := f.cluster.Endangers(k); why != "" {
			problems["infra network "+k.String()] = "this host has no interface on it: " + why
			delete(wanted, k)
		}
	}
	f.cluster.HostChanges.Keep(hostchanges.Infra, func(network string) bool {
		k, err := model.ParseNetworkKey(network)
		return err == nil && wanted[k]
	})
	rolledBack := f.cluster.HostChanges.Suspended(hostchanges.Infra)
	var names []string
	for k := range wanted {
		names = append(names, string(k.Name))
	}
	own := func() {
		if err := vethpair.RestrictToOwnRoutes(names); err != nil {
			problems["infra networks"] = err.Error()
		}
	}
	if len(names) > 0 || !f.ruled {
		own() // before there is any interface
	}
	f.ruled = len(names) == 0
	for _, e := range f.journal.all() {
		if e.Request.OnHost && e.State != StatePendingRelease && !wanted[e.Endpoint.Network] {
			if err := f.releaser.Detach(ctx, attach.DetachRequest{Key: e.Key()}); err != nil {
				problems["infra network "+e.Endpoint.Network.String()] = err.Error()
			}
		}
	}
	var failed []attach.Key
	made := false
	for _, k := range slices.SortedFunc(maps.Keys(wanted), compareNetworks) {
		if slices.Contains(rolledBack, k.String()) {
			problems["infra network "+k.String()] = "this host's interface on it is down: since it was made no netmaster answered, and without it one does; delete the network, and choose another subnet; " + hostchanges.ApplyAgain
			continue
		}
		if f.retries.At(infraKey(k)).After(time.Now()) {
			failed = append(failed, infraKey(k))
			problems["infra network "+k.String()] = f.infraProblem("infra network " + k.String())
			continue
		}
		did, err := f.ensureInfra(ctx, k)
		made = made || did
		if did && err == nil {
			f.cluster.HostChanges.Note(hostchanges.Infra, k.String())
		}
		if err != nil && ctx.Err() == nil {
			failed = append(failed, infraKey(k))
			problems["infra network "+k.String()] = "this host has no interface on it: " + err.Error()
		}
	}
	f.retries.Settle(time.Now(), failed)
	if made {
		own() // settings of the interfaces that are new
	}
	if was := f.infraProblems.Swap(&problems); was == nil && len(problems) > 0 || was != nil && !maps.Equal(*was, problems) {
		f.agent.Kick("infra networks") // problems tell people
	}
}

func compareNetworks(a, b model.NetworkKey) int { return strings.Compare(a.String(), b.String()) }

func (a *InfraNetworks) infraProblem(object string) string {
	if was := a.infraProblems.Load(); was != nil {
		return (*was)[object]
	}
	return ""
}

// problemsOfInfra are those of the host's own endpoints.
func (a *InfraNetworks) problemsOfInfra() (out []compile.Problem) {
	all := a.infraProblems.Load()
	if all == nil {
		return nil
	}
	for _, object := range slices.Sorted(maps.Keys(*all)) {
		out = append(out, compile.Problem{Object: object, Text: (*all)[object]})
	}
	return out
}

// ensureInfra makes the host's interface on a network as it must be, and tells whether it
// had anything to do.
func (a *InfraNetworks) ensureInfra(ctx context.Context, k model.NetworkKey) (did bool, err error) {
	e, ok := a.journal.get(infraKey(k))
	switch {
	case ok && e.State == StateDone && e.Result != nil && !a.cluster.Guard.Refused(e.Endpoint):
		if infraExists(e) {
			return false, nil
		}
		return true, a.repairInfra(ctx, e.Key())
	case ok && e.State == StateDone: // its addresses are somebody else's now, or of no use
		if err := a.releaser.Detach(ctx, attach.DetachRequest{Key: e.Key()}); err != nil {
			return true, err
		}
		a.cluster.Refuse(e.Endpoint, false)
	}
	r := attach.Request{
		Key: infraKey(k), Tenant: string(k.Tenant), Network: string(k.Name), Name: string(model.HostEndpoint(a.cfg.Host)),
		Source: attach.SourceInfra, OnHost: true,
	}
	_, err = a.attacher.Attach(ctx, r)
	return true, err
}

func infraExists(e Entry) bool {
	there, err := vethpair.Exists(e.HostIf)
	want := expectation(e, "")
	for _, p := range want.Addresses {
		if !p.IsSingleIP() { // to which the kernel makes no route
			want.Direct = append(want.Direct, p.Masked())
		}
	}
	return err != nil || there && vethpair.Verify(want) == nil // when in doubt it does
}

// repairInfra makes the journal's interface again: the machine was restarted, or the
// interface was deleted or changed.
func (a *InfraNetworks) repairInfra(ctx context.Context, k attach.Key) error {
	unlock, err := a.journal.turns.Lock(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	e, ok := a.journal.get(k)
	if !ok || e.State != StateDone || e.Result == nil || infraExists(e) {
		return nil // it has changed meanwhile
	}
	a.log.Info("recreating the host's interface on an infra network", "interface", k.IfName, "endpoint", e.Endpoint.String())
	res := *e.Result
	// A switch that has a port of the name would not notice that it is another interface.
	a.cluster.Endpoints.Hide(e.Endpoint)
	defer func() {
		a.cluster.Endpoints.Reveal(e.Endpoint)
		a.agent.Kick("an infra network's interface")
	}()
	a.agent.Kick("an infra network's interface is made again")
	if err := a.veths.awaitNoPort(ctx, e.HostIf); err != nil {
		return err
	}
	if err := vethpair.Delete(e.HostIf, aliasOf(e.Endpoint)); err != nil {
		return err
	}
	veth := a.veths.makeVeth(e, res.MTU)
	if veth.err != nil {
		return veth.err
	}
	res.HostMAC = veth.mac
	if _, err := a.veths.configure(res); err != nil {
		return err
	}
	e.BootID, e.Result = a.bootID, &res
	a.recordEntry(e)
	return nil
}

// awaitNoPort waits until the data plane has no port of a name any more.
func (a *Interfaces) awaitNoPort(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	return a.reached.Until(ctx, func(o statemirror.SyncStatus) (bool, error) {
		return !hasPort(o, name) && !o.At.IsZero(), nil
	})
}

func hasPort(o statemirror.SyncStatus, name string) bool {
	_, has := o.Report.Ports.Get(name)
	return has
}

// withoutGateways takes the routers from addresses: the host has its own default route.
func withoutGateways(in []attach.Address) (out []attach.Address) {
	for _, ad := range in {
		out = append(out, attach.Address{Prefix: ad.Prefix})
	}
	return out
}

// checkHostRoutes refuses a network on whose subnets the host has routes that would be in the
// way of one another.
func checkHostRoutes(n model.Network) error {
	routes, err := vethpair.ConflictingRoutes(string(n.Key.Name), n.Subnet, n.Subnet6)
	if err != nil || len(routes) == 0 {
		return err
	}
	return model.Errorf(model.ErrConflict, "this host has %s, which the network's subnet overlaps: remove that, or make the network with another subnet", routes[0])
}
