package ebpf

import (
	"fmt"
	"time"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// serviceLines are the services as the maps hold them, as text. Numbers and places are
// left out: the text depends on the picture only.
func (d *Driver) serviceLines() (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	names, backends := map[uint32]string{}, map[uint64]string{}
	for key, x := range d.serving.of {
		names[x.number] = "service " + key.String()
		if s, ok := d.last.Services.Get(key); ok {
			for k := range s.Backends.All() {
				backends[desired.BackendID(k)] = k.String()
			}
		}
	}
	for a, n := range d.vips.have {
		if n == 0 {
			add("link-local service address %s domain %d", text(a.IP), a.Domain)
		} else {
			add("%s address %s domain %d", names[n], text(a.IP), a.Domain)
		}
	}
	for a, x := range d.exposed.have {
		add("address %s leads clients outside to domain %d", text(a), x.Domain)
	}
	for k, to := range d.servicePorts.have {
		add("%s port %s %d to %d", names[k.Service], model.Protocol(k.Proto), k.Port, to)
	}
	for n, h := range d.services.have {
		way := "compared"
		if h.Table != [choices]uint32{} {
			way = "in a table"
		}
		add("%s affinity %s backends %s", names[n], time.Duration(h.Affinity), way)
	}
	for k, b := range d.backends.have {
		add("%s backend %s %s %s state %d chosen among %d", names[k.Service], backends[b.ID], text(b.IP[0]), text(b.IP[1]), b.State, b.Among)
	}
	return lines
}
