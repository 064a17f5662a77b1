package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// outletPlane is a reference data plane that makes the host's interface, as real drivers do.
type outletPlane struct{ *reference.Driver }

func (o outletPlane) Capabilities() driver.Capabilities {
	can := o.Driver.Capabilities()
	can.Egress = true
	return can
}

func (o outletPlane) Apply(ctx context.Context, want desired.Host) (driver.Report, error) {
	if w := want.HostNAT; w != nil {
		if _, err := netlink.LinkByName(w.Interface); err != nil {
			attrs := netlink.NewLinkAttrs()
			attrs.Name, attrs.HardwareAddr = w.Interface, net.HardwareAddr(w.RouterMAC[:])
			if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
				return driver.Report{}, err
			}
		}
	}
	return o.Driver.Apply(ctx, want)
}

// newWayOutBed is a bed whose driver has egress.
func newWayOutBed(t *testing.T) *bed {
	t.Helper()
	b := newBed(t)
	b.stop()
	b.cfg.IPForward = true
	b.fake = b.fake.Restart()
	b.startWith(outletPlane{b.fake})
	t.Cleanup(func() {
		if l, err := netlink.LinkByName(desired.HostInterface); err == nil {
			if err := netlink.LinkDel(l); err != nil {
				t.Error(err)
			}
		}
	})
	b.ready()
	b.eventually("egress is there", func() error {
		if text, _ := b.fake.Inspect(t.Context()); !strings.Contains(text, "private 172.19.0.0/16 fd6d:809b:d5b4::/96 host 172.19.255.254 fd6d:809b:d5b4::ac13:fffe at contivh0") {
			return errors.New(text)
		}
		return nil
	})
	return b
}

func (b *bed) private(container string) string {
	b.t.Helper()
	e, ok := b.agent.Attachments.Entry(attach.Key{Container: container, IfName: "eth0"})
	if !ok || !e.Private.IsValid() {
		b.t.Fatalf("%s has no private address: %+v", container, e)
	}
	if text, err := b.fake.Inspect(b.t.Context()); err != nil || !strings.Contains(text, "private "+e.Private.String()) {
		b.t.Errorf("the data plane does not have %s of %s: %v\n%s", e.Private, container, err, text)
	}
	return e.Private.String()
}

// TestRoutedWithoutWayOut: in forwarding mode routing the router is the default
// route of both families although nothing leads out of the cluster.
func TestRoutedWithoutWayOut(t *testing.T) {
	b := newBed(t)
	b.ready()
	router6 := attach.Route{Dst: netip.MustParsePrefix("::/0"), Gateway: desired.RouterMAC.LinkLocal()}
	for _, mode := range []model.FwdMode{model.FwdBridge, model.FwdRouting} {
		b.put(func(tx store.Tx) error {
			g, err := tables.Globals.Get(tx, tables.GlobalKey{})
			g.FwdMode = mode
			return errors.Join(err, tables.Globals.Put(tx, g))
		})
		b.eventually("mode "+string(mode), func() error {
			if text, _ := b.fake.Inspect(t.Context()); !strings.Contains(text, string(mode)) {
				return errors.New(text)
			}
			return nil
		})
		res, err := b.client().Attach(t.Context(), request("c-"+string(mode), newSandbox(t)))
		if err != nil {
			t.Fatal(err)
		}
		if has := slices.Contains(res.Routes, router6); has != (mode == model.FwdRouting) {
			t.Errorf("mode %s: routes %v", mode, res.Routes)
		}
		if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: attach.Key{Container: "c-" + string(mode), IfName: "eth0"}}); err != nil {
			t.Error(err)
		}
	}
}

// TestHostLocalNATAddressesAreStable: private addresses are unique, stable over restarts, and not used
// again at once; ports are published once each, chosen where that is asked for,
// and outlive a restart.
func TestHostLocalNATAddressesAreStable(t *testing.T) {
	b := newWayOutBed(t)
	boxes := map[string]*sandbox{}
	for _, c := range []string{"c1", "c2"} {
		boxes[c] = newSandbox(t)
		res, err := b.client().Attach(t.Context(), request(c, boxes[c]))
		if err != nil {
			t.Fatal(err)
		}
		router6 := attach.Route{Dst: netip.MustParsePrefix("::/0"), Gateway: desired.RouterMAC.LinkLocal()}
		if !slices.Contains(res.Routes, router6) {
			t.Errorf("%s has no default route of IPv6 by the router: %v", c, res.Routes)
		}
	}
	one, two := b.private("c1"), b.private("c2")
	if one == two {
		t.Fatalf("both have %s", one)
	}
	publish := func(container string, ports ...attach.PortBinding) ([]attach.PortBinding, error) {
		res, err := b.client().Publish(t.Context(), attach.PublishRequest{Key: attach.Key{Container: container, IfName: "eth0"}, Ports: ports})
		return res.Ports, err
	}
	tcp := func(first, last uint16) attach.PortBinding {
		return attach.PortBinding{Proto: model.ProtoTCP, HostPort: first, HostPortEnd: last, ContainerPort: 80}
	}
	at := tcp(9000, 0)
	at.HostIP = netip.MustParseAddr("127.0.0.2")
	process, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	got, err := publish("c1", tcp(8080, 0), tcp(8080, 8090), tcp(0, 0), at)
	if err != nil || len(got) != 4 || got[0].HostPort != 8080 || got[1].HostPort != 8081 || got[2].HostPort < 49152 || got[3].HostPort != 9000 {
		t.Fatalf("Publish() = %v, %v", got, err)
	}
	chosen := got[2].HostPort
	shown := 0
	for _, p := range b.agent.Observer.State().Ports {
		if p.Private.String() == one && len(p.Published) >= 4 && p.Published[1].String() == "*:8081->80/tcp" {
			shown++
		}
	}
	if shown != 1 {
		t.Errorf("the state shows the ports %d times: %+v", shown, b.agent.Observer.State().Ports)
	}
	for _, x := range []struct {
		port attach.PortBinding
		kind error
		text string
	}{
		{tcp(8081, 0), model.ErrExists, "published by container c1 already"},
		{tcp(8080, 8081), model.ErrExists, "8080-8081/tcp"},
		{tcp(9000, 0), model.ErrExists, "9000"},
		{tcp(uint16(process.Addr().(*net.TCPAddr).Port), 0), model.ErrExists, "address already in use"},
		{tcp(uint16(b.agent.RESTAddr().(*net.TCPAddr).Port), 0), model.ErrExists, "address already in use by Contiv's control plane"},
		{attach.PortBinding{Proto: model.ProtoUDP, HostPort: 4789, ContainerPort: 1}, model.ErrExists, "address already in use by the tunnel"},
		{attach.PortBinding{Proto: model.ProtoUDP, HostIP: netip.MustParseAddr("127.0.0.9"), HostPort: 4789, ContainerPort: 1}, model.ErrExists, "4789"},
		{attach.PortBinding{Proto: model.ProtoTCP, HostIP: netip.MustParseAddr("198.51.100.1"), HostPort: 1, ContainerPort: 1}, model.ErrInvalid, "has no address 198.51.100.1"},
		{attach.PortBinding{Proto: model.ProtoICMP, HostPort: 1, ContainerPort: 1}, model.ErrInvalid, "must be tcp, udp or sctp"},
		{attach.PortBinding{Proto: model.ProtoTCP, HostPort: 1}, model.ErrInvalid, "containerPort"},
		{tcp(9, 8), model.ErrInvalid, "must not be below"},
	} {
		if _, err := publish("c2", x.port); !errors.Is(err, x.kind) || !strings.Contains(fmt.Sprint(err), x.text) {
			t.Errorf("Publish(%v) = %v, want %q", x.port, err, x.text)
		}
	}
	serve := func(port string) error { // a process of the host
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":"+port)
		if err == nil {
			_ = l.Close()
		}
		return err
	}
	if err := serve("8081"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a process gets a port that a container publishes: %v", err)
	}
	six := tcp(9001, 0)
	six.HostIP = netip.IPv6Unspecified()
	if _, err = publish("c1", append(got, six)...); err != nil {
		t.Fatal(err)
	}
	if l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp6", "[::1]:9001"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a process gets a port of IPv6 that a container publishes: %v, %v", l, err)
	}
	if l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", ":9001"); err != nil {
		t.Errorf("a port that is published by IPv6 is not free for IPv4: %v", err)
	} else if err := l.Close(); err != nil {
		t.Error(err)
	}
	if l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp6", "[::1]:8081"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a process gets a port of all addresses by IPv6: %v, %v", l, err)
	}
	other := tcp(9000, 0)
	other.HostIP = netip.MustParseAddr("127.0.0.3")
	udp := tcp(8080, 0)
	udp.Proto = model.ProtoUDP
	if _, err := publish("c2", other, udp); err != nil { // another address, another protocol
		t.Error(err)
	}
	if _, err := publish("nobody", tcp(1, 0)); !errors.Is(err, model.ErrNotFound) {
		t.Errorf("Publish() of nobody's = %v", err)
	}

	// While netplugin is down another process takes a port: it is reported, and stays the
	// container's.
	b.stop()
	thief, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":8081")
	if err != nil {
		t.Fatalf("a stopped netplugin keeps a port: %v", err)
	}
	b.fake = b.fake.Restart()
	b.startWith(outletPlane{b.fake})
	b.ready()
	told := func() string {
		o, _ := b.agent.reached.Get()
		return o.ProblemTexts()["published 8081/tcp of container c1"]
	}
	b.eventually("the port that was taken is told", func() error {
		if !strings.Contains(told(), "already in use") {
			return fmt.Errorf("%q", told())
		}
		return nil
	})
	if err := thief.Close(); err != nil {
		t.Fatal(err)
	}
	b.eventually("the port is held again", func() error { // only the runner asks
		if told() != "" {
			return errors.New(told())
		}
		return nil
	})
	if err := serve("8081"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a process gets a port that is held again: %v", err)
	}
	if b.private("c1") != one || b.private("c2") != two {
		t.Errorf("after a restart: %s and %s, before: %s and %s", b.private("c1"), b.private("c2"), one, two)
	}
	if _, err := publish("c2", tcp(8080, 0)); !errors.Is(err, model.ErrExists) {
		t.Errorf("Publish() of what was published before the restart = %v", err)
	}
	if got, err := publish("c1", tcp(0, 0)); err != nil || got[0].HostPort != chosen {
		t.Errorf("Publish() again = %v, %v; it was port %d", got, err, chosen)
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: attach.Key{Container: "c1", IfName: "eth0"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := publish("c2", tcp(8080, 0)); err != nil {
		t.Errorf("Publish() of what a container had that is gone = %v", err)
	}
	b.eventually("a port that nobody publishes is free", func() error { return serve("8081") })
	if _, err := b.client().Attach(t.Context(), request("c3", newSandbox(t))); err != nil {
		t.Fatal(err)
	}
	if three := b.private("c3"); three == one || three == two {
		t.Errorf("the third container has %s, which was used just now", three)
	}
	for _, c := range []string{"c2", "c3"} {
		if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: attach.Key{Container: c, IfName: "eth0"}}); err != nil {
			t.Fatal(err)
		}
	}
	b.eventually("nobody has an address", func() error {
		if n := b.agent.mirror.way.Addresses.Taken(); n > 0 {
			return fmt.Errorf("%d have", n)
		}
		return nil
	})
}

// TestPublishingWithoutEgressNamesTheDriver: a request to publish fails with the name of a driver that has no egress.
func TestPublishingWithoutEgressNamesTheDriver(t *testing.T) {
	b := newBed(t)
	b.ready()
	if _, err := b.client().Attach(t.Context(), request("c1", newSandbox(t))); err != nil {
		t.Fatal(err)
	}
	_, err := b.client().Publish(t.Context(), attach.PublishRequest{
		Key:   attach.Key{Container: "c1", IfName: "eth0"},
		Ports: []attach.PortBinding{{Proto: model.ProtoTCP, HostPort: 8080, ContainerPort: 80}},
	})
	if !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), "data plane, fake, has no egress") {
		t.Errorf("Publish() = %v", err)
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: attach.Key{Container: "c1", IfName: "eth0"}}); err != nil {
		t.Error(err)
	}
}

// TestCollidingPrivateSubnetDisablesEgress: where the private subnet is a network of the host already,
// there is no egress, containers live on, and the status says what to do; when
// the network goes, egress comes.
func TestCollidingPrivateSubnetDisablesEgress(t *testing.T) {
	b := newBed(t)
	b.stop()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "n-docker"
	strange := &netlink.Bridge{LinkAttrs: attrs}
	addr, err := netlink.ParseAddr("172.19.0.1/24")
	if err == nil {
		err = errors.Join(netlink.LinkAdd(strange), netlink.AddrAdd(strange, addr), netlink.LinkSetUp(strange))
	}
	if err != nil {
		t.Fatal(err)
	}
	b.fake = b.fake.Restart()
	b.startWith(outletPlane{b.fake})
	t.Cleanup(func() {
		if l, err := netlink.LinkByName(desired.HostInterface); err == nil {
			_ = netlink.LinkDel(l) // with the namespace at the latest
		}
	})
	b.ready()
	s := newSandbox(t)
	if _, err := b.client().Attach(t.Context(), request("c1", s)); err != nil {
		t.Fatal(err)
	}
	b.eventually("a problem that names the route and what to do", func() error {
		o, _ := b.agent.reached.Get()
		text := o.ProblemTexts()["egress"]
		for _, want := range []string{"172.19.0.0/24 on n-docker", "netctl global set --private-subnet", "--private-subnet of netplugin"} {
			if !strings.Contains(text, want) {
				return fmt.Errorf("problem %q lacks %q", text, want)
			}
		}
		return nil
	})
	key := attach.Key{Container: "c1", IfName: "eth0"}
	if text, _ := b.fake.Inspect(t.Context()); strings.Contains(text, "private") {
		t.Errorf("there is egress all the same:\n%s", text)
	}
	if err := netlink.LinkDel(strange); err != nil {
		t.Fatal(err)
	}
	b.agent.kick("test")
	b.eventually("egress is there", func() error {
		o, _ := b.agent.reached.Get()
		if text := o.ProblemTexts()["egress"]; text != "" {
			return errors.New(text)
		}
		return nil
	})
	b.private("c1")
	strange.Index = 0
	if err := errors.Join(netlink.LinkAdd(strange), netlink.AddrAdd(strange, addr), netlink.LinkSetUp(strange)); err != nil {
		t.Fatal(err)
	}
	for _, there := range []bool{true, false} { // one that comes later
		if !there {
			if err := netlink.LinkDel(strange); err != nil {
				t.Fatal(err)
			}
		}
		b.agent.kick("drift")
		b.eventually("a problem while a network of the host collides", func() error {
			o, _ := b.agent.reached.Get()
			if text := o.ProblemTexts()["egress"]; strings.Contains(text, "172.19.0.0/24 on n-docker") != there {
				return fmt.Errorf("there: %v, said: %q", there, text)
			}
			return nil
		})
		b.private("c1") // egress stays
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: key}); err != nil {
		t.Fatal(err)
	}
}
