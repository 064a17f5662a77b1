package tracepacket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Namespace opens the network namespace with the other end of an interface. path is where it is
// said to be; "" = it is searched among those of processes, as Docker moves interfaces itself.
// The error is of kind model.ErrUnavailable where there is none.
func Namespace(path, ifName string) (ns.NetNS, error) {
	if path != "" {
		n, err := ns.GetNS(path)
		if err != nil {
			return nil, model.Errorf(model.ErrUnavailable, "open the network namespace: %w", err)
		}
		return n, nil
	}
	none := model.Errorf(model.ErrUnavailable, "no process is in the network namespace of interface %s", ifName)
	link, err := netlink.LinkByName(ifName)
	if err != nil {
		return nil, model.Errorf(model.ErrUnavailable, "find interface %s: %w", ifName, err)
	}
	id := link.Attrs().NetNsID
	if id < 0 { // the other end is on the host
		return nil, none
	}
	all, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return nil, err
	}
	seen := map[uint64]bool{}
	for _, path := range all {
		st := unix.Stat_t{}
		if unix.Stat(path, &st) != nil || seen[st.Ino] { // the process may have ended
			continue
		}
		seen[st.Ino] = true
		n, err := ns.GetNS(path)
		if err != nil {
			continue
		}
		if is, err := netlink.GetNetNsIdByFd(int(n.Fd())); err == nil && is == id { //nolint:gosec // a descriptor
			return n, nil
		}
		_ = n.Close() // it was only read
	}
	return nil, none
}

// Arrival watches a namespace for a packet.
type Arrival struct {
	socket  *os.File
	payload []byte
}

// Watch begins to watch a namespace for a packet with a payload; Wait ends it.
func Watch(at ns.NetNS, payload []byte) (*Arrival, error) {
	a := &Arrival{payload: payload}
	err := at.Do(func(ns.NetNS) error {
		const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network byte order
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, all)
		if err != nil {
			return fmt.Errorf("watch for packets: %w", err)
		}
		a.socket = os.NewFile(uintptr(fd), "arrival")
		return nil
	})
	return a, err
}

// Wait reports whether the packet has come by the end of ctx, and ends the watch.
func (a *Arrival) Wait(ctx context.Context) (bool, error) {
	defer func() { _ = a.socket.Close() }()                                                  // it was only read
	defer context.AfterFunc(ctx, func() { _ = a.socket.SetReadDeadline(time.Unix(1, 0)) })() // which works on sockets
	conn, err := a.socket.SyscallConn()
	if err != nil {
		return false, fmt.Errorf("watch for packets: %w", err)
	}
	b := make([]byte, 2048)
	for {
		var n int
		var from unix.Sockaddr
		var fault error
		err := conn.Read(func(fd uintptr) bool {
			n, from, fault = unix.Recvfrom(int(fd), b, 0) //nolint:gosec // a descriptor
			return !errors.Is(fault, unix.EAGAIN)
		})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return false, nil
		case errors.Is(fault, unix.EINTR):
			continue
		case err != nil || fault != nil:
			return false, fmt.Errorf("watch for packets: %w", errors.Join(err, fault))
		}
		if l, is := from.(*unix.SockaddrLinklayer); is && l.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if bytes.Contains(b[:n], a.payload) {
			return true, nil
		}
	}
}
