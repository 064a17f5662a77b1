package ovs

import (
	"context"
	"path/filepath"

	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Numbers of groups of ours; others on our bridge are left alone.
const (
	ownGroups  = 0xc0 << 24
	groupsMask = 0xff << 24
)

// groups knows which groups are wanted, by service, and which the switch holds: of
// these, what they were made of, as the flows say that lead there. Groups have no
// cookies.
type groups struct {
	owned   map[model.ServiceKey][]uint32
	want    map[uint32]openflow.Group
	have    map[uint32]uint32 // GroupNumber; 0 = not known
	pending map[uint32]bool
	numbers map[pipeline.GroupOf]uint32
	names   map[uint32]pipeline.GroupOf
}

func newGroups() *groups {
	return &groups{
		owned: map[model.ServiceKey][]uint32{}, want: map[uint32]openflow.Group{}, have: map[uint32]uint32{},
		pending: map[uint32]bool{}, numbers: map[pipeline.GroupOf]uint32{}, names: map[uint32]pipeline.GroupOf{},
	}
}

// number is the number of a group; the same after a restart, but where two would
// have the same.
func (g *groups) number(name pipeline.GroupOf) uint32 {
	n, ok := g.numbers[name]
	if ok {
		return n
	}
	for n = name.Number(); ; n++ {
		n = n&^groupsMask | ownGroups
		if _, taken := g.names[n]; !taken {
			break
		}
	}
	g.numbers[name], g.names[n] = n, name
	return n
}

// set makes these groups all that a service has.
func (g *groups) set(k model.ServiceKey, wanted []openflow.Group) {
	old := g.owned[k]
	delete(g.owned, k)
	for _, x := range wanted {
		g.want[x.ID] = x
		g.pending[x.ID] = true
		g.owned[k] = append(g.owned[k], x.ID)
	}
	now := map[uint32]bool{}
	for _, id := range g.owned[k] {
		now[id] = true
	}
	for _, id := range old {
		if !now[id] {
			delete(g.want, id)
			g.pending[id] = true
			delete(g.numbers, g.names[id])
			delete(g.names, id)
		}
	}
}

// edits lists what comes before the flows, and what goes after them.
func (g *groups) edits() (before, after []openflow.GroupMod) {
	for id := range g.pending {
		want, wanted := g.want[id]
		have, had := g.have[id]
		switch {
		case wanted && (!had || have != pipeline.GroupNumber(want)):
			before = append(before, openflow.GroupMod{Group: want})
		case !wanted && had:
			after = append(after, openflow.GroupMod{Delete: true, Group: openflow.Group{ID: id}})
		default:
			delete(g.pending, id)
		}
	}
	return before, after
}

func (g *groups) done(mods []openflow.GroupMod) {
	for _, m := range mods {
		if m.Delete {
			delete(g.have, m.Group.ID)
		} else {
			g.have[m.Group.ID] = pipeline.GroupNumber(m.Group)
		}
		delete(g.pending, m.Group.ID)
	}
	if len(g.pending) == 0 {
		g.pending = map[uint32]bool{}
	}
}

// found replaces what is known of the switch by what was read from it: groups with
// their numbers of buckets, and flows by key.
func (g *groups) found(listed map[uint32]int, flows map[string]string) {
	g.have = map[uint32]uint32{}
	for id := range listed {
		if id&groupsMask == ownGroups {
			g.have[id], g.pending[id] = 0, true
		}
	}
	for k, body := range flows {
		if k[0] != byte(pipeline.Pick) {
			continue
		}
		f, err := openflow.FromParts(k, body)
		if err != nil || len(f.Actions) == 0 {
			continue
		}
		to, ok := f.Actions[len(f.Actions)-1].(openflow.Choose)
		if _, number, _ := pipeline.KindOf(f.Cookie); ok && listed[to.Group] == len(g.want[to.Group].Buckets) {
			g.have[to.Group] = number
		}
	}
	for id := range g.want {
		g.pending[id] = true
	}
}

// findServices reads which groups the switch has, beside the flows that were found,
// and, first, what a former driver has left of services.
func (d *Driver) findServices(ctx context.Context, flows map[string]string, first bool) error {
	conn, err := d.groupConn(ctx)
	if err != nil {
		if len(d.pic.services.groups.want) == 0 {
			d.cfg.Log.Debug("the switch's groups cannot be read", "error", err)
			return nil // nobody needs any
		}
		return err
	}
	listed, err := conn.List(ctx)
	if err == nil && first {
		err = d.findTranslations(ctx)
	}
	if err != nil {
		return model.Errorf(model.ErrUnavailable, "open vswitch: read what services have: %w", err)
	}
	d.pic.services.groups.found(listed, flows)
	return nil
}

// changeGroups commits changes of groups as one bundle.
func (d *Driver) changeGroups(ctx context.Context, mods []openflow.GroupMod) error {
	if len(mods) == 0 {
		return nil
	}
	if d.fault != nil {
		if err := d.fault(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.patience)
	defer cancel()
	conn, err := d.groupConn(ctx)
	if err != nil {
		return err
	}
	if err := conn.Change(ctx, mods); err != nil {
		d.known = false // the bundle may or may not have been committed
		return model.Errorf(model.ErrUnavailable, "open vswitch: %w", err)
	}
	d.pic.services.groups.done(mods)
	return nil
}

// groupConn is the connection for groups, made when it is needed first.
func (d *Driver) groupConn(ctx context.Context) (openflow.Groups, error) {
	if d.groupc.Conn != nil {
		select {
		case <-d.groupc.Done():
			d.closeGroups()
		default:
			return d.groupc, nil
		}
	}
	conn, err := openflow.DialGroups(ctx, filepath.Join(d.cfg.RunDir, d.cfg.Bridge+".mgmt"))
	if err != nil {
		return conn, model.Errorf(model.ErrUnavailable, "open vswitch: %w; services need OpenFlow 1.5, is it among the bridge's protocols?", err)
	}
	d.groupc = conn
	return conn, nil
}

func (d *Driver) closeGroups() {
	if d.groupc.Conn != nil {
		_ = d.groupc.Close() // nothing is lost with it
		d.groupc.Conn = nil
	}
}
