package control

import (
	"cmp"
	"net/netip"
	"sync"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// HostView is the View's part with hosts, and with what they answer for.
type HostView struct {
	endpoints *EndpointView

	mu              *sync.RWMutex // the View's
	hostRows        *rows[model.HostName, model.Host]
	hostAddressRows *rows[tables.HostAddressesKey, tables.HostAddresses]
	drainRows       *rows[tables.HostDrainKey, tables.HostDrain]
	absenceRows     *rows[tables.HostAbsenceKey, tables.HostAbsence]
	answerers       *answering
}

func newHostView(mu *sync.RWMutex, endpoints *EndpointView) *HostView {
	hv := &HostView{mu: mu, endpoints: endpoints}
	hv.hostRows = newRows[model.HostName, model.Host](mu, nil, cmp.Compare[model.HostName])
	hv.hostAddressRows = newRows[tables.HostAddressesKey, tables.HostAddresses](mu, nil, func(a, b tables.HostAddressesKey) int { return cmp.Compare(a.Host, b.Host) })
	hv.drainRows = newRows[tables.HostDrainKey, tables.HostDrain](mu, nil, func(a, b tables.HostDrainKey) int { return cmp.Compare(a.Host, b.Host) })
	hv.absenceRows = newRows[tables.HostAbsenceKey, tables.HostAbsence](mu, nil, func(a, b tables.HostAbsenceKey) int { return cmp.Compare(a.Host, b.Host) })
	hv.reset()
	return hv
}

func (hv *HostView) reset() {
	hv.answerers = &answering{hosts: map[model.HostName]seenAnswerer{}, of: map[netip.Addr]model.HostName{}}
	hv.hostAddressRows.reset()
	hv.drainRows.reset()
	hv.absenceRows.reset()
	hv.hostRows.reset()
}
