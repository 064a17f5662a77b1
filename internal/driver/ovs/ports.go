package ovs

import (
	"context"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/driver/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Marks in external_ids.
const (
	markKey      = "contiv" // says that an object is ours, and what it is
	endpointKey  = "contiv-endpoint"
	markBridge   = "bridge"
	markPort     = "port"
	markTunnel   = "tunnel"
	markUplink   = "uplink"
	failNoDevice = "No such device"
)

// ensureBridge makes the bridge, or corrects it.
func (d *Driver) ensureBridge(ctx context.Context) error {
	secure := "secure"
	h := fnv.New32a()
	h.Write([]byte(d.cfg.Bridge + d.cfg.VTEP.String()))
	s := h.Sum32()
	want := bridgeRow{
		Name: d.cfg.Bridge, FailMode: &secure, DatapathType: d.cfg.Datapath,
		ExternalIDs: map[string]string{markKey: markBridge},
		OtherConfig: map[string]string{
			"disable-in-band": "true",
			// A fixed address keeps the datapath from changing with its ports.
			"hwaddr": model.MAC{2, 4, byte(s >> 24), byte(s >> 16), byte(s >> 8), byte(s)}.String(),
		},
	}
	d.db.mu.Lock()
	have := d.db.bridge(d.cfg.Bridge)
	d.db.mu.Unlock()
	if have == nil {
		if err := d.db.createBridge(ctx, want); err != nil {
			return model.Errorf(model.ErrUnavailable, "create bridge %s: %w", d.cfg.Bridge, err)
		}
		return nil
	}
	if have.ExternalIDs[markKey] != markBridge {
		return model.Errorf(model.ErrConflict, "bridge %s exists and is not Contiv's: give another name with --ovs-bridge or remove it", d.cfg.Bridge)
	}
	if want.OtherConfig["hwaddr"] != have.OtherConfig["hwaddr"] && have.OtherConfig["hwaddr"] != "" {
		delete(want.OtherConfig, "hwaddr") // stable means stable
	}
	if _, err := d.db.updateBridge(ctx, have, want); err != nil {
		return model.Errorf(model.ErrUnavailable, "update bridge %s: %w", d.cfg.Bridge, err)
	}
	return nil
}

// wantedPorts lists the ports that the bridge should have, local ones and ours
// to the outside.
func (d *Driver) wantedPorts(want desired.Host) map[string]newPort {
	out := map[string]newPort{
		tunnelName: {
			name: tunnelName, typ: "vxlan", externalIDs: map[string]string{markKey: markTunnel},
			options: map[string]string{
				"remote_ip": "flow", "key": "flow", "dst_port": strconv.Itoa(int(d.cfg.VXLANPort)),
			},
		},
	}
	if d.cfg.VTEP.IsValid() {
		out[tunnelName].options["local_ip"] = d.cfg.VTEP.String()
	}
	for _, u := range d.cfg.Uplinks {
		out[u] = newPort{name: u, externalIDs: map[string]string{markKey: markUplink}}
	}
	for name, p := range want.Ports.All() {
		out[name] = newPort{name: name, externalIDs: map[string]string{markKey: markPort, endpointKey: p.Endpoint.String()}}
	}
	return out
}

// ensurePorts makes the ports that are missing, all in one transaction, and
// returns how many. Ports of others are never taken.
func (d *Driver) ensurePorts(ctx context.Context, want desired.Host) (int, []driver.Problem, error) {
	d.db.mu.Lock()
	bridge, have := d.db.bridge(d.cfg.Bridge), d.db.byName()
	d.db.mu.Unlock()
	if bridge == nil {
		if err := d.ensureBridge(ctx); err != nil {
			return 0, nil, err
		}
		d.db.mu.Lock()
		bridge, have = d.db.bridge(d.cfg.Bridge), d.db.byName()
		d.db.mu.Unlock()
	}
	var missing []newPort
	var problems []driver.Problem
	for name, p := range d.wantedPorts(want) {
		h, ok := have[name]
		switch {
		case !ok:
			missing = append(missing, p)
		case h.bridge == d.cfg.Bridge && h.port.ExternalIDs[markKey] == p.externalIDs[markKey]:
			if p.externalIDs[markKey] != markPort && h.failure() != "" {
				problems = append(problems, driver.Problem{Object: "interface " + name, Err: model.Errorf(model.ErrUnavailable, "%s", h.failure())})
			}
		case p.externalIDs[markKey] != markPort:
			problems = append(problems, driver.Problem{Object: "interface " + name, Err: d.taken(name, h)})
		}
	}
	if len(missing) == 0 {
		return 0, problems, nil
	}
	slices.SortFunc(missing, func(a, b newPort) int { return strings.Compare(a.name, b.name) })
	ops, err := d.db.createPorts(bridge, missing)
	if err == nil && d.fault != nil {
		err = d.fault()
	}
	if err != nil {
		return 0, problems, err
	}
	if err := d.db.transact(ctx, ops); err != nil {
		return 0, problems, model.Errorf(model.ErrUnavailable, "create %d ports: %w", len(missing), err)
	}
	// The mirror takes in a transaction row by row.
	err = d.db.wait(ctx, func() bool {
		have := d.db.byName()
		return !slices.ContainsFunc(missing, func(p newPort) bool {
			h := have[p.name]
			return !d.ours(h) || h.iface == nil
		})
	})
	return len(missing), problems, err
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
	wanted := d.wantedPorts(want)
	d.db.mu.Lock()
	bridge, have := d.db.bridge(d.cfg.Bridge), d.db.byName()
	d.db.mu.Unlock()
	var ids []string
	for name, h := range have {
		mark := h.port.ExternalIDs[markKey]
		if h.bridge != d.cfg.Bridge || mark != markPort && mark != markUplink && mark != markTunnel {
			continue
		}
		if _, ok := wanted[name]; !ok {
			ids = append(ids, h.port.UUID)
		}
	}
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
	return len(ids), d.db.wait(ctx, func() bool {
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

// inputs collects what flows are made of beside the picture.
func (d *Driver) inputs(want desired.Host) (pipeline.Config, map[string]uint32) {
	d.db.mu.Lock()
	have := d.db.byName()
	d.db.mu.Unlock()
	c := pipeline.Config{ArpMode: want.ArpMode, Mutation: d.cfg.mutation}
	if h := have[tunnelName]; d.ours(h) {
		c.Tunnel = h.number()
	}
	for _, u := range d.cfg.Uplinks {
		h := have[u]
		if !d.ours(h) || h.number() == 0 {
			continue
		}
		if c.Uplink == 0 || h.up() {
			c.Uplink = h.number()
		}
		if h.up() {
			break
		}
	}
	numbers := map[string]uint32{}
	for name := range want.Ports.All() {
		if h := have[name]; d.ours(h) && h.number() != 0 {
			numbers[name] = h.number()
		}
	}
	return c, numbers
}

// portsMoved tells whether flows were made for other numbers than the switch
// uses now.
func (d *Driver) portsMoved() bool {
	if d.want == nil || d.db == nil {
		return false
	}
	c, numbers := d.inputs(*d.want)
	return c != d.pic.config || !maps.Equal(numbers, d.pic.numbers)
}

// awaitNumbers waits until the switch has numbered every wanted port or said
// why it cannot, and tells whether flows have to follow.
func (d *Driver) awaitNumbers(ctx context.Context, want desired.Host) bool {
	short, cancel := context.WithTimeout(ctx, portWait)
	defer cancel()
	wanted := d.wantedPorts(want)
	// Not in time: the report says so, and the database's monitor calls back.
	if err := d.db.wait(short, func() bool {
		have := d.db.byName()
		for name := range wanted {
			if h := have[name]; d.ours(h) && h.number() == 0 && h.failure() == "" {
				return false
			}
		}
		return true
	}); err != nil {
		d.cfg.Log.Warn("the switch has not numbered all ports", "waited", portWait, "error", err)
	}
	return d.portsMoved()
}

// reportPorts tells the state of every port of the picture.
func (d *Driver) reportPorts(want desired.Host, rep *driver.Report) {
	d.db.mu.Lock()
	have := d.db.byName()
	d.db.mu.Unlock()
	for name, p := range want.Ports.All() {
		rep.Ports[name] = driver.PortStatus{Err: d.portError(name, p, want, have[name])}
	}
}

func (d *Driver) portError(name string, p *desired.Port, want desired.Host, h portState) error {
	n, _ := want.Networks.Get(p.Network)
	switch {
	case h.port == nil:
		return model.Errorf(model.ErrUnavailable, "port %s: the switch does not have it", name)
	case !d.ours(h):
		return d.taken(name, h)
	case strings.Contains(h.failure(), failNoDevice):
		return model.Errorf(model.ErrNotFound, "interface %s does not exist", name)
	case h.failure() != "":
		return model.Errorf(model.ErrUnavailable, "port %s: %s", name, h.failure())
	case h.number() == 0:
		return model.Errorf(model.ErrUnavailable, "port %s: the switch has not taken it in yet", name)
	case n == nil:
		return model.Errorf(model.ErrNotFound, "port %s: its network %d is unknown", name, p.Network)
	}
	if p.Policies != 0 {
		if err := d.pic.broken[p.Policies]; err != nil {
			return err
		}
	}
	return nil
}
