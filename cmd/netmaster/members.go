package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiserver"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
)

// members answers the API's questions about the embedded store's cluster.
type members struct {
	self   *membership.Member
	secure bool // hosts get certificates
	plain  bool // who has none is let in too
	ctrl   *control.Controller
}

func membersOf(server *membership.Member, o options, ctrl *control.Controller) members {
	return members{server, o.secure, o.acceptPlain, ctrl}
}

// api is the API's view of them; nil without an embedded store.
func (m members) api() apiserver.Members {
	if m.self == nil {
		return nil
	}
	return m
}

// Members implements apiserver.Members.
func (m members) Members(ctx context.Context) (api.Members, error) {
	all, err := m.self.Roster.List(ctx)
	if errors.Is(err, membership.ErrRemoved) { // it answers who removed it, and ends
		return api.Members{Members: []api.Member{}, Warnings: []string{"this netmaster was removed and ends: ask another one for the members"}}, nil
	}
	if err != nil {
		return api.Members{}, err
	}
	out := api.Members{Members: []api.Member{}, Warnings: slices.Concat([]string{}, membership.Warnings(all), m.hostCertificateProblems(ctx))}
	for _, i := range all {
		s := i.Status
		x := api.Member{
			Name: i.Name, Role: string(i.Role), Address: i.Peer, JoinAddress: i.EnrollmentAddress, Leads: s.Leads, Version: s.Version,
			Size: s.Size, InUse: s.InUse, Quota: s.Quota, Free: int64(s.Free), Full: s.Full, //nolint:gosec // disks have less than 8 EiB
		}
		if i.ID != 0 {
			x.ID = strconv.FormatUint(i.ID, 16)
		}
		if !i.Since.IsZero() {
			x.Since = i.Since.UTC().Format(time.RFC3339)
		}
		if i.Err != nil {
			x.Error = i.Err.Error()
		}
		out.Members = append(out.Members, x)
	}
	return out, nil
}

// NewJoinToken implements apiserver.Members.
func (m members) NewJoinToken(ctx context.Context, life time.Duration) (api.JoinToken, error) {
	if life == 0 {
		life = membership.TokenLife
	}
	text, t, err := m.self.Enrolment.NewToken(ctx, life)
	return api.JoinToken{Token: text, ID: t.ID, Addresses: t.Addresses, Secure: m.secure, Expires: time.Now().Add(life).UTC().Format(time.RFC3339)}, err
}

// NewHostToken implements apiserver.Members.
func (m members) NewHostToken(ctx context.Context, host string, life time.Duration) (api.JoinToken, error) {
	if !m.secure {
		return api.JoinToken{}, model.Errorf(model.ErrConflict, "this netmaster runs without --secure, and gives hosts no certificates: start all netmasters with --secure, or give hosts certificates of your own authority (netctl pki issue)")
	}
	if life == 0 {
		life = membership.TokenLife
	}
	text, t, err := m.self.Enrolment.NewHostToken(ctx, host, life)
	return api.JoinToken{Token: text, ID: t.ID, Addresses: t.Addresses, Host: t.Host, Secure: true, Expires: time.Now().Add(life).UTC().Format(time.RFC3339)}, err
}

// RemoveMember implements apiserver.Members.
func (m members) RemoveMember(ctx context.Context, member string, force bool) error {
	return m.self.Roster.Remove(ctx, member, force)
}

// RenewAuthorities implements apiserver.Members.
func (m members) RenewAuthorities(ctx context.Context) error {
	return m.self.Authorities.RenewAuthorities(ctx)
}

// RelieveMembers implements apiserver.Members.
func (m members) RelieveMembers(ctx context.Context) error { return m.self.Roster.DefragmentAll(ctx) }
