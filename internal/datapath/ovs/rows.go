package ovs

import (
	"maps"
	"slices"
	"strings"

	dbmodel "github.com/ovn-kubernetes/libovsdb/model"
)

// The rows and columns of the Open_vSwitch database that the driver uses
// (ovs-vswitchd.conf.db(5)).
type (
	rootRow struct {
		UUID    string   `ovsdb:"_uuid"`
		Bridges []string `ovsdb:"bridges"`
		NextCfg int      `ovsdb:"next_cfg"` // counted up with a change that somebody waits for
		CurCfg  int      `ovsdb:"cur_cfg"`  // the last of these that the switch has followed
	}
	bridgeRow struct {
		UUID         string            `ovsdb:"_uuid"`
		Name         string            `ovsdb:"name"`
		Ports        []string          `ovsdb:"ports"`
		FailMode     *string           `ovsdb:"fail_mode"`
		DatapathType string            `ovsdb:"datapath_type"`
		Protocols    []string          `ovsdb:"protocols"`
		Controller   []string          `ovsdb:"controller"`
		OtherConfig  map[string]string `ovsdb:"other_config"`
		ExternalIDs  map[string]string `ovsdb:"external_ids"`
	}
	portRow struct {
		UUID        string            `ovsdb:"_uuid"`
		Name        string            `ovsdb:"name"`
		Interfaces  []string          `ovsdb:"interfaces"`
		ExternalIDs map[string]string `ovsdb:"external_ids"`
	}
	interfaceRow struct {
		UUID        string            `ovsdb:"_uuid"`
		Name        string            `ovsdb:"name"`
		Type        string            `ovsdb:"type"`
		Options     map[string]string `ovsdb:"options"`
		ExternalIDs map[string]string `ovsdb:"external_ids"`
		OfPort      *int              `ovsdb:"ofport"`
		MAC         *string           `ovsdb:"mac"`            // wanted; of internal interfaces
		Request     *int              `ovsdb:"ofport_request"` // written only
		Error       *string           `ovsdb:"error"`
		LinkState   *string           `ovsdb:"link_state"`
		AdminState  *string           `ovsdb:"admin_state"`
		IfIndex     *int              `ovsdb:"ifindex"` // 0 = the kernel has no such interface any more
	}
)

// The mirror copies a row at every change of it, and without these methods it
// does so by way of JSON.
var _, _, _, _ dbmodel.CloneableModel = (*rootRow)(nil), (*bridgeRow)(nil), (*portRow)(nil), (*interfaceRow)(nil)

func (r *rootRow) CloneModel() dbmodel.Model {
	c := *r
	c.Bridges = slices.Clone(r.Bridges)
	return &c
}

func (r *rootRow) CloneModelInto(dst dbmodel.Model) { *dst.(*rootRow) = *r.CloneModel().(*rootRow) }

func (r *bridgeRow) CloneModel() dbmodel.Model {
	c := *r
	c.Ports, c.Protocols, c.FailMode = slices.Clone(r.Ports), slices.Clone(r.Protocols), clone(r.FailMode)
	c.OtherConfig, c.ExternalIDs = maps.Clone(r.OtherConfig), maps.Clone(r.ExternalIDs)
	return &c
}

func (r *bridgeRow) CloneModelInto(dst dbmodel.Model) {
	*dst.(*bridgeRow) = *r.CloneModel().(*bridgeRow)
}

func (r *portRow) CloneModel() dbmodel.Model {
	c := *r
	c.Interfaces, c.ExternalIDs = slices.Clone(r.Interfaces), maps.Clone(r.ExternalIDs)
	return &c
}

func (r *portRow) CloneModelInto(dst dbmodel.Model) { *dst.(*portRow) = *r.CloneModel().(*portRow) }

func (r *interfaceRow) CloneModel() dbmodel.Model {
	c := *r
	c.Options, c.ExternalIDs, c.OfPort = maps.Clone(r.Options), maps.Clone(r.ExternalIDs), clone(r.OfPort)
	c.MAC, c.Error, c.LinkState, c.IfIndex = clone(r.MAC), clone(r.Error), clone(r.LinkState), clone(r.IfIndex)
	c.AdminState, c.Request = clone(r.AdminState), clone(r.Request)
	return &c
}

func (r *interfaceRow) CloneModelInto(dst dbmodel.Model) {
	*dst.(*interfaceRow) = *r.CloneModel().(*interfaceRow)
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

// portName is a port's name in desired states, which is not its device's where that has a queue
// before it.
func (r *portRow) portName() string {
	if r.ExternalIDs[markKey] == markPort && r.ExternalIDs[peerDeviceKey] != "" {
		return r.ExternalIDs[peerDeviceKey]
	}
	return r.Name // which never changes
}

// set takes a new or changed row into the mirror.
func (d *database) set(row dbmodel.Model) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch r := row.(type) {
	case *rootRow:
		d.root, d.next, d.current = r.UUID, r.NextCfg, r.CurCfg
	case *bridgeRow:
		d.release(r.UUID)
		d.bridges[r.UUID] = r
		for _, p := range r.Ports {
			d.holder[p] = r.Name
		}
	case *portRow:
		if old := d.ports[r.UUID]; old != nil && d.named[old.portName()] == old {
			delete(d.named, old.portName())
		}
		d.ports[r.UUID], d.named[r.portName()] = r, r
	case *interfaceRow:
		d.ifaces[r.UUID] = r
	}
	d.changes.Notify()
}

// release forgets which ports a bridge holds; d.mu is held.
func (d *database) release(bridge string) {
	if b := d.bridges[bridge]; b != nil {
		for _, p := range b.Ports {
			if d.holder[p] == b.Name { // else another bridge has taken it over
				delete(d.holder, p)
			}
		}
	}
}

// remove takes a deleted row out of the mirror.
func (d *database) remove(row dbmodel.Model) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch r := row.(type) {
	case *bridgeRow:
		d.release(r.UUID)
		delete(d.bridges, r.UUID)
	case *portRow:
		delete(d.ports, r.UUID)
		if now := d.named[r.portName()]; now != nil && now.UUID == r.UUID { // else it was made again
			delete(d.named, r.portName())
		}
	case *interfaceRow:
		delete(d.ifaces, r.UUID)
	}
	d.changes.Notify()
}

// portState is a port as the database has it, with its one interface.
type portState struct {
	port   *portRow // nil = there is none
	iface  *interfaceRow
	bridge string // name of its bridge
}

// port looks a port up by what it is called; d.mu is held.
func (d *database) port(name string) portState {
	p := d.named[name]
	if p == nil {
		return portState{}
	}
	s := portState{port: p, bridge: d.holder[p.UUID]}
	if len(p.Interfaces) == 1 {
		s.iface = d.ifaces[p.Interfaces[0]]
	}
	return s
}

// number is the port's OpenFlow number, 0 while it has none.
func (p portState) number() uint32 {
	if p.iface == nil || p.iface.OfPort == nil || *p.iface.OfPort <= 0 {
		return 0
	}
	return uint32(*p.iface.OfPort)
}

// failure is what the switch says of the interface, "" when nothing is wrong.
func (p portState) failure() string {
	if p.iface == nil || p.iface.Error == nil {
		return ""
	}
	return *p.iface.Error
}

// interfaceMissing reports whether the kernel does not have, or no more, the interface of a port.
func (p portState) interfaceMissing() bool {
	return strings.Contains(p.failure(), noSuchDevice) || p.iface != nil && p.iface.IfIndex != nil && *p.iface.IfIndex == 0
}

// What device says.
const (
	deviceGone = "gone"
	deviceDown = "down"
)

// device says in one word what is wrong with the interface of a port itself, as the switch
// has it; "" when nothing is.
func (p portState) device() string {
	switch {
	case p.interfaceMissing():
		return deviceGone
	case p.iface != nil && p.iface.AdminState != nil && *p.iface.AdminState == "down":
		return deviceDown
	}
	return ""
}

func (p portState) up() bool {
	return p.iface != nil && p.iface.LinkState != nil && *p.iface.LinkState == "up"
}

// isUnreported tells that the switch has said nothing yet of an interface's state: what it says
// ends with the database server, so a new one has none until the switch has found it.
func (p portState) isUnreported() bool {
	i := p.iface
	return i != nil && i.LinkState == nil && i.AdminState == nil && i.IfIndex == nil && p.failure() == ""
}
