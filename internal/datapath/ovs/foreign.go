package ovs

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	dbmodel "github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Other bridges may have tunnel ports that name one host each, as Contiv 1.x
// makes them. The switch gives a packet out of a tunnel to the most specific port:
// ports that name its host come before ours, which names none.

// ports1x are the ports of a bridge of 1.x beside containers' and tunnels.
var ports1x = []string{"contivh0", "contivh1", "uplinkPort"}

// otherBridge is what a bridge that is not ours means for tunnels.
type otherBridge struct {
	row     *bridgeRow
	tunnels []string // its tunnel ports that take packets away from ours
	used    []string // other ports, with something behind them
}

// otherBridges lists the bridges that are 1.x's, or take packets of the desired state's
// hosts away.
func (b *bridge) otherBridges(want desired.Host) (out []otherBridge) {
	hosts := map[netip.Addr]bool{}
	for _, n := range want.Networks.All() {
		for _, v := range n.VTEPs {
			hosts[v] = true
		}
	}
	b.conns.db.mu.Lock()
	defer b.conns.db.mu.Unlock()
	for _, row := range b.conns.db.bridges {
		if row.Name == b.cfg.Bridge {
			continue
		}
		is1x := slices.Contains(bridges1x, row.Name)
		o := otherBridge{row: row}
		for _, id := range row.Ports {
			p := b.conns.db.ports[id]
			if p == nil {
				continue
			}
			s := b.conns.db.port(p.portName())
			remote := tunnelPeerOf(s.iface, b.cfg.VXLANPort)
			at, err := netip.ParseAddr(remote)
			switch {
			case remote != "" && (is1x || err == nil && hosts[at]):
				o.tunnels = append(o.tunnels, fmt.Sprintf("%s (from %s)", p.Name, remote))
			case s.iface != nil && s.iface.Type == "vxlan", p.Name == row.Name, slices.Contains(ports1x, p.Name), slices.Contains(b.cfg.Uplinks, p.Name):
			case s.interfaceMissing(): // with its container
			default:
				o.used = append(o.used, p.Name)
			}
		}
		if is1x || len(o.tunnels) > 0 {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(x, y otherBridge) int { return strings.Compare(x.row.Name, y.row.Name) })
	return out
}

// tunnelPeerOf is the host whose tunnel packets to our UDP port an interface takes; ""
// when it is no such tunnel port, or names no host.
func tunnelPeerOf(i *interfaceRow, ourPort uint16) string {
	if i == nil || i.Type != "vxlan" {
		return ""
	}
	port := i.Options["dst_port"]
	if port == "" {
		port = strconv.Itoa(DefaultVXLANPort)
	}
	if remote := i.Options["remote_ip"]; remote != "flow" && port == strconv.Itoa(int(ourPort)) {
		return remote
	}
	return ""
}

// clearOthers removes the bridges of 1.x that no container of 1.x is left on. It
// tells of the others, and of bridges that take packets away from our tunnel.
func (b *bridge) clearOthers(ctx context.Context, want desired.Host) (removed int, problems []driver.Problem) {
	for _, o := range b.otherBridges(want) {
		name := o.row.Name
		is1x := slices.Contains(bridges1x, name)
		if is1x && len(o.used) == 0 {
			err := b.removeBridge(ctx, o.row)
			if err == nil {
				b.cfg.Log.Warn("removed a bridge of Contiv 1.x without containers", "bridge", name)
				removed++
				continue
			}
			problems = append(problems, driver.Problem{Object: "bridge " + name, Err: model.Errorf(model.ErrUnavailable, "remove this bridge of Contiv 1.x: %w", err)})
			continue
		}
		slices.Sort(o.tunnels)
		slices.Sort(o.used)
		why := "it is Contiv 1.x's"
		if len(o.tunnels) > 0 {
			why = fmt.Sprintf("its tunnel ports take packets of UDP port %d away from Contiv's, so no packets arrive from these hosts: %s", b.cfg.VXLANPort, strings.Join(o.tunnels, ", "))
		}
		do := fmt.Sprintf("remove them (ovs-vsctl del-port %s PORT), or the bridge (ovs-vsctl del-br %[1]s)", name)
		if is1x {
			do = fmt.Sprintf("it goes by itself when nothing of 1.x is on it any more; still there: %s (drain the host, or 'ovs-vsctl del-port %s PORT' for each; 'ovs-vsctl del-br %[2]s' removes all)", strings.Join(o.used, ", "), name)
		}
		problems = append(problems, driver.Problem{Object: "bridge " + name, Err: model.Errorf(model.ErrConflict, "%s; %s", why, do)})
	}
	return removed, problems
}

// removeBridge removes a bridge with its ports.
func (b *bridge) removeBridge(ctx context.Context, other *bridgeRow) error {
	row := b.conns.db.rootRow()
	ops, err := b.conns.db.c.Where(row).Mutate(row, dbmodel.Mutation{Field: &row.Bridges, Mutator: ovsdb.MutateOperationDelete, Value: []string{other.UUID}})
	if err == nil {
		err = b.conns.db.transact(ctx, ops)
	}
	if err != nil {
		return err
	}
	return b.conns.db.wait(ctx, func() bool { return b.conns.db.bridges[other.UUID] == nil })
}
