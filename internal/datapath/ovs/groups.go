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

// unmade counts the edits.
func (g *groups) unmade() int {
	before, after := g.edits()
	return len(before) + len(after)
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

// comparable lists the wanted groups that have as many buckets as they should, and few enough
// for the switch to tell what is in them.
func (g *groups) comparable(listed map[uint32]int) (ids []uint32) {
	for id, x := range g.want {
		if n, there := listed[id]; there && n == len(x.Buckets) && n <= openflow.Describable {
			ids = append(ids, id)
		}
	}
	return ids
}

// found replaces what is known of the switch by what was read from it: groups with
// their numbers of buckets, contents of comparable ones, and flows by key.
func (g *groups) found(listed map[uint32]int, contents map[uint32]string, flows map[string]string) {
	g.have = map[uint32]uint32{}
	for id := range listed {
		if id&groupsMask == ownGroups {
			g.have[id], g.pending[id] = 0, true
		}
	}
	for k, body := range flows {
		if k[0] != byte(pipeline.SelectBackend) {
			continue
		}
		f, err := openflow.FromParts(k, body)
		if err != nil || len(f.Actions) == 0 {
			continue
		}
		to, ok := f.Actions[len(f.Actions)-1].(openflow.GroupAction)
		if _, number, _ := pipeline.KindOf(f.Cookie); ok && listed[to.Group] == len(g.want[to.Group].Buckets) {
			g.have[to.Group] = number
		}
	}
	for id, is := range contents {
		if is != g.want[id].Contents() {
			g.have[id] = 0
		}
	}
	for id := range g.want {
		g.pending[id] = true
	}
}

// findServices reads which groups the switch has, beside the flows that were found,
// and, first, what a former driver has left of services.
func (t *flows) findServices(ctx context.Context, flows map[string]string, first bool) error {
	conn, err := t.groupConn(ctx)
	if err != nil {
		if len(t.pic.services.groups.want) == 0 {
			t.cfg.Log.Debug("the switch's groups cannot be read", "error", err)
			return nil // none is needed
		}
		return err
	}
	listed, err := conn.List(ctx)
	var contents map[uint32]string
	if err == nil {
		contents, err = conn.Contents(ctx, t.pic.services.groups.comparable(listed))
	}
	if err == nil && first {
		err = t.findTranslations(ctx)
	}
	if err != nil {
		return model.Errorf(model.ErrUnavailable, "open vswitch: read services' flows and groups: %w", err)
	}
	t.pic.services.groups.found(listed, contents, flows)
	return nil
}

// changeGroups commits changes of groups as one bundle.
func (t *flows) changeGroups(ctx context.Context, mods []openflow.GroupMod) error {
	if len(mods) == 0 {
		return nil
	}
	if t.fault != nil {
		if err := t.fault(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.patience)
	defer cancel()
	conn, err := t.groupConn(ctx)
	if err != nil {
		return err
	}
	if err := conn.Change(ctx, mods); err != nil {
		t.known = false // the bundle may or may not have been committed
		return model.Errorf(model.ErrUnavailable, "open vswitch: %w", err)
	}
	t.pic.services.groups.done(mods)
	return nil
}

// groupConn is the connection for groups, made when it is needed first.
func (t *flows) groupConn(ctx context.Context) (openflow.Groups, error) {
	if t.groupc.Conn != nil {
		select {
		case <-t.groupc.Done():
			t.closeGroups()
		default:
			return t.groupc, nil
		}
	}
	conn, err := openflow.DialGroups(ctx, filepath.Join(t.cfg.RunDir, t.cfg.Bridge+".mgmt"))
	if err != nil {
		return conn, model.Errorf(model.ErrUnavailable, "open vswitch: %w; services need OpenFlow 1.5, is it among the bridge's protocols?", err)
	}
	t.groupc = conn
	return conn, nil
}

func (t *flows) closeGroups() {
	if t.groupc.Conn != nil {
		_ = t.groupc.Close() // nothing is lost with it
		t.groupc.Conn = nil
	}
}
