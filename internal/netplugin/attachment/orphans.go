package attachment

import (
	"context"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// An endpoint that this process requested from netmaster and gave up may still come: a
// createEndpoint that timed out here can commit after its deletion was answered with "there
// is none". Only this process knows of such an endpoint, so it releases it.

// releaseOrphanedLater releases endpoints that came after they were given up. It needs
// no proof that they are this host's: this process asked for each of them.
func (a *releaser) releaseOrphanedLater(ctx context.Context, grace time.Duration) {
	for _, e := range a.cluster.Endpoints.Orphans(time.Now(), grace) {
		if err := a.releaseOrphan(ctx, e); err != nil {
			a.log.Debug("an orphaned endpoint is not released yet", "endpoint", e.Key.String(), "error", err)
			return
		}
	}
}

func (a *releaser) releaseOrphan(ctx context.Context, e model.Endpoint) error {
	if k, ok := attachmentOf(a.cfg.Host, e.Key); ok { // it may be attached again just now
		unlock, err := a.journal.turns.Lock(ctx, k)
		if err != nil {
			return err
		}
		defer unlock()
	}
	for _, known := range a.journal.all() {
		if known.Endpoint == e.Key {
			return nil
		}
	}
	a.log.Info("releasing an endpoint that netmaster made after the attachment was given up", "endpoint", e.Key.String())
	return a.masters.Delete(ctx, e.Key, e.Group)
}
