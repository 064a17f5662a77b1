//go:build integration

package slice

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// floodPackets is more than any table of connections has room for by default:
// ebpf's, and the kernel's on a machine of this size.
const floodPackets = 400_000

// patience is how long anything may take while the machine is busy flooding.
const patience = 20 * time.Second

// TestFloodHarmsNoOtherGroup has one container begin as many connections as it can, to another
// container and to the outside: another group's idle and active connections,
// new connections of third parties, and the host's own go on.
func TestFloodHarmsNoOtherGroup(t *testing.T) { onOne(t, both, flood) }

func flood(t *testing.T, drv string) {
	c := up(t, drv, "flood", 2)
	h := c.host("h1")
	c.netctl(
		"tenant create blue",
		"network create -t blue -e vxlan -s 10.1.1.0/24 net",
		"policy create -t blue nothing-in", "policy rule-add -t blue -d in -j deny nothing-in 1",
		"group create -t blue -p nothing-in net clients",
	)
	c.attachBeyond(h)
	c.add(spec("c", "h1", "blue/net/clients"), spec("s", "h2", "blue/net"), spec("f", "h1", "blue/net"), spec("v", "h2", "blue/net"),
		spec("n", "h1", "blue/net"), spec("o", "h2", "blue/net"))

	for _, x := range []struct {
		name    string
		syn     reference.Packet
		tracked bool // by the host
	}{
		{"to a container", c.opening("f", c.addr("v", "4"), c.mac("v"), model.ProtoTCP), false},
		{"to the outside", c.opening("f", beyondAddr, desired.RouterMAC, model.ProtoUDP), true},
	} {
		t.Run(x.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			idle, server, err := c.connect(ctx, "c", "s", "4")
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			defer idle.Close()
			for _, end := range []net.Conn{idle, server} { // or it would not be idle
				if err := end.(*net.TCPConn).SetKeepAlive(false); err != nil {
					t.Fatal(err)
				}
			}
			own, err := h.NS.Dial(ctx, "tcp", netip.AddrPortFrom(beyondAddr, 80).String())
			if err != nil {
				t.Fatal(err)
			}
			defer own.Close()
			active, err := c.space("c").Dial(ctx, "tcp", netip.AddrPortFrom(c.addr("s", "4"), 80).String())
			if err != nil {
				t.Fatal(err)
			}
			defer active.Close()
			for name, conn := range map[string]net.Conn{"idle": idle, "active": active, "the host's": own} {
				if conn != idle {
					if err := echo(conn, patience); err != nil {
						t.Fatalf("%s, before: %v", name, err)
					}
				}
			}
			done := make(chan error, 1)
			start := time.Now()
			go func() { done <- c.flood(ctx, "f", x.syn, floodPackets) }()
			rounds, pace := 0, time.NewTicker(20*time.Millisecond) // or asking would take the flood's processor
			defer pace.Stop()
			for flooding := true; flooding; rounds++ {
				select {
				case err := <-done:
					if err != nil {
						t.Fatal(err)
					}
					flooding = false // once more, with all tables full
				case <-pace.C:
				}
				if err := echo(active, patience); err != nil {
					t.Fatalf("the active connection, round %d: %v", rounds, err)
				}
				for _, q := range []struct {
					who  string
					from *testcluster.Namespace
					to   testcluster.Target
				}{
					{"a third party to another", c.space("n"), testcluster.Target{Proto: "tcp", Addr: c.addr("o", "4"), Port: 80}},
					{"a third party to the outside", c.space("n"), testcluster.Target{Proto: "tcp", Addr: beyondAddr, Port: 80}},
					{"the host to the outside", h.NS, testcluster.Target{Proto: "tcp", Addr: beyondAddr, Port: 80}},
				} {
					if a := q.from.Probe(ctx, q.to, patience); a.Verdict != testcluster.OK {
						t.Fatalf("%s, round %d: %s", q.who, rounds, a)
					}
				}
			}
			t.Logf("%d packets in %v, %d rounds; the host tracks %s connections", floodPackets, time.Since(start).Round(time.Millisecond), rounds, c.trackedBy(h))
			// The client's group denies all ingress. If its connection was forgotten, the
			// server's packet would now begin a connection.
			if _, err := server.Write([]byte("still there?")); err != nil {
				t.Fatal(err)
			}
			if err := idle.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			if _, err := idle.Read(make([]byte, 64)); err != nil {
				t.Errorf("the idle connection: %v", err)
			}
			if err := echo(own, patience); err != nil {
				t.Errorf("the host's own connection: %v", err)
			}
		})
	}
}

func (c *cluster) mac(name string) model.MAC {
	c.t.Helper()
	a, err := c.Container(name)
	if err != nil {
		c.t.Fatal(err)
	}
	m, err := model.ParseMAC(a.MAC)
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// opening is the first packet of a connection of a container.
func (c *cluster) opening(from string, to netip.Addr, mac model.MAC, proto model.Protocol) reference.Packet {
	c.t.Helper()
	return reference.Packet{
		SrcMAC: c.mac(from), DstMAC: mac, Src: c.addr(from, "4"), Dst: to, Proto: proto, TCPFlags: reference.FlagSYN,
	}
}

// flood sends n packets like p, each of a connection of its own, as fast as it can.
func (c *cluster) flood(ctx context.Context, from string, p reference.Packet, n int) error {
	return c.floodPorts(ctx, from, p, n, 0, false)
}

// floodPorts is flood that begins with packet number begin; with different, the
// packets differ in more than their source port.
func (c *cluster) floodPorts(ctx context.Context, from string, p reference.Packet, n, begin int, different bool) error {
	fd := -1
	err := c.space(from).Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); err != nil {
			return err
		}
		dev, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: dev.Index})
	})
	if fd >= 0 {
		defer unix.Close(fd)
	}
	if err != nil {
		return fmt.Errorf("open a raw socket: %w", err)
	}
	f, be, sum := conformance.Frame(p), binary.BigEndian, 50
	if p.Proto == model.ProtoUDP {
		sum = 40
	}
	without := uint32(^be.Uint16(f[sum:])) // the checksum of all but the ports, which are 0
	for i := begin; i < begin+n; i++ {
		from, to := uint16(10000+i%50000), uint16(1000+i/50000)
		if different {
			from, to = uint16(10000+i/50000), from
		}
		be.PutUint16(f[34:], from)
		be.PutUint16(f[36:], to)
		s := without + uint32(from) + uint32(to)
		s = s&0xffff + s>>16
		be.PutUint16(f[sum:], ^uint16(s&0xffff+s>>16))
		if err := unix.Send(fd, f, 0); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("flood: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// trackedBy is how many connections a host's kernel tracks.
func (c *cluster) trackedBy(h *testcluster.Host) string {
	c.t.Helper()
	var data []byte
	if err := h.NS.Do(func() (err error) {
		data, err = os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
		return err
	}); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data))
}
