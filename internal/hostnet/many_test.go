package hostnet

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestFrontsMany: as many backends as a service may have are all led to.
func TestFrontsMany(t *testing.T) {
	eachServed(t, func(t *testing.T, s *served) {
		t.Helper()
		f := &Front{}
		for i := range desired.MaxBackends {
			a := s.pods[0].AsSlice()
			a[len(a)-2], a[len(a)-1] = byte(i>>8), byte(i)
			addr, _ := netip.AddrFromSlice(a)
			f.Own.Targets = append(f.Own.Targets, Target{AddrPort: netip.AddrPortFrom(addr, 80)})
		}
		f.Outside.Targets = f.Own.Targets
		at := FrontAt{s.vip, model.ProtoTCP, 80}
		for affinity, sets := range map[time.Duration]int{0: 0, time.Hour: 2} {
			f := *f
			f.Affinity, f.Group = affinity, "default:shop/web"
			s.fronts.Set(at, &f)
			s.lead()
			for _, n := range s.anonymous() {
				if n != desired.MaxBackends {
					t.Errorf("affinity %v: %d of %d backends", affinity, n, desired.MaxBackends)
				}
				sets--
			}
			if sets != 0 {
				t.Errorf("affinity %v: %d sets of backends are not there", affinity, sets)
			}
		}
	})
}

// anonymous counts the elements of sets that belong to rules.
func (s *served) anonymous() (counts []int) {
	s.t.Helper()
	if err := in(s.t, s.host, func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		table := newFrontTable(nftables.TableFamilyIPv4).table
		if s.vip.Is6() {
			table.Family = nftables.TableFamilyIPv6
		}
		sets, err := c.GetSets(table)
		if err != nil {
			return err
		}
		for _, set := range sets {
			if strings.HasPrefix(set.Name, "__") {
				elements, err := c.GetSetElements(set)
				if err != nil {
					return err
				}
				counts = append(counts, len(elements))
			}
		}
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
	return counts
}
