package agent

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
)

// TestInterfaceSendsNothingByItself: a new pair is up with its carrier and has no address at
// all; after ADD the container's side has its addresses and the link-local one
// of its MAC, none of which is tentative.
func TestInterfaceSendsNothingByItself(t *testing.T) {
	b := newBed(t)
	b.ready()
	inside := func(s *sandbox) []netlink.Addr {
		t.Helper()
		h, err := netlink.NewHandleAt(netns.NsHandle(s.file.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		link, err := h.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		if link.Attrs().RawFlags&unix.IFF_LOWER_UP == 0 {
			t.Errorf("no carrier: flags %x", link.Attrs().RawFlags)
		}
		addrs, err := h.AddrList(link, netlink.FAMILY_ALL)
		if err != nil {
			t.Fatal(err)
		}
		return addrs
	}
	s, hostIf := newSandbox(t), "cvaaaaaaaaaaaaa"
	if _, err := vethpair.Create(vethpair.Pair{HostIf: hostIf, Alias: vethpair.AliasPrefix + "test", Netns: s.path, IfName: "eth0", MTU: 1450}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := vethpair.Delete(hostIf, vethpair.AliasPrefix+"test"); err != nil {
			t.Error(err)
		}
	})
	if addrs := inside(s); len(addrs) != 0 {
		t.Errorf("addresses before any is given: %v", addrs)
	}

	s = newSandbox(t)
	res, err := b.client().Attach(t.Context(), request("c1", s))
	if err != nil {
		t.Fatal(err)
	}
	m := res.MAC
	own := net.IP{0xfe, 0x80, 8: m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]}
	want := map[string]bool{own.String(): true}
	for _, a := range res.Addresses {
		want[a.Prefix.Addr().String()] = true
	}
	for _, a := range inside(s) {
		if !want[a.IP.String()] || a.Flags&unix.IFA_F_TENTATIVE != 0 {
			t.Errorf("address %s with flags %x", a.IPNet, a.Flags)
		}
		delete(want, a.IP.String())
	}
	if len(want) != 0 {
		t.Errorf("addresses missing: %v", want)
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: attach.Key{Container: "c1", IfName: "eth0"}}); err != nil {
		t.Fatal(err)
	}
}

// TestConfiguredInterfaceSendsAtOnce: when a pair is configured, the kernel sends what the
// container sends, however busy the lock of all links is. Until it has noticed the carrier
// it would drop that.
func TestConfiguredInterfaceSendsAtOnce(t *testing.T) {
	newBed(t)
	s := newSandbox(t)
	h, err := netlink.NewHandleAt(netns.NsHandle(s.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	ctx, stop := context.WithCancel(t.Context())
	var busy errgroup.Group
	busy.Go(func() error {
		for ctx.Err() == nil {
			l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "busy"}, PeerName: "busier"}
			if err := errors.Join(netlink.LinkAdd(l), netlink.LinkSetUp(l), netlink.LinkDel(l)); err != nil {
				return err
			}
		}
		return nil
	})
	const hostIf, alias = "cvaaaaaaaaaaaaa", vethpair.AliasPrefix + "test"
	for i := range 100 {
		if _, err := vethpair.Create(vethpair.Pair{HostIf: hostIf, Alias: alias, Netns: s.path, IfName: "eth0", MTU: 1450}); err != nil {
			t.Fatal(err)
		}
		if _, err := vethpair.Configure(vethpair.ContainerConfig{Netns: s.path, IfName: "eth0", MAC: model.MAC{2, 2, 10, 1, 1, 1}}); err != nil {
			t.Fatal(err)
		}
		links, err := h.LinkList() // to ask for one link would make the kernel notice
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			if a := l.Attrs(); a.Name == "eth0" && a.OperState != netlink.OperUp {
				t.Errorf("pair %d: the container's side is %s", i, a.OperState)
			}
		}
		if err := vethpair.Delete(hostIf, alias); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if err := busy.Wait(); err != nil {
		t.Error(err)
	}
}
