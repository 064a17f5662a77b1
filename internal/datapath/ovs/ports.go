package ovs

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Marks in external_ids.
const (
	markKey      = "contiv" // says that an object is ours, and what it is
	endpointKey  = "contiv-endpoint"
	behindKey    = "contiv-port" // of a device that has a queue before it: the endpoint's interface behind that
	markBridge   = "bridge"
	markPort     = "port"
	markTunnel   = "tunnel"
	markUplink   = "uplink"
	markHost     = "host"
	failNoDevice = "No such device"

	hwaddr = "hwaddr" // in other_config
)

// infrastructure lists the ports that the bridge should have beside those of
// endpoints.
func (d *Driver) infrastructure(want desired.Host) map[string]newPort {
	out := map[string]newPort{
		tunnelName: {
			name: tunnelName, typ: "vxlan", externalIDs: map[string]string{markKey: markTunnel},
			options: map[string]string{
				"remote_ip": "flow", "key": "flow", "dst_port": strconv.Itoa(int(d.cfg.VXLANPort)),
			},
		},
	}
	if d.cfg.VTEP.IsValid() && !d.route.IsValid() {
		out[tunnelName].options[localIP] = d.cfg.VTEP.String()
	}
	if marks(want) {
		out[markedName] = markedTunnel(out[tunnelName])
	}
	for _, u := range d.cfg.Uplinks {
		out[u] = uplinkPort(u)
	}
	if w := want.Private; w != nil {
		out[w.Interface] = newPort{
			name: w.Interface, typ: "internal", mac: w.RouterMAC.String(), externalIDs: map[string]string{markKey: markHost},
		}
	}
	if want.Router != "" && len(d.cfg.Uplinks) > 0 {
		out[want.Router] = newPort{name: want.Router, typ: "internal", mac: d.stationMAC(5).String(), externalIDs: map[string]string{markKey: markHost}}
	}
	if d.prepares {
		delete(out, tunnelName)
		delete(out, markedName)
		delete(out, desired.HostInterface)
	}
	return out
}

// ensurePorts makes the ports that are missing, and corrects the options of those that
// are there, all in one transaction, and returns how many. Ports of others are never taken.
func (d *Driver) ensurePorts(ctx context.Context, want desired.Host) (int, []driver.Problem, error) {
	if err := d.restoreBridge(ctx, d.db); err != nil {
		return 0, nil, err
	}
	if err := d.closeRemade(ctx); err != nil {
		return 0, nil, err
	}
	var missing []newPort
	var moved []string        // ports that are to be of another device
	var wrong []*interfaceRow // as they should be
	var problems []driver.Problem
	infrastructure := d.infrastructure(want)
	d.db.mu.Lock()
	bridge := d.db.bridge(d.cfg.Bridge)
	for name, p := range infrastructure {
		h := d.db.port(name)
		switch {
		case h.port == nil:
			if err := refuseOwn(p); err != nil {
				problems = append(problems, driver.Problem{Object: "uplink " + name, Err: err})
				continue
			}
			missing = append(missing, p)
		case h.bridge != d.cfg.Bridge || h.port.ExternalIDs[markKey] != p.externalIDs[markKey]:
			problems = append(problems, driver.Problem{Object: "interface " + name, Err: d.taken(name, h)})
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
		n := d.newPort(name, p)
		if h := d.db.port(name); h.port == nil {
			if number := d.remade[name]; number != 0 {
				n.request = &number // so its flows stay
			}
			missing = append(missing, n)
		} else if h.port.Name != n.name && h.bridge == d.cfg.Bridge && h.port.ExternalIDs[markKey] == markPort {
			if number := int(h.number()); number != 0 {
				n.request = &number // so its flows stay
			}
			missing, moved = append(missing, n), append(moved, h.port.UUID)
		}
	}
	d.db.mu.Unlock()
	if len(missing)+len(wrong) == 0 {
		return 0, problems, nil
	}
	slices.SortFunc(missing, func(a, b newPort) int { return strings.Compare(a.name, b.name) })
	if err := d.letGo(ctx, missing); err != nil {
		return 0, problems, err
	}
	for _, p := range missing {
		if d.stood[p.called()] && p.request == nil {
			d.drift.Repaired(d.cfg.Log, driver.DriftPort, p.name, 1)
		}
	}
	ops, err := d.db.mutatePorts(bridge, "delete", moved)
	if err == nil {
		var o []ovsdb.Operation
		o, err = d.db.createPorts(bridge, missing)
		ops = append(ops, o...)
	}
	for _, i := range wrong {
		d.drift.Repaired(d.cfg.Log, driver.DriftPort, i.Name, 1)
		o, e := d.db.c.Where(i).Update(i, &i.Options)
		ops, err = append(ops, o...), errors.Join(err, e)
	}
	if err == nil && d.fault != nil {
		err = d.fault()
	}
	if err != nil {
		return 0, problems, err
	}
	if err := d.db.transact(ctx, ops); err != nil {
		return 0, problems, model.Errorf(model.ErrUnavailable, "create %d ports and correct %d: %w", len(missing), len(wrong), err)
	}
	clear(d.remade)
	// The mirror takes in a transaction row by row: it may still have shown the bridge
	// after somebody had deleted it, and then these ports never come.
	gone := false
	err = d.db.shown(ctx, func() bool {
		gone = d.db.bridges[bridge.UUID] == nil
		return gone || !slices.ContainsFunc(missing, func(p newPort) bool {
			h := d.db.port(p.called())
			return !d.ours(h) || h.iface == nil || h.port.Name != p.name
		}) && !slices.ContainsFunc(wrong, func(i *interfaceRow) bool {
			return optionsDiffer(d.db.port(i.Name), infrastructure[i.Name])
		})
	})
	if err == nil && gone {
		return d.ensurePorts(ctx, want)
	}
	if err == nil && len(moved) > 0 {
		d.awaitNumbers(ctx, want) // which are as before, so that their flows stay
	}
	return len(missing) + len(wrong), problems, err
}

func (d *Driver) taken(name string, h portState) error {
	if h.bridge != d.cfg.Bridge {
		return model.Errorf(model.ErrConflict, "interface %s is a port of bridge %s", name, h.bridge)
	}
	return model.Errorf(model.ErrConflict, "interface %s is a port of %s that is not Contiv's", name, h.bridge)
}

// removePorts removes ports of ours that are not wanted. Their flows have gone
// before: the switch may give a port's number to another one.
func (d *Driver) removePorts(ctx context.Context, want desired.Host) (int, error) {
	infra := d.infrastructure(want)
	var ids, names []string
	d.db.mu.Lock()
	bridge := d.db.bridge(d.cfg.Bridge)
	for name, p := range d.db.named {
		keep := true
		switch p.ExternalIDs[markKey] {
		case markPort:
			_, keep = want.Ports.Get(name)
		case markUplink, markTunnel, markHost:
			_, keep = infra[name]
		}
		if !keep && d.db.holder[p.UUID] == d.cfg.Bridge {
			ids, names = append(ids, p.UUID), append(names, p.Name)
		}
	}
	d.db.mu.Unlock()
	if len(ids) == 0 || bridge == nil {
		return 0, nil
	}
	ops, err := d.db.mutatePorts(bridge, "delete", ids)
	if err == nil && d.fault != nil {
		err = d.fault()
	}
	if err != nil {
		return 0, err
	}
	if err := d.db.transact(ctx, ops); err != nil {
		return 0, model.Errorf(model.ErrUnavailable, "remove %d ports: %w", len(ids), err)
	}
	d.noteLeft(names)
	return len(ids), d.db.shown(ctx, func() bool {
		b := d.db.bridge(d.cfg.Bridge)
		return !slices.ContainsFunc(ids, func(id string) bool {
			return d.db.ports[id] != nil || b != nil && slices.Contains(b.Ports, id)
		})
	})
}

// ours tells whether a wanted port is there and carries our mark.
func (d *Driver) ours(h portState) bool {
	return h.port != nil && h.bridge == d.cfg.Bridge && h.port.ExternalIDs[markKey] != ""
}

// config collects what all flows depend on beside the picture; d.db.mu is held.
func (d *Driver) config(want desired.Host) pipeline.Config {
	c := pipeline.Config{ArpMode: want.ArpMode, Relay: d.cfg.Datapath == "system", Pieces: d.cfg.Datapath == "netdev", Answers: d.answers, Mutation: d.cfg.mutation}
	if m := d.mtu(); m < d.widest[model.EncapVXLAN] {
		c.PathMTU = m
	}
	if m := d.uplinkMTU(); m < d.widest[model.EncapVLAN] {
		c.UplinkMTU = m
	}
	for _, n := range want.Networks.All() {
		if n.Joined != 0 && n.Encap == model.EncapVLAN { // from there packets may be too big for tunnels
			c.MTU = d.mtu()
			break
		}
	}
	if h := d.db.port(tunnelName); d.ours(h) {
		c.Tunnel = h.number()
	}
	if h := d.db.port(markedName); d.ours(h) && marks(want) {
		c.Marked = h.number()
	}
	for _, u := range d.cfg.Uplinks {
		h := d.db.port(u)
		if !d.ours(h) || h.number() == 0 {
			continue
		}
		up := h.up() || h.untold() && h.number() == d.pic.config.Uplink
		if c.Uplink == 0 || up {
			c.Uplink = h.number()
		}
		if up {
			break
		}
	}
	if w := want.Private; w != nil {
		if h := d.db.port(w.Interface); d.ours(h) && h.number() != 0 {
			c.Host, c.Private = h.number(), *w
		}
	}
	if h := d.db.port(want.Router); want.Router != "" && d.ours(h) {
		c.Router = h.number()
	}
	c.Native, c.Marks = hasNative(want), d.cfg.Datapath == "system"
	return c
}

// number is the number of an endpoint's port, 0 while it has none; d.db.mu is held.
func (d *Driver) number(name string) uint32 {
	if h := d.db.port(name); d.ours(h) {
		return h.number()
	}
	return 0
}

// inputs collects what flows are made of beside the picture.
func (d *Driver) inputs(want desired.Host) (pipeline.Config, map[string]uint32) {
	d.db.mu.Lock()
	defer d.db.mu.Unlock()
	numbers := make(map[string]uint32, want.Ports.Len())
	for name := range want.Ports.All() {
		if n := d.number(name); n != 0 {
			numbers[name] = n
		}
	}
	return d.config(want), numbers
}

// portsMoved tells whether flows were made for other numbers than the switch
// uses now.
func (d *Driver) portsMoved() bool {
	if d.want == nil || d.db == nil {
		return false
	}
	d.db.mu.Lock()
	defer d.db.mu.Unlock()
	if d.config(*d.want) != d.pic.config {
		return true
	}
	known := 0 // of the numbers that flows were made for
	for name := range d.want.Ports.All() {
		n := d.number(name)
		if n != d.pic.numbers[name] {
			return true
		}
		if n != 0 {
			known++
		}
	}
	return known != len(d.pic.numbers)
}

// devicesMoved tells whether, since the last report, interfaces of wanted ports have
// come, gone, or been set up or down, or the underlay's last link has gone or come
// back. The switch keeps the number of a port whose interface is gone.
func (d *Driver) devicesMoved() bool {
	if d.want == nil || d.db == nil || d.devices == nil {
		return false
	}
	d.db.mu.Lock()
	defer d.db.mu.Unlock()
	for name := range d.want.Ports.All() {
		if d.deviceNow(name) != d.devices[name] {
			return true
		}
	}
	return d.isCut() != d.cut
}

// deviceUp returns a wanted port whose interface was down at the last report and is up now;
// "" = none. The kernel is asked: the switch may not tell.
func (d *Driver) deviceUp() string {
	if d.db == nil {
		return ""
	}
	d.db.mu.Lock()
	defer d.db.mu.Unlock()
	for name, what := range d.devices {
		if what == deviceDown && d.deviceNow(name) == "" {
			return name
		}
	}
	return ""
}

// awaitNumbers waits until the switch has numbered every wanted port or said
// why it cannot, and tells whether flows have to follow.
func (d *Driver) awaitNumbers(ctx context.Context, want desired.Host) bool {
	short, cancel := context.WithTimeout(ctx, portWait)
	defer cancel()
	infra := d.infrastructure(want)
	numbered := func(name string) bool {
		h := d.db.port(name)
		return !d.ours(h) || h.number() != 0 || h.failure() != ""
	}
	// Not in time: the report says so, and the database's monitor calls back.
	if err := d.db.wait(short, func() bool {
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
		d.cfg.Log.Warn("the switch has not numbered all ports", "waited", portWait, "error", err)
	}
	return d.portsMoved()
}

// remember notes which wanted ports the switch has had: if one is missing later,
// somebody has taken it away.
func (d *Driver) remember(want desired.Host) {
	d.db.mu.Lock()
	defer d.db.mu.Unlock()
	infra, stood := d.infrastructure(want), map[string]bool{}
	note := func(name string) {
		if d.stood[name] || d.ours(d.db.port(name)) {
			stood[name] = true
		}
	}
	for name := range infra {
		note(name)
	}
	for name := range want.Ports.All() {
		note(name)
	}
	d.stood = stood
}

// reportPorts tells the state of every port of the picture. While there is no
// tunnel, a port of a VXLAN network works within its host only, and has an error: no
// container may start in that state unnoticed.
func (d *Driver) reportPorts(want desired.Host, rep *driver.Report, tunnel error) {
	d.db.mu.Lock()
	defer d.db.mu.Unlock()
	d.devices = map[string]string{}
	for name, p := range want.Ports.All() {
		h := d.db.port(name)
		device := d.deviceNow(name)
		err := d.portError(name, p, want, h, device)
		if device != "" {
			d.devices[name] = device
		}
		if n, ok := want.Networks.Get(p.Network); err == nil && ok && n.Encap == model.EncapVXLAN {
			err = tunnel
		}
		rep.Ports.Set(name, driver.PortStatus{Err: err})
	}
}

// deviceNow is what is wrong with a port's interface by now, as device has it. That it is up
// the kernel says: the switch, which reads an interface while it is made, may miss that it was
// set up later, and forwards all the same. The caller holds the database's lock.
func (d *Driver) deviceNow(name string) string {
	h := d.db.port(name)
	what := h.device()
	if what == deviceDown {
		if l, err := d.shaper.links.LinkByName(h.iface.Name); err == nil && isUp(l) {
			return ""
		}
	}
	return what
}

func (d *Driver) portError(name string, p *desired.Port, want desired.Host, h portState, device string) error {
	n, _ := want.Networks.Get(p.Network)
	switch {
	case h.port == nil:
		return model.Errorf(model.ErrUnavailable, "port %s: the switch does not have it", name)
	case !d.ours(h):
		return d.taken(name, h)
	case d.shaped[name].trouble != nil:
		return d.shaped[name].trouble
	case device == deviceGone:
		return model.Errorf(model.ErrNotFound, "interface %s does not exist", name)
	case h.failure() != "":
		return model.Errorf(model.ErrUnavailable, "port %s: %s", name, h.failure())
	case device == deviceDown:
		return driver.DownError(name)
	case h.number() == 0:
		return model.Errorf(model.ErrUnavailable, "port %s: the switch has not taken it in yet", name)
	case n == nil:
		return model.Errorf(model.ErrNotFound, "port %s: its network %d is unknown", name, p.Network)
	}
	if p.Policies != 0 {
		if err := d.pic.policies.closed[p.Policies]; err != nil {
			return err
		}
	}
	return nil
}
