package observe

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

const (
	// scraperCacheTime is how long a token counts without another question to netmaster.
	scraperCacheTime = 10 * time.Second
	// scraperOutageTime is the same while no netmaster answers.
	scraperOutageTime = time.Hour
	// scraperTimeout bounds one question.
	scraperTimeout = 3 * time.Second
	// scrapersKnown bounds how many tokens are remembered.
	scrapersKnown = 64
)

// scrapers judges the tokens by which metrics are asked for. Netmasters know what a token
// may, so it asks one.
type scrapers struct {
	ask    func(ctx context.Context, token string) error // an error of model's kinds
	now    func() time.Time
	asking chan struct{} // one for each question under way

	mu    sync.Mutex
	known map[[sha256.Size]byte]time.Time // when a netmaster took it last
}

func newScrapers(ask func(context.Context, string) error) *scrapers {
	return &scrapers{ask: ask, now: time.Now, asking: make(chan struct{}, 8), known: map[[sha256.Size]byte]time.Time{}}
}

var errNoToken = model.Errorf(model.ErrInvalid, "present a certificate of the cluster (curl --cert, --key), or for /metrics a viewer's token (Authorization: Bearer TOKEN); only /livez and /readyz need none")

// authorize refuses who shows no token of a viewer.
func (s *scrapers) authorize(r *http.Request) error {
	token, shown := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !shown {
		return errNoToken
	}
	sum := sha256.Sum256([]byte(token))
	s.mu.Lock()
	took, known := s.known[sum]
	s.mu.Unlock()
	if known && s.now().Sub(took) < scraperCacheTime {
		return nil
	}
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	default:
		return model.Errorf(model.ErrUnavailable, "too many requests at once: try again")
	}
	ctx, cancel := context.WithTimeout(r.Context(), scraperTimeout)
	defer cancel()
	err := s.ask(ctx, token)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		if len(s.known) >= scrapersKnown {
			clear(s.known)
		}
		s.known[sum] = s.now()
	case !errors.Is(err, model.ErrUnavailable):
		delete(s.known, sum)
	case known && s.now().Sub(took) < scraperOutageTime:
		return nil
	}
	return err
}
