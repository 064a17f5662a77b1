package ebpf

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/driver/drivertest"
)

// openSide watches the host's own side, if the driver has made it.
func (r *rig) openSide(t testing.TB) {
	t.Helper()
	index, err := ifindex(desired.HostInterface)
	if err != nil {
		t.Error(err)
	}
	if index == r.sideIndex {
		return
	}
	r.closeSide()
	if r.sideIndex = index; index == 0 {
		return
	}
	fd, err := packetSocket(desired.HostInterface)
	if err != nil {
		t.Error(err)
		return
	}
	r.side = &wire{fd}
}

func (r *rig) closeSide() {
	if r.side != nil {
		unix.Close(r.side.fd)
		r.side = nil
	}
}

// read decodes an IPv4 frame that was translated; others are nobody's business.
func read(t testing.TB, g []byte) *driver.Packet {
	t.Helper()
	p, err := drivertest.ReadPacket(g)
	if err != nil {
		t.Error(err)
	}
	return p
}
