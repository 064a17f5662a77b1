package ovs

import (
	"encoding/binary"

	"github.com/contiv/netplugin/v2/internal/base/checksum"
	"github.com/contiv/netplugin/v2/internal/model"
)

// wellFormed reports whether a frame, whose headers are h, is valid to send
// (docs/design/policy.md, Connections). Invalid ones get no error (RFC 1122 section 3.2.2).
// Connection tracking judges the same, but packets that the router answers never get there.
// Parts that the switch has cut from f are not judged.
func wellFormed(f []byte, h headers) bool {
	be, b, parts := binary.BigEndian, f[ethernetLen:], false
	if h.src.Is4() {
		head := int(b[0]&15) * 4
		if checksum.Sum(0, b[:head]) != checksum.Right || b[8] == 0 || b[6]&0x80 != 0 || h.end < h.at {
			return false
		}
		parts = b[6]&0x20 != 0 // the first one
	} else {
		parts = b[6] == 44
		if b[7] == 0 || h.end < h.at {
			return false
		}
	}
	t, size := f[h.at:], h.end-h.at
	switch h.proto {
	case model.ProtoUDP:
		n := int(be.Uint16(t[4:]))
		return n >= 8 && (n <= size || parts)
	case model.ProtoTCP:
		head := int(t[12]>>4) * 4
		return head >= tcpLen && (head <= size || parts) && validFlags(t[13])
	default:
		return true
	}
}

// validFlags reports whether a TCP segment may have the flags: a request is neither an
// end nor a reset, and all others but a reset acknowledge something.
func validFlags(f byte) bool {
	const push, urgent = 8, 32
	if f&tcpSYN != 0 && f&(tcpFIN|tcpRST) != 0 {
		return false
	}
	return f&tcpACK != 0 || f&(tcpSYN|tcpRST) != 0 && f&(tcpFIN|push|urgent) == 0
}
