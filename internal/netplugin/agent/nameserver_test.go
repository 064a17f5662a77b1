package agent

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestNameServerFollowsHome: the name server listens on the host's private
// address, moves with it, and tells its port each time; off means off.
func TestNameServerFollowsHome(t *testing.T) {
	cfg := Config{Log: slog.New(slog.DiscardHandler), DNSUpstreams: []netip.AddrPort{}}
	ports := make(chan [2]uint16, 10)
	n := newNameServer(&cfg, func(port, port6 uint16) { ports <- [2]uint16{port, port6} })
	a := &Agent{cfg: cfg, names: n}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		n.serveNames(ctx, cfg.Log, a.kick)
		close(done)
	}()
	if s := a.NameServer(); s.Status != "waiting" {
		t.Errorf("before there is an address: %+v", s)
	}
	asker, six := netip.MustParseAddr("127.0.5.1"), netip.IPv6Loopback()
	stateWith := func(home string) desired.Host {
		net1 := model.NetworkKey{Tenant: "blue", Name: "net1"}
		h := desired.Host{HostNAT: &desired.HostNAT{Addr: netip.MustParseAddr(home), Addr6: six}}
		h.Ports = h.Ports.Set("cv1", &desired.Port{IfName: "cv1", Endpoint: model.EndpointKey{Network: net1, ID: "e"}, Private: asker, Private6: six})
		h.DNS.Records = h.DNS.Records.Set(desired.DNSKey{Endpoint: model.EndpointKey{Network: net1, ID: "e"}},
			&desired.DNSRecord{Network: net1, Name: "web", IPv4: netip.MustParseAddr("10.1.0.1")})
		return h
	}
	for _, home := range []string{"127.0.5.253", "127.0.5.254"} {
		for range 2 { // once is enough
			if problems := n.follow(t.Context(), stateWith(home)); len(problems) > 0 {
				t.Error(problems)
			}
		}
		port := <-ports
		at := netip.AddrPortFrom(netip.MustParseAddr(home), port[0])
		if s := a.NameServer(); s.Status != "serving" || s.Address != at.String() || s.Names["blue"] != 1 {
			t.Errorf("at %s: %+v", home, s)
		}
		for from, to := range map[netip.Addr]netip.AddrPort{asker: at, six: netip.AddrPortFrom(six, port[1])} {
			c := mdns.Client{Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: from.AsSlice()}}, Timeout: 10 * time.Second}
			m, _, err := c.ExchangeContext(t.Context(), new(mdns.Msg).SetQuestion("web.blue.", mdns.TypeA), to.String())
			if err != nil || len(m.Answer) != 1 {
				t.Errorf("at %s: %v %v", to, m, err)
			}
		}
	}
	n.follow(t.Context(), desired.Host{})
	if port := <-ports; port != [2]uint16{} {
		t.Errorf("without egress the ports are %d", port)
	}
	n.follow(t.Context(), stateWith("127.0.5.253"))
	old := <-ports
	n.failed.Store(true) // as when the server has failed
	n.follow(t.Context(), stateWith("127.0.5.253"))
	if port := <-ports; port[0] == 0 || port[1] == 0 || port == old {
		t.Errorf("after a failure the port is %d, was %d", port, old)
	}
	n.follow(t.Context(), desired.Host{})
	stop()
	<-done
	if s := a.NameServer(); s.Status != "waiting" || s.Stats.Local != 4 || len(s.Records) != 0 {
		t.Errorf("in the end: %+v", s)
	}
	reg := prometheus.NewRegistry()
	for _, c := range n.metrics() {
		if err := reg.Register(c); err != nil {
			t.Error(err)
		}
	}
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range all {
		got[f.GetName()] = f.GetMetric()[0].GetCounter().GetValue()
	}
	if len(got) != 10 || got["contiv_netplugin_dns_queries_total"] != 4 || got["contiv_netplugin_dns_local_total"] != 4 {
		t.Errorf("metrics: %v", got)
	}
	off := &Agent{names: newNameServer(&Config{NoDNS: true}, nil)}
	off.names.follow(t.Context(), stateWith("127.0.5.253"))
	off.names.serveNames(t.Context(), cfg.Log, off.kick)
	if s := off.NameServer(); s.Status != "off" {
		t.Errorf("switched off: %+v", s)
	}
}
