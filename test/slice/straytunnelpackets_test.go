//go:build integration

package slice

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestStrayTunnelPacketsArrive: packets from the tunnel that Open vSwitch in user space takes for the host's
// own, while interfaces come and go, arrive by netplugin, if they come from other hosts of
// the cluster, on existing networks. Such packets end up in the host's own stack, so the
// test injects them there.
func TestStrayTunnelPacketsArrive(t *testing.T) {
	shared(t)
	on(t, 1, []string{testcluster.DriverOVS}, strayTunnelPackets)
}

func strayTunnelPackets(t *testing.T, driver string) {
	if _, err := netlink.GenlFamilyGet("ovs_datapath"); err == nil {
		t.Skip("the kernel's datapath has the tunnel's port itself")
	}
	c := up(t, driver, "missed", 2)
	c.netctl("tenant create shop", "network create -t shop -e vxlan -s 10.1.1.0/24 vx")
	c.add(spec("s", "h2", "shop/vx"), spec("c1", "h1", "shop/vx"))
	c.knows("h2", "c1")
	vni, err := strconv.ParseUint(strings.Split(c.tag("vx"), "-")[0], 10, 24)
	if err != nil {
		t.Fatal(err)
	}
	var heard net.PacketConn
	if err := c.space("s").Do(func() (err error) {
		heard, err = new(net.ListenConfig).ListenPacket(t.Context(), "udp4", ":7777")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer heard.Close()
	p := c.opening("c1", c.addr("s", "4"), c.mac("s"), model.ProtoUDP)
	p.DstPort = 7777
	h1, h2 := c.host("h1").Address, c.host("h2").Address
	send := func(src netip.Addr, vni uint64, mark uint16) {
		t.Helper()
		p.SrcPort = mark
		b := append([]byte{8, 0, 0, 0}, binary.BigEndian.AppendUint32(nil, uint32(vni)<<8)...)
		if err := c.host("h2").NS.Do(func() error {
			l := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
				return errors.Join(raw.Control(func(fd uintptr) {
					err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1)
				}), err)
			}}
			conn, err := l.ListenPacket(t.Context(), "udp4", src.String()+":0")
			if err != nil {
				return err
			}
			_, err = conn.WriteTo(append(b, conformance.Frame(p)...), net.UDPAddrFromAddrPort(netip.AddrPortFrom(h2, 4789)))
			return errors.Join(err, conn.Close())
		}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	arrives := func(mark uint16) {
		t.Helper()
		if err := testcluster.Until(ctx, "a missed frame to arrive", func(context.Context) error {
			send(h1, vni, mark)
			if err := heard.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
				return err
			}
			_, from, err := heard.ReadFrom(make([]byte, 2000))
			if err == nil && from.(*net.UDPAddr).Port != int(mark) {
				t.Errorf("frame %v was taken", from)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	arrives(1000)
	send(h2, vni, 1001)                                 // any process of the host
	send(netip.MustParseAddr("10.250.0.99"), vni, 1002) // no host of the cluster
	send(h1, vni+1, 1003)                               // no network
	arrives(1004)
}

// TestLinksComeAndGo: packets between hosts are not lost while the hosts' interfaces come
// and go, as containers' interfaces do all the time.
func TestLinksComeAndGo(t *testing.T) {
	shared(t)
	on(t, 1, []string{testcluster.DriverOVS}, linksComeAndGo)
}

func linksComeAndGo(t *testing.T, driver string) {
	c := up(t, driver, "comego", 2)
	c.netctl("tenant create shop", "network create -t shop -e vxlan -s 10.1.1.0/24 vx")
	c.add(spec("a", "h1", "shop/vx"), spec("b", "h2", "shop/vx"))
	c.knows("h1", "b")
	c.knows("h2", "a")
	ctx, cancel := context.WithCancel(t.Context())
	var churns sync.WaitGroup
	for _, h := range []string{"h1", "h2"} {
		churns.Go(func() {
			for ctx.Err() == nil {
				if err := c.host(h).NS.Do(func() error {
					l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "zz0"}, PeerName: "zz1"}
					return errors.Join(netlink.LinkAdd(l), netlink.LinkSetUp(l), netlink.LinkDel(l))
				}); err != nil {
					t.Errorf("%s: %v", h, err)
					return
				}
			}
		})
	}
	defer churns.Wait()
	defer cancel()
	const sent = 500 // of which 2 % were lost
	out, err := c.space("a").Command(t.Context(), "ping", "-q", "-i", "0.002", "-W", "5", "-c", strconv.Itoa(sent), c.addr("b", "4").String()).CombinedOutput()
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("%d received", sent)) {
		t.Errorf("%v: %s", err, out)
	}
}
