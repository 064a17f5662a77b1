package ovs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	dbmodel "github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
)

// database is a connection to the Open vSwitch database and a mirror of the rows in
// rows.go, kept by a monitor. It ends when the connection breaks.
type database struct {
	c       client.Client
	root    string
	next    int // next_cfg and cur_cfg; under mu
	current int
	lost    chan struct{} // closed when the connection has ended
	closed  chan struct{} // closed by close
	closing sync.Once
	wg      sync.WaitGroup

	mu      sync.Mutex
	changes waiting.Changes // of the mirror
	bridges map[string]*bridgeRow
	ports   map[string]*portRow
	ifaces  map[string]*interfaceRow
	named   map[string]*portRow // ports by what they are called
	holder  map[string]string   // name of the bridge that holds a port, by the port's UUID
}

// openDatabase connects and returns when the mirror is complete.
func openDatabase(ctx context.Context, endpoint string, log *slog.Logger) (*database, error) {
	m, err := dbmodel.NewClientDBModel("Open_vSwitch", map[string]dbmodel.Model{
		"Open_vSwitch": &rootRow{}, "Bridge": &bridgeRow{}, "Port": &portRow{}, "Interface": &interfaceRow{},
	})
	if err != nil {
		return nil, err
	}
	l := logr.FromSlogHandler(log.Handler())
	c, err := client.NewOVSDBClient(m, client.WithEndpoint(endpoint), client.WithLogger(&l))
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", endpoint, err)
	}
	d := &database{
		c: c, lost: make(chan struct{}), closed: make(chan struct{}),
		bridges: map[string]*bridgeRow{}, ports: map[string]*portRow{}, ifaces: map[string]*interfaceRow{},
		named: map[string]*portRow{}, holder: map[string]string{},
	}
	d.listen(c.DisconnectNotify())
	if err := c.Connect(ctx); err != nil {
		d.close()
		return nil, fmt.Errorf("connect to database %s: %w", endpoint, err)
	}
	c.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    func(_ string, row dbmodel.Model) { d.set(row) },
		UpdateFunc: func(_ string, _, row dbmodel.Model) { d.set(row) },
		DeleteFunc: func(_ string, row dbmodel.Model) { d.remove(row) },
	})
	// The columns by name: else the server sends all columns, and the cache breaks
	// off at the first update of a column that the types in rows.go do not have.
	root, br, port, ifc := &rootRow{}, &bridgeRow{}, &portRow{}, &interfaceRow{}
	_, err = c.Monitor(ctx, c.NewMonitor(client.WithTable(root, &root.Bridges, &root.NextCfg, &root.CurCfg),
		client.WithTable(br, &br.Name, &br.Ports, &br.FailMode, &br.DatapathType, &br.Protocols, &br.Controller, &br.OtherConfig, &br.ExternalIDs),
		client.WithTable(port, &port.Name, &port.Interfaces, &port.ExternalIDs),
		client.WithTable(ifc, &ifc.Name, &ifc.Type, &ifc.Options, &ifc.ExternalIDs, &ifc.OfPort, &ifc.MAC, &ifc.Error, &ifc.LinkState, &ifc.AdminState, &ifc.IfIndex)))
	if err != nil {
		d.close()
		return nil, fmt.Errorf("monitor database %s: %w", endpoint, err)
	}
	// The handler runs behind the cache: wait until it has seen what the cache holds.
	want := 0
	for _, t := range []string{"Bridge", "Port", "Interface", "Open_vSwitch"} {
		if rows := c.Cache().Table(t); rows != nil {
			want += rows.Len()
		}
	}
	err = d.wait(ctx, func() bool {
		seen := len(d.bridges) + len(d.ports) + len(d.ifaces)
		if d.root != "" {
			seen++
		}
		return seen >= want && d.root != ""
	})
	if err != nil {
		d.close()
		return nil, fmt.Errorf("read database %s: %w", endpoint, err)
	}
	return d, nil
}

// listen closes lost at the library's notice that the connection has ended. The library
// gives it once, and only to present listeners: so listen is called before there is a
// connection, and close does not rely on the notice.
func (d *database) listen(ended <-chan struct{}) {
	listening := make(chan struct{})
	d.wg.Go(func() {
		close(listening)
		select {
		case <-ended:
		case <-d.closed:
		}
		close(d.lost)
	})
	<-listening
}

func (d *database) close() {
	d.c.Close()
	d.closing.Do(func() { close(d.closed) })
	d.wg.Wait()
}

// wait returns when ok, which is called with the mirror locked, holds.
func (d *database) wait(ctx context.Context, ok func() bool) error {
	for {
		changed := d.changes.Next()
		d.mu.Lock()
		done := ok()
		d.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-d.lost:
			return errors.New("connection to the database was lost")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// mirrorTimeout bounds the wait for the mirror to show what was committed. It may never
// show it: a row for a parent that somebody has deleted meanwhile is not made, and no
// error tells.
const mirrorTimeout = 5 * time.Second

// waitForMirror waits until the mirror shows what was committed.
func (d *database) waitForMirror(ctx context.Context, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, mirrorTimeout)
	defer cancel()
	if err := d.wait(ctx, ok); err != nil {
		return model.Errorf(model.ErrUnavailable, "wait for the database to show it: %w", err)
	}
	return nil
}

// transact runs operations as one transaction; none of them stands when one fails.
func (d *database) transact(ctx context.Context, ops []ovsdb.Operation) error {
	if len(ops) == 0 {
		return nil
	}
	// A transaction that is given up on may still happen, and then the mirror is
	// behind for a while; so it is seen through.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	res, err := d.c.Transact(ctx, ops...)
	if err != nil {
		return err
	}
	if bad, err := ovsdb.CheckOperationResults(res, ops); err != nil {
		var s []string
		for _, b := range bad {
			s = append(s, strings.TrimSpace(b.Error()))
		}
		return fmt.Errorf("database refused: %w (%s)", err, strings.Join(s, "; "))
	}
	return nil
}

// bridge returns the bridge of a name, or nil; d.mu is held.
func (d *database) bridge(name string) *bridgeRow {
	for _, b := range d.bridges {
		if b.Name == name {
			return b
		}
	}
	return nil
}

// newPort describes a port to be made.
type newPort struct {
	name, typ   string
	mac         string // "" = the switch chooses
	options     map[string]string
	externalIDs map[string]string
	request     *int // its OpenFlow number; nil = the switch chooses
}

func (p newPort) portName() string {
	return (&portRow{Name: p.name, ExternalIDs: p.externalIDs}).portName()
}

// createPorts returns the operations that make ports on a bridge.
func (d *database) createPorts(bridge *bridgeRow, ports []newPort) ([]ovsdb.Operation, error) {
	var ops []ovsdb.Operation
	var ids []string
	for i, p := range ports {
		iface := &interfaceRow{
			UUID: fmt.Sprintf("iface%d", i), Name: p.name, Type: p.typ, Options: p.options, ExternalIDs: p.externalIDs, Request: p.request,
		}
		if p.mac != "" {
			iface.MAC = &p.mac
		}
		port := &portRow{
			UUID: fmt.Sprintf("port%d", i), Name: p.name, Interfaces: []string{iface.UUID}, ExternalIDs: p.externalIDs,
		}
		a, err := d.c.Create(iface)
		if err != nil {
			return nil, err
		}
		b, err := d.c.Create(port)
		if err != nil {
			return nil, err
		}
		ops, ids = append(append(ops, a...), b...), append(ids, port.UUID)
	}
	m, err := d.mutatePorts(bridge, ovsdb.MutateOperationInsert, ids)
	return append(ops, m...), err
}

func (d *database) mutatePorts(bridge *bridgeRow, how ovsdb.Mutator, ids []string) ([]ovsdb.Operation, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	row := &bridgeRow{UUID: bridge.UUID}
	return d.c.Where(row).Mutate(row, dbmodel.Mutation{Field: &row.Ports, Mutator: how, Value: ids})
}

// bridgeNames are those of all bridges of the switch.
func (d *database) bridgeNames() (out []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.bridges {
		out = append(out, b.Name)
	}
	return out
}

// createBridge makes a bridge and its local port.
func (d *database) createBridge(ctx context.Context, b bridgeRow) error {
	iface := &interfaceRow{UUID: "iface", Name: b.Name, Type: "internal", ExternalIDs: b.ExternalIDs}
	port := &portRow{UUID: "port", Name: b.Name, Interfaces: []string{iface.UUID}, ExternalIDs: b.ExternalIDs}
	b.UUID, b.Ports = "bridge", []string{port.UUID}
	var ops []ovsdb.Operation
	for _, row := range []dbmodel.Model{iface, port, &b} {
		o, err := d.c.Create(row)
		if err != nil {
			return err
		}
		ops = append(ops, o...)
	}
	d.mu.Lock()
	root := &rootRow{UUID: d.root}
	d.mu.Unlock()
	o, err := d.c.Where(root).Mutate(root, dbmodel.Mutation{
		Field: &root.Bridges, Mutator: ovsdb.MutateOperationInsert, Value: []string{b.UUID},
	})
	if err != nil {
		return err
	}
	if err := d.transact(ctx, append(ops, o...)); err != nil {
		return err
	}
	return d.waitForMirror(ctx, func() bool { return d.bridge(b.Name) != nil })
}

// updateBridge corrects the columns in which the bridge differs from want, and tells
// whether there were any.
func (d *database) updateBridge(ctx context.Context, have *bridgeRow, want bridgeRow) (bool, error) {
	row, changed := corrected(have, want)
	if !changed {
		return false, nil
	}
	ops, err := d.c.Where(&row).Update(&row, &row.OtherConfig, &row.ExternalIDs, &row.FailMode, &row.DatapathType, &row.Protocols, &row.Controller)
	if err == nil {
		err = d.transact(ctx, ops)
	}
	if err != nil {
		return false, err
	}
	return true, d.waitForMirror(ctx, func() bool {
		b := d.bridge(want.Name)
		if b == nil {
			return true
		}
		_, differs := corrected(b, want)
		return !differs
	})
}

// versions of OpenFlow that a driver speaks: groups by the second, all else by the first.
var versions = []string{"OpenFlow14", "OpenFlow15"}

// corrected is a bridge as want has it, and whether it was otherwise. Keys of maps that
// want does not have stay, and the address that the bridge has.
func corrected(have *bridgeRow, want bridgeRow) (bridgeRow, bool) {
	row := *have
	row.OtherConfig, row.ExternalIDs = maps.Clone(have.OtherConfig), maps.Clone(have.ExternalIDs)
	other := maps.Clone(want.OtherConfig)
	if have.OtherConfig[hwaddr] != "" {
		delete(other, hwaddr)
	}
	changed := merge(&row.OtherConfig, other)
	changed = merge(&row.ExternalIDs, want.ExternalIDs) || changed
	if row.FailMode == nil || *row.FailMode != *want.FailMode {
		row.FailMode, changed = want.FailMode, true
	}
	if row.DatapathType != want.DatapathType {
		row.DatapathType, changed = want.DatapathType, true
	}
	if len(row.Controller) > 0 { // it would have flows of its own there
		row.Controller, changed = []string{}, true
	}
	for _, v := range versions {
		if len(row.Protocols) > 0 && !slices.Contains(row.Protocols, v) { // none named are all
			row.Protocols, changed = append(slices.Clone(row.Protocols), v), true
		}
	}
	return row, changed
}

func merge(have *map[string]string, want map[string]string) bool {
	changed := false
	for k, v := range want {
		if old, ok := (*have)[k]; ok && old == v {
			continue
		}
		if *have == nil {
			*have = map[string]string{}
		}
		(*have)[k], changed = v, true
	}
	return changed
}
