package enrollment

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

const (
	// checkInterval is between two looks at how long the certificate is good.
	checkInterval = time.Minute
	// retryInterval is between two tries to renew it.
	retryInterval = 10 * time.Minute
	// serversInterval is between two questions where netmasters are.
	serversInterval = 5 * time.Minute
	// supersededInterval is between two questions whether the authorities were renewed.
	supersededInterval = time.Hour
)

// Keep renews a directory's certificate when it ends within pki.Soon, until ctx ends. It
// tries again while it fails, and logs why. It learns where netmasters are, also from
// cfg.Servers and cfg.Netmasters, and calls
// moved, which must return soon, with their enrollment servers when these have become others. A host
// with an Account whose certificate is renewed no more, or is of another cluster than the
// Account's authority, gets one by that; where the former and the next have no authority
// in common it returns ErrJoinAgain, since the process trusts the former ones on. Else it
// returns nil when ctx ends.
func Keep(ctx context.Context, cfg Config, moved func(doors []string), log *slog.Logger) error {
	k := &renewer{dir: cfg.Dir, addresses: cfg.Addresses, servers: cfg.Servers, netmasters: cfg.Netmasters, moved: moved, log: log, now: time.Now, every: checkInterval}
	if cfg.Account.TokenFile != "" {
		k.authority = cfg.Account.Authority
		k.rejoin = func(ctx context.Context) error { return requestByAccount(ctx, cfg) }
	}
	return k.run(ctx)
}

// ErrJoinAgain: the cluster was founded again, and the process has to restart to join it.
var ErrJoinAgain = errors.New("the netmasters' cluster was created again, and this host has a certificate of it: restart to use it")

type renewer struct {
	dir       string
	addresses []net.IP
	servers   []string // beside those of the directory
	log       *slog.Logger
	now       func() time.Time
	every     time.Duration
	last      time.Time // try
	moved     func(doors []string)
	serversAt time.Time
	// netmasters returns the URLs of netmasters that are known otherwise; nil = none is.
	netmasters func() []string
	asked      time.Time // whether the authorities were renewed
	// rejoin gets a certificate without the previous one; nil = only a person can.
	rejoin    func(ctx context.Context) error
	authority string // file of members' authorities, for getting a certificate without the previous one
	replaced  bool   // what the directory has is of another cluster than before
}

func (k *renewer) run(ctx context.Context) error {
	tick := time.NewTicker(k.every)
	defer tick.Stop()
	for {
		if k.check(ctx); k.replaced {
			return ErrJoinAgain
		}
		k.refreshServers(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (k *renewer) check(ctx context.Context) {
	d, err := transport.OpenDirectory(k.dir)
	if k.now().Sub(k.last) < retryInterval {
		return
	}
	foreign := k.checkCluster()
	if err == nil && foreign == nil && good(d.Leaf(), k.now()) && !k.superseded(ctx) {
		return
	}
	k.last = k.now()
	if err == nil {
		if err = foreign; err == nil {
			err = Renew(ctx, k.dir, k.addresses)
		}
	}
	former, _ := authoritiesOf(filepath.Join(k.dir, pki.BundleFile)) // none, where none was read
	if err != nil && k.rejoin != nil && ctx.Err() == nil && !errors.Is(err, model.ErrUnavailable) {
		k.log.Warn("this host's certificate cannot be renewed; another one is asked for with the token of the service account", "error", err)
		if err = k.rejoin(ctx); err == nil {
			next, err := authoritiesOf(filepath.Join(k.dir, pki.BundleFile))
			k.replaced = err == nil && len(former) > 0 && !slices.ContainsFunc(next, func(f jointoken.Fingerprint) bool { return slices.Contains(former, f) })
		}
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		k.log.Error("this host's certificate is not renewed", "error", err)
	default:
		k.log.Info("this host's certificate was renewed")
	}
}

// checkCluster is an error if the certificate belongs to another cluster than the authority that
// this host trusts; nil = it does not, or no such authority is set.
func (k *renewer) checkCluster() error {
	if k.authority == "" {
		return nil
	}
	known, err := authoritiesOf(k.authority)
	if err != nil {
		return nil //nolint:nilerr // the kubelet may be writing it; what the host has counts on
	}
	had, err := read(k.dir)
	if err != nil || slices.Contains(known, had.Members) {
		return nil //nolint:nilerr // what cannot be read is asked for anyway
	}
	return model.Errorf(model.ErrConflict, "it belongs to another cluster than the authority in %s", k.authority)
}

// good reports whether a certificate needs no renewal; one that begins later was signed by a
// netmaster whose clock was ahead.
func good(c *x509.Certificate, now time.Time) bool {
	return c.NotAfter.Sub(now) >= pki.Soon && !now.Before(c.NotBefore)
}

func (k *renewer) refreshServers(ctx context.Context) {
	if k.now().Sub(k.serversAt) < serversInterval {
		return
	}
	k.serversAt = k.now()
	var netmasters []string
	if k.netmasters != nil {
		netmasters = k.netmasters()
	}
	doors, moved, err := RefreshServers(ctx, k.dir, k.servers, netmasters)
	if err != nil { // the known ones serve on, and clients that cannot reach the store log it
		k.log.Debug("the addresses of netmasters cannot be updated", "error", err)
	}
	if moved {
		k.log.Info("the list of netmasters has changed", "doors", doors)
		k.moved(doors)
	}
}

// superseded asks from time to time whether an authority was renewed since the host got its
// certificate, which then is to be of the next one. Who does not answer is asked later.
func (k *renewer) superseded(ctx context.Context) bool {
	if k.now().Sub(k.asked) < supersededInterval {
		return false
	}
	k.asked = k.now()
	had, err := read(k.dir)
	if err != nil {
		return false
	}
	bundle, err := os.ReadFile(filepath.Join(k.dir, pki.BundleFile))
	if err != nil {
		return false
	}
	c := transport.OwnClient(jointoken.Pinned(had.Members), "", dialTime)
	defer c.CloseIdleConnections()
	for _, door := range had.Servers {
		var is jointoken.Roots
		if jointoken.Call(ctx, c, http.MethodGet, transport.HTTPS+"://"+door+jointoken.RootsPath, nil, &is) == nil {
			return len(is.Authorities) > 0 && (!bytes.Equal(bundle, is.Authorities) || is.Members != had.Members)
		}
	}
	return false
}
