package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv4"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

func main() { os.Exit(stats.Main("multicast", execute)) }

const (
	size = 1000 // bytes of a datagram's payload
	port = 5000
)

var (
	members = []int{1, 4, 16}
	group   = netip.AddrFrom4([4]byte{239, 1, 1, 1})
)

func execute(ctx context.Context) error {
	rounds := flag.Int("rounds", 5, "of each row, of one second for each way")
	flag.Parse()
	if *rounds < 1 {
		return errors.New("-rounds is at least 1")
	}
	fmt.Print("| driver | members | copies a second, to the group | by unicast | the bridge, to the group | of unicast's | of the bridge's |\n|---|---|---|---|---|---|---|\n")
	for _, driver := range []string{testcluster.DriverEBPF, testcluster.DriverOVS} {
		if err := compare(ctx, driver, *rounds); err != nil {
			return fmt.Errorf("%s: %w", driver, err)
		}
	}
	return nil
}

func compare(ctx context.Context, driver string, rounds int) (err error) {
	r, err := rig.One(ctx, "multicast", driver, slices.Max(members)+1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	bridge, err := bridged(ctx, r.Rig, slices.Max(members)+1)
	if err != nil {
		return err
	}
	for _, sender := range []*testcluster.Namespace{r.Containers[0], bridge[0]} {
		if err := rig.IP(ctx, sender, "route replace 239.0.0.0/8 dev eth0"); err != nil {
			return err
		}
	}
	for _, n := range members {
		var ports []string
		for i := range n {
			ports = append(ports, rig.Port(rig.Address(i+1)))
		}
		slices.Sort(ports)
		r.State.Groups = desired.Map[desired.GroupKey, *desired.Group]{}.Set(desired.GroupKey{Network: 1, Addr: group}, &desired.Group{Ports: ports})
		if err := r.Apply(ctx); err != nil {
			return err
		}
		row, err := measure(ctx, [3]way{{r.Containers, true}, {r.Containers, false}, {bridge, true}}, n, rounds)
		if err != nil {
			return fmt.Errorf("%d members: %w", n, err)
		}
		fmt.Printf("| %s | %d | %.0f | %.0f | %.0f | %.2f | %.2f |\n", driver, n, stats.Median(row[0]), stats.Median(row[1]), stats.Median(row[2]), stats.Compare(row[0], row[1]).Median, stats.Compare(row[0], row[2]).Median)
	}
	return nil
}

// way is how the first of some containers sends to the next n.
type way struct {
	containers []*testcluster.Namespace
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
func join(containers []*testcluster.Namespace) (joined []net.PacketConn, err error) {
	for _, ns := range containers {
		err := ns.Do(func() error {
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
	for _, to := range targets {
		c, err := w.containers[0].Dial(ctx, "udp4", netip.AddrPortFrom(to, port).String())
		if err != nil {
			return 0, err
		}
		conns = append(conns, c)
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

func sum(containers []*testcluster.Namespace) (n uint64, err error) {
	all, err := received(containers)
	for _, each := range all {
		n += each
	}
	return n, err
}

// received is how many frames have come to each container's interface.
func received(containers []*testcluster.Namespace) (out []uint64, err error) {
	for _, ns := range containers {
		if err := ns.Do(func() error {
			l, err := netlink.LinkByName("eth0")
			if err == nil {
				out = append(out, l.Attrs().Statistics.RxPackets)
			}
			return err
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// bridged makes containers on a host with a Linux bridge that snoops.
func bridged(ctx context.Context, r *rig.Rig, n int) (containers []*testcluster.Namespace, err error) {
	host, err := r.Namespace()
	if err != nil {
		return nil, err
	}
	if err := rig.IP(ctx, host, "link add br0 up type bridge mcast_snooping 1 mcast_querier 1 mcast_startup_query_interval 50"); err != nil {
		return nil, err
	}
	for i := range n {
		ns, err := r.Plug(ctx, host, "br0", rig.Port(rig.Address(i)), rig.Address(i))
		if err != nil {
			return nil, err
		}
		containers = append(containers, ns)
	}
	return containers, nil
}
