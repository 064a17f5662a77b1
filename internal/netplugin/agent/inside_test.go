package agent

import (
	"errors"
	"net"
	"net/http"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// TestContainersOwnChangesAreNotices: whatever a container does to its interface, its host
// stays ready and well, and names it as a notice until it is as before.
func TestContainersOwnChangesAreNotices(t *testing.T) {
	b := newBed(t, often)
	defer http.DefaultClient.CloseIdleConnections()
	b.ready()
	s := newSandbox(t)
	if _, err := b.client().Attach(t.Context(), request("c1", s)); err != nil {
		t.Fatal(err)
	}
	h, err := netlink.NewHandleAt(netns.NsHandle(s.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	link, err := h.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	given, err := h.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	routes, err := h.RouteList(link, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	b.says(http.StatusOK)
	for name, do := range map[string]func() error{
		"sets it down":        func() error { return h.LinkSetDown(link) },
		"renames it":          func() error { return errors.Join(h.LinkSetDown(link), h.LinkSetName(link, "mine"), h.LinkSetUp(link)) },
		"takes another MAC":   func() error { return h.LinkSetHardwareAddr(link, net.HardwareAddr{2, 9, 9, 9, 9, 9}) },
		"deletes its address": func() error { return h.AddrDel(link, &given[0]) },
		"deletes its own routes": func() error {
			return h.RouteDel(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}})
		},
	} {
		if err := do(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b.says(http.StatusOK, "containers")
		err := errors.Join(h.LinkSetDown(link), h.LinkSetName(link, "eth0"), h.LinkSetHardwareAddr(link, link.Attrs().HardwareAddr), h.LinkSetUp(link))
		for _, a := range given {
			a.Flags |= 0x02 // IFA_F_NODAD
			err = errors.Join(err, h.AddrReplace(link, &a))
		}
		for _, r := range routes {
			if r.Gw != nil {
				err = errors.Join(err, h.RouteReplace(&r))
			}
		}
		if err != nil {
			t.Fatalf("%s, put back: %v", name, err)
		}
		b.says(http.StatusOK)
	}
	if err := h.LinkDel(link); err != nil {
		t.Fatal(err)
	}
	b.agent.kick("test")
	b.says(http.StatusOK, "containers")
}
