package agent

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
)

// TestParkedInterfaceStaysOnTheHost: the container's side stays on the host, down, with its MAC and
// MTU, until somebody moves it; asking again answers the same; a restart of the
// agent changes nothing; detaching removes it wherever it is.
func TestParkedInterfaceStaysOnTheHost(t *testing.T) {
	b := newBed(t)
	b.ready()
	req := attach.Request{Key: attach.Key{Container: "e1", IfName: "eth0"}, Tenant: "blue", Source: attach.SourceDocker, Parked: true}
	res, err := b.client().Attach(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	link, err := netlink.LinkByName(res.Parked)
	if err != nil {
		t.Fatalf("%s: %v", res.Parked, err)
	}
	if a := link.Attrs(); a.HardwareAddr.String() != res.MAC.String() || a.MTU != res.MTU || a.Flags&1 != 0 {
		t.Errorf("parked side has MAC %s, MTU %d, flags %v; want %s, %d, down", a.HardwareAddr, a.MTU, a.Flags, res.MAC, res.MTU)
	}
	if len(res.Routes) != 0 || len(res.Addresses) != 2 {
		t.Errorf("routes %v, addresses %v", res.Routes, res.Addresses)
	}
	again, err := b.client().Attach(t.Context(), req)
	if err != nil || again.Parked != res.Parked || again.Endpoint != res.Endpoint {
		t.Errorf("second Attach: %+v, %v", again, err)
	}
	s := newSandbox(t)
	if err := netlink.LinkSetNsFd(link, int(s.file.Fd())); err != nil { // as libnetwork does after Join
		t.Fatal(err)
	}
	b.restart()
	b.ready()
	if got, ok := b.agent.Attachments.Attached(req.Key); !ok || got.Parked != res.Parked {
		t.Errorf("after a restart: %+v, %v", got, ok)
	}
	if keys := b.agent.Attachments.AttachedBy(attach.SourceDocker); len(keys) != 1 || keys[0] != req.Key {
		t.Errorf("Docker's attachments: %v", keys)
	}
	if err := b.client().Check(t.Context(), attach.CheckRequest{Key: req.Key}); err != nil {
		t.Error(err)
	}
	if there, err := vethpair.Exists(res.HostIf); err != nil || !there {
		t.Errorf("host side: %v, %v", there, err)
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: req.Key}); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft()
	req.Netns = s.path
	if _, err := b.client().Attach(t.Context(), req); err == nil {
		t.Error("a parked interface with a namespace is accepted")
	}
}
