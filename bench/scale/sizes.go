package main

import (
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"
	"time"
)

// sizes say how large a cluster is, and how much happens in it.
//
// Hosts stand in blocks of Spread, and each block has as many networks, which are on
// all of its hosts and nowhere else; so every host has the same number of networks.
// A tenant has whole blocks.
type sizes struct {
	Agents    int           `json:"agents"`
	Networks  int           `json:"networks"`
	Spread    int           `json:"hostsPerNetwork"`
	Endpoints int           `json:"endpoints"`
	Rules     int           `json:"rules"`
	Tenants   int           `json:"tenants"`
	Labels    int           `json:"labels,omitempty"` // sets of them in a tenant, one on each endpoint; 0 = none have labels
	Changes   float64       `json:"changesPerSecondWanted"`
	For       time.Duration `json:"nanoseconds"` // how long endpoints come and go
}

// fewestBits keeps the networks' subnets small enough for any tenant.
const fewestBits = 4

func (s sizes) check() error {
	if s.Agents < 1 || s.Networks < 1 || s.Spread < 1 || s.Tenants < 1 || s.Rules < 0 || s.Labels < 0 || s.Changes <= 0 || s.For <= 0 {
		return fmt.Errorf("%+v: all but rules and labels must be above zero", s)
	}
	switch {
	case s.Agents%s.Spread != 0:
		return fmt.Errorf("%d agents do not make whole blocks of %d hosts", s.Agents, s.Spread)
	case s.Networks%s.blocks() != 0:
		return fmt.Errorf("%d networks cannot be shared out evenly to %d blocks of %d hosts", s.Networks, s.blocks(), s.Spread)
	case s.blocks()%s.Tenants != 0:
		return fmt.Errorf("%d tenants cannot have as many each of %d blocks of hosts", s.Tenants, s.blocks())
	case s.Endpoints < s.Networks*s.Spread:
		return fmt.Errorf("%d endpoints: %d networks on %d hosts each need %d at least", s.Endpoints, s.Networks, s.Spread, s.Networks*s.Spread)
	case s.Networks > 1<<12:
		return fmt.Errorf("%d networks: 4096 at most", s.Networks)
	case s.Endpoints/s.Networks+s.churned() > s.room()/2:
		return fmt.Errorf("a network has %d addresses, too few for its endpoints and those that come", s.room())
	}
	return nil
}

// churned is no less than how many endpoints may come to one network.
func (s sizes) churned() int { return int(s.Changes*s.For.Seconds()) + 1 }

func (s sizes) blocks() int { return s.Agents / s.Spread }

func (s sizes) networksOfBlock() int { return s.Networks / s.blocks() }

// subnetBits is by how much a network's subnet is smaller than 10.0.0.0/8.
func (s sizes) subnetBits() int { return max(bits.Len(uint(s.Networks-1)), fewestBits) }

// room is how many addresses a network has.
func (s sizes) room() int { return 1 << (24 - s.subnetBits()) }

func (s sizes) subnet(network int) netip.Prefix {
	at := uint32(10<<24 + network*s.room()) //nolint:gosec // within 10.0.0.0/8, as check says
	return netip.PrefixFrom(addr(at), 8+s.subnetBits())
}

// addedAddress is the address of the n-th endpoint that is added and deleted. It counts downwards
// from the network's last address, so that no address is used twice, nor one that netmaster
// chose before.
func (s sizes) addedAddress(network, n int) netip.Addr {
	return addr(uint32(10<<24 + (network+1)*s.room() - 2 - n)) //nolint:gosec // likewise
}

func addr(v uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}

// vtep is a host's address, which no network has.
func (s sizes) vtep(agent int) netip.Addr { return addr(100<<24 + 64<<16 + uint32(agent) + 1) } //nolint:gosec // few

// block is where a network is.
func (s sizes) block(network int) int { return network / s.networksOfBlock() }

// hosts are the agents that have a network: from first, Spread of them.
func (s sizes) hosts(network int) (first int) { return s.block(network) * s.Spread }

// host is the agent that has the n-th endpoint of a network.
func (s sizes) host(network, n int) int { return s.hosts(network) + n%s.Spread }

// place is the network, and the number there, of the i-th endpoint.
func (s sizes) place(i int) (network, n int) { return i % s.Networks, i / s.Networks }

// endpointsOf is how many endpoints a network has from the beginning.
func (s sizes) endpointsOf(network int) int {
	n := s.Endpoints / s.Networks
	if network < s.Endpoints%s.Networks {
		n++
	}
	return n
}

// firstNetwork is the first one of a host.
func (s sizes) firstNetwork(agent int) int { return agent / s.Spread * s.networksOfBlock() }

// firstEndpoint is the first one of a host in one of its networks.
func (s sizes) firstEndpoint(agent, network int) int { return agent%s.Spread*s.Networks + network }

// concerning is how many endpoints an agent's driver has from the beginning: all of
// the networks of its block.
func (s sizes) concerning(agent int) (n int) {
	first := s.firstNetwork(agent)
	for network := first; network < first+s.networksOfBlock(); network++ {
		n += s.endpointsOf(network)
	}
	return n
}

func (s sizes) tenant(network int) string {
	return "t" + strconv.Itoa(s.block(network)*s.Tenants/s.blocks())
}

func hostName(agent int) string { return fmt.Sprintf("s%04d", agent) }

func networkName(n int) string { return "n" + strconv.Itoa(n) }

func groupName(n int) string { return "g" + strconv.Itoa(n) }

// labels are those of the n-th endpoint of a network.
func (s sizes) labels(network, n int) map[string]string {
	if s.Labels == 0 {
		return nil
	}
	return map[string]string{"app": "a" + strconv.Itoa((network+n*s.Networks)%s.Labels)}
}

func policyName(n int) string { return "p" + strconv.Itoa(n) }

func endpointName(i int) string { return "e" + strconv.Itoa(i) }
