package control

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// listening are a claim's entries of cluster.ListenService.
func listening(c tables.HostLease, version string) []cluster.Service {
	var out []cluster.Service
	for text := range strings.SplitSeq(c.Listening, ",") {
		if ap, err := netip.ParseAddrPort(text); err == nil {
			out = append(out, cluster.Service{
				ServiceName: cluster.ListenService, Role: cluster.RoleAgent, Version: version, Hostname: string(c.Host),
				HostAddr: ap.Addr().String(), Port: int(ap.Port()),
			})
		}
	}
	return out
}

// listeningText says where a claim's host listens, for the audit log.
func listeningText(c tables.HostLease) string {
	at := strings.Split(c.Listening, ",")
	const shown = 8
	if more := len(at) - shown; more > 0 {
		at = append(at[:shown], fmt.Sprintf("%d more", more))
	}
	return "addresses where it listens: " + cmp.Or(strings.Join(at, ", "), "none")
}

// MaxListening bounds the addresses at which one agent says that it listens.
const MaxListening = 1024

// listeningPart is how many of them one transaction changes: it reads them too.
const listeningPart = 16

// keepListening makes the entries of cluster.ListenService be a claim's.
func (hl *HostLeases) keepListening(ctx context.Context, a Actor, was, claim tables.HostLease, version string) error {
	now := listening(claim, version)
	left := slices.DeleteFunc(listening(was, ""), func(s cluster.Service) bool {
		return slices.ContainsFunc(now, func(x cluster.Service) bool { return x.HostAddr == s.HostAddr && x.Port == s.Port })
	})
	if err := hl.forgetListening(ctx, a, left); err != nil {
		return err
	}
	return hl.inParts(ctx, a, now, func(tx store.Tx, s cluster.Service) error { return s.Keep(tx) })
}

func (hl *HostLeases) forgetListening(ctx context.Context, a Actor, all []cluster.Service) error {
	return hl.inParts(ctx, a, all, func(tx store.Tx, s cluster.Service) error {
		s.Delete(tx)
		return nil
	})
}

// inParts writes entries, some in each transaction.
func (hl *HostLeases) inParts(ctx context.Context, a Actor, all []cluster.Service, write func(store.Tx, cluster.Service) error) error {
	for part := range slices.Chunk(all, listeningPart) {
		if err := hl.commits.report(ctx, a, func(tx store.Tx) error {
			for _, s := range part {
				if err := write(tx, s); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}
