package ebpf

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// verifyEvery is how often Apply looks whether every port still has its
// programs, not only those that changed or that have become another interface.
const verifyEvery = 10 * time.Second

// verifyAll tells whether this Apply looks at the programs of every port.
func (p *applyRun) verifyAll() bool {
	if !p.scratch && time.Since(p.verified) < verifyEvery {
		return false
	}
	p.verified = time.Now()
	return true
}

func (p *applyRun) checkPort(name string, o *desired.Port) error {
	switch {
	case name == "" || len(name) > 15 || strings.ContainsAny(name, "/:\t\n ") || name != o.IfName:
		return model.Errorf(model.ErrInvalid, "interface name %q must be 1-15 bytes without slash, colon or space", o.IfName)
	case p.networks[o.Network] == nil:
		return model.Errorf(model.ErrNotFound, "network %d does not exist", o.Network)
	case o.MAC == (model.MAC{}) || o.MAC[0]&1 != 0:
		return model.Errorf(model.ErrInvalid, "MAC %s is not a station's", o.MAC)
	case p.refused[o.Policies].err != nil:
		return p.refused[o.Policies].err
	}
	if o.Policies != 0 {
		if s, ok := p.want.PolicySets.Get(o.Policies); !ok || s.ID != o.Policies || s.Audited != "" {
			return model.Errorf(model.ErrNotFound, "policy set %d does not exist", o.Policies)
		}
	}
	return p.checkPrivate(o)
}

// slotOf returns the place of a port's counters. A new port gets a free one,
// with nothing in it.
func (p *applyRun) slotOf(index uint32) (uint32, error) {
	if have, ok := p.ports.have[index]; ok {
		return have.Slot, nil
	}
	most := p.obj.PortCounters.MaxEntries()
	used := make([]bool, most)
	for _, o := range p.ports.have {
		if o.Slot < most {
			used[o.Slot] = true
		}
	}
	slot := slices.Index(used, false)
	if slot < 0 {
		return 0, model.Errorf(model.ErrExhausted, "a host has at most %d ports", most)
	}
	if err := p.obj.PortCounters.Put(uint32(slot), make([]portCounter, cpus())); err != nil {
		return 0, writeError{fmt.Errorf("write map port_counters: %w", err)}
	}
	return uint32(slot), nil
}

// indexer asks for interface indexes, at a hundredth of what netlink takes.
type indexer struct{ fd int }

func newIndexer() (indexer, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return indexer{}, fmt.Errorf("ask for interfaces: %w", err)
	}
	return indexer{fd}, nil
}

func (x indexer) close() { _ = unix.Close(x.fd) } // nothing was written

// isDown tells whether an interface is set down.
func (x indexer) isDown(name string) (bool, error) {
	req, err := unix.NewIfreq(name)
	if err == nil {
		err = unix.IoctlIfreq(x.fd, unix.SIOCGIFFLAGS, req)
	}
	if err != nil {
		return false, fmt.Errorf("interface %s: %w", name, err)
	}
	return req.Uint16()&unix.IFF_UP == 0, nil
}

// index returns the index of an interface, 0 when there is none.
func (x indexer) index(name string) (int, error) {
	req, err := unix.NewIfreq(name)
	if err == nil {
		err = unix.IoctlIfreq(x.fd, unix.SIOCGIFINDEX, req)
	}
	if errors.Is(err, unix.ENODEV) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("interface %s: %w", name, err)
	}
	return int(int32(req.Uint32())), nil
}
