package driver

import (
	"encoding/binary"
	"net/netip"
)

// TunnelProber is a driver that tests tunnels. Its data plane answers requests of the hosts
// in desired.Host.Tunnels only, with a frame of the same size, also without a running
// agent. No container sends or gets such frames: no network has ProbeVNI.
type TunnelProber interface {
	// Probe sends a request to another host's tunnel endpoint, whose frame takes as much
	// of the tunnel as an IP packet of size bytes. It fails with model.ErrUnavailable
	// while the data plane cannot be asked to.
	Probe(to netip.Addr, nonce uint64, size int) error
	// ProbeAnswers yields the nonces of answers. Answers without a reader in time are
	// dropped. Close closes it.
	ProbeAnswers() <-chan uint64
}

// The frame of a probe: an Ethernet header, ProbeMagic, the nonce, and zeros.
const (
	// ProbeVNI is in the tunnel header of probes; networks have 1 to model.MaxVNI.
	ProbeVNI = 0
	// ProbeEtherType is the second one for local experiments (IEEE 802, clause 9.2.3).
	ProbeEtherType = 0x88b6
	// ProbeMagic is what a probe begins with.
	ProbeMagic = 0x63547031
	// ProbeSize is the least size of a probe.
	ProbeSize = 64

	probeHead   = 14
	probeLength = probeHead + 12 // up to the nonce's end
)

// Destination addresses of probes.
var (
	ProbeRequestMAC = [6]byte{0x02, 0xc0, 0xf2, 0, 0, 1}
	ProbeAnswerMAC  = [6]byte{0x02, 0xc0, 0xf2, 0, 0, 2}
)

// ProbeFrame returns the frame of a request of size bytes behind the Ethernet header.
func ProbeFrame(nonce uint64, size int) []byte {
	f := make([]byte, probeHead+max(size, ProbeSize))
	copy(f, ProbeRequestMAC[:])
	copy(f[6:], ProbeRequestMAC[:])
	binary.BigEndian.PutUint16(f[12:], ProbeEtherType)
	binary.BigEndian.PutUint32(f[probeHead:], ProbeMagic)
	binary.BigEndian.PutUint64(f[probeHead+4:], nonce)
	return f
}

// ReadProbeAnswer returns the nonce of an answer, of which the beginning is enough.
func ReadProbeAnswer(f []byte) (nonce uint64, ok bool) {
	if len(f) < probeLength || [6]byte(f) != ProbeAnswerMAC ||
		binary.BigEndian.Uint16(f[12:]) != ProbeEtherType || binary.BigEndian.Uint32(f[probeHead:]) != ProbeMagic {
		return 0, false
	}
	return binary.BigEndian.Uint64(f[probeHead+4:]), true
}
