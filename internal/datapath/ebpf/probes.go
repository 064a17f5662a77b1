package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Tunnel probes (bpf/probe.h). A request leaves by a socket, by the way through the host's
// stack that packets of the VXLAN device take; all else the programs do.

// probeReport stands for an answer in struct told, in place of a port.
const probeReport = 0xffffffff

// probeAnswer returns the nonce of an answer that the programs have told of.
func probeAnswer(raw []byte) (nonce uint64, ok bool) {
	if len(raw) < reportHead || binary.NativeEndian.Uint32(raw) != probeReport {
		return 0, false
	}
	return driver.ReadProbeAnswer(raw[reportHead:])
}

// ProbeAnswers implements driver.TunnelProber.
func (d *Driver) ProbeAnswers() <-chan uint64 { return d.probed }

// Probe implements driver.TunnelProber.
func (d *Driver) Probe(to netip.Addr, nonce uint64, size int) (err error) {
	from := d.dp.devices.vtep.Load()
	if from == nil || !from.IsValid() {
		return model.Errorf(model.ErrUnavailable, "ebpf driver: there is no tunnel yet")
	}
	family := unix.AF_INET
	if from.Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("ebpf driver: open a socket for tunnel probes: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	// As the VXLAN device sends: without DF, and in IPv4 without a checksum.
	if from.Is4() {
		err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1), unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT))
	} else {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DONT)
	}
	if err == nil {
		err = unix.Bind(fd, socketAddr(*from, 0))
	}
	if err == nil {
		header := []byte{0x08, 0, 0, 0, 0, 0, driver.ProbeVNI, 0} // RFC 7348 section 5
		err = unix.Sendto(fd, append(header, driver.ProbeFrame(nonce, size)...), 0, socketAddr(to, d.cfg.VXLANPort))
	}
	if err != nil {
		return fmt.Errorf("ebpf driver: send a tunnel probe to %s: %w", to, err)
	}
	return nil
}

func socketAddr(a netip.Addr, port uint16) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4(), Port: int(port)}
	}
	return &unix.SockaddrInet6{Addr: a.As16(), Port: int(port)}
}
