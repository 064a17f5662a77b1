package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/contiv/netplugin/v2/internal/security/transport"
)

const (
	// diagnosisTimeout bounds a look at why no connection is made.
	diagnosisTimeout = time.Second
	// diagnosisInterval is between two looks.
	diagnosisInterval = 10 * time.Second
)

// tlsDiagnosis is why no endpoint is connected to, where that is for certificates. gRPC tries
// until the time of a request is over, and does not say.
type tlsDiagnosis struct {
	tls    *tls.Config // nil = connections are plain
	remedy string

	mu     sync.Mutex
	looked time.Time
	why    string
}

// diagnosis says why no endpoint answers, if that can be seen: " (...)", or nothing.
func (c *Client) diagnosis() string {
	d := &c.tlsDiagnosis
	if conn := c.etcd.ActiveConnection(); d.tls == nil || conn == nil || conn.GetState() == connectivity.Ready {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.looked.IsZero() && time.Since(d.looked) < diagnosisInterval {
		return d.why
	}
	ctx, cancel := context.WithTimeout(context.Background(), diagnosisTimeout) // the request's own time is over
	defer cancel()
	d.why = ""
	for _, e := range c.etcd.Endpoints() {
		if err := handshake(ctx, strings.TrimPrefix(e, transport.HTTPS+"://"), d.tls); transport.Remedy(err) != "" {
			d.why = fmt.Sprintf(" (%v)", err)
			if d.remedy != "" {
				d.why = fmt.Sprintf(" (%v: %s)", err, d.remedy)
			}
			break
		}
	}
	d.looked = time.Now()
	return d.why
}

// handshake connects, and returns what one end says of the other's certificate.
func handshake(ctx context.Context, addr string, with *tls.Config) error {
	conn, err := (&tls.Dialer{Config: with}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing was sent
	end, _ := ctx.Deadline()
	if err := conn.SetReadDeadline(end); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1)) // a server refuses a certificate after the handshake (RFC 8446 section 4.4.2.4)
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
