package apiserver

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// text is an answer that is sent as it is.
type text string

// ofnet tells of every host (or of the one that ?host= names) what it should
// look like and what its agent says that it looks like. 1.x showed the caches
// of its OpenFlow library here.
func (s *endpointHandlers) ofnet(_ http.ResponseWriter, r *request) (any, error) {
	v, err := s.control.View(r.Context())
	if err != nil {
		return nil, err
	}
	list, err := s.control.Hosts.List(r.Context(), r.actor)
	if err != nil {
		return nil, err
	}
	states := make(map[model.HostName]control.HostState, len(list))
	var names []model.HostName
	for _, h := range list {
		states[h.Name] = h
		names = append(names, h.Name)
	}
	if want := r.URL.Query().Get("host"); want != "" {
		if !slices.Contains(names, model.HostName(want)) {
			return nil, notFound("host", want)
		}
		names = []model.HostName{model.HostName(want)}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "revision %d, hosts %d\n", v.Revision(), len(names))
	for _, name := range names {
		writeHost(&b, v, name)
		writeStatus(&b, states[name], time.Now())
	}
	return text(b.String()), nil
}

// writeHost tells what a host should look like.
func writeHost(b *strings.Builder, v *control.View, name model.HostName) {
	fmt.Fprintf(b, "\nhost %s\n", name)
	if h, ok := v.Hosts.Get(name); ok {
		fmt.Fprintf(b, "  control %s, vtep %s, driver %s\n", addrText(h.Control), addrText(h.VTEP), h.Driver)
	} else {
		b.WriteString("  no netplugin has reported it\n")
	}
	eps := v.Endpoints.OfHost(name)
	fmt.Fprintf(b, "  desired: %d endpoints\n", len(eps))
	var last model.NetworkKey
	for _, e := range eps {
		if e.Key.Network != last {
			last = e.Key.Network
			writeNetwork(b, v, last, name)
		}
		group := string(e.Group)
		if group == "" {
			group = "-"
		}
		addrs := strings.TrimSpace(addrText(e.IPv4) + " " + addrText(e.IPv6))
		fmt.Fprintf(b, "      %s %s %s %s group %s identity %d\n", compile.IfName(e.Key), e.Key.ID, addrs, e.MAC, group, e.Identity)
	}
}

// writeNetwork tells of a network that a host has endpoints on, and of the
// hosts that it reaches there.
func writeNetwork(b *strings.Builder, v *control.View, k model.NetworkKey, self model.HostName) {
	n, ok := v.Networks.Get(k)
	if !ok {
		fmt.Fprintf(b, "    network %s does not exist\n", k)
		return
	}
	var peers []netip.Addr
	seen := map[model.HostName]bool{self: true}
	for _, e := range v.Endpoints.OfNetwork(k) {
		if seen[e.Host] {
			continue
		}
		seen[e.Host] = true
		if h, ok := v.Hosts.Get(e.Host); ok && n.Encap == model.EncapVXLAN {
			peers = append(peers, h.VTEP)
		}
	}
	slices.SortFunc(peers, netip.Addr.Compare)
	fmt.Fprintf(b, "    network %s %s %d, tunnels to %v\n", k, n.Encap, n.Tag, peers)
}

// writeStatus tells what a host's agent has observed.
func writeStatus(b *strings.Builder, h control.HostState, now time.Time) {
	if !h.Alive {
		b.WriteString("  away: its agent sends no heartbeat\n")
	}
	if !h.HasStatus {
		b.WriteString("  actual: unknown, no status was reported\n")
		return
	}
	st, age := h.Status, ""
	if said := h.LastStatusTime(); !said.IsZero() {
		age = " (" + ageText(max(0, int64(now.Sub(said)/time.Second))) + " ago)"
	}
	fmt.Fprintf(b, "  actual: %d ports programmed, %d pending, at revision %d, reported %s%s by %s %s\n",
		st.Ports, st.Pending, st.Revision, st.Updated, age, st.Driver, st.Version)
	if st.DriverWhy != "" {
		fmt.Fprintf(b, "    driver %s: %s\n", st.Driver, st.DriverWhy)
	}
	if st.Error != "" {
		fmt.Fprintf(b, "    error: %s\n", st.Error)
	}
	for _, k := range sortedKeys(st.Problems) {
		fmt.Fprintf(b, "    problem: %s: %s\n", k, st.Problems[k])
	}
}
