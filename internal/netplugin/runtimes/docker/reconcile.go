package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// labelPrefix begins the labels by which a Docker network is recognised as ours:
// names may be given twice.
const labelPrefix = "io.contiv."

// labelPlugin is the label that holds the plugin's name.
const labelPlugin = labelPrefix + "plugin"

const (
	// reconcileEvery is how often the engine's networks are compared with the
	// cluster's: that costs two lists of netmaster and one of the engine.
	reconcileEvery = 2 * time.Second
	// goneAfter is how long an endpoint may belong to no running container of the
	// engine, and a network id may be missing in its list: starting a container and
	// making a network take time.
	goneAfter = time.Minute
	// nameEvery is how often the engine is asked while a network waits for its
	// name: it lists a network milliseconds after the plugin has agreed to it.
	nameEvery = 20 * time.Millisecond
	// creationTimeout is how long the engine may take to list a network after it has
	// told the plugin of it.
	creationTimeout = 5 * time.Second
	// requestTimeout is how long an engine may take to ask for the scope of a managed
	// plugin that was enabled. A plugin that is a process of its own it asks once only.
	requestTimeout = 5 * time.Second
)

// reconcile keeps the engine's networks as the cluster's until ctx ends. An
// engine or a netmaster that is away is waited for.
func (p *Plugin) reconcile(ctx context.Context) {
	defer p.engine.close()
	tick := time.NewTimer(0)
	defer tick.Stop()
	started := time.Now()
	said := map[string]string{}
	lost := map[attach.Key]time.Time{}
	for {
		now := map[string]string{}
		next := reconcileEvery
		switch err := p.checkScope(); {
		case err != nil && time.Since(started) < requestTimeout: // compare nothing yet
		case err != nil:
			now[allNetworks] = err.Error()
		default:
			waiting, err := p.compare(ctx, now)
			if err == nil && waiting == 0 {
				err = p.collect(ctx, lost, time.Now())
			}
			if err != nil {
				now[allNetworks] = err.Error()
			} else if waiting > 0 {
				next = nameEvery
			}
		}
		if ctx.Err() != nil {
			return
		}
		logChange(p.log, said, now)
		p.backend.SetCondition("Docker networks", asText(now))
		said = now
		tick.Reset(next)
		select {
		case <-tick.C:
		case <-p.wake:
		case <-ctx.Done():
			return
		}
	}
}

// compare makes one comparison, unless the networks are a swarm's.
func (p *Plugin) compare(ctx context.Context, problems map[string]string) (waiting int, err error) {
	if p.global {
		return 0, nil
	}
	return p.compareNetworks(ctx, problems)
}

// allNetworks stands for a problem that is not of one network.
const allNetworks = "all"

// logChange logs problems once, and that they are over.
func logChange(log *slog.Logger, before, now map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if before[name] != now[name] {
			log.Warn("Docker's networks do not match the cluster's", "network", name, "problem", now[name])
		}
	}
	for name := range before {
		if _, still := now[name]; !still {
			log.Info("Docker's networks match the cluster's again", "network", name)
		}
	}
}

// asText says what is wrong in one sentence, the first few networks by name.
func asText(problems map[string]string) string {
	const few = 3
	var parts []string
	for i, name := range slices.Sorted(maps.Keys(problems)) {
		if i == few {
			parts = append(parts, fmt.Sprintf("and %d more", len(problems)-few))
			break
		}
		text := problems[name]
		if name != allNetworks {
			text = name + ": " + text
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// wanted is a network as the engine should have it.
type wanted struct {
	ref Ref
	net model.Network
}

// compareNetworks makes one comparison. A fault of one network is noted in problems.
// The engine is read before the cluster, so that a network which the engine has and
// the cluster lacks has been deleted. It returns how many networks wait for their
// names.
func (p *Plugin) compareNetworks(ctx context.Context, problems map[string]string) (waiting int, err error) {
	have, err := p.engine.networks(ctx, p.name)
	if err != nil {
		return 0, err
	}
	if waiting, err = p.nameNetworks(ctx, have, problems); err != nil {
		return waiting, err
	}
	bound := p.networks.all()
	p.retryDelete(ctx, problems)
	want, err := wantedNetworks(ctx, p.backend)
	if err != nil {
		return waiting, err
	}
	ids := map[string]bool{}
	there := map[string]bool{}
	for _, n := range have {
		ids[n.ID] = true
		ref, ok := p.refOf(n)
		if !ok {
			continue
		}
		w, ok := want[ref.String()]
		switch {
		case !ok || !sameSubnet(n, w.net):
			if err := p.engine.remove(ctx, n.ID); err != nil && !isStatus(err, http.StatusNotFound) {
				problems[n.Name] = "its " + ref.String() + " is gone: " + err.Error()
				there[ref.String()] = true
				continue
			}
			p.log.Info("removed a network from Docker", "name", n.Name, "of", ref.String())
			delete(ids, n.ID)
			if err := p.networks.remove(n.ID); err != nil { // the engine's own DeleteNetwork may have removed it before
				return waiting, err
			}
		case n.Labels[labelPlugin] != "":
			if _, known := p.networks.get(n.ID); !known { // the map was lost
				if err := p.networks.put(n.ID, binding{Ref: ref}); err != nil {
					return waiting, err
				}
			}
			there[ref.String()] = true
		default:
			there[ref.String()] = true // made by a user, with docker network create
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		w := want[key]
		if there[key] || p.inDocker(w.ref, bound, ids, time.Now()) {
			continue
		}
		id, err := p.engine.create(ctx, newCreateRequest(p.name, w))
		if err != nil {
			problems[w.ref.Name()] = "it cannot be created: " + err.Error()
			continue
		}
		ids[id] = true
		p.log.Info("created a network in Docker", "name", w.ref.Name(), "of", w.ref.String(), "id", short(id))
	}
	return waiting, p.forget(ids, time.Now())
}

// retryDelete deletes what a user has removed from Docker and the cluster has not deleted
// yet. forget ends that.
func (p *Plugin) retryDelete(ctx context.Context, problems map[string]string) {
	for _, id := range p.networks.ids() {
		if b, _ := p.networks.get(id); b.Removed {
			if err := p.deleteRemoved(ctx, id, b); err != nil {
				problems[b.Name()] = "it was removed from Docker, and its Contiv network stays: " + err.Error()
			}
		}
	}
}

// inDocker reports whether a user may just be creating the network through Docker, or
// removing it: the plugin has bound its id, and the engine does not list it yet or any more.
func (p *Plugin) inDocker(r Ref, bound map[string]binding, ids map[string]bool, now time.Time) bool {
	for id, b := range bound {
		if b.Ref != r || ids[id] {
			continue
		}
		if since, ok := p.stale[id]; !ok || now.Sub(since) < creationTimeout {
			return true
		}
		if b, still := p.networks.get(id); !still || b.Removed {
			return true
		}
	}
	return false
}

// forget drops the ids that the engine has not listed for a while: their networks
// were removed while the plugin did not run. A network that is just being created is
// not listed yet either.
func (p *Plugin) forget(ids map[string]bool, now time.Time) error {
	known := p.networks.ids()
	maps.DeleteFunc(p.stale, func(id string, _ time.Time) bool { return ids[id] || !slices.Contains(known, id) })
	for _, id := range known {
		if ids[id] {
			continue
		}
		since, ok := p.stale[id]
		if !ok {
			p.stale[id] = now
		} else if now.Sub(since) >= goneAfter {
			if err := p.networks.remove(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// refOf finds the Contiv object behind a Docker network: by its labels, or, if a user
// created the Docker network, by its id.
func (p *Plugin) refOf(n engineNetwork) (Ref, bool) {
	if n.Labels[labelPlugin] == p.name {
		return labelled(n)
	}
	b, ok := p.networks.get(n.ID)
	return b.Ref, ok && !b.hasPendingName()
}

// labelled reads the labels of a network that we have made.
func labelled(n engineNetwork) (Ref, bool) {
	ref, ok, err := parseRef(map[string]string{
		optTenant: n.Labels[labelPrefix+optTenant], optNetwork: n.Labels[labelPrefix+optNetwork], optGroup: n.Labels[labelPrefix+optGroup],
	})
	return ref, ok && err == nil
}

// sameSubnet reports whether a Docker network has exactly the subnets of the Contiv
// network; one that a user created may lack the IPv6 subnet.
func sameSubnet(n engineNetwork, w model.Network) bool {
	there := map[string]bool{}
	for _, c := range n.IPAM.Config {
		if c.Subnet != w.Subnet.String() && (!w.Subnet6.IsValid() || c.Subnet != w.Subnet6.String()) {
			return false
		}
		there[c.Subnet] = true
	}
	return !w.Subnet6.IsValid() || n.Labels[labelPlugin] == "" || there[w.Subnet6.String()]
}

// wantedNetworks lists the networks that the engine should have, by Ref.String.
func wantedNetworks(ctx context.Context, from Source) (map[string]wanted, error) {
	nets, err := from.Networks(ctx)
	if err != nil {
		return nil, err
	}
	groups, err := from.Groups(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]wanted{}
	byKey := map[model.NetworkKey]model.Network{}
	add := func(r Ref, n model.Network) {
		if n.Type != model.NetworkInfra && n.Subnet.IsValid() { // Docker has no networks without IPv4
			out[r.String()] = wanted{r, n}
		}
	}
	for _, n := range nets {
		byKey[n.Key] = n
		add(Ref{Network: n.Key}, n)
	}
	for _, g := range groups {
		if n, ok := byKey[g.NetworkKey()]; ok {
			add(Ref{Network: n.Key, Group: g.Key.Name}, n)
		}
	}
	return out, nil
}

// newCreateRequest describes a network to an engine; driver is the plugin's name.
func newCreateRequest(driver string, w wanted) createRequest {
	r := createRequest{
		Name: w.ref.Name(), CheckDuplicate: true, Driver: driver, EnableIPv6: w.net.Subnet6.IsValid(),
		IPAM:    engineIPAM{Driver: driver, Options: w.ref.options(), Config: []engineSubnet{subnetOf(w.net.Subnet.String(), w.net.Gateway.IsValid(), w.net.Gateway.String())}},
		Options: w.ref.options(), Labels: map[string]string{labelPlugin: driver},
	}
	if r.EnableIPv6 {
		r.IPAM.Config = append(r.IPAM.Config, subnetOf(w.net.Subnet6.String(), w.net.Gateway6.IsValid(), w.net.Gateway6.String()))
	}
	for k, v := range w.ref.options() {
		r.Labels[labelPrefix+k] = v
	}
	return r
}

func subnetOf(subnet string, has bool, gateway string) engineSubnet {
	if !has {
		gateway = ""
	}
	return engineSubnet{Subnet: subnet, Gateway: gateway}
}

// collect detaches endpoints that no running container of the engine has had for a
// while: an engine that was killed between two calls has forgotten them.
func (p *Plugin) collect(ctx context.Context, lost map[attach.Key]time.Time, now time.Time) error {
	keys := p.backend.AttachedBy(attach.SourceDocker)
	if len(keys) == 0 {
		clear(lost)
		return nil
	}
	running, err := p.engine.endpoints(ctx)
	if err != nil {
		return err
	}
	missing := map[attach.Key]bool{}
	for _, k := range keys {
		if running[k.Container] {
			continue
		}
		missing[k] = true
		since, ok := lost[k]
		if !ok {
			lost[k] = now
			continue
		}
		if now.Sub(since) < goneAfter {
			continue
		}
		p.log.Warn("detaching an endpoint without a container in Docker", "endpoint", short(k.Container))
		if err := p.backend.Detach(ctx, attach.DetachRequest{Key: k}); err != nil {
			return err
		}
	}
	maps.DeleteFunc(lost, func(k attach.Key, _ time.Time) bool { return !missing[k] })
	return nil
}

func isStatus(err error, status int) bool {
	var e *engineError
	return errors.As(err, &e) && e.status == status
}
