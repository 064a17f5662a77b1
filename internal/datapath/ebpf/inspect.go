package ebpf

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Inspect implements driver.Driver: what the maps hold now, one entry a line,
// sorted. Interfaces are given by name, and instances and generations of sets not at all, so
// that the text depends on the desired state only.
func (d *Driver) Inspect(ctx context.Context) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if d.closed {
		return "", model.Errorf(model.ErrUnavailable, "ebpf driver: it is closed")
	}
	back, err := d.dp.tables.peek() // what was written stays known: compare needs it
	defer back()
	if err != nil {
		return "", fmt.Errorf("ebpf driver: %w", err)
	}
	return d.dp.describe(), nil
}

// describe returns the entries of the tables as text.
func (dp *datapath) describe() string {
	names := dp.ports.names()
	names[0] = "-"
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	encap := map[uint32]model.Encap{encapVXLAN: model.EncapVXLAN, encapVLAN: model.EncapVLAN}
	for i, p := range dp.ports.Ports.have {
		add("port %s network %d %s %d %s %s %s identity %d policy %d", names[i], p.Net, encap[p.Encap], p.Tag, p.MAC,
			text(p.IP4), text(p.IP6), p.Identity, p.Set)
	}
	for a, i := range dp.ports.Privates.have {
		o := dp.ports.Ports.have[i]
		add("private address %s port %s router %s private %s router %s", fromIPv4Word(a), names[i], fromIPv4Word(o.RouterIP), text(o.Private6), text(o.RouterIP6))
	}
	for k, s := range dp.networks.Tags.have {
		add("tag %s %d network %d domain %d", encap[k.Encap], k.Tag, s.Net, s.Domain)
	}
	for id, n := range dp.networks.Networks.have {
		add("network %d %s %d ports %d vteps %d", id, encap[n.Encap], n.Tag, n.Ports, n.VTEPs)
	}
	for k, id := range dp.networks.Subnets.have {
		add("domain %d subnet %s network %d", k.Domain, k.prefix(), id)
	}
	for k, m := range dp.networks.Members.have {
		add("member %d/%d/%d %s %s policy %d", k.Net, k.Kind, k.Index, names[m.Ifindex], m.vtep(), m.Set)
	}
	for k, s := range dp.endpoints.Stations.have {
		add("station %d/%s port %s vtep %s policy %d", k.Net, k.MAC, names[s.Ifindex], s.vtep(), s.Set)
	}
	for k, h := range dp.endpoints.Hosts.have {
		add("address %d/%s %s port %s identity %d policy %d", h.Net, text(k.IP), h.MAC, names[h.Ifindex], h.Identity, h.Set)
	}
	for id, s := range dp.policies.Sets.have {
		for dir, word := range []string{dirIn: "in", dirOut: "out"} {
			tierAt := map[uint8]int{}
			for i := range int(min(s.Tiers[dir], maxTiers)) {
				tierAt[s.Stages[dir][i].Tier] = i
				add("policy %d %s tier %d default %v", id, word, i, fromAction(s.Stages[dir][i].Action))
			}
			for k, v := range dp.policies.Rules.of[s.Instance] {
				r := v.at(s.Generation)
				if i, ok := tierAt[k.Tier]; ok && int(k.Dir) == dir && r.weight != 0 {
					add("policy %d %s tier %d %s -> %s %s priority %d", id, word, i, k.text(), fromAction(r.action()), dp.policies.ruleIDs[r.id], r.weight>>actionShift>>actionBits)
				}
			}
		}
	}
	lines = append(lines, dp.services.lines(&dp.applied.host)...)
	slices.Sort(lines)
	s := dp.settings.get()
	head := fmt.Sprintf("attached by %s, flood %d, tunnel %v, uplink %v, host %s\n", dp.att.way, s.Flood, s.VXLAN != 0, s.Uplink != 0, fromIPv4Word(s.HostIP))
	if len(lines) == 0 {
		return head
	}
	return head + strings.Join(lines, "\n") + "\n"
}

func fromIPv4Word(w uint32) string {
	if w == 0 {
		return "-"
	}
	return netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, w))).String()
}

func text(a addr) string {
	if n := a.netip(); n.IsValid() {
		return n.String()
	}
	return "-"
}

func (k ruleKey) text() string {
	who := "anybody"
	switch k.Kind {
	case peerIdentity:
		who = fmt.Sprintf("identity %d", k.Peer[1])
	case peerCIDR4, peerCIDR6:
		var a addr
		binary.BigEndian.PutUint64(a[:8], k.Peer[0])
		binary.BigEndian.PutUint64(a[8:], k.Peer[1])
		who = netip.AddrFrom16(a).String()
		if k.Kind == peerCIDR4 {
			who = netip.AddrFrom16(a).Unmap().String()
		}
		who = fmt.Sprintf("%s/%d", who, k.Bits)
		if k.Scope != 0 {
			who += fmt.Sprintf(" of network %d", k.Scope)
		}
	}
	if k.PortBits == anyProtocol {
		return who
	}
	return fmt.Sprintf("%s proto %d port %d/%d", who, k.Proto, k.Port, k.PortBits)
}
