package bpfattach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// HaveTCX reports whether the kernel has TCX links (6.6), by a program for them.
func HaveTCX(prog *ebpf.Program) bool {
	l, err := link.AttachTCX(link.TCXOptions{Interface: 1, Program: prog, Attach: ebpf.AttachTCXIngress})
	if err == nil { // the loopback has index 1 in every namespace
		_ = RemoveLink(l)
	}
	return err == nil
}

// RemoveLink takes a link's program off where it is, then removes its pin. To close it would
// not do: the program stays, and cannot be attached again, as long as anybody has the link
// open, a child between fork and exec for one.
func RemoveLink(l link.Link) error {
	var errs []error
	if d, ok := l.(interface{ Detach() error }); ok {
		errs = append(errs, d.Detach())
	}
	return errors.Join(append(errs, l.Unpin(), l.Close())...)
}

// PinLink pins a link, so that it outlives this process; one that cannot be pinned is taken
// off.
func PinLink(l link.Link, path string) error {
	if err := l.Pin(path); err != nil {
		return errors.Join(fmt.Errorf("pin: %w", err), RemoveLink(l))
	}
	return nil
}

// LinkedTo is the index of the interface that a TCX link is for; 0 = it is for none any more.
func LinkedTo(l link.Link) int {
	info, err := l.Info()
	if err != nil || info.TCX() == nil {
		return 0
	}
	return int(info.TCX().Ifindex)
}
