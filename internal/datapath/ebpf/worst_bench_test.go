package ebpf

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// BenchmarkWorstVerdict measures the first packet of a connection, by the
// kernel's own clock, under policies of which a verdict asks more and more: one
// rule for anybody; address ranges of all lengths around the peer (33 of IPv4, 129
// of IPv6); and for each of these port prefixes of all lengths, 17 more. All in
// turn, so that other work on the machine does not tell them apart.
func BenchmarkWorstVerdict(b *testing.B) {
	r := newRig(b)
	pic, a, _ := r.neighbours(b)
	shapes := []struct {
		name  string
		ports [][]model.PortMatch // a rule each
	}{
		{"easy", nil},
		{"lengths", [][]model.PortMatch{nil}},
		{"lengths-and-ports", [][]model.PortMatch{tcp16(1, 65534), tcp16(0, 32767), tcp16(0, 65535)}},
	}
	var to []*desired.Port
	for i, s := range shapes {
		tier := desired.Tier{Tier: model.TierContiv, Default: model.Deny}
		add := func(x desired.Rule) {
			x.ID, x.Priority, x.Action = strconv.Itoa(tier.Rules.Len()), 1, model.Allow
			tier.Rules = tier.Rules.Set(x.ID, &x)
		}
		if s.ports == nil {
			add(desired.Rule{AnyPeer: true})
		}
		for _, ports := range s.ports {
			for _, ip := range []netip.Addr{a.IPv4, a.IPv6} {
				for bits := range ip.BitLen() + 1 {
					add(desired.Rule{CIDRs: []desired.CIDR{{Prefix: netip.PrefixFrom(ip, bits).Masked()}}, Ports: ports})
				}
			}
		}
		id := desired.PolicySetID(100 + i)
		pic.PolicySets = pic.PolicySets.Set(id, &desired.PolicySet{ID: id, In: []desired.Tier{tier}})
		p := *a
		p.IfName, p.MAC, p.IPv4, p.IPv6, p.Policies = fmt.Sprint("cvw", i), model.MAC{2, 5, 0, 0, 1, byte(i)}, netip.AddrFrom4([4]byte{10, 9, 1, byte(i + 1)}), netip.MustParseAddr(fmt.Sprintf("fd00:9::1:%d", i+1)), id
		pic.Ports = pic.Ports.Set(p.IfName, &p)
		r.addWire(b, p.IfName, p.MAC)
		to = append(to, &p)
	}
	free := *a
	free.Policies = 0
	pic.Ports = pic.Ports.Set(a.IfName, &free)
	drv := r.open(b)
	defer drv.Close()
	if rep, err := drv.Apply(b.Context(), pic); err != nil || conformance.Failed(rep) != nil {
		b.Fatal(err, conformance.Failed(rep))
	}
	took := map[string][]float64{}
	for i := 0; b.Loop(); i++ {
		for j, s := range shapes {
			p := web(a, to[j], uint16(1024+i%60000), uint16(80+i/60000))
			took["ns/IPv4-"+s.name] = append(took["ns/IPv4-"+s.name], r.clocked(b, a.IfName, conformance.Frame(p), 1))
			p.Src, p.Dst = a.IPv6, to[j].IPv6
			took["ns/IPv6-"+s.name] = append(took["ns/IPv6-"+s.name], r.clocked(b, a.IfName, conformance.Frame(p), 1))
		}
	}
	for name, v := range took {
		slices.Sort(v)
		b.ReportMetric(v[len(v)/4], name) // the lower quartile: what is above waited for others
	}
}
