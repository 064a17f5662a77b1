package hoststack

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// read finds what the kernel has of the table, and whether that is other than was known.
func (t *frontendTable) read() (changed bool, err error) {
	was := t.have
	t.empty()
	for e := range was {
		t.dirty[e] = true
	}
	for e := range t.wanted {
		t.dirty[e] = true
	}
	c, err := nftables.New()
	if err != nil {
		return false, err
	}
	chains, err := c.ListChainsOfTableFamily(t.table.Family)
	if err != nil {
		return false, fmt.Errorf("read nftables: %w", err)
	}
	rules, err := countRules(t.table)
	if err != nil {
		return false, err
	}
	there := map[string]bool{}
	for _, ch := range chains {
		if ch.Table.Name == ServicesTable {
			there[ch.Name] = true
		}
	}
	whole := there[t.mark()]
	var times []string
	rulesOf := map[string]int{} // for times
	if whole {
		sets, err := c.GetSets(t.table)
		if err != nil {
			return false, fmt.Errorf("read nftables: %w", err)
		}
		for _, s := range sets {
			if at, _, ok := timeIn(s.Name); ok {
				rulesOf[at+suffixKeep] += rulesOfTime
				times = append(times, s.Name)
			}
		}
	}
	for _, ch := range t.always() {
		whole = whole && there[ch.name] && rules[ch.name] == len(ch.rules)+rulesOf[ch.name]
	}
	t.there = len(there) > 0
	if !whole {
		return len(was) > 0, nil
	}
	t.made = true
	for _, name := range slices.Concat(frontendSets, times) {
		elements, err := c.GetSetElements(t.setOf(name))
		if err != nil {
			if isMissing(err) {
				t.empty()
				t.there = true
				return true, nil
			}
			return false, fmt.Errorf("read set %s of nftables: %w", name, err)
		}
		for _, e := range elements {
			t.have[element{name, string(e.Key)}] = valueOf(name, e)
		}
	}
	for _, name := range times {
		t.times[name] = 0
	}
	for _, name := range clientMaps {
		t.staleMaps[name] = true
	}
	for e := range t.have {
		if countTime(t.times, e.in, 1); t.wanted[e].by == 0 {
			t.dirty[e] = true
		}
	}
	changed = len(was) != len(t.have)
	for e, to := range was {
		changed = changed || t.have[e] != to
	}
	return changed, nil
}

// inKernel are the frontends for which the kernel's table names backends, also if others wrote
// it.
func (t *frontendTable) inKernel() (all map[FrontendAddr]bool, err error) {
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	tables, err := c.ListTablesOfFamily(t.table.Family)
	if err != nil || !slices.ContainsFunc(tables, isServicesTable) { // a kernel without nftables has no table of ours
		return nil, nil //nolint:nilerr // see above
	}
	sets, err := c.GetSets(t.table)
	if err != nil {
		return nil, fmt.Errorf("read nftables: %w", err)
	}
	all = map[FrontendAddr]bool{}
	for _, s := range sets {
		if !strings.HasPrefix(s.Name, sideOwn) && !strings.HasPrefix(s.Name, sideOutside) {
			continue
		}
		elements, err := c.GetSetElements(s)
		if err != nil {
			return nil, fmt.Errorf("read set %s of nftables: %w", s.Name, err)
		}
		for _, e := range elements {
			if at, ok := t.placeOf(s.Name, string(e.Key)); ok {
				all[at] = true
			}
		}
	}
	return all, nil
}

// placeOf is whose an element of a side's set is, as keyOf was told.
func (t *frontendTable) placeOf(in, key string) (at FrontendAddr, ok bool) {
	n := int(t.addrType().Bytes)
	if at.Addr = netip.IPv4Unspecified(); t.v6() {
		at.Addr = netip.IPv6Unspecified()
	}
	if !strings.Contains(in, ofPorts) {
		if len(key) < n {
			return at, false
		}
		at.Addr, _ = netip.AddrFromSlice([]byte(key[:n]))
		key = key[n:]
	}
	if len(key) < 8 {
		return at, false
	}
	at.Proto, at.Port = model.Protocol(key[0]), binary.BigEndian.Uint16([]byte(key[4:6]))
	return at, true
}

// valueOf is an element's value, as elementOf was told.
func valueOf(in string, e nftables.SetElement) string {
	if strings.HasPrefix(in, setFrom) {
		return string(e.KeyEnd)
	}
	return string(e.Val)
}

// countRules counts the rules of a table by their chains.
func countRules(table *nftables.Table) (map[string]int, error) {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: uint8(table.Family), Version: nl.NFNETLINK_V0})
	req.AddData(nl.NewRtAttr(unix.NFTA_RULE_TABLE, append([]byte(table.Name), 0)))
	out := map[string]int{}
	err := req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(m []byte) bool {
		if len(m) >= nfgenBytes && strings.TrimRight(string(attr(m[nfgenBytes:], unix.NFTA_RULE_TABLE)), "\x00") == table.Name {
			out[strings.TrimRight(string(attr(m[nfgenBytes:], unix.NFTA_RULE_CHAIN)), "\x00")]++
		}
		return true
	})
	if err != nil && !isMissing(err) {
		return nil, fmt.Errorf("count rules of nftables: %w", err)
	}
	return out, nil
}

// remove takes the table away, if it is there.
func (t *frontendTable) remove() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	tables, err := c.ListTablesOfFamily(t.table.Family)
	if err != nil { // a kernel without nftables has no table of ours
		return nil //nolint:nilerr // see above
	}
	if slices.ContainsFunc(tables, isServicesTable) {
		c.DelTable(t.table)
		if err := c.Flush(); err != nil && !isMissing(err) {
			return err
		}
	}
	t.empty()
	for e := range t.wanted {
		t.dirty[e] = true
	}
	return nil
}

func isServicesTable(t *nftables.Table) bool { return t.Name == ServicesTable }

// ownAddrs are this host's addresses.
func ownAddrs() (out []netip.Addr) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				out = append(out, ip.Unmap())
			}
		}
	}
	return out
}
