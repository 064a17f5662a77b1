package bgp

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/api"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Defaults of a configuration's fields that are zero.
const (
	Port         = 179               // of BGP, RFC 4271
	HoldTime     = 9 * time.Second   // three keepalives of 3 s
	RestartTime  = 120 * time.Second // RFC 4724; a start of netplugin takes seconds, a new image a minute
	MaxPrefixes  = 10_000            // of each family, from each neighbor
	BFDInterval  = 250 * time.Millisecond
	BFDMultiple  = 3
	maxNeighbors = 64
	maxPassword  = 80   // TCP_MD5SIG_MAXKEYLEN of linux/tcp.h
	maxRestart   = 4095 // seconds, 12 bits in RFC 4724
	deferral     = 1    // seconds: what is announced here follows from nothing that is learned

	connectRetry = 2 * time.Second // the library's least
	idleHold     = 2 * time.Second // after a session that was reset
)

// Config is what a speaker should be. The zero value of a field with a default
// means that.
type Config struct {
	AS          uint32         // of the host
	RouterID    netip.Addr     // an IPv4 address
	Listen      []netip.Addr   // addresses that take neighbors' connections; none: it only connects
	Port        uint16         // where it listens; 0 = Port
	RestartTime time.Duration  // how long neighbors keep routes while the speaker restarts, whole seconds; 0 = RestartTime
	Neighbors   []Neighbor     // by address, each once
	Protected   []netip.Prefix // no learned route may overlap one
	Links       []netip.Prefix // networks of the host's interfaces: no learned route may be within one
	Default     bool           // 0.0.0.0/0 and ::/0 are learned too
}

// Neighbor is a router that the speaker has a session with.
type Neighbor struct {
	Address     netip.Addr
	AS          uint32
	Port        uint16        // 0 = Port
	Local       netip.Addr    // the host's end of the session; zero = what the host's routes say
	Password    string        // TCP MD5 signatures (RFC 2385); empty = none
	IPv4, IPv6  bool          // families; neither = the address's own
	MaxPrefixes uint32        // of each family; one more closes the session; 0 = MaxPrefixes
	HoldTime    time.Duration // whole seconds, at least 3; 0 = HoldTime
	Multihop    uint8         // the TTL when the neighbor is not on the same link; 0 = it is
	BFD         *BFD          // nil = none
}

// BFD is failure detection (RFC 5880, 5881) beside a session. Its packets come
// from the speaker's own process and say so (the C bit is clear).
type BFD struct {
	Interval time.Duration // between packets, both ways; 0 = BFDInterval
	Multiple uint8         // so many missing are a failure; 0 = BFDMultiple
}

func (b *BFD) orDefault() BFD {
	return BFD{Interval: or(b.Interval, BFDInterval), Multiple: or(b.Multiple, BFDMultiple)}
}

func or[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// complete returns c with its defaults, checked; errors are of kind
// model.ErrInvalid.
func (c Config) complete() (Config, error) {
	if c.AS == 0 {
		return c, model.InvalidField("as", c.AS, "must be an AS number between 1 and 4294967295")
	}
	if !c.RouterID.Is4() || c.RouterID.IsUnspecified() {
		return c, model.InvalidField("router id", c.RouterID, "must be an IPv4 address")
	}
	c.Port = or(c.Port, Port)
	c.RestartTime = or(c.RestartTime, RestartTime)
	if c.RestartTime < time.Second || c.RestartTime > maxRestart*time.Second || c.RestartTime%time.Second != 0 {
		return c, model.InvalidField("restart time", c.RestartTime, "must be whole seconds between 1 and 4095")
	}
	if len(c.Neighbors) > maxNeighbors {
		return c, model.InvalidField("neighbors", len(c.Neighbors), fmt.Sprintf("must be at most %d", maxNeighbors))
	}
	c.Listen = slices.Clone(c.Listen)
	slices.SortFunc(c.Listen, netip.Addr.Compare)
	c.Neighbors = slices.Clone(c.Neighbors)
	seen := map[netip.Addr]bool{}
	for i := range c.Neighbors {
		n, err := c.Neighbors[i].complete()
		if err != nil {
			return c, err
		}
		if seen[n.Address] {
			return c, model.InvalidField("neighbor", n.Address, "is there twice")
		}
		seen[n.Address] = true
		c.Neighbors[i] = n
	}
	return c, nil
}

func (n Neighbor) complete() (Neighbor, error) {
	n.Address = n.Address.Unmap()
	bad := func(field string, v any, want string) (Neighbor, error) {
		return n, model.Errorf(model.ErrInvalid, "neighbor %s: %w", n.Address, model.InvalidField(field, v, want))
	}
	if !n.Address.IsValid() || n.Address.IsUnspecified() || n.Address.IsMulticast() {
		return bad("address", n.Address, "must be a router's address")
	}
	if n.AS == 0 {
		return bad("as", n.AS, "must be an AS number between 1 and 4294967295")
	}
	if n.Local.IsValid() && n.Local.Is4() != n.Address.Is4() {
		return bad("local address", n.Local, "must be of the neighbor's family")
	}
	if len(n.Password) > maxPassword {
		return bad("password", "...", fmt.Sprintf("must have at most %d characters", maxPassword))
	}
	n.HoldTime = or(n.HoldTime, HoldTime)
	if n.HoldTime < 3*time.Second || n.HoldTime > 65535*time.Second || n.HoldTime%time.Second != 0 {
		return bad("hold time", n.HoldTime, "must be whole seconds between 3 and 65535")
	}
	if !n.IPv4 && !n.IPv6 {
		n.IPv4, n.IPv6 = n.Address.Is4(), n.Address.Is6()
	}
	n.Port = or(n.Port, Port)
	n.MaxPrefixes = or(n.MaxPrefixes, MaxPrefixes)
	if n.BFD != nil {
		b := n.BFD.orDefault()
		if b.Interval < 10*time.Millisecond || b.Interval > time.Minute {
			return bad("BFD interval", b.Interval, "must be between 10ms and 1m")
		}
		n.BFD = &b
	}
	return n, nil
}

// equal reports whether two complete neighbors are the same.
func (n Neighbor) equal(o Neighbor) bool {
	if (n.BFD == nil) != (o.BFD == nil) || n.BFD != nil && *n.BFD != *o.BFD {
		return false
	}
	n.BFD, o.BFD = nil, nil
	return n == o
}

// peer is a complete neighbor as the library wants it.
func (n Neighbor) peer(restart time.Duration, restarting, held bool) *api.Peer {
	p := &api.Peer{
		Conf: &api.PeerConf{NeighborAddress: n.Address.String(), PeerAsn: n.AS, AuthPassword: n.Password, AdminDown: held},
		Timers: &api.Timers{Config: &api.TimersConfig{
			ConnectRetry: seconds(connectRetry), IdleHoldTimeAfterReset: seconds(idleHold),
			HoldTime: seconds(n.HoldTime), KeepaliveInterval: seconds(n.HoldTime) / 3,
		}},
		Transport:       &api.Transport{RemotePort: uint32(n.Port)},
		GracefulRestart: &api.GracefulRestart{Enabled: true, RestartTime: uint32(seconds(restart)), DeferralTime: deferral, LocalRestarting: restarting},
	}
	if n.Local.IsValid() {
		p.Transport.LocalAddress = n.Local.String()
	}
	if n.Multihop > 0 {
		p.EbgpMultihop = &api.EbgpMultihop{Enabled: true, MultihopTtl: uint32(n.Multihop)}
	}
	if n.BFD != nil {
		us := uint32(n.BFD.Interval.Microseconds())
		p.Bfd = &api.BfdPeerConfig{Enabled: true, DesiredMinimumTxInterval: us, RequiredMinimumReceive: us, DetectionMultiplier: uint32(n.BFD.Multiple)}
	}
	for _, f := range n.families() {
		p.AfiSafis = append(p.AfiSafis, &api.AfiSafi{
			Config:            &api.AfiSafiConfig{Family: f, Enabled: true},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}},
			PrefixLimits:      &api.PrefixLimit{Family: f, MaxPrefixes: n.MaxPrefixes},
		})
	}
	return p
}

func seconds(d time.Duration) uint64 { return uint64(d / time.Second) }

func (n Neighbor) families() (out []*api.Family) {
	if n.IPv4 {
		out = append(out, &api.Family{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST})
	}
	if n.IPv6 {
		out = append(out, &api.Family{Afi: api.Family_AFI_IP6, Safi: api.Family_SAFI_UNICAST})
	}
	return out
}
