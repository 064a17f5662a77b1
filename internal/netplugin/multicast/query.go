package multicast

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/checksum"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// query4 is a general query of IGMPv3 (RFC 3376 section 4.1), to be answered within some
// time. Its source is 0.0.0.0, so that it takes no part in the querier election (RFC 4541
// section 2.1.1).
func query4(within time.Duration) []byte {
	f := append([]byte{1, 0, 0x5e, 0, 0, 1}, desired.RouterMAC[:]...)
	f = append(f, 8, 0)
	ip := []byte{0x46, 0xc0, 0, 36, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 224, 0, 0, 1, 0x94, 4, 0, 0}
	binary.BigEndian.PutUint16(ip[10:], ^checksum.Sum(0, ip))
	igmp := []byte{igmpQuery, byte(within / (100 * time.Millisecond)), 0, 0, 0, 0, 0, 0, robustness, byte(Interval / time.Second), 0, 0}
	binary.BigEndian.PutUint16(igmp[2:], ^checksum.Sum(0, igmp))
	return append(append(f, ip...), igmp...)
}

// query6 is query4 for IPv6, by MLDv2 (RFC 3810 section 5.1), in the virtual router's name.
func query6(within time.Duration) []byte {
	f := append([]byte{0x33, 0x33, 0, 0, 0, 1}, desired.RouterMAC[:]...)
	f = append(f, 0x86, 0xdd)
	mld := make([]byte, 28)
	mld[0] = mldQuery
	binary.BigEndian.PutUint16(mld[4:], uint16(within/time.Millisecond))
	mld[24], mld[25] = robustness, byte(Interval/time.Second)
	ip := []byte{0x60, 0, 0, 0, 0, byte(8 + len(mld)), 0, 1}
	ip = append(append(ip, desired.RouterMAC.LinkLocal().AsSlice()...), netip.IPv6LinkLocalAllNodes().AsSlice()...)
	binary.BigEndian.PutUint16(mld[2:], ^checksum.Upper(58, ip[8:], mld))
	f = append(f, ip...)
	f = append(f, 58, 0, 5, 2, 0, 0, 1, 0) // hop-by-hop: router alert, padding
	return append(f, mld...)
}
