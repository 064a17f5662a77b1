package shaping

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// DeviceName is the name of a port's device with a prefix of two letters.
func DeviceName(prefix, port string) string {
	sum := sha256.Sum256([]byte(port))
	return prefix + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:13])
}

// Pair is a pair of devices, which carry what they are given and send nothing themselves:
// what goes to one comes in at the other.
type Pair struct {
	Near, Far string
	Alias     string // by which they are ours
	MTU       int    // at most 65535
}

// Ensure makes a pair and returns its indexes. The error is of kind ErrConflict where
// somebody else has such a name.
func (q *Queues) Ensure(p Pair) (near, far int, made bool, err error) {
	l, err := q.links.LinkByName(p.Near)
	if err == nil {
		if l.Attrs().Alias != p.Alias {
			return 0, 0, false, model.Errorf(model.ErrConflict, "interface %s exists and is not Contiv's (a %s whose alias is %q, not %q)", p.Near, l.Type(), l.Attrs().Alias, p.Alias)
		}
		peer, err := q.links.LinkByName(p.Far)
		if err == nil && l.Attrs().Flags&peer.Attrs().Flags&1 != 0 && l.Attrs().MTU == p.MTU && peer.Attrs().MTU == p.MTU {
			return l.Attrs().Index, peer.Attrs().Index, false, nil
		}
		if err := q.Delete(l); err != nil {
			return 0, 0, false, err
		}
	} else if !errors.As(err, &netlink.LinkNotFoundError{}) {
		return 0, 0, false, fmt.Errorf("interface %s: %w", p.Near, err)
	}
	v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: p.Near, MTU: p.MTU, TxQLen: 1000}, PeerName: p.Far, PeerMTU: uint32(p.MTU)} //nolint:gosec // at most 65535
	if err := q.links.LinkAdd(v); err != nil {
		return 0, 0, false, fmt.Errorf("interface %s: %w", p.Near, err)
	}
	var index [2]int
	for i, n := range []string{p.Near, p.Far} {
		l, err := q.links.LinkByName(n)
		if err == nil {
			index[i] = l.Attrs().Index
			if err = q.links.LinkSetIP6AddrGenMode(l, 1); errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
				err = nil // a host without IPv6 asks for no address
			}
		}
		for _, do := range []func() error{
			func() error { return noIPv6(n) },
			func() error { return q.links.LinkSetAlias(l, p.Alias) },
			func() error { return q.links.LinkSetARPOff(l) },
			func() error { return q.links.LinkSetUp(l) },
		} {
			if err == nil {
				err = do()
			}
		}
		if err != nil {
			return 0, 0, false, errors.Join(fmt.Errorf("interface %s: %w", n, err), q.links.LinkDel(v))
		}
	}
	return index[0], index[1], true, nil
}

// noIPv6 keeps the host's stack from talking on a device, and from what it would take
// for a router's advertisements there.
func noIPv6(device string) error {
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+device+"/disable_ipv6", []byte("1"), 0)
	if errors.Is(err, os.ErrNotExist) { // a host without IPv6, or interfaces of another namespace
		return nil
	}
	return err
}

// Delete removes a device, and its other end, if it is still there.
func (q *Queues) Delete(l netlink.Link) error {
	err := q.links.LinkDel(l)
	if err == nil || errors.Is(err, unix.ENODEV) || errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	return fmt.Errorf("interface %s: remove: %w", l.Attrs().Name, err)
}
