package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"
)

// resolveTime bounds how long the resolver is asked for this host's own name: by itself it
// asks each name server several times.
const resolveTime = 5 * time.Second

// LocalAddress returns the address that the local resolver gives for this host's
// name, if an interface has it, or else the source address of the default route.
// unresolved then gets the reason, for the log.
func LocalAddress(ctx context.Context, unresolved func(why error)) (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find the host's name: %w", err)
	}
	return addressOf(ctx, name, unresolved)
}

func addressOf(ctx context.Context, name string, unresolved func(why error)) (string, error) {
	asked, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	ips, resolveErr := net.DefaultResolver.LookupNetIP(asked, "ip4", name)
	for _, ip := range ips {
		if ip = ip.Unmap(); ip.IsGlobalUnicast() && isLocal(ip) {
			return ip.String(), nil
		}
	}
	if resolveErr == nil {
		resolveErr = errors.New("it has no address there that an interface other than loopback has")
	}
	resolveErr = fmt.Errorf("the resolver does not know an address of host %q: %w", name, resolveErr)
	// Connecting a datagram socket sends nothing; it asks the routing table.
	// 192.0.2.1 is an address for documentation (RFC 5737).
	c, err := (&net.Dialer{}).DialContext(ctx, "udp4", "192.0.2.1:9")
	if err == nil {
		defer func() { _ = c.Close() }() // nothing was sent
		if a, ok := c.LocalAddr().(*net.UDPAddr); ok && !a.IP.IsLoopback() {
			unresolved(resolveErr)
			return a.IP.String(), nil
		}
	}
	return "", resolveErr
}

// ExplainAddress says that an address was chosen by the default route.
func ExplainAddress(log *slog.Logger, why error, address, flag string) {
	if why != nil {
		log.Info("this host is found at the address of its default route, since its name has none", "address", address, "why", why, "remedy", "give --"+flag)
	}
}

// HasAddress refuses an address that no interface of this host has; the error lists
// the addresses that the interfaces have.
func HasAddress(ip netip.Addr) error {
	if isLocal(ip.Unmap().WithZone("")) {
		return nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("read this host's addresses: %w", err)
	}
	var have []string
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			have = append(have, n.IP.String())
		}
	}
	if len(have) == 0 {
		return errors.New("is not an address of this host, which has loopback addresses only")
	}
	return fmt.Errorf("is not an address of this host, which has %s", strings.Join(have, ", "))
}

// isLocal reports whether an interface of this host has the address: a stale
// line in /etc/hosts must not win.
func isLocal(ip netip.Addr) bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if got, ok := netip.AddrFromSlice(n.IP); ok && got.Unmap() == ip {
				return true
			}
		}
	}
	return false
}
