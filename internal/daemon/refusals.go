package daemon

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// tlsErrorInterval is how often at most a refused connection is a warning: clients that reach a
// port can make as many as they like.
const tlsErrorInterval = 10 * time.Second

// tlsErrorLog is the error log of an HTTP server: clients whose certificates are refused
// are warned of, the rest is for who looks for it.
type tlsErrorLog struct {
	log      *slog.Logger
	now      func() time.Time
	distrust *UntrustedClients // nil = not recorded

	mu   sync.Mutex
	last time.Time
}

func (r *tlsErrorLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if from, by := strings.CutSuffix(text, ": remote error: tls: bad certificate"); by && r.distrust != nil {
		if client, err := netip.ParseAddrPort(from[strings.LastIndexByte(from, ' ')+1:]); err == nil {
			r.distrust.note(client.Addr().Unmap(), now)
		}
	}
	if strings.Contains(text, "TLS handshake error") && strings.Contains(text, "certificate") && now.Sub(r.last) >= tlsErrorInterval {
		r.last = now
		r.log.Warn("a connection is refused", "why", text)
	} else {
		r.log.Debug("of a connection", "text", text)
	}
	return len(line), nil
}

const (
	// untrustedFor is how long a client that refused the certificate counts.
	untrustedFor = time.Minute
	// untrustedTries is how often it has to do so, and untrustedSpan over how long: a client
	// that tries again and again is unattended, and one that looks for netmasters at the
	// addresses of the store meets this one by an address that its certificate lacks.
	untrustedTries = 3
	untrustedSpan  = 10 * time.Second
	// untrustedAddresses bounds how many clients are known.
	untrustedAddresses = 1024
)

// UntrustedClients knows the clients that refuse a server's certificate again and again: they trust
// another authority. It is safe for concurrent use; its zero value knows none.
type UntrustedClients struct {
	mu   sync.Mutex
	seen map[netip.Addr]tries
}

type tries struct {
	n           int
	first, last time.Time
}

func (d *UntrustedClients) note(client netip.Addr, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seen == nil {
		d.seen = map[netip.Addr]tries{}
	}
	d.forget(now)
	t, known := d.seen[client]
	if !known {
		t.first = now
	}
	if known || len(d.seen) < untrustedAddresses {
		d.seen[client] = tries{t.n + 1, t.first, now}
	}
}

func (d *UntrustedClients) forget(now time.Time) {
	for client, t := range d.seen {
		if now.Sub(t.last) >= untrustedFor {
			delete(d.seen, client)
		}
	}
}

// Err names the clients; nil = there are none.
func (d *UntrustedClients) Err() error { return d.err(time.Now()) }

func (d *UntrustedClients) err(now time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(now)
	var clients []string
	for client, t := range d.seen {
		if t.n >= untrustedTries && t.last.Sub(t.first) >= untrustedSpan {
			clients = append(clients, client.String())
		}
	}
	if len(clients) == 0 {
		return nil
	}
	slices.Sort(clients)
	const named = 5
	more := ""
	if n := len(clients) - named; n > 0 {
		clients, more = clients[:named], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Errorf("%s%s keep refusing the certificate of this netmaster, since they trust another authority: "+
		"if they are hosts of the cluster that was here, put its data directory or its authorities back (docs/how-to/backup-and-restore.md), or let them join with 'netctl cluster token --host NAME'", strings.Join(clients, ", "), more)
}
