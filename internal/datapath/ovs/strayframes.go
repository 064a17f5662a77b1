package ovs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// In user space the switch finds the frames of its tunnel by a table of the host's own
// addresses. Whenever an interface of the host comes or goes it empties that table and
// reads it again (Open vSwitch 3.1, lib/route-table.c). If cached flows are revalidated
// meanwhile, frames of the tunnel go to the host's stack, which drops them if the port is
// closed. So the driver listens there, and hands them to the switch as frames of the
// tunnel.

// strayFrameBuffer is how many bytes of missed frames wait for the driver: at 10 Gbit/s what
// comes in 3 ms.
const strayFrameBuffer = 4 << 20

// catchStrayFrames begins to take what the switch misses. The switch must be in user space;
// the kernel's datapath has the port itself. Where somebody else has the port, or there is
// no address yet, the next Apply tries again.
func (d *Driver) catchStrayFrames() {
	if d.cfg.Datapath != "netdev" || !d.cfg.VTEP.IsValid() || d.catchesStrayFrames || d.run.Err() != nil {
		return
	}
	l := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, strayFrameBuffer) // less room without
		})
	}}
	c, err := l.ListenPacket(d.run, "udp", net.JoinHostPort(d.cfg.VTEP.String(), strconv.Itoa(int(d.cfg.VXLANPort))))
	if err != nil {
		d.cfg.Log.Debug("frames that the switch delivers to the host while interfaces are added or deleted are lost", "error", err)
		return
	}
	d.catchesStrayFrames = true
	d.wg.Go(func() {
		defer context.AfterFunc(d.run, func() { _ = c.Close() })() // nothing is lost with it
		d.responder.inject(c.(*net.UDPConn))
	})
}

// inject hands missed frames to the switch until the socket is closed.
func (a *responder) inject(c *net.UDPConn) {
	b := make([]byte, 64<<10)
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		conn, port := a.answerc.Load(), a.tunnelPort.Load()
		if err != nil || conn == nil || port == 0 {
			continue
		}
		// Flows judge who sent it, as of all that comes by the tunnel: every process can
		// send to this port.
		if vni, frame, err := decapsulate(b[:n]); err == nil {
			_ = conn.InjectTunnelled(port, vni, from.Addr().Unmap(), a.cfg.VTEP, frame) // the next one may fare better
		}
	}
}

// decapsulate takes a frame out of a VXLAN packet (RFC 7348, section 5).
func decapsulate(b []byte) (vni uint32, frame []byte, err error) {
	if len(b) < 8+ethernetLen || b[0]&8 == 0 {
		return 0, nil, fmt.Errorf("%d bytes are not a VXLAN packet", len(b))
	}
	return binary.BigEndian.Uint32(b[4:]) >> 8, b[8:], nil
}
