package ebpf

import (
	"fmt"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// lines are the services as the maps hold them, as text. Numbers and places are
// left out: the text depends on the desired state only.
func (s *serviceState) lines(last *desired.Host) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	names, backends := map[uint32]string{}, map[uint64]string{}
	for key, x := range s.of {
		names[x.number] = "service " + key.String()
		if known, ok := last.Services.Get(key); ok {
			for k := range known.Backends.All() {
				backends[desired.BackendID(k)] = k.String()
			}
		}
	}
	for a, n := range s.maps.VIPs.have {
		switch {
		case a.Domain&allNodes != 0:
			add("all nodes' addresses %s domain %d", text(a.IP), a.Domain&^allNodes)
		case n == 0:
			add("link-local service address %s domain %d", text(a.IP), a.Domain)
		case names[n] == "":
			add("shared address %s domain %d, of a node %t, with ports of its own %t", text(a.IP), a.Domain, n&vipShared != 0, n&vipOwn != 0)
		default:
			add("%s address %s domain %d", names[n], text(a.IP), a.Domain)
		}
	}
	for k, claims := range s.sharedVIPs.owners {
		f := s.of[claims[0]].frontends[k]
		sources := "all"
		if f.sources != nil {
			sources = f.sources.name()
		}
		add("service %s frontend %s domain %d port %s %d of clients %s", claims[0], k.at.IP.vip(), k.at.Domain, model.Protocol(k.proto), k.port, sources)
	}
	for k, x := range s.maps.Exposed.have {
		port := ""
		if k.Proto != 0 {
			port = fmt.Sprintf(" port %s %d", model.Protocol(k.Proto), k.Port)
		}
		add("address %s%s leads clients outside to domain %d", text(k.IP), port, x.Domain)
	}
	for k, to := range s.maps.ServicePorts.have {
		add("%s port %s %d to %d, traffic policy inside %d, outside %d", names[to.Service], model.Protocol(k.Proto), k.Port, to.Port, to.Inside, to.Outside)
	}
	for n, h := range s.maps.Services.have {
		way := "compared"
		if h.SlotTable != [backendTables]uint32{} {
			way = "in a table"
		}
		add("%s affinity %s backends %s", names[n], time.Duration(h.Affinity), way)
	}
	for k, b := range s.maps.Backends.have {
		add("%s backend %s %s %s state %d port %d, by IPv6 state %d port %d, chosen among %d", names[k.Service], backends[b.ID], text(b.IP[0]), text(b.IP[1]), b.State, b.Port, b.State6, b.Port6, b.InPools)
	}
	return lines
}
