package agent

import (
	"fmt"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// TestRepliesLeaveByTheirOwnInterface: interfaces that somebody else (Docker) has moved into a container and
// configured: what is sent from the addresses of each leaves by it, the rest by the default
// route that was set; without that by what is left; and what leaves takes its rules along.
func TestRepliesLeaveByTheirOwnInterface(t *testing.T) {
	b := newBed(t)
	b.ready()
	b.network("blue", "net2", 3)
	holder := exec.CommandContext(t.Context(), "unshare", "--net", "sleep", "1000") // ended with the test
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = holder.Process.Kill()
		_ = holder.Wait() // it was killed
	}()
	path := fmt.Sprintf("/proc/%d/ns/net", holder.Process.Pid)
	own, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = own.Close() }() // open for reading
	var there netns.NsHandle
	for deadline := time.Now().Add(time.Minute); ; { // it may not have left ours yet
		if there, err = netns.GetFromPath(path); err == nil && !there.Equal(own) {
			break
		}
		if err == nil {
			_ = there.Close() // open for reading
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	defer func() { _ = there.Close() }() // open for reading
	h, err := netlink.NewHandleAt(there)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	links, keys, addrs := map[string]netlink.Link{}, map[string]attach.Key{}, map[string]net.IP{}
	for i, network := range []string{"net1", "net2"} {
		key := attach.Key{Container: network, IfName: "eth0"}
		res, err := b.client().Attach(t.Context(), attach.Request{Key: key, Tenant: "blue", Network: network, Source: attach.SourceDocker, Parked: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.agent.Attachments.RouteReplies(key); err == nil {
			t.Error("an interface that is still on the host is taken for a container's")
		}
		if err := b.agent.Attachments.RemoveReplyRoutes(key); err != nil {
			t.Error(err)
		}
		l, err := netlink.LinkByName(res.Parked)
		if err == nil {
			err = netlink.LinkSetNsFd(l, int(there))
		}
		if err == nil {
			l, err = h.LinkByName(res.Parked)
		}
		if err == nil {
			err = h.LinkSetUp(l)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range res.Addresses {
			if a.Prefix.Addr().Is6() {
				continue
			}
			addrs[network] = a.Prefix.Addr().AsSlice()
			if err := h.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: addrs[network], Mask: net.CIDRMask(a.Prefix.Bits(), 32)}}); err != nil {
				t.Fatal(err)
			}
			if gw := a.Gateway; i == 0 {
				if !gw.IsValid() {
					t.Fatal("the network has no gateway")
				}
				if err := h.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: gw.AsSlice()}); err != nil {
					t.Fatal(err)
				}
			}
		}
		links[network], keys[network] = l, key
	}
	leaves := func(when, from, want string) {
		t.Helper()
		routes, err := h.RouteGetWithOptions(net.ParseIP("198.51.100.1"), &netlink.RouteGetOptions{SrcAddr: addrs[from]})
		if err != nil || len(routes) != 1 || routes[0].LinkIndex != links[want].Attrs().Index {
			t.Errorf("%s: what is sent from %q leaves by %v (%v), want %s", when, from, routes, err, want)
		}
	}
	rules := func(when string, want int) {
		t.Helper()
		all, err := h.RuleList(netlink.FAMILY_V4)
		n := 0
		for _, r := range all {
			if r.Priority == 30000 {
				n++
			}
		}
		if err != nil || n != want {
			t.Errorf("%s: %d rules, want %d: %v %v", when, n, want, all, err)
		}
	}
	leaves("before", "net2", "net1")
	for range 2 { // again: the same
		for _, k := range keys {
			if err := b.agent.Attachments.RouteReplies(k); err != nil {
				t.Fatal(err)
			}
		}
	}
	rules("both", 2)
	leaves("both", "net1", "net1")
	leaves("both", "net2", "net2")
	leaves("both", "", "net1")
	if err := b.agent.Attachments.RemoveReplyRoutes(keys["net1"]); err != nil {
		t.Fatal(err)
	}
	rules("the first leaves", 1)
	if err := h.LinkDel(links["net1"]); err != nil {
		t.Fatal(err)
	}
	leaves("the first is gone", "", "net2")
	for _, k := range keys {
		if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: k}); err != nil {
			t.Error(err)
		}
	}
	if err := b.agent.Attachments.RouteReplies(keys["net2"]); err == nil {
		t.Error("an attachment that is gone answers by its own interface")
	}
}
