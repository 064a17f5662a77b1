package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/net/ipv4"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := execute(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "multicast:", err)
		os.Exit(1)
	}
}

const (
	size = 1000 // bytes of a datagram's payload
	port = 5000
)

var (
	members = []int{1, 4, 16}
	group   = netip.AddrFrom4([4]byte{239, 1, 1, 1})
)

func execute(ctx context.Context, args []string, w io.Writer) error {
	f := flag.NewFlagSet("multicast", flag.ContinueOnError)
	rounds := f.Int("rounds", 5, "of each row, of one second for each way")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if *rounds < 1 {
		return errors.New("-rounds is at least 1")
	}
	bridge, err := newBridge(slices.Max(members) + 1)
	if err != nil {
		return err
	}
	defer bridge.close()
	fmt.Fprint(w, "| driver | members | copies a second, to the group | by unicast | the bridge, to the group | of unicast's | of the bridge's |\n|---|---|---|---|---|---|---|\n")
	for _, name := range []string{rig.EBPF, rig.OVS} {
		if err := compare(ctx, w, name, bridge, *rounds); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func compare(ctx context.Context, w io.Writer, name string, bridge *bridge, rounds int) error {
	r, err := rig.New(ctx, name, slices.Max(members)+1)
	if err != nil {
		return err
	}
	defer r.Close()
	for _, sender := range []string{r.Containers[0], bridge.containers[0]} {
		if err := rig.Run("ip", "-n", sender, "route", "replace", "239.0.0.0/8", "dev", "eth0"); err != nil {
			return err
		}
	}
	for _, n := range members {
		var ports []string
		for i := range n {
			ports = append(ports, rig.Port(i+1))
		}
		slices.Sort(ports)
		r.Picture.Groups = desired.Map[desired.GroupKey, *desired.Group]{}.Set(desired.GroupKey{Network: 1, Addr: group}, &desired.Group{Ports: ports})
		if err := r.Apply(ctx); err != nil {
			return err
		}
		row, err := measure(ctx, [3]way{{r.Containers, true}, {r.Containers, false}, {bridge.containers, true}}, n, rounds)
		if err != nil {
			return fmt.Errorf("%d members: %w", n, err)
		}
		fmt.Fprintf(w, "| %s | %d | %.0f | %.0f | %.0f | %.2f | %.2f |\n", name, n, stats.Median(row[0]), stats.Median(row[1]), stats.Median(row[2]), stats.Compare(row[0], row[1]).Median, stats.Compare(row[0], row[2]).Median)
	}
	return nil
}

// way is how the first of some containers sends to the next n.
type way struct {
	containers []string
	group      bool // to the group, or to each
}

// measure returns the copies a second of each way in each round.
func measure(ctx context.Context, ways [3]way, n, rounds int) (out [3][]float64, err error) {
	for i, w := range ways {
		if !w.group {
			continue
		}
		joined, err := join(w.containers[1 : n+1])
		defer func() {
			for _, c := range joined {
				_ = c.Close()
			}
		}()
		if err != nil {
			return out, err
		}
		if err := heard(ctx, w, n); err != nil {
			return out, fmt.Errorf("way %d: %w", i, err)
		}
	}
	for range rounds {
		for i, w := range ways {
			rate, err := w.run(ctx, n, time.Second)
			if err != nil {
				return out, err
			}
			out[i] = append(out[i], rate)
		}
	}
	return out, nil
}

// heard waits until what is sent to the group comes to n members, and to no other.
func heard(ctx context.Context, w way, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		before, err := received(w.containers)
		if err != nil {
			return err
		}
		if _, err := w.run(ctx, n, 20*time.Millisecond); err != nil {
			return err
		}
		after, err := received(w.containers)
		if err != nil {
			return err
		}
		hear := 0
		for i := range after {
			if after[i]-before[i] > 10 { // more than a question or a report
				hear++
			}
		}
		if hear == n {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%d containers hear the group, not %d", hear, n)
		}
	}
}

// join has containers join the group. The datagrams they receive are not read.
func join(containers []string) (joined []net.PacketConn, err error) {
	for _, ns := range containers {
		err := rig.Within(ns, func() error {
			eth0, err := net.InterfaceByName("eth0")
			if err != nil {
				return err
			}
			c, err := new(net.ListenConfig).ListenPacket(context.Background(), "udp4", netip.AddrPortFrom(netip.IPv4Unspecified(), port).String()) // what is sent by unicast too
			if err != nil {
				return err
			}
			joined = append(joined, c)
			return ipv4.NewPacketConn(c).JoinGroup(eth0, &net.UDPAddr{IP: group.AsSlice()})
		})
		if err != nil {
			return joined, err
		}
	}
	return joined, nil
}

// run sends for a while and returns the copies that came to the members, a second.
func (w way) run(ctx context.Context, n int, last time.Duration) (float64, error) {
	targets := []netip.Addr{group}
	if !w.group {
		targets = nil
		for i := range n {
			targets = append(targets, rig.Address(i+1))
		}
	}
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	if err := rig.Within(w.containers[0], func() error {
		for _, to := range targets {
			c, err := new(net.Dialer).DialContext(ctx, "udp4", netip.AddrPortFrom(to, port).String())
			if err != nil {
				return err
			}
			conns = append(conns, c)
		}
		return nil
	}); err != nil {
		return 0, err
	}
	before, err := sum(w.containers[1 : n+1])
	if err != nil {
		return 0, err
	}
	data, start := make([]byte, size), time.Now()
	for time.Since(start) < last {
		for _, c := range conns {
			_, _ = c.Write(data) // a full queue is no end
		}
	}
	took := time.Since(start)
	for last := before; ; { // what is under way
		now, err := sum(w.containers[1 : n+1])
		if err != nil {
			return 0, err
		}
		if now == last {
			return float64(now-before) / took.Seconds(), nil
		}
		last = now
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func sum(containers []string) (n uint64, err error) {
	all, err := received(containers)
	for _, each := range all {
		n += each
	}
	return n, err
}

// received is how many frames have come to each container's interface.
func received(containers []string) (out []uint64, err error) {
	for _, name := range containers {
		ns, err := netns.GetFromName(name)
		if err != nil {
			return nil, err
		}
		h, err := netlink.NewHandleAt(ns)
		_ = ns.Close() // it was opened for reading
		if err != nil {
			return nil, err
		}
		l, err := h.LinkByName("eth0")
		h.Close()
		if err != nil {
			return nil, err
		}
		out = append(out, l.Attrs().Statistics.RxPackets)
	}
	return out, nil
}

// bridge is a host with a Linux bridge that snoops, with containers as a rig has.
type bridge struct {
	containers []string
	clean      []string // namespaces
}

func newBridge(containers int) (b *bridge, err error) {
	host := fmt.Sprintf("mc%d-h", os.Getpid())
	b = &bridge{}
	defer func(made *bridge) {
		if err != nil {
			made.close()
		}
	}(b)
	add := func(ns string) error {
		b.clean = append(b.clean, ns)
		return rig.Run("ip", "netns", "add", ns)
	}
	if err := add(host); err != nil {
		return nil, err
	}
	if err := rig.Run("ip", "-n", host, "link", "add", "br0", "up", "type", "bridge", "mcast_snooping", "1", "mcast_querier", "1", "mcast_startup_query_interval", "50"); err != nil {
		return nil, err
	}
	for i := range containers {
		ns := fmt.Sprintf("mc%d-c%d", os.Getpid(), i)
		b.containers = append(b.containers, ns)
		if err := add(ns); err != nil {
			return nil, err
		}
		for _, args := range [][]string{
			{"-n", host, "link", "add", rig.Port(i), "type", "veth", "peer", "name", "eth0", "netns", ns},
			{"-n", host, "link", "set", rig.Port(i), "up", "master", "br0"},
			{"-n", ns, "link", "set", "eth0", "up"},
			{"-n", ns, "link", "set", "lo", "up"},
			{"-n", ns, "addr", "add", rig.Address(i).String() + "/24", "dev", "eth0"},
		} {
			if err := rig.Run(append([]string{"ip"}, args...)...); err != nil {
				return nil, err
			}
		}
	}
	return b, nil
}

func (b *bridge) close() {
	for _, ns := range slices.Backward(b.clean) {
		_ = rig.Run("ip", "netns", "del", ns)
	}
}
