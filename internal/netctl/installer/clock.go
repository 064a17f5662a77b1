package installer

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// maxClockDifference is how far clocks may differ for a join token (docs/how-to/cluster.md).
const maxClockDifference = 5 * time.Minute

// askTimeout bounds the question for a netmaster's clock.
const askTimeout = 5 * time.Second

func (operatingSystem) ahead(ctx context.Context, address string, authority jointoken.Fingerprint) (time.Duration, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, "https://"+address+"/", http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := transport.OwnClient(jointoken.Pinned(authority), host, askTimeout).Do(req)
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close() // it has none
	if then, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		return time.Since(then), nil
	}
	return 0, nil // it says nothing of its clock
}
