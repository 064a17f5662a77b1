package hoststack

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// maxStaleLookups is how many places are asked for one by one: the kernel goes through all
// connections for each, but hands over those of it alone. All of them are handed over at
// some fifteen times the cost.
const maxStaleLookups = 8

// forgetStale ends the connections of frontends that are gone, and those by UDP whose
// backend no front keeps.
func (s *Frontends) forgetStale() {
	if len(s.stale) == 0 {
		return
	}
	own := map[netip.Addr]bool{}
	for _, a := range ownAddrs() {
		own[a] = true
	}
	var gone []conntrackRecord
	look := func(t trackedConnection) bool {
		at := FrontendAddr{t.to.addr, t.to.proto, t.to.port}
		f, there := s.frontends[at]
		if !s.stale[at] && !there && own[at.Addr] && s.nodes[at.Addr] {
			at.Addr = desired.AnyNode(at.Addr)
			f = s.frontends[at]
		}
		if !s.stale[at] {
			return true
		}
		if f == nil && t.routed || f != nil && at.Proto == model.ProtoUDP && !slices.Contains(f.Keep, t.from) {
			gone = append(gone, t.record.clone())
		}
		return true
	}
	err := eachTrackedAt(slices.Collect(maps.Keys(s.stale)), look)
	if err == nil {
		err = forget(gone)
	}
	if err != nil {
		s.log.Warn("connections of services' former backends are not ended", "error", err)
		return // the next change tries again
	}
	clear(s.stale)
}

// eachTrackedAt calls look for connections to places, and for others too.
func eachTrackedAt(places []FrontendAddr, look func(trackedConnection) bool) error {
	if len(places) > maxStaleLookups {
		return eachTracked(look)
	}
	for _, at := range places {
		family := uint8(unix.AF_INET)
		if at.Addr.Is6() {
			family = unix.AF_INET6
		}
		if err := eachTrackedOf(family, look, trackedTo(at)...); err != nil {
			return err
		}
	}
	return nil
}

// Of nfnetlink_conntrack.h and nf_internals.h: a dump of what is alike in these parts.
const (
	ctaFilter, ctaFilterOrig              = 25, 1
	byDestination, byProtocol, byDestPort = 1 << 1, 1 << 3, 1 << 5
)

// trackedTo asks for connections to a place alone; kernels before 5.8 hand over all.
func trackedTo(at FrontendAddr) []nl.NetlinkRequestData {
	flags := uint32(byProtocol | byDestPort)
	tuple := nl.NewRtAttr(unix.NLA_F_NESTED|ctaTupleOrig, nil)
	if at.Addr.Is4() && !at.Addr.IsUnspecified() { // of IPv6, kernels pass over the very address that is asked for
		flags |= byDestination
		tuple.AddRtAttr(unix.NLA_F_NESTED|ctaTupleIP, nil).AddRtAttr(ctaDst, at.Addr.AsSlice())
	}
	p := tuple.AddRtAttr(unix.NLA_F_NESTED|ctaTupleProto, nil)
	p.AddRtAttr(ctaProtoNum, []byte{byte(at.Proto)})
	p.AddRtAttr(ctaDstPort, port(at.Port))
	filter := nl.NewRtAttr(unix.NLA_F_NESTED|ctaFilter, nil)
	filter.AddRtAttr(ctaFilterOrig, binary.NativeEndian.AppendUint32(nil, flags))
	return []nl.NetlinkRequestData{tuple, filter}
}
