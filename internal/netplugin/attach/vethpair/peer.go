package vethpair

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// SetTxChecksum switches transmit checksum offload, and with it segmentation
// offload, of the container sides of pairs, wherever they have been moved since.
// Pairs are named by their host sides, with the path of the namespace that the
// container side went to at first, if it is known. A pair that is gone is fine.
func SetTxChecksum(pairs map[string]string, on bool) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("set checksum offload: %w", err)
	}
	defer h.Close()
	inside := map[int][]int{} // indexes of container sides, by id of their namespace
	var errs []error
	var known []string
	for name, path := range pairs {
		known = append(known, path)
		l, err := h.LinkByName(name)
		switch {
		case isNoLink(err):
		case err != nil:
			errs = append(errs, fmt.Errorf("find veth %s: %w", name, err))
		default:
			a := l.Attrs()
			inside[a.NetNsID] = append(inside[a.NetNsID], a.ParentIndex)
		}
	}
	errs = append(errs, setTxChecksums(inside[-1], on)) // parked in this namespace
	delete(inside, -1)
	for _, path := range namespaces(known) {
		if len(inside) == 0 {
			break
		}
		n, err := ns.GetNS(path)
		if err != nil { // it has ended meanwhile
			continue
		}
		id, err := h.GetNetNsIdByFd(int(n.Fd()))
		if indexes, ok := inside[id]; err == nil && ok {
			delete(inside, id)
			errs = append(errs, n.Do(func(ns.NetNS) error { return setTxChecksums(indexes, on) }))
		}
		_ = n.Close() // open for reading
	}
	for id, indexes := range inside {
		errs = append(errs, fmt.Errorf("set checksum offload of %d interfaces: their network namespace %d has no user", len(indexes), id))
	}
	return errors.Join(errs...)
}

// setTxChecksums works in the namespace of the calling thread.
func setTxChecksums(indexes []int, on bool) error {
	if len(indexes) == 0 {
		return nil
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("set checksum offload: %w", err)
	}
	defer h.Close()
	var errs []error
	for _, i := range indexes {
		l, err := h.LinkByIndex(i)
		if err == nil {
			err = setTxChecksum(l.Attrs().Name, on)
		}
		if err != nil && !isNoLink(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// namespaces lists files that stand for network namespaces: known ones, named
// ones, those of Docker (below /host/run for its managed plugin, which sees no
// processes of others), those of processes; each namespace once.
func namespaces(known []string) (paths []string) {
	for _, pattern := range []string{"/run/netns/*", "/run/docker/netns/*", "/host/run/docker/netns/*", "/proc/[0-9]*/ns/net"} {
		found, _ := filepath.Glob(pattern) // the patterns are well-formed
		known = append(known, found...)
	}
	seen := map[uint64]bool{}
	for _, path := range known {
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil || seen[st.Ino] {
			continue
		}
		seen[st.Ino] = true
		paths = append(paths, path)
	}
	return paths
}
