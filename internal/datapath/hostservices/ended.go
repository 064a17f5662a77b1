package hostservices

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A connected socket of datagrams would send to a backend that is gone for as long as it
// lives. The kernel ends it (sock_diag(7), SOCK_DESTROY), so that the process hears of it.

const (
	sockDiagByFamily = 20 // of linux/sock_diag.h
	sockDestroy      = 21
	inetDiagBytes    = 56 // struct inet_diag_req_v2
)

// endLost ends the sockets that are connected to members that have left.
func (s *Sockets) endLost(ctx context.Context) error {
	if len(s.lost) == 0 {
		return nil
	}
	gone := map[netip.AddrPort]map[placeKey]bool{} // which services a backend has left
	for at, lost := range s.lost {
		for _, m := range lost {
			if gone[m] == nil {
				gone[m] = map[placeKey]bool{}
			}
			gone[m][toPlaceKey(at)] = true
		}
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		if err := ctx.Err(); err != nil {
			return err
		}
		sockets, err := connected(family)
		if err != nil {
			return err
		}
		for _, c := range sockets {
			if services := gone[c.peer]; services == nil || !s.asked(c, services) {
				continue
			}
			if err := c.end(); err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("end a socket connected to %s: %w", c.peer, err)
			}
		}
	}
	clear(s.lost)
	return nil
}

// asked reports whether a socket got its peer by one of some services.
func (s *Sockets) asked(c connectedSocket, services map[placeKey]bool) bool {
	var at placeKey
	k := peer{Socket: c.cookie, At: placeKey{IP: toAddr(c.peer.Addr()), Port: c.peer.Port(), Proto: unix.IPPROTO_UDP}}
	if err := s.of.Maps["services_of_peers"].Lookup(k, &at); err != nil {
		return false
	}
	any := at
	any.IP = toAddr(netip.IPv4Unspecified())
	if at.IP.netip().Is6() {
		any.IP = toAddr(netip.IPv6Unspecified())
	}
	return services[at] || services[any]
}

// connectedSocket is a socket of datagrams that has a peer.
type connectedSocket struct {
	family uint8
	id     []byte // struct inet_diag_sockid
	peer   netip.AddrPort
	cookie uint64
}

func request(kind int, flags int, family uint8, id []byte) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(kind, flags)
	body := make([]byte, inetDiagBytes)
	body[0], body[1] = family, unix.IPPROTO_UDP
	binary.NativeEndian.PutUint32(body[4:], ^uint32(0)) // of any state
	copy(body[8:], id)
	r.AddRawData(body)
	return r
}

// connected lists the sockets of datagrams of a family that have peers.
func connected(family uint8) (out []connectedSocket, err error) {
	messages, err := request(sockDiagByFamily, unix.NLM_F_DUMP, family, nil).Execute(unix.NETLINK_INET_DIAG, 0)
	if err != nil {
		return nil, fmt.Errorf("list sockets: %w", err)
	}
	for _, m := range messages {
		if len(m) < 4+48 { // struct inet_diag_msg: family, state, timer, retransmissions, then the id
			continue
		}
		id := m[4 : 4+48]
		c := connectedSocket{family: family, id: id, cookie: binary.NativeEndian.Uint64(id[40:])}
		a := netip.AddrFrom4([4]byte(id[20:24]))
		if family == unix.AF_INET6 {
			a = netip.AddrFrom16([16]byte(id[20:36])).Unmap()
		}
		if c.peer = netip.AddrPortFrom(a, binary.BigEndian.Uint16(id[2:])); c.peer.Port() != 0 {
			out = append(out, c)
		}
	}
	return out, nil
}

func (c connectedSocket) end() error {
	_, err := request(sockDestroy, unix.NLM_F_ACK, c.family, c.id).Execute(unix.NETLINK_INET_DIAG, 0)
	return err
}
