package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Multicast goes to members of groups (docs/adr/0029-multicast.md, bpf/flood.h), and who
// is one the agent hears from here (bpf/membership.h).

type joinedKey struct {
	Ifindex uint32
	Group   addr
}

// multicastGroups are the multicast groups of local ports. Driver.mu guards it.
type multicastGroups struct {
	Joined   table[joinedKey, uint32] `map:"joined"`
	joinedAt map[string]int           // interface index of ports in it
	ports    *ports
}

// put writes which port hears which group. What a packet does is looked up for each
// packet, so that no verdict is stale.
func (g *multicastGroups) put(run *applyRun) error {
	changed := run.scratch
	for range run.want.Groups.Diff(run.last.Groups) {
		changed = true
		break
	}
	for name, index := range g.joinedAt {
		changed = changed || g.ports.indexes[name] != index
	}
	if !changed {
		return nil
	}
	g.Joined.begin()
	clear(g.joinedAt)
	for k, want := range run.want.Groups.All() {
		for _, name := range want.Ports {
			index, there := g.ports.indexes[name]
			o, ok := run.want.Ports.Get(name)
			if !there || !ok || o.Network != k.Network {
				g.joinedAt[name] = index
				continue
			}
			if err := g.Joined.put(joinedKey{uint32(index), toAddr(k.Addr)}, uint32(k.Network)); fatal(err) {
				return err
			} else if err != nil {
				run.problem(fmt.Sprintf("multicast group %s of network %d", k.Addr, k.Network), err)
			}
			g.joinedAt[name] = index
		}
	}
	return g.Joined.sweep()
}

// Memory layout of struct told.
const reportHead = 16

// hearMemberships hands on what the programs tell, until the driver ends.
func (d *Driver) hearMemberships() error {
	ring, err := ringbuf.NewReader(d.dp.obj.Memberships)
	if err != nil {
		return fmt.Errorf("ebpf driver: open the ring buffer of memberships: %w", err)
	}
	d.wg.Go(func() {
		<-d.run.Done()
		_ = ring.Close() // the reader below ends
	})
	d.wg.Go(func() {
		for {
			rec, err := ring.Read()
			if err != nil {
				if !errors.Is(err, ringbuf.ErrClosed) && !errors.Is(err, os.ErrClosed) {
					d.cfg.Log.Warn("multicast membership reports are not received any more", "error", err)
				}
				return
			}
			if nonce, ok := probeAnswer(rec.RawSample); ok {
				select {
				case d.probed <- nonce:
				default: // it counts as lost, and the next one does not
				}
			} else if r, ok := d.membership(rec.RawSample); ok {
				select {
				case d.reports <- r:
				default: // it is asked again
				}
			}
		}
	})
	return nil
}

func (d *Driver) membership(raw []byte) (r driver.MembershipReport, ok bool) {
	if len(raw) < reportHead {
		return r, false
	}
	index, size := int(binary.NativeEndian.Uint32(raw)), int(binary.NativeEndian.Uint32(raw[8:]))
	if size > len(raw)-reportHead {
		return r, false
	}
	r.Network, r.Frame = model.NetworkID(binary.NativeEndian.Uint32(raw[4:])), slices.Clone(raw[reportHead:reportHead+size])
	if index == 0 {
		return r, true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r.Port = d.dp.ports.nameOf(index)
	return r, r.Port != ""
}

// Reports implements driver.Memberships.
func (d *Driver) Reports() <-chan driver.MembershipReport { return d.reports }

// frameMark is MARK of bpf/send.h: what has it is let out of a port.
const frameMark = 0xc0ffee76

// Send implements driver.Memberships.
func (d *Driver) Send(port string, frame []byte) error {
	d.mu.Lock()
	index, ok := d.dp.ports.indexes[port]
	d.mu.Unlock()
	if !ok {
		return model.Errorf(model.ErrNotFound, "ebpf driver: there is no port %s", port)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0) // it receives nothing
	if err != nil {
		return fmt.Errorf("ebpf driver: open packet socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing is lost with it
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, frameMark); err != nil {
		return fmt.Errorf("ebpf driver: mark what a packet socket sends: %w", err)
	}
	if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
		return fmt.Errorf("ebpf driver: send by %s: %w", port, err)
	}
	return nil
}
