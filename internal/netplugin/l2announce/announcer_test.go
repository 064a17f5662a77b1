package l2announce

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// TestEndpointsAreAnnouncedAfterAShortOutageOfTheUplink: also if the uplink is up again when
// the announcer learns that it was down.
func TestEndpointsAreAnnouncedAfterAShortOutageOfTheUplink(t *testing.T) {
	testenv.Need(t)
	failed := make(chan error)
	m := &machine{t: t}
	go func() {
		runtime.LockOSThread() // and the thread ends with it
		var err error
		m.ns, err = netns.New()
		failed <- err
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.ns.Close() })
	var uplink netlink.Link
	var wire int
	m.in(func() (err error) {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0"}, PeerName: "wire"}); err != nil {
			return err
		}
		for _, name := range []string{"wire", "up0"} {
			if uplink, err = netlink.LinkByName(name); err != nil {
				return err
			}
			if err := netlink.LinkSetUp(uplink); err != nil {
				return err
			}
		}
		kind := uint16(etherARP)
		wire, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(kind<<8|kind>>8))
		return err
	})
	t.Cleanup(func() { _ = unix.Close(wire) })

	a := NewAnnouncer(slog.New(slog.DiscardHandler), []string{"up0"}, false)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() {
		runtime.LockOSThread() // and the thread ends with it
		if err := netns.Set(m.ns); err != nil {
			t.Error(err)
			return
		}
		a.Run(ctx)
	})
	a.Follow(map[string]*Station{"c1": {MAC: net.HardwareAddr{2, 2, 10, 1, 0, 1}, Addrs: []netip.Addr{addr4}}}, func(string) bool { return true })
	frames, buf := 0, make([]byte, 2048)
	announced := func(n int) func() bool {
		return func() bool {
			for {
				if _, _, err := unix.Recvfrom(wire, buf, 0); err != nil {
					return frames >= n
				}
				frames++
			}
		}
	}
	until(t, "the announcements of an endpoint that comes", announced(announceNum))

	func() {
		a.mu.Lock() // it learns of what follows when all of it is over
		defer a.mu.Unlock()
		m.in(func() error { return netlink.LinkSetDown(uplink) })
		m.in(func() error { return netlink.LinkSetUp(uplink) })
		until(t, "the uplink to be up", func() (up bool) {
			m.in(func() error {
				l, err := netlink.LinkByName("up0")
				up = err == nil && isUp(l.Attrs())
				return err
			})
			return up
		})
	}()
	until(t, "another announcement", announced(announceNum+1))
}
