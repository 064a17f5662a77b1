package ebpf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/bpfattach"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// InUse reports whether a driver of that pin directory has been at work here
// since the machine started.
func InUse(pinDir string) bool {
	if pinDir == "" {
		pinDir = DefaultPinDir
	}
	entries, err := os.ReadDir(filepath.Join(pinDir, "maps"))
	return err == nil && len(entries) > 0
}

// Busy fails with model.ErrConflict while a driver of that pin directory is at work.
func Busy(pinDir string) error {
	if pinDir == "" {
		pinDir = DefaultPinDir
	}
	var mine pinLock
	if err := mine.lock(pinDir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	mine.unlock()
	return nil
}

// leftovers are the driver's objects on a host that changes to another driver.
type leftovers struct{ cfg Config }

// Leftovers returns what the driver left in this network namespace and its pin
// directory, nil when there is nothing.
func Leftovers(cfg Config) driver.Predecessor {
	if cfg.PinDir == "" {
		cfg.PinDir = DefaultPinDir
	}
	if cfg.Device == "" {
		cfg.Device = DefaultDevice
	}
	l := &leftovers{cfg}
	if tunnel, err := l.tunnel(); !InUse(cfg.PinDir) && tunnel == nil && err == nil {
		return nil
	}
	return l
}

func (l *leftovers) String() string { return "the eBPF programs pinned in " + l.cfg.PinDir }

// tunnel finds the VXLAN device; nil when it does not exist or is not ours.
func (l *leftovers) tunnel() (netlink.Link, error) {
	return ourDevice(l.cfg.Device, tunnelAlias(l.cfg.PinDir))
}

// Release removes the VXLAN device and the host's side of egress, since the
// next driver makes its own, of the same port and the same name; and the
// programs stand aside, so that no switch sees one side of a connection only.
// What a netplugin works with is left alone.
func (l *leftovers) Release(context.Context) error {
	var mine pinLock
	if err := mine.lock(l.cfg.PinDir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	defer mine.unlock()
	for _, name := range []string{l.cfg.Device, desired.HostInterface} {
		t, err := ourDevice(name, tunnelAlias(l.cfg.PinDir))
		if err == nil && t != nil {
			err = netlink.LinkDel(t)
		}
		if err != nil {
			return fmt.Errorf("ebpf driver: remove %s: %w", name, err)
		}
	}
	names, err := l.pins()
	if err == nil {
		err = installNoOpPrograms(l.linkDir(), names)
	}
	return errors.Join(err, l.unfilter())
}

// Remove takes the programs off all interfaces and removes what is pinned.
func (l *leftovers) Remove(ctx context.Context) error {
	err := l.Release(ctx)
	if errors.Is(err, model.ErrConflict) { // somebody works with it
		return err
	}
	if err := errors.Join(err, l.unpin()); err != nil {
		return err
	}
	if err := os.RemoveAll(l.cfg.PinDir); err != nil {
		return fmt.Errorf("ebpf driver: remove %s: %w", l.cfg.PinDir, err)
	}
	return nil
}

func (l *leftovers) linkDir() string { return filepath.Join(l.cfg.PinDir, "links") }

// pins names the pinned links.
func (l *leftovers) pins() (names []string, err error) {
	entries, err := os.ReadDir(l.linkDir())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("ebpf driver: %w", err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// unpin removes the pinned links; a program goes off its interface with its link.
func (l *leftovers) unpin() error {
	names, err := l.pins()
	errs := []error{err}
	for _, name := range names {
		p, err := link.LoadPinnedLink(filepath.Join(l.linkDir(), name), nil)
		if err != nil { // no link: it goes with the directory
			continue
		}
		errs = append(errs, bpfattach.RemoveLink(p))
	}
	return errors.Join(errs...)
}

// unfilter removes filters, and the queues of ports with a rate.
func (l *leftovers) unfilter() error {
	links, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return fmt.Errorf("ebpf driver: list interfaces: %w", err)
	}
	have, err := queues.Have()
	if err != nil {
		return fmt.Errorf("ebpf driver: %w", err)
	}
	alias := queueAlias(l.cfg.PinDir)
	a := attacher{way: attachClsact}
	var errs []error
	for _, i := range links {
		if i.Attrs().Alias == alias {
			if strings.HasPrefix(i.Attrs().Name, "cq") { // its other end goes with it
				errs = append(errs, queues.Delete(i))
			}
			continue
		}
		errs = append(errs, detachFirst(i.Attrs().Index))
		if have[i.Attrs().Index].Bucket != nil {
			errs = append(errs, queues.Remove(i.Attrs().Index))
		}
		had := hasFilter(i.Attrs().Index)
		if errs = append(errs, a.detach(i.Attrs().Name, i.Attrs().Index)); had {
			errs = append(errs, removeEmptyClsact(i))
		}
	}
	return errors.Join(errs...)
}

func hasFilter(ifindex int) bool {
	for _, ingress := range []bool{true, false} {
		if f, err := ourFilter.Find(ifindex, ingress); err == nil && f != nil {
			return true
		}
	}
	return false
}

// removeEmptyClsact removes an interface's clsact qdisc, which the first filter has made,
// when no other filter is left there. An ingress qdisc has the same handle, and is never
// ours.
func removeEmptyClsact(l netlink.Link) error {
	if bpfattach.HasIngressQdisc(l.Attrs().Index) {
		return nil
	}
	for _, ingress := range []bool{true, false} {
		have, err := netlink.FilterList(l, bpfattach.Parent(ingress))
		if err != nil || len(have) > 0 {
			return nil //nolint:nilerr // in doubt it stays: it does nothing
		}
	}
	err := netlink.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}})
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return fmt.Errorf("interface %s: remove clsact: %w", l.Attrs().Name, err)
}
