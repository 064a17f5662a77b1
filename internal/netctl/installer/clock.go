package installer

import (
	"context"
	"crypto/tls"
	"net/http"
	"time"
)

// maxClockDifference is how far clocks may differ for a join token (docs/how-to/cluster.md).
const maxClockDifference = 5 * time.Minute

// askTimeout bounds the question for a netmaster's clock.
const askTimeout = 5 * time.Second

// ahead believes whoever answers: an answer is compared with the clock, and used for nothing
// else. netplugin verifies the netmaster by the token when it joins.
func (operatingSystem) ahead(ctx context.Context, address string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, "https://"+address+"/", http.NoBody)
	if err != nil {
		return 0, err
	}
	t := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}}
	defer t.CloseIdleConnections()
	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close() // it has none
	then, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return 0, nil // it says nothing of its clock
	}
	return time.Since(then), nil
}
