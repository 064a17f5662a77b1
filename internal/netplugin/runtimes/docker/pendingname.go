package docker

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Docker does not tell a driver what a network is called. A network that a user
// creates without naming the Contiv network in an option is remembered by its
// id; as soon as the engine lists it, the Contiv network is made under the name
// that it has there.

// pendingNameTimeout is how long a call waits for the name of a network.
const pendingNameTimeout = 10 * time.Second

// createPendingName remembers a network whose name is not known yet. Faults that show
// without the name are refused here, where Docker's user hears of them.
func (p *Plugin) createPendingName(ctx context.Context, r createNetworkRequest, tenant model.TenantName, options map[string]string) error {
	want, err := wantedNetwork(model.NetworkKey{Tenant: tenant}, r, options)
	switch {
	case err != nil:
		return err
	case p.engine == nil || p.global:
		return model.InvalidField("option network", "",
			"must name the Contiv network: docker network create -o network=NAME (and -o tenant=TENANT, -o group=GROUP); "+
				"it is learnt from the engine only with --docker-endpoint and local scope")
	case !want.Subnet.IsValid():
		return model.InvalidField("IPv4Data", "", "must have a subnet (--subnet), or name a Contiv network that exists (-o network=NAME)")
	}
	named := want
	named.Key.Name, named.Type = "name", model.NetworkData // any name: it is learnt later
	if _, err := model.Check(named); err != nil {
		return err
	}
	if err := errors.Join(p.backend.MayCreateNetworks(), p.backend.HasTenant(ctx, tenant)); err != nil {
		return err // later Docker's user would not hear of it
	}
	if b, ok := p.networks.get(r.NetworkID); ok {
		if b.Want != want {
			return model.Errorf(model.ErrExists, "network id %s already belongs to %s", short(r.NetworkID), b.Ref)
		}
		return nil
	}
	list, err := p.backend.Networks(ctx)
	if err != nil {
		return err
	}
	for _, n := range list {
		if n.Key.Tenant == tenant && (n.Subnet.IsValid() && n.Subnet.Overlaps(want.Subnet) ||
			n.Subnet6.IsValid() && want.Subnet6.IsValid() && n.Subnet6.Overlaps(want.Subnet6)) {
			return model.Errorf(model.ErrConflict, "subnet %s overlaps network %s; to use that one, add -o network=%s", want.Subnet, n.Key, n.Key.Name)
		}
	}
	if err := p.networks.put(r.NetworkID, binding{Ref: Ref{Network: want.Key}, Created: true, Want: want}); err != nil {
		return err
	}
	p.wake.Ring()
	return nil
}

// nameNetworks makes the Contiv networks of the Docker networks whose names the engine
// lists by now. If a Contiv network cannot be made, its Docker network is removed. It
// returns how many are still without a name.
func (p *Plugin) nameNetworks(ctx context.Context, have []engineNetwork, problems map[string]string) (waiting int, err error) {
	listed := map[string]string{}
	for _, n := range have {
		listed[n.ID] = n.Name
	}
	for _, id := range p.networks.ids() {
		b, ok := p.networks.get(id)
		if !ok || !b.hasPendingName() {
			continue
		}
		name, ok := listed[id]
		if !ok {
			waiting++
			continue
		}
		err := p.nameNetwork(ctx, id, b, name)
		switch {
		case err == nil:
		case errors.Is(err, model.ErrUnavailable):
			waiting++
			problems[name] = "its Contiv network cannot be made yet: " + err.Error()
		default:
			problems[name] = "its Contiv network cannot be made, so it is removed from Docker: " + err.Error()
			if err := p.engine.remove(ctx, id); err != nil {
				return waiting, err
			}
			if err := p.networks.remove(id); err != nil {
				return waiting, err
			}
		}
	}
	return waiting, nil
}

func (p *Plugin) nameNetwork(ctx context.Context, id string, b binding, name string) error {
	ref := b.Ref
	name = strings.TrimSuffix(name, ref.Name()) // as others of the tenant are called: lab/blue
	n := b.Want
	err := model.Errorf(model.ErrExists, "no name is free")
	for _, n.Key.Name = range contivNames(name, id) {
		if err = p.makeNetwork(ctx, n); !errors.Is(err, model.ErrExists) {
			break
		}
	}
	if err != nil {
		return err
	}
	ref.Network = n.Key
	there, err := p.networks.name(id, ref)
	if err == nil && !there { // Docker has removed its own meanwhile
		return p.backend.DeleteNetwork(ctx, n.Key)
	}
	if err == nil {
		p.log.Info("created a network for Docker", "dockerNetwork", name, "network", n.Key.String(), "subnet", n.Subnet)
	}
	return err
}

// makeNetwork creates a network unless an earlier try did, which its subnet shows.
func (p *Plugin) makeNetwork(ctx context.Context, n model.Network) error {
	have, err := p.backend.Network(ctx, n.Key)
	switch {
	case errors.Is(err, model.ErrNotFound):
		return p.backend.CreateNetwork(ctx, n)
	case err == nil && have.Subnet != n.Subnet:
		return model.Errorf(model.ErrExists, "network %s exists with subnet %s", n.Key, have.Subnet)
	}
	return err
}

// nameCharacters are the characters that names of Contiv's networks lack.
var nameCharacters = regexp.MustCompile(`[^A-Za-z0-9]+`)

// contivNames are the names that the Contiv network of a Docker network may have, the
// best first: Docker's name with hyphens in place of what Contiv's names lack, as of
// Compose's project_network; the same with a part of Docker's id, where the first is
// taken.
func contivNames(name, id string) []model.NetworkName {
	plain, err := model.ParseNetworkName(name)
	if err != nil {
		plain = model.NetworkName(strings.Trim(nameCharacters.ReplaceAllString(name, "-"), "-"))
	}
	suffix := strings.Trim(nameCharacters.ReplaceAllString(short(id), ""), "-")
	unique := model.NetworkName(strings.TrimLeft(string(plain[:min(len(plain), model.MaxName-len(suffix)-1)])+"-"+suffix, "-"))
	if _, err := model.ParseNetworkName(string(plain)); err != nil { // nothing is left of it, or it is too long
		return []model.NetworkName{unique}
	}
	return []model.NetworkName{plain, unique}
}

// await asks for a binding until it has a name.
func (n *networks) await(ctx context.Context, get func() (binding, error)) (binding, error) {
	ctx, cancel := context.WithTimeout(ctx, pendingNameTimeout)
	defer cancel()
	for {
		changed := n.watch()
		b, err := get()
		if err != nil || !b.hasPendingName() {
			return b, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return b, model.Errorf(model.ErrUnavailable, "the Contiv network of this Docker network does not exist yet; netplugin's log says why")
		}
	}
}
