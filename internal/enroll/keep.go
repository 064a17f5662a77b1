package enroll

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/contiv/netplugin/v2/internal/join/ticket"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/pki"
	"github.com/contiv/netplugin/v2/internal/transport"
)

const (
	// lookEvery is between two looks at how long the certificate is good.
	lookEvery = time.Minute
	// tryEvery is between two tries to renew it.
	tryEvery = 10 * time.Minute
	// learnEvery is between two questions where netmasters are.
	learnEvery = 5 * time.Minute
	// askEvery is between two questions whether the authorities were renewed.
	askEvery = time.Hour
)

// Keep renews a directory's certificate when it ends within pki.Soon, until ctx ends. It
// tries again while it fails, and logs why. It learns where netmasters are, and calls
// moved, which must return soon, with their doors when these have become others. A host
// with an Account whose certificate is renewed no more gets one by that.
func Keep(ctx context.Context, cfg Config, moved func(doors []string), log *slog.Logger) {
	k := &keeper{dir: cfg.Dir, addresses: cfg.Addresses, moved: moved, log: log, now: time.Now, every: lookEvery}
	if cfg.Account.TokenFile != "" {
		k.anew = func(ctx context.Context) error { return askByAccount(ctx, cfg) }
	}
	k.run(ctx)
}

type keeper struct {
	dir       string
	addresses []net.IP
	log       *slog.Logger
	now       func() time.Time
	every     time.Duration
	last      time.Time // try
	moved     func(doors []string)
	learnt    time.Time
	asked     time.Time // whether the authorities were renewed
	// anew gets a certificate without the former one; nil = only a person can.
	anew func(ctx context.Context) error
}

func (k *keeper) run(ctx context.Context) {
	tick := time.NewTicker(k.every)
	defer tick.Stop()
	for {
		k.look(ctx)
		k.learn(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (k *keeper) look(ctx context.Context) {
	d, err := transport.OpenDirectory(k.dir)
	if k.now().Sub(k.last) < tryEvery || err == nil && d.Leaf().NotAfter.Sub(k.now()) >= pki.Soon && !k.superseded(ctx) {
		return
	}
	k.last = k.now()
	if err == nil {
		err = Renew(ctx, k.dir, k.addresses)
	}
	if err != nil && k.anew != nil && ctx.Err() == nil && !errors.Is(err, model.ErrUnavailable) {
		k.log.Warn("this host's certificate cannot be renewed; another one is asked for with the token of the service account", "error", err)
		err = k.anew(ctx)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		k.log.Error("this host's certificate is not renewed", "error", err)
	default:
		k.log.Info("this host's certificate was renewed")
	}
}

func (k *keeper) learn(ctx context.Context) {
	if k.now().Sub(k.learnt) < learnEvery {
		return
	}
	k.learnt = k.now()
	doors, moved, err := Learn(ctx, k.dir)
	if err != nil { // those that are known serve on, and who cannot reach the store says so
		k.log.Debug("where netmasters are is not learnt", "error", err)
	}
	if moved {
		k.log.Info("netmasters have come or gone", "doors", doors)
		k.moved(doors)
	}
}

// superseded asks from time to time whether an authority was renewed since the host got its
// certificate, which then is to be of the next one. Who does not answer is asked later.
func (k *keeper) superseded(ctx context.Context) bool {
	if k.now().Sub(k.asked) < askEvery {
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
	c := transport.OwnClient(ticket.Pinned(had.Members), "", dialTime)
	defer c.CloseIdleConnections()
	for _, door := range had.Doors {
		var is ticket.Roots
		if ticket.Call(ctx, c, http.MethodGet, transport.HTTPS+"://"+door+ticket.RootsPath, nil, &is) == nil {
			return len(is.Authorities) > 0 && (!bytes.Equal(bundle, is.Authorities) || is.Members != had.Members)
		}
	}
	return false
}
