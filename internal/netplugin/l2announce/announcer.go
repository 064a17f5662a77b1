package l2announce

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// How often, and in what distance, an address is announced (RFC 5227 section 1.1).
const (
	announceNum      = 2
	announceInterval = 2 * time.Second
)

// Announcer tells the switches and neighbours on VLAN networks that endpoints of this host
// are here (RFC 5227 section 3, RFC 4861 section 7.2.6): when an endpoint comes, and when
// the uplink comes back or another one is used. A switch would otherwise send to the port at
// which it saw the endpoint's MAC address last, for as long as it remembers that.
type Announcer struct {
	log     *slog.Logger
	uplinks []string
	spare   bool // the first uplink that is up is in use; otherwise the first that exists
	wake    chan struct{}

	mu       sync.Mutex
	stations map[string]station // by interface
	uplink   int                // index of the one in use; 0 = none is up
}

// Station is an endpoint on a VLAN.
type Station struct {
	Tag   uint16
	MAC   net.HardwareAddr
	Addrs []netip.Addr
}

type station struct {
	Station
	due   int  // how often it still has to be announced
	ready bool // the data plane has it
}

// NewAnnouncer makes an Announcer; Run has to run.
func NewAnnouncer(log *slog.Logger, uplinks []string, spare bool) *Announcer {
	return &Announcer{log: log, uplinks: uplinks, spare: spare, wake: make(chan struct{}, 1), stations: map[string]station{}}
}

// Follow takes over what has changed, by interface (nil = it is gone, or on no VLAN), and
// which endpoints the data plane has.
func (a *Announcer) Follow(changed map[string]*Station, programmed func(ifName string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, s := range changed {
		if delete(a.stations, name); s != nil {
			a.stations[name] = station{Station: *s, due: announceNum}
		}
	}
	for name, s := range a.stations {
		if s.due > 0 && !s.ready && programmed(name) {
			s.ready = true
			a.stations[name] = s
		}
	}
	a.ring()
}

func (a *Announcer) ring() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Run announces until ctx ends.
func (a *Announcer) Run(ctx context.Context) {
	if len(a.uplinks) == 0 {
		return
	}
	links := a.watchLinks(ctx)
	again := time.NewTimer(announceInterval)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case u, ok := <-links:
			switch {
			case !ok: // messages were lost: an uplink may have been down
				links = a.watchLinks(ctx)
				a.noteDown()
			case !slices.Contains(a.uplinks, u.Attrs().Name):
				continue
			case !isUp(u.Attrs()):
				a.noteDown() // it may be up again by now
			}
		case <-a.wake:
		case <-again.C:
		}
		more, err := a.announce()
		if err != nil {
			a.log.Warn("endpoints on VLAN networks cannot be announced: switches may send to their previous location", "error", err)
		}
		if more {
			again.Reset(announceInterval)
		}
	}
}

// watchLinks returns the changes of links. The channel is closed once some were lost.
func (a *Announcer) watchLinks(ctx context.Context) <-chan netlink.LinkUpdate {
	links := make(chan netlink.LinkUpdate, 64)
	if err := netlink.LinkSubscribe(links, ctx.Done()); err != nil {
		a.log.Warn("endpoints on VLAN networks are not announced when an uplink comes up again: links cannot be watched", "error", err)
		return nil
	}
	return links
}

// noteDown has all endpoints announced again by the uplink that is used next.
func (a *Announcer) noteDown() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.uplink = 0
}

// announce sends what is due; more tells that something is due later.
func (a *Announcer) announce() (more bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if uplink := a.inUse(); uplink != a.uplink {
		a.uplink = uplink
		for name, s := range a.stations {
			s.due = announceNum
			a.stations[name] = s
		}
	}
	var frames [][]byte
	for name, s := range a.stations {
		if s.due == 0 || !s.ready || a.uplink == 0 {
			continue
		}
		s.due--
		more = more || s.due > 0
		a.stations[name] = s
		for _, addr := range s.Addrs {
			frames = append(frames, tagged(Announcement(s.MAC, addr), s.Tag))
		}
	}
	return more, sendFrames(a.uplink, frames)
}

// inUse is the index of the uplink that carries VLAN networks; 0 = none does.
func (a *Announcer) inUse() int {
	for _, name := range a.uplinks {
		l, err := netlink.LinkByName(name)
		if err != nil {
			continue
		}
		if isUp(l.Attrs()) {
			return l.Attrs().Index
		}
		if !a.spare {
			return 0
		}
	}
	return 0
}

func isUp(l *netlink.LinkAttrs) bool {
	return l.RawFlags&unix.IFF_RUNNING != 0 && l.RawFlags&unix.IFF_UP != 0
}

// tagged gives a frame a VLAN tag.
func tagged(f []byte, tag uint16) []byte {
	return slices.Insert(f, 2*macLen, binary.BigEndian.AppendUint16([]byte{0x81, 0}, tag)...)
}

// sendFrames sends frames from an interface.
func sendFrames(index int, frames [][]byte) error {
	if len(frames) == 0 {
		return nil
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // it hears nothing
	if err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }() // all is sent
	var errs []error
	for _, f := range frames {
		errs = append(errs, unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: index}))
	}
	return errors.Join(errs...)
}
