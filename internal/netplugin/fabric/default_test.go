package fabric

import (
	"context"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"
)

// The default route of a router is the kernel's while it is asked for, in both families.
func TestLearnedDefaultRouteReachesTheKernel(t *testing.T) {
	b := newBench(t, "50.1.1.200/32")
	b.in.Settings = settings()
	b.in.Settings.RouterIP6 = prefix("fd50::2/64")
	b.in.Desired.HostNAT.WithIPv6()
	b.start()
	b.wayOut("50.1.1.200", map[string]string{"0.0.0.0/0": "50.1.1.210", "10.50.0.0/16": "50.1.1.210", "::/0": "fd50::210"})
	without := map[string]string{"10.50.0.0/16": "50.1.1.210"}
	b.wantRoutes(without)
	b.set(func(in *Input) { in.Settings.Default = true })
	b.wantRoutes(map[string]string{"0.0.0.0/0": "50.1.1.210", "10.50.0.0/16": "50.1.1.210", "::/0": "fd50::210"})
	b.set(func(in *Input) { in.Settings.Default = false })
	b.wantRoutes(without)
}

// wayOut is a router that tells of the default route too, which a Speaker never does.
func (b *bench) wayOut(at string, by map[string]string) {
	b.Helper()
	s := server.NewBgpServer()
	go s.Serve()
	b.Cleanup(s.Stop)
	err := s.StartBgp(b.Context(), &api.StartBgpRequest{Global: &api.Global{Asn: routerAS, RouterId: at, ListenPort: -1}})
	peer := &api.Peer{
		Conf:      &api.PeerConf{NeighborAddress: "50.1.1.2", PeerAsn: hostAS},
		Timers:    &api.Timers{Config: &api.TimersConfig{ConnectRetry: 1, IdleHoldTimeAfterReset: 1}},
		Transport: &api.Transport{LocalAddress: at},
	}
	for _, afi := range []api.Family_Afi{api.Family_AFI_IP, api.Family_AFI_IP6} {
		peer.AfiSafis = append(peer.AfiSafis, &api.AfiSafi{Config: &api.AfiSafiConfig{Family: &api.Family{Afi: afi, Safi: api.Family_SAFI_UNICAST}, Enabled: true}})
	}
	if err == nil {
		err = s.AddPeer(context.WithoutCancel(b.Context()), &api.AddPeerRequest{Peer: peer})
	}
	if err != nil {
		b.Fatal(err)
	}
	for p, hop := range by {
		nlri, err := packet.NewIPAddrPrefix(prefix(p))
		if err != nil {
			b.Fatal(err)
		}
		path := &apiutil.Path{Family: packet.RF_IPv4_UC, Nlri: nlri, Age: time.Now().Unix()}
		var next packet.PathAttributeInterface
		if a := addr(hop); a.Is4() {
			next, err = packet.NewPathAttributeNextHop(a)
		} else {
			path.Family = packet.RF_IPv6_UC
			next, err = packet.NewPathAttributeMpReachNLRI(packet.RF_IPv6_UC, []packet.PathNLRI{{NLRI: nlri}}, a)
		}
		if err == nil {
			path.Attrs = []packet.PathAttributeInterface{packet.NewPathAttributeOrigin(packet.BGP_ORIGIN_ATTR_TYPE_IGP), next}
			_, err = s.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{path}})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
