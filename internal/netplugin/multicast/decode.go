package multicast

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/base/checksum"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// message is what a frame with IGMP or MLD says.
type message struct {
	query   bool // somebody asks who listens
	v6      bool
	changes []change
}

// change is one group of a report.
type change struct {
	group netip.Addr
	join  bool
}

// maxRecords is how many records of a report are read; a frame holds no more.
const maxRecords = 192

// Types of IGMP (RFC 3376 section 4) and MLD (RFC 3810 section 5).
const (
	igmpQuery, igmpReport1, igmpReport2, igmpLeave2, igmpReport3 = 0x11, 0x12, 0x16, 0x17, 0x22
	mldQuery, mldReport1, mldDone1, mldReport2                   = 130, 131, 132, 143
)

// Types of records (RFC 3376 section 4.2.12, RFC 3810 section 5.2.12).
const (
	isInclude, isExclude, toInclude, toExclude, allowNew, blockOld = 1, 2, 3, 4, 5, 6
)

// decode reads a frame of Ethernet; ok is false for all that is no message of IGMP or
// MLD as the protocols have it: whole, with right checksums, and of this link only.
func decode(f []byte) (m message, ok bool) {
	if len(f) < 14 {
		return m, false
	}
	switch b := f[14:]; binary.BigEndian.Uint16(f[12:]) {
	case 0x0800:
		return decode4(b)
	case 0x86dd:
		return decode6(b)
	}
	return m, false
}

func decode4(b []byte) (m message, ok bool) {
	if len(b) < 20 || b[0]>>4 != 4 {
		return m, false
	}
	head, size := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if head < 20 || size < head+8 || size > len(b) || b[9] != 2 || b[8] != 1 || binary.BigEndian.Uint16(b[6:])&0x3fff != 0 || checksum.Sum(0, b[:head]) != checksum.Right {
		return m, false
	}
	p := b[head:size]
	if checksum.Sum(0, p) != checksum.Right {
		return m, false
	}
	group := netip.AddrFrom4([4]byte(p[4:]))
	switch p[0] {
	case igmpQuery:
		m.query = true
	case igmpReport1, igmpReport2:
		m.changes = []change{{group, true}}
	case igmpLeave2:
		m.changes = []change{{group, false}}
	case igmpReport3:
		return m, m.records(p[8:], int(binary.BigEndian.Uint16(p[6:])), 4)
	default:
		return m, false
	}
	return m, m.query || group.IsMulticast()
}

func decode6(b []byte) (m message, ok bool) {
	m.v6 = true
	if len(b) < 40 || b[0]>>4 != 6 {
		return m, false
	}
	size, next := int(binary.BigEndian.Uint16(b[4:])), b[6]
	src := netip.AddrFrom16([16]byte(b[8:]))
	if size > len(b)-40 || b[7] != 1 || !src.IsLinkLocalUnicast() {
		return m, false
	}
	p := b[40 : 40+size]
	if next == 0 { // hop-by-hop options, which have the router's alert (RFC 2711)
		if len(p) < 8 || int(p[1]+1)*8 > len(p) || p[1] > 7 {
			return m, false
		}
		next, p = p[0], p[int(p[1]+1)*8:]
	}
	if next != 58 || len(p) < 8 {
		return m, false
	}
	if checksum.Upper(58, b[8:40], p) != checksum.Right {
		return m, false
	}
	if p[0] == mldReport2 {
		return m, m.records(p[8:], int(binary.BigEndian.Uint16(p[6:])), 16)
	}
	if len(p) < 24 {
		return m, false
	}
	group := netip.AddrFrom16([16]byte(p[8:]))
	switch p[0] {
	case mldQuery:
		m.query = true
	case mldReport1, mldDone1:
		m.changes = []change{{group, p[0] == mldReport1}}
	default:
		return m, false
	}
	return m, m.query || group.IsMulticast()
}

// records reads the records of a report of IGMPv3 or MLDv2, addresses being so many
// bytes. Which sources a container wants its own kernel sorts out: a group with some is
// heard as a whole, one without any is left. Sources that are left change nothing: were
// they the last ones, the next question is not answered.
func (m *message) records(b []byte, n, width int) bool {
	if n > maxRecords {
		return false
	}
	for range n {
		if len(b) < 4+width {
			return false
		}
		kind, sources := b[0], int(binary.BigEndian.Uint16(b[2:]))
		size := 4 + width + sources*width + int(b[1])*4
		group, _ := netip.AddrFromSlice(b[4 : 4+width])
		if size > len(b) || !group.IsMulticast() || group.Is4In6() {
			return false
		}
		switch kind {
		case isExclude, toExclude:
			m.changes = append(m.changes, change{group, true})
		case isInclude, allowNew:
			if sources > 0 {
				m.changes = append(m.changes, change{group, true})
			}
		case toInclude:
			m.changes = append(m.changes, change{group, sources > 0})
		case blockOld:
		}
		b = b[size:]
	}
	m.changes = slices.DeleteFunc(m.changes, func(c change) bool { return !desired.IsMulticastMember(c.group) })
	return true
}
