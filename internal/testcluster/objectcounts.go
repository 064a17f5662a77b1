package testcluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
)

// ObjectCounts is what the host's data plane holds: entries of maps by their names, or flows,
// groups and connections as the switch lists them. Connections are counted if it is
// asked for them.
func (h *Host) ObjectCounts(ctx context.Context, connections bool) (map[string]int, error) {
	if h.Driver() == DriverEBPF {
		return h.mapCounts(connections)
	}
	out := map[string]int{}
	mgmt := filepath.Join(h.RunDir(), "contivBr.mgmt")
	ask := [][]string{
		{"ovs-ofctl", "-O", "OpenFlow15", "--no-stats", "dump-flows", mgmt}, {"ovs-ofctl", "-O", "OpenFlow15", "dump-groups", mgmt},
	}
	if connections {
		ask = append(ask, []string{"ovs-appctl", "-t", filepath.Join(h.RunDir(), "ovs-vswitchd.ctl"), "dpctl/dump-conntrack"})
	}
	for _, line := range ask {
		text, err := h.Run(ctx, line[0], line[1:]...)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w: %s", h.Name, line[0], err, tail(text, 3))
		}
		for l := range strings.Lines(text) {
			if l = strings.TrimSpace(l); !strings.HasPrefix(l, "OFPST_") && !strings.HasPrefix(l, "NXST_") {
				out[l]++
			}
		}
	}
	return out, nil
}

// mapCounts counts what is pinned: in hashes the entries, and the places that are
// taken where connections to services are counted.
func (h *Host) mapCounts(connections bool) (map[string]int, error) {
	pins, err := filepath.Glob(filepath.Join(h.PinDir(), "maps", "*"))
	if err == nil && len(pins) == 0 {
		err = errors.New("nothing is pinned")
	}
	if err != nil {
		return nil, fmt.Errorf("maps of %s: %w", h.Name, err)
	}
	out := map[string]int{}
	for _, pin := range pins {
		name := filepath.Base(pin)
		if !connections && (name == "conns" || name == "halfopen") || name == "hits" {
			continue // which stay behind with rules that are gone, by and by
		}
		n, err := entries(pin)
		if err != nil {
			return nil, fmt.Errorf("map %s of %s: %w", name, h.Name, err)
		}
		if n > 0 {
			out[name] = n
		}
	}
	return out, nil
}

// entries counts what a pinned map holds: of arrays only those of the map "counted",
// whose places have an owner's number at their beginning.
func entries(pin string) (n int, err error) {
	m, err := ebpf.LoadPinnedMap(pin, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return 0, err
	}
	defer func() { _ = m.Close() }() // nothing was written
	switch m.Type() {
	case ebpf.Hash, ebpf.LRUHash, ebpf.LPMTrie, ebpf.HashOfMaps:
	case ebpf.Array:
		if filepath.Base(pin) != "counted" {
			return 0, nil
		}
	default:
		return 0, nil
	}
	var k, v []byte
	it := m.Iterate()
	for it.Next(&k, &v) {
		if m.Type() != ebpf.Array || binary.NativeEndian.Uint64(v) != 0 { // struct counted begins with its id
			n++
		}
	}
	return n, it.Err()
}
