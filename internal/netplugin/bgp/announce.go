package bgp

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Announcement is a prefix that the host has.
type Announcement struct {
	Prefix  netip.Prefix
	NextHop netip.Addr       // of the prefix's family: where neighbors send what is for it
	Tenant  model.TenantName // whose it is: equal prefixes of two are refused
}

// check says what is wrong with a; "" = nothing.
func (a Announcement) check() string {
	switch {
	case !a.Prefix.IsValid() || a.Prefix != a.Prefix.Masked():
		return "no prefix"
	case a.Prefix.Bits() == 0:
		return "a host is not the default route"
	case !a.NextHop.IsValid() || a.NextHop.Is4() != a.Prefix.Addr().Is4() || a.NextHop.IsUnspecified() || a.NextHop.IsMulticast():
		return fmt.Sprintf("next hop %s: must be an address of the prefix's family", a.NextHop)
	}
	return ""
}

// Announce makes the announced prefixes exactly the wanted set: only the difference is
// sent. Prefixes that cannot be announced are left out and listed in State.Refused with the
// reason: malformed ones, and of equal prefixes of two tenants the one that is not
// announced yet, or has the later name. The error is of kind model.ErrUnavailable.
func (s *Speaker) Announce(ctx context.Context, wanted []Announcement) error {
	if err := s.mu.lock(ctx); err != nil {
		return err
	}
	defer s.mu.unlock()
	if s.closed {
		return errClosed
	}
	s.wanted = slices.Clone(wanted)
	return s.announce()
}

// choose picks of the wanted what is announced, by prefix, and says why not of the rest.
func choose(wanted []Announcement, announced map[netip.Prefix]Announcement) (map[netip.Prefix]Announcement, map[string]string) {
	out, refused := make(map[netip.Prefix]Announcement, len(wanted)), map[string]string{}
	wanted = slices.Clone(wanted)
	slices.SortStableFunc(wanted, func(a, b Announcement) int {
		keptA, keptB := announced[a.Prefix].Tenant == a.Tenant, announced[b.Prefix].Tenant == b.Tenant
		if keptA != keptB {
			if keptA {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), a.NextHop.Compare(b.NextHop))
	})
	for _, a := range wanted {
		if why := a.check(); why != "" {
			refused[fmt.Sprintf("%s of tenant %s", a.Prefix, a.Tenant)] = why
			continue
		}
		if first, taken := out[a.Prefix]; !taken {
			out[a.Prefix] = a
		} else if first.Tenant != a.Tenant {
			refused[fmt.Sprintf("%s of tenant %s", a.Prefix, a.Tenant)] = fmt.Sprintf("tenant %s has the same prefix", first.Tenant)
		}
	}
	return out, refused
}

// announce sends the difference between what is wanted and what was announced.
func (s *Speaker) announce() error {
	want, refused := choose(s.wanted, s.announced)
	var gone, add []*apiutil.Path
	for p, a := range s.announced {
		if _, stays := want[p]; !stays {
			path, err := a.path(true)
			if err != nil {
				return err
			}
			gone = append(gone, path)
		}
	}
	for p, a := range want {
		if old, there := s.announced[p]; there && old.NextHop == a.NextHop {
			continue
		}
		path, err := a.path(false)
		if err != nil {
			return err
		}
		add = append(add, path)
	}
	if len(gone) > 0 {
		if err := s.bgp.DeletePath(apiutil.DeletePathRequest{Paths: gone}); err != nil {
			return model.Errorf(model.ErrUnavailable, "withdraw %d prefixes: %w", len(gone), err)
		}
	}
	if len(add) > 0 {
		if _, err := s.bgp.AddPath(apiutil.AddPathRequest{Paths: add}); err != nil {
			return model.Errorf(model.ErrUnavailable, "announce %d prefixes: %w", len(add), err)
		}
	}
	s.announced, s.refused = want, refused
	return nil
}

// path is an announcement as the library wants it.
func (a Announcement) path(withdraw bool) (*apiutil.Path, error) {
	nlri, err := bgp.NewIPAddrPrefix(a.Prefix)
	if err != nil {
		return nil, model.Errorf(model.ErrInvalid, "announce %s: %w", a.Prefix, err)
	}
	p := &apiutil.Path{Family: bgp.RF_IPv4_UC, Nlri: nlri, Age: time.Now().Unix(), Withdrawal: withdraw}
	var hop bgp.PathAttributeInterface
	if a.Prefix.Addr().Is4() {
		hop, err = bgp.NewPathAttributeNextHop(a.NextHop)
	} else {
		p.Family = bgp.RF_IPv6_UC
		hop, err = bgp.NewPathAttributeMpReachNLRI(bgp.RF_IPv6_UC, []bgp.PathNLRI{{NLRI: nlri}}, a.NextHop)
	}
	if err != nil {
		return nil, model.Errorf(model.ErrInvalid, "announce %s by %s: %w", a.Prefix, a.NextHop, err)
	}
	p.Attrs = []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP), hop}
	return p, nil
}
