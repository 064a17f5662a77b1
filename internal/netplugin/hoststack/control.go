package hoststack

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Control is the cluster's control plane, which has no business with containers.
// All of it is TCP.
type Control struct {
	// Ports of this host, at whatever address of it they are reached.
	Ports []uint16
	// Targets are the addresses and ports on other machines.
	Targets []netip.AddrPort
}

const (
	setPorts    = "ports"
	setTargets4 = "targets4"
	setTargets6 = "targets6"
)

// ensureControl refuses packets from containers to the control plane, by two chains. One
// stands behind every address translation of the host (published ports, rules of others,
// the router's address) and sees the real destination. The other stands before all of them,
// since a translation may lead to an address that the cluster does not know, such as a
// Docker container with a netmaster in it. Established connections are refused too. The
// answer is a TCP reset, so that clients do not wait.
func (s *Stack) ensureControl(want Config) error {
	if want.Private == nil || want.Control == nil {
		s.refused.remember()
		return removeTable(nftables.TableFamilyINet)
	}
	k := *want.Control
	k.Ports = slices.Compact(slices.Sorted(slices.Values(k.Ports)))
	k.Targets = slices.Clone(k.Targets)
	slices.SortFunc(k.Targets, netip.AddrPort.Compare)
	k.Targets = slices.Compact(k.Targets)
	return ensureTable(nftables.TableFamilyINet, controlSets(k), controlChains(want.Private.Interface),
		[]any{"layout 1", want.Private.Interface, k}, func() {
			s.repaired.Rules("inet " + TableName)
			s.refused.remember()
		})
}

func controlSets(k Control) []set {
	ports := set{name: setPorts, key: nftables.TypeInetService}
	for _, p := range k.Ports {
		ports.elements = append(ports.elements, nftables.SetElement{Key: port(p)})
	}
	four := set{name: setTargets4, key: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetService)}
	six := set{name: setTargets6, key: nftables.MustConcatSetType(nftables.TypeIP6Addr, nftables.TypeInetService)}
	for _, t := range k.Targets {
		to := &six
		if t.Addr().Is4() {
			to = &four
		}
		key := slices.Concat(t.Addr().AsSlice(), port(t.Port()), []byte{0, 0}) // parts fill whole registers
		to.elements = append(to.elements, nftables.SetElement{Key: key})
	}
	return []set{ports, four, six}
}

func controlChains(device string) []chain {
	filter := func(name string, hook *nftables.ChainHook, p nftables.ChainPriority) chain {
		return chain{name: name, kind: nftables.ChainTypeFilter, hook: hook, priority: p - 1}
	}
	// Before any translation of a destination.
	meant := filter("prerouting", nftables.ChainHookPrerouting, *nftables.ChainPriorityMangle)
	meant.add(iif(device), tcp(), dstLocal(), dportIn(setPorts), reset())
	meant.add(iif(device), v4(), tcp(), target(dst4, reg32After4, setTargets4), reset())
	meant.add(iif(device), v6(), tcp(), target(dst6, reg32After16, setTargets6), reset())
	// After all.
	input := filter("input", nftables.ChainHookInput, *nftables.ChainPriorityFilter)
	input.add(iif(device), tcp(), dportIn(setPorts), reset())
	forward := filter("forward", nftables.ChainHookForward, *nftables.ChainPriorityFilter)
	forward.add(iif(device), v4(), tcp(), target(dst4, reg32After4, setTargets4), reset())
	forward.add(iif(device), v6(), tcp(), target(dst6, reg32After16, setTargets6), reset())
	return []chain{meant, input, forward}
}

// refused counts the refused packets of containers to the control plane. The kernel's
// counters begin at zero with every new table; this one does not.
type refused struct {
	mu      sync.Mutex
	earlier uint64 // of tables that are gone
}

// remember adds up what the present table has counted: it is about to go.
func (r *refused) remember() {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, _ := countRefused() // unreadable, it is not missed
	r.earlier += n
}

// Refused is how many packets of containers to the control plane were refused
// since New. It reads the namespace of the thread that calls it; any
// goroutine may.
func (s *Stack) Refused() (uint64, error) {
	s.refused.mu.Lock()
	defer s.refused.mu.Unlock()
	n, err := countRefused()
	return s.refused.earlier + n, err
}

func countRefused() (n uint64, err error) {
	c, err := nftables.New()
	if err != nil {
		return 0, model.Errorf(model.ErrUnavailable, "read nftables: %w", err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: TableName}
	for _, name := range []string{"prerouting", "input", "forward"} {
		rules, err := c.GetRules(table, &nftables.Chain{Name: name, Table: table})
		if isMissing(err) {
			continue
		}
		if err != nil {
			return 0, model.Errorf(model.ErrUnavailable, "read table %s of nftables: %w", TableName, err)
		}
		for _, r := range rules {
			for _, e := range r.Exprs {
				if k, ok := e.(*expr.Counter); ok {
					n += k.Packets
				}
			}
		}
	}
	return n, nil
}
