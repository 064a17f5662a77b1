package attachment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
	"github.com/contiv/netplugin/v2/internal/netplugin/hostsync"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
)

// Host ports for bindings that ask for any: the dynamic ports of RFC 6335
// section 6.
const (
	firstDynamic = 49152
	lastDynamic  = 65535
)

// PublishedPorts chooses the host ports that containers publish, and holds them, so that no
// process of the host has them.
type PublishedPorts struct {
	*deps
	changes atomic.Uint64 // of published ports, counted

	mu      sync.Mutex // serialises the choice of ports
	sockets hoststack.Holder
}

// Changes counts the changes of published ports: an Outcome says up to
// which the host's stack has them.
func (a *PublishedPorts) Changes() uint64 { return a.changes.Load() }

// Close lets others have the ports that are published.
func (a *PublishedPorts) Close() { a.sockets.Keep(nil) }

// hostPorts are the ports of the host that a binding of an attachment takes: one of
// each address family that leads to it, and that the binding is for.
func (a *PublishedPorts) hostPorts(e Entry, b attach.PortBinding) (ports []hoststack.HostPort) {
	var four, six bool
	if e.Result != nil {
		for _, x := range e.Result.Addresses {
			four, six = four || x.Prefix.Addr().Is4(), six || x.Prefix.Addr().Is6() && a.way.Addresses.Subnet().Private6(e.Private).IsValid()
		}
	}
	for _, f := range []struct {
		leads bool
		any   netip.Addr
	}{{four, netip.IPv4Unspecified()}, {six, netip.IPv6Unspecified()}} {
		at := b.HostIP
		if !at.IsValid() {
			at = f.any
		}
		if f.leads && at.Is4() == f.any.Is4() {
			ports = append(ports, hoststack.HostPort{Proto: b.Proto, Addr: at, Port: b.HostPort})
		}
	}
	return ports
}

// hostPortText is what people know a binding's port of the host by.
func hostPortText(b attach.PortBinding) string {
	if !b.HostIP.IsValid() {
		return fmt.Sprintf("%d/%s", b.HostPort, b.Proto)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(b.HostIP, b.HostPort), b.Proto)
}

// reserve reserves the host ports of a binding, unless the runtime does.
func (a *PublishedPorts) reserve(e Entry, b attach.PortBinding) error {
	ports := a.hostPorts(e, b)
	if len(ports) == 0 {
		return model.Errorf(model.ErrInvalid, "host port %s: this host does not reach the container by that address family", hostPortText(b))
	}
	if e.Reserved {
		return nil
	}
	to := netip.AddrPortFrom(a.way.Addresses.Subnet().Private6(e.Private), b.ContainerPort)
	for _, p := range ports {
		if err := a.sockets.Reserve(p, to); err != nil {
			return err
		}
	}
	return nil
}

// ownPort refuses the ports of Contiv itself, whether or not a process holds
// them now: the tunnel's, which may be the kernel's or the switch's, and the
// control plane's on this host.
func (a *PublishedPorts) ownPort(b attach.PortBinding) error {
	if b.Proto == model.ProtoUDP && int(b.HostPort) == a.cfg.VXLANPort {
		return model.Errorf(model.ErrExists, "host port %d/%s: address already in use by the tunnel between Contiv's hosts", b.HostPort, b.Proto)
	}
	if b.Proto == model.ProtoTCP && slices.Contains(a.cfg.Control.OwnPorts(), b.HostPort) {
		return model.Errorf(model.ErrExists, "host port %d/%s: address already in use by Contiv's control plane (netmaster, the store or netplugin)", b.HostPort, b.Proto)
	}
	if whose := a.way.HealthPortOf(b.HostPort); b.Proto == model.ProtoTCP && whose != "" {
		return model.Errorf(model.ErrExists, "host port %d/%s: address already in use by netplugin, which answers there as the health check port (healthCheckNodePort) of service %s", b.HostPort, b.Proto, whose)
	}
	return nil
}

// reservePublished reserves the published ports of the journal. A port that another process
// has taken meanwhile is reported, and stays the container's, which had it first; a port of
// Contiv's own is withheld from it.
func (a *PublishedPorts) reservePublished(journal []Entry) (problems map[string]error, withheld map[attach.PortBinding]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	problems, withheld = map[string]error{}, map[attach.PortBinding]bool{}
	for _, e := range journal {
		if e.State == StatePendingRelease {
			continue
		}
		for _, b := range e.Ports {
			err := a.ownPort(b)
			if err != nil {
				withheld[b] = true
			} else {
				err = a.reserve(e, b)
			}
			if err != nil {
				problems["published "+hostPortText(b)+" of "+e.title()] = err
			}
		}
	}
	return problems, withheld
}

// FollowEgress makes the host's own stack follow the desired state and the journal,
// once the data plane does. failed are the objects of problems that another try may
// end.
func (a *PublishedPorts) FollowEgress(ctx context.Context, pic desired.Host, look bool) (problems []compile.Problem, failed []string) {
	if !a.way.Able {
		return nil, nil
	}
	journal := a.journal.all()
	taken, withheld := a.reservePublished(journal)
	var outlets []hostsync.HostAttachment
	for _, e := range journal {
		if e.State != StateDone || e.Result == nil || !e.Private.IsValid() {
			continue
		}
		o := hostsync.HostAttachment{HostIf: e.HostIf, Private: e.Private, MTU: e.Result.MTU, Ports: e.Ports}
		if len(withheld) > 0 {
			o.Ports = slices.DeleteFunc(slices.Clone(e.Ports), func(b attach.PortBinding) bool { return withheld[b] })
		}
		outlets = append(outlets, o)
	}
	problems, failed, whole := a.way.Follow(ctx, pic, outlets, look)
	for object, err := range taken {
		problems, failed = append(problems, compile.Problem{Object: object, Text: err.Error()}), append(failed, object)
	}
	if whole {
		a.releasePorts() // nothing leads from them any more
	}
	return problems, failed
}

// releasePorts ends the holding of what is not published any more.
func (a *PublishedPorts) releasePorts() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.sockets.Any() {
		return
	}
	wanted := map[hoststack.HostPort]bool{}
	for _, e := range a.journal.all() {
		if e.State == StatePendingRelease || e.Reserved {
			continue
		}
		for _, b := range e.Ports {
			if a.ownPort(b) != nil {
				continue // it is withheld
			}
			for _, p := range a.hostPorts(e, b) {
				wanted[p] = true
			}
		}
	}
	a.sockets.Keep(wanted)
}

// Publish is attach.Service's.
func (a *PublishedPorts) Publish(ctx context.Context, r attach.PublishRequest) (attach.PublishResult, error) {
	res, err := a.publish(ctx, r)
	if err != nil {
		return attach.PublishResult{}, fmt.Errorf("publish ports of %s: %w", r.Key, err)
	}
	return res, nil
}

// Published lists what an attachment publishes.
func (a *PublishedPorts) Published(k attach.Key) []attach.PortBinding {
	e, _ := a.journal.get(k)
	return e.Ports
}

func (a *PublishedPorts) publish(ctx context.Context, r attach.PublishRequest) (attach.PublishResult, error) {
	var res attach.PublishResult
	unlock, err := a.journal.turns.Lock(ctx, r.Key)
	if err != nil {
		return res, model.Errorf(model.ErrUnavailable, "another request for it is in progress: %w", err)
	}
	defer unlock()
	e, ok := a.journal.get(r.Key)
	switch {
	case !ok || e.State != StateDone:
		return res, model.Errorf(model.ErrNotFound, "there is no such attachment on this host")
	case len(r.Ports) > 0 && !a.can.Egress:
		return res, model.Errorf(model.ErrUnavailable, "this host's data plane, %s, has no egress, by which the host would reach the container", a.cfg.DriverName)
	case len(r.Ports) > 0 && !e.Private.IsValid():
		return res, model.Errorf(model.ErrUnavailable, "the container has no private address on this host, so it cannot be reached there; the host's status says why")
	}
	e.Reserved = r.Reserved
	chosen, err := a.choose(e, r.Ports)
	if err != nil {
		return res, err
	}
	return attach.PublishResult{Ports: chosen}, a.waitPublished(ctx, a.changes.Add(1))
}

// choose finds the host ports of an attachment and journals them.
func (a *PublishedPorts) choose(e Entry, want []attach.PortBinding) ([]attach.PortBinding, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	type holder struct {
		attach.PortBinding
		who string
	}
	var taken []holder
	for _, o := range a.journal.all() {
		if o.Key() == e.Key() || o.State == StatePendingRelease {
			continue
		}
		for _, b := range o.Ports {
			taken = append(taken, holder{b, o.title()})
		}
	}
	former := e.Ports
	e.Ports = nil
	done := false
	defer func() {
		if !done { // what was held for nothing is given up
			a.agent.Kick("ports that are not published")
		}
	}()
	for _, b := range want {
		b, err := b.Check()
		if err != nil {
			return nil, err
		}
		first, last := b.HostPort, b.HostPortEnd
		if first == 0 {
			first, last = firstDynamic, lastDynamic
			for _, f := range former { // asked again, it stays
				if f.Proto == b.Proto && f.ContainerPort == b.ContainerPort && f.HostIP == b.HostIP && f.HostPort >= firstDynamic {
					first, last = f.HostPort, f.HostPort
				}
			}
		}
		var who string
		var why error
		for port := int(first); port <= int(last); port++ {
			b.HostPort, b.HostPortEnd, who, why = uint16(port), uint16(port), "", nil
			for _, t := range taken {
				if t.Overlaps(b) {
					who = t.who
				}
			}
			if who != "" {
				continue
			}
			if why = a.ownPort(b); why == nil {
				why = a.reserve(e, b)
			}
			if why == nil || !errors.Is(why, model.ErrExists) {
				break
			}
		}
		if why != nil && first != last && errors.Is(why, model.ErrExists) {
			why = model.Errorf(model.ErrExists, "none of the host ports %d-%d/%s is free: %w", first, last, b.Proto, why)
		}
		if why != nil {
			return nil, why
		}
		if who != "" {
			ports := fmt.Sprint(first)
			if first != last {
				ports = fmt.Sprintf("%d-%d", first, last)
			}
			return nil, model.Errorf(model.ErrExists, "host port %s/%s is published by %s already", ports, b.Proto, who)
		}
		taken = append(taken, holder{b, e.title()})
		e.Ports = append(e.Ports, b)
	}
	err := a.journal.put(e)
	done = err == nil
	return e.Ports, err
}

// waitPublished waits until the host's stack holds a change of published ports.
func (a *PublishedPorts) waitPublished(ctx context.Context, change uint64) error {
	a.agent.Kick("published ports")
	err := a.reached.Until(ctx, func(o statemirror.SyncStatus) (bool, error) {
		if o.Err != nil || o.Ports < change {
			return false, nil //nolint:nilerr // another pass may bring it
		}
		for _, p := range o.Problems {
			if strings.HasPrefix(p.Object, "published ports") {
				return false, model.Errorf(model.ErrUnavailable, "%s", p.Text)
			}
		}
		return true, nil
	})
	if err != nil && ctx.Err() != nil {
		return model.Errorf(model.ErrUnavailable, "wait until the host's network stack has the ports: %w", err)
	}
	return err
}
