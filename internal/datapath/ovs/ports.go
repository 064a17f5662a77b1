package ovs

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Marks in external_ids.
const (
	markKey       = "contiv" // says that an object is ours, and what it is
	endpointKey   = "contiv-endpoint"
	peerDeviceKey = "contiv-port" // of a device that has a queue before it: the endpoint's interface behind that
	markBridge    = "bridge"
	markPort      = "port"
	markTunnel    = "tunnel"
	markUplink    = "uplink"
	markHost      = "host"
	noSuchDevice  = "No such device"

	hwaddr = "hwaddr" // in other_config
)

// ports are the ports of the bridge: endpoints, tunnel, uplinks and the host.
// Driver.mu guards it.
type ports struct {
	*env
	conns     *connections
	bridge    *bridge
	underlay  *underlay
	bandwidth *bandwidth
	flows     *flows

	prepares  bool                 // what the old driver still holds is left out
	seenPorts map[string]bool      // wanted ports that the switch has had
	left      map[string]time.Time // ports that the switch was told to let go of, and when
	devices   map[string]string    // what was reported to be wrong with interfaces of wanted ports; nil = nothing was reported yet
}

// infrastructure lists the ports that the bridge should have beside those of
// endpoints.
func (s *ports) infrastructure(want desired.Host) map[string]newPort {
	out := map[string]newPort{
		tunnelName: {
			name: tunnelName, typ: "vxlan", externalIDs: map[string]string{markKey: markTunnel},
			options: map[string]string{
				"remote_ip": "flow", "key": "flow", "dst_port": strconv.Itoa(int(s.cfg.VXLANPort)),
			},
		},
	}
	if s.cfg.VTEP.IsValid() && !s.underlay.route.IsValid() {
		out[tunnelName].options[localIP] = s.cfg.VTEP.String()
	}
	if marksDSCP(want) {
		out[markedName] = markedTunnel(out[tunnelName])
	}
	for _, u := range s.cfg.Uplinks {
		out[u] = uplinkPort(u)
	}
	if w := want.HostNAT; w != nil {
		out[w.Interface] = newPort{
			name: w.Interface, typ: "internal", mac: w.RouterMAC.String(), externalIDs: map[string]string{markKey: markHost},
		}
	}
	if want.Router != "" && len(s.cfg.Uplinks) > 0 {
		out[want.Router] = newPort{name: want.Router, typ: "internal", mac: stationMAC(s.cfg, 5).String(), externalIDs: map[string]string{markKey: markHost}}
	}
	if s.prepares {
		delete(out, tunnelName)
		delete(out, markedName)
		delete(out, desired.HostInterface)
	}
	return out
}

// ensurePorts adds missing ports, and corrects the options of present ones, all in one
// transaction, and returns how many. Ports of others are never taken.
func (s *ports) ensurePorts(ctx context.Context, want desired.Host) (int, []driver.Problem, error) {
	if err := s.bridge.restoreBridge(ctx, s.conns.db); err != nil {
		return 0, nil, err
	}
	if err := s.bandwidth.detachReplaced(ctx); err != nil {
		return 0, nil, err
	}
	var missing []newPort
	var moved []string        // ports that are to be of another device
	var wrong []*interfaceRow // as they should be
	var problems []driver.Problem
	infrastructure := s.infrastructure(want)
	s.conns.db.mu.Lock()
	bridge := s.conns.db.bridge(s.cfg.Bridge)
	for name, p := range infrastructure {
		h := s.conns.db.port(name)
		switch {
		case h.port == nil:
			if err := whyNotUplink(p); err != nil {
				problems = append(problems, driver.Problem{Object: "uplink " + name, Err: err})
				continue
			}
			missing = append(missing, p)
		case h.bridge != s.cfg.Bridge || h.port.ExternalIDs[markKey] != p.externalIDs[markKey]:
			problems = append(problems, driver.Problem{Object: "interface " + name, Err: s.nameTaken(name, h)})
		case optionsDiffer(h, p):
			i := *h.iface
			i.Options = maps.Clone(i.Options)
			delete(i.Options, localIP)
			merge(&i.Options, p.options)
			wrong = append(wrong, &i)
		case h.failure() != "":
			problems = append(problems, driver.Problem{Object: "interface " + name, Err: model.Errorf(model.ErrUnavailable, "%s", h.failure())})
		}
	}
	for name, p := range want.Ports.All() {
		n := s.bandwidth.newPort(name, p)
		if h := s.conns.db.port(name); h.port == nil {
			if number := s.bandwidth.replaced[name]; number != 0 {
				n.request = &number // so its flows stay
			}
			missing = append(missing, n)
		} else if h.port.Name != n.name && h.bridge == s.cfg.Bridge && h.port.ExternalIDs[markKey] == markPort {
			if number := int(h.number()); number != 0 {
				n.request = &number // so its flows stay
			}
			missing, moved = append(missing, n), append(moved, h.port.UUID)
		}
	}
	s.conns.db.mu.Unlock()
	if len(missing)+len(wrong) == 0 {
		return 0, problems, nil
	}
	slices.SortFunc(missing, func(a, b newPort) int { return strings.Compare(a.name, b.name) })
	if err := s.waitReleased(ctx, missing); err != nil {
		return 0, problems, err
	}
	for _, p := range missing {
		if s.seenPorts[p.portName()] && p.request == nil {
			s.drift.Add(s.cfg.Log, driver.DriftPort, p.name, 1)
		}
	}
	ops, err := s.conns.db.mutatePorts(bridge, "delete", moved)
	if err == nil {
		var o []ovsdb.Operation
		o, err = s.conns.db.createPorts(bridge, missing)
		ops = append(ops, o...)
	}
	for _, i := range wrong {
		s.drift.Add(s.cfg.Log, driver.DriftPort, i.Name, 1)
		o, e := s.conns.db.c.Where(i).Update(i, &i.Options)
		ops, err = append(ops, o...), errors.Join(err, e)
	}
	if err == nil && s.fault != nil {
		err = s.fault()
	}
	if err != nil {
		return 0, problems, err
	}
	if err := s.conns.db.transact(ctx, ops); err != nil {
		return 0, problems, model.Errorf(model.ErrUnavailable, "create %d ports and correct %d: %w", len(missing), len(wrong), err)
	}
	clear(s.bandwidth.replaced)
	// The mirror takes in a transaction row by row: it may still have shown the bridge
	// after somebody had deleted it, and then these ports never come.
	gone := false
	err = s.conns.db.waitForMirror(ctx, func() bool {
		gone = s.conns.db.bridges[bridge.UUID] == nil
		return gone || !slices.ContainsFunc(missing, func(p newPort) bool {
			h := s.conns.db.port(p.portName())
			return !s.ours(h) || h.iface == nil || h.port.Name != p.name
		}) && !slices.ContainsFunc(wrong, func(i *interfaceRow) bool {
			return optionsDiffer(s.conns.db.port(i.Name), infrastructure[i.Name])
		})
	})
	if err == nil && gone {
		return s.ensurePorts(ctx, want)
	}
	if err == nil && len(moved) > 0 {
		s.awaitNumbers(ctx, want) // which are as before, so that their flows stay
	}
	return len(missing) + len(wrong), problems, err
}

func (s *ports) nameTaken(name string, h portState) error {
	if h.bridge != s.cfg.Bridge {
		return model.Errorf(model.ErrConflict, "interface %s is a port of bridge %s", name, h.bridge)
	}
	return model.Errorf(model.ErrConflict, "interface %s is a port of %s that is not Contiv's", name, h.bridge)
}

// removePorts removes ports of ours that are not wanted. Their flows have gone
// before: the switch may give a port's number to another one.
func (s *ports) removePorts(ctx context.Context, want desired.Host) (int, error) {
	infra := s.infrastructure(want)
	var ids, names []string
	s.conns.db.mu.Lock()
	bridge := s.conns.db.bridge(s.cfg.Bridge)
	for name, p := range s.conns.db.named {
		keep := true
		switch p.ExternalIDs[markKey] {
		case markPort:
			_, keep = want.Ports.Get(name)
		case markUplink, markTunnel, markHost:
			_, keep = infra[name]
		}
		if !keep && s.conns.db.holder[p.UUID] == s.cfg.Bridge {
			ids, names = append(ids, p.UUID), append(names, p.Name)
		}
	}
	s.conns.db.mu.Unlock()
	if len(ids) == 0 || bridge == nil {
		return 0, nil
	}
	ops, err := s.conns.db.mutatePorts(bridge, "delete", ids)
	if err == nil && s.fault != nil {
		err = s.fault()
	}
	if err != nil {
		return 0, err
	}
	if err := s.conns.db.transact(ctx, ops); err != nil {
		return 0, model.Errorf(model.ErrUnavailable, "remove %d ports: %w", len(ids), err)
	}
	s.noteReleased(names)
	return len(ids), s.conns.db.waitForMirror(ctx, func() bool {
		b := s.conns.db.bridge(s.cfg.Bridge)
		return !slices.ContainsFunc(ids, func(id string) bool {
			return s.conns.db.ports[id] != nil || b != nil && slices.Contains(b.Ports, id)
		})
	})
}

// ours reports whether a wanted port is there and carries our mark.
func (s *ports) ours(h portState) bool {
	return h.port != nil && h.bridge == s.cfg.Bridge && h.port.ExternalIDs[markKey] != ""
}

// config collects what all flows depend on beside the desired state; d.db.mu is held.
func (s *ports) config(want desired.Host) pipeline.Config {
	c := pipeline.Config{ArpMode: want.ArpMode, Relay: s.cfg.Datapath == "system", Pieces: s.cfg.Datapath == "netdev", Answers: s.flows.answers, Mutation: s.cfg.mutation}
	if m := s.underlay.mtu(); m < s.underlay.widest[model.EncapVXLAN] {
		c.PathMTU = m
	}
	if m := s.underlay.uplinkMTU(); m < s.underlay.widest[model.EncapVLAN] {
		c.UplinkMTU = m
	}
	for _, n := range want.Networks.All() {
		if n.Joined != 0 && n.Encap == model.EncapVLAN { // from there packets may be too big for tunnels
			c.MTU = s.underlay.mtu()
			break
		}
	}
	if h := s.conns.db.port(tunnelName); s.ours(h) {
		c.Tunnel = h.number()
	}
	if h := s.conns.db.port(markedName); s.ours(h) && marksDSCP(want) {
		c.Marked = h.number()
	}
	for _, u := range s.cfg.Uplinks {
		h := s.conns.db.port(u)
		if !s.ours(h) || h.number() == 0 {
			continue
		}
		up := h.up() || h.isUnreported() && h.number() == s.flows.pic.config.Uplink
		if c.Uplink == 0 || up {
			c.Uplink = h.number()
		}
		if up {
			break
		}
	}
	if w := want.HostNAT; w != nil {
		if h := s.conns.db.port(w.Interface); s.ours(h) && h.number() != 0 {
			c.Host, c.Private = h.number(), *w
		}
	}
	if h := s.conns.db.port(want.Router); want.Router != "" && s.ours(h) {
		c.Router = h.number()
	}
	c.Routed, c.Marks = hasRouted(want), s.cfg.Datapath == "system"
	return c
}

// number is the number of an endpoint's port, 0 while it has none; d.db.mu is held.
func (s *ports) number(name string) uint32 {
	if h := s.conns.db.port(name); s.ours(h) {
		return h.number()
	}
	return 0
}

// inputs collects what flows are made of beside the desired state.
func (s *ports) inputs(want desired.Host) (pipeline.Config, map[string]uint32) {
	s.conns.db.mu.Lock()
	defer s.conns.db.mu.Unlock()
	numbers := make(map[string]uint32, want.Ports.Len())
	for name := range want.Ports.All() {
		if n := s.number(name); n != 0 {
			numbers[name] = n
		}
	}
	return s.config(want), numbers
}

// portsMoved reports whether flows were made for other numbers than the switch
// uses now.
func (s *ports) portsMoved(want *desired.Host) bool {
	if s.conns.db == nil {
		return false
	}
	s.conns.db.mu.Lock()
	defer s.conns.db.mu.Unlock()
	if s.config(*want) != s.flows.pic.config {
		return true
	}
	known := 0 // of the numbers that flows were made for
	for name := range want.Ports.All() {
		n := s.number(name)
		if n != s.flows.pic.numbers[name] {
			return true
		}
		if n != 0 {
			known++
		}
	}
	return known != len(s.flows.pic.numbers)
}

// devicesMoved reports whether, since the last report, interfaces of wanted ports have
// come, gone, or been set up or down, or the underlay's last link has gone or come
// back. The switch keeps the number of a port whose interface is gone.
func (s *ports) devicesMoved(want *desired.Host) bool {
	if s.conns.db == nil || s.devices == nil {
		return false
	}
	s.conns.db.mu.Lock()
	defer s.conns.db.mu.Unlock()
	for name := range want.Ports.All() {
		if s.deviceState(name) != s.devices[name] {
			return true
		}
	}
	return s.underlay.isDisconnected() != s.underlay.disconnected
}

// deviceUp returns a wanted port whose interface was down at the last report and is up now;
// "" = none. The kernel is asked: the switch may not tell.
func (s *ports) deviceUp() string {
	if s.conns.db == nil {
		return ""
	}
	s.conns.db.mu.Lock()
	defer s.conns.db.mu.Unlock()
	for name, what := range s.devices {
		if what == deviceDown && s.deviceState(name) == "" {
			return name
		}
	}
	return ""
}

// awaitNumbers waits until the switch has numbered every wanted port or said
// why it cannot, and tells whether flows have to follow.
func (s *ports) awaitNumbers(ctx context.Context, want desired.Host) bool {
	short, cancel := context.WithTimeout(ctx, portWait)
	defer cancel()
	infra := s.infrastructure(want)
	numbered := func(name string) bool {
		h := s.conns.db.port(name)
		return !s.ours(h) || h.number() != 0 || h.failure() != ""
	}
	// Not in time: the report says so, and the database's monitor calls back.
	if err := s.conns.db.wait(short, func() bool {
		for name := range infra {
			if !numbered(name) {
				return false
			}
		}
		for name := range want.Ports.All() {
			if !numbered(name) {
				return false
			}
		}
		return true
	}); err != nil {
		s.cfg.Log.Warn("the switch has not numbered all ports", "waited", portWait, "error", err)
	}
	return s.portsMoved(&want)
}

// noteSeen notes which wanted ports the switch has had: if one is missing later,
// somebody has taken it away.
func (s *ports) noteSeen(want desired.Host) {
	s.conns.db.mu.Lock()
	defer s.conns.db.mu.Unlock()
	infra, stood := s.infrastructure(want), map[string]bool{}
	note := func(name string) {
		if s.seenPorts[name] || s.ours(s.conns.db.port(name)) {
			stood[name] = true
		}
	}
	for name := range infra {
		note(name)
	}
	for name := range want.Ports.All() {
		note(name)
	}
	s.seenPorts = stood
}

// reportPorts tells the state of every port of the desired state. While there is no
// tunnel, a port of a VXLAN network works within its host only, and has an error: no
// container may start in that state unnoticed.
func (s *ports) reportPorts(want desired.Host, rep *driver.Report, tunnel error) {
	s.conns.db.mu.Lock()
	defer s.conns.db.mu.Unlock()
	s.devices = map[string]string{}
	for name, p := range want.Ports.All() {
		h := s.conns.db.port(name)
		device := s.deviceState(name)
		err := s.portError(name, p, want, h, device)
		if device != "" {
			s.devices[name] = device
		}
		if n, ok := want.Networks.Get(p.Network); err == nil && ok && n.Encap == model.EncapVXLAN {
			err = tunnel
		}
		rep.Ports.Set(name, driver.PortStatus{Err: err})
	}
}

// deviceState is what is wrong with a port's interface by now, as device has it. That it is up
// the kernel says: the switch, which reads an interface while it is made, may miss that it was
// set up later, and forwards all the same. The caller holds the database's lock.
func (s *ports) deviceState(name string) string {
	h := s.conns.db.port(name)
	what := h.device()
	if what == deviceDown {
		if l, err := s.bandwidth.shaper.links.LinkByName(h.iface.Name); err == nil && isUp(l) {
			return ""
		}
	}
	return what
}

func (s *ports) portError(name string, p *desired.Port, want desired.Host, h portState, device string) error {
	n, _ := want.Networks.Get(p.Network)
	switch {
	case h.port == nil:
		return model.Errorf(model.ErrUnavailable, "port %s: the switch does not have it", name)
	case !s.ours(h):
		return s.nameTaken(name, h)
	case s.bandwidth.queued[name].trouble != nil:
		return s.bandwidth.queued[name].trouble
	case device == deviceGone:
		return model.Errorf(model.ErrNotFound, "interface %s does not exist", name)
	case h.failure() != "":
		return model.Errorf(model.ErrUnavailable, "port %s: %s", name, h.failure())
	case device == deviceDown:
		return driver.DownError(name)
	case h.number() == 0:
		return model.Errorf(model.ErrUnavailable, "port %s: the switch has not added it yet", name)
	case n == nil:
		return model.Errorf(model.ErrNotFound, "port %s: its network %d is unknown", name, p.Network)
	}
	if p.Policies != 0 {
		if err := s.flows.pic.policies.closed[p.Policies]; err != nil {
			return err
		}
	}
	return nil
}
