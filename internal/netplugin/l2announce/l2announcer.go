package l2announce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
)

// announcements is how often an address that was got is announced, once with each sign of
// life: neighbours may miss one.
const announcements = 3

// leaveTimeout bounds the last word.
const leaveTimeout = time.Second

// RequestAddresses tells what this host could answer for, and does not beyond it, and returns what it
// has. Each has a higher number than the ones before.
type RequestAddresses func(ctx context.Context, seq uint64, able []netip.Addr) (held []netip.Addr, err error)

// L2Announcer answers for what this host is elected for. Make it with New.
type L2Announcer struct {
	log     *slog.Logger
	request RequestAddresses
	changed func() // called when something keeps it from answering, or does not any more
	bell    waiting.Bell

	mu        sync.Mutex
	want      []netip.Addr
	addresses map[netip.Addr]Address
	problem   string

	// Of Run's goroutine.
	ports     map[int]*port
	seq       uint64
	announced bool // something that it could answer for, and not since that it is nothing
	times     map[netip.Addr]int
	logged    string // the failure that was logged
}

// Address is an address that this host answers for.
type Address struct {
	Address   string    `json:"address"`
	Interface string    `json:"interface"`
	Until     time.Time `json:"until"` // unless it hears that it may go on
}

// New returns an L2Announcer that answers for nothing. changed is called when something
// begins, or ceases, to keep it from answering (State).
func New(log *slog.Logger, ask RequestAddresses, changed func()) *L2Announcer {
	return &L2Announcer{log: log, request: ask, changed: changed, bell: waiting.NewBell(), addresses: map[netip.Addr]Address{}, ports: map[int]*port{}, times: map[netip.Addr]int{}}
}

// Want says for which addresses this host could answer, if it has a link to their subnets.
func (a *L2Announcer) Want(addrs []netip.Addr) {
	addrs = slices.Compact(slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare))
	a.mu.Lock()
	changed := !slices.Equal(addrs, a.want)
	a.want = addrs
	a.mu.Unlock()
	if changed {
		a.bell.Ring()
	}
}

// State returns what this host answers for now, and why it cannot say that it lives.
func (a *L2Announcer) State() (held []Address, problem string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for _, addr := range slices.SortedFunc(maps.Keys(a.addresses), netip.Addr.Compare) {
		if h := a.addresses[addr]; now.Before(h.Until) {
			held = append(held, h)
		}
	}
	return held, a.problem
}

// Run answers in the network namespace of its thread until ctx ends; then others may at once.
func (a *L2Announcer) Run(ctx context.Context) {
	defer a.releaseAll(ctx)
	tick := time.NewTicker(model.L2ReportInterval)
	defer tick.Stop()
	for {
		a.mu.Lock()
		idle := len(a.want) == 0 && !a.announced
		a.mu.Unlock()
		beat := tick.C
		if idle {
			beat = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-beat:
		case <-a.bell:
		}
		a.sendHeartbeat(ctx)
	}
}

// sendHeartbeat says that this host lives, and answers for what it has.
func (a *L2Announcer) sendHeartbeat(ctx context.Context) {
	a.mu.Lock()
	want := a.want
	a.mu.Unlock()
	links, err := linksTo(want)
	err = errors.Join(err, a.openPorts(links))
	able := slices.SortedFunc(maps.Keys(links), netip.Addr.Compare)
	a.restrictTo(links)
	if len(able) > 0 || a.announced {
		err = errors.Join(err, a.elect(ctx, able, links))
	}
	text := ""
	if err != nil && ctx.Err() == nil {
		text = err.Error()
	}
	a.mu.Lock()
	a.problem = text
	a.mu.Unlock()
	if text != "" && a.logged == "" {
		a.log.Warn("this host cannot answer ARP and neighbour discovery for addresses of load balancers", "error", err)
	}
	if (text == "") != (a.logged == "") {
		a.changed()
	}
	a.logged = text
}

// openPorts has a port on each link, and takes out of links what it cannot listen on.
func (a *L2Announcer) openPorts(links map[netip.Addr]link) (err error) {
	at := map[int]link{}
	for _, l := range links {
		at[l.index] = l
	}
	for index, p := range a.ports {
		if l, still := at[index]; !still || !p.isUsableFor(l.mac) {
			p.close()
			delete(a.ports, index)
		}
	}
	for index, l := range at {
		if a.ports[index] != nil {
			continue
		}
		p, failed := openPort(index, l.mac)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("answer on %s: %w", l.name, failed))
			maps.DeleteFunc(links, func(_ netip.Addr, x link) bool { return x.index == index })
			continue
		}
		a.ports[index] = p
	}
	return err
}

// elect asks what it has of what it is able to, and has it answered for.
func (a *L2Announcer) elect(ctx context.Context, able []netip.Addr, links map[netip.Addr]link) error {
	a.seq++
	asked := time.Now()
	actx, cancel := context.WithTimeout(ctx, model.L2LeaseTime-model.L2ReportInterval)
	got, err := a.request(actx, a.seq, able)
	cancel()
	if err != nil {
		return err
	}
	a.announced = len(able) > 0
	until := asked.Add(model.L2LeaseTime)
	held := map[netip.Addr]Address{}
	for _, addr := range got {
		if at, ok := links[addr]; ok {
			held[addr] = Address{addr.String(), at.name, until}
		}
	}
	return a.set(held, links)
}

// restrictTo stops answering for what is not among links, or on another one.
func (a *L2Announcer) restrictTo(links map[netip.Addr]link) {
	a.mu.Lock()
	left := maps.Clone(a.addresses)
	a.mu.Unlock()
	maps.DeleteFunc(left, func(addr netip.Addr, h Address) bool {
		at, ok := links[addr]
		return !ok || at.name != h.Interface
	})
	if err := a.set(left, links); err != nil {
		a.log.Debug("some addresses of load balancers are not answered for", "error", err)
	}
}

// set has exactly some addresses answered for, and announces what is new.
func (a *L2Announcer) set(held map[netip.Addr]Address, links map[netip.Addr]link) (err error) {
	a.mu.Lock()
	was := a.addresses
	a.addresses = held
	a.mu.Unlock()
	now := time.Now()
	of := map[int]map[netip.Addr]time.Time{}
	for index := range a.ports {
		of[index] = map[netip.Addr]time.Time{}
	}
	for addr, h := range held {
		of[links[addr].index][addr] = h.Until
		if w, had := was[addr]; !had || w.Interface != h.Interface || !now.Before(w.Until) {
			a.times[addr] = announcements
			a.log.Info("this host answers for an address of a load balancer", "address", addr, "interface", h.Interface)
		}
	}
	for addr := range was {
		if _, still := held[addr]; !still {
			a.log.Info("this host answers no more for an address of a load balancer", "address", addr)
			delete(a.times, addr)
		}
	}
	for index, p := range a.ports {
		until := of[index]
		err = errors.Join(err, p.answerFor(until))
		for addr, end := range until {
			if a.times[addr] > 0 && now.Before(end) {
				a.times[addr]--
				err = errors.Join(err, p.announce(addr))
			}
		}
	}
	return err
}

// releaseAll answers for nothing any more, and says so.
func (a *L2Announcer) releaseAll(ctx context.Context) {
	a.restrictTo(nil)
	for index, p := range a.ports {
		p.close()
		delete(a.ports, index)
	}
	if !a.announced {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	a.seq++
	if _, err := a.request(ctx, a.seq, nil); err != nil {
		a.log.Debug("it cannot be announced that this host answers for no address any more; others notice by missing heartbeats", "error", err)
	}
}

// link is an interface of this host.
type link struct {
	index int
	name  string
	mac   net.HardwareAddr
}

// linksTo finds the interfaces that are up, have a link, and an address of the subnet of
// some others, such as eth0 for its neighbours'. The first by index has an address.
func linksTo(want []netip.Addr) (map[netip.Addr]link, error) {
	if len(want) == 0 {
		return nil, nil
	}
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("read this host's addresses: %w", err)
	}
	slices.SortStableFunc(all, func(x, y netlink.Addr) int { return x.LinkIndex - y.LinkIndex })
	known := map[int]*link{}
	out := map[netip.Addr]link{}
	for _, x := range all {
		ip, ok := netip.AddrFromSlice(x.IP)
		ones, _ := x.Mask.Size()
		subnet := netip.PrefixFrom(ip.Unmap(), ones)
		if !ok || subnet.IsSingleIP() || ip.IsLinkLocalUnicast() {
			continue
		}
		for _, addr := range want {
			if _, has := out[addr]; has || !subnet.Contains(addr) || subnet.Addr() == addr {
				continue
			}
			l, looked := known[x.LinkIndex]
			if !looked {
				l = usable(x.LinkIndex)
				known[x.LinkIndex] = l
			}
			if l != nil {
				out[addr] = *l
			}
		}
	}
	return out, nil
}

// usable returns an interface that has neighbours and is connected with them; nil = it is none.
func usable(index int) *link {
	l, err := netlink.LinkByIndex(index)
	if err != nil { // it is gone
		return nil
	}
	x := l.Attrs()
	if x.RawFlags&unix.IFF_UP == 0 || x.RawFlags&unix.IFF_LOWER_UP == 0 || x.RawFlags&(unix.IFF_LOOPBACK|unix.IFF_NOARP) != 0 || len(x.HardwareAddr) != macLen {
		return nil
	}
	return &link{index, x.Name, x.HardwareAddr}
}
