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

// refusalEvery is how often at most a refused connection is a warning: clients that reach a
// port can make as many as they like.
const refusalEvery = 10 * time.Second

// refusals is the error log of an HTTP server: clients whose certificates are refused
// are warned of, the rest is for who looks for it.
type refusals struct {
	log      *slog.Logger
	now      func() time.Time
	distrust *Distrust // nil = not recorded

	mu   sync.Mutex
	last time.Time
}

func (r *refusals) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if from, by := strings.CutSuffix(text, ": remote error: tls: bad certificate"); by && r.distrust != nil {
		if client, err := netip.ParseAddrPort(from[strings.LastIndexByte(from, ' ')+1:]); err == nil {
			r.distrust.note(client.Addr().Unmap(), now)
		}
	}
	if strings.Contains(text, "TLS handshake error") && strings.Contains(text, "certificate") && now.Sub(r.last) >= refusalEvery {
		r.last = now
		r.log.Warn("a connection is refused", "why", text)
	} else {
		r.log.Debug("of a connection", "text", text)
	}
	return len(line), nil
}

const (
	// distrustFor is how long a client that refused the certificate counts.
	distrustFor = time.Minute
	// distrustTries is how often it has to do so, and distrustSpan over how long: a client
	// that tries again and again is unattended, and one that looks for netmasters at the
	// addresses of the store meets this one by an address that its certificate lacks.
	distrustTries = 3
	distrustSpan  = 10 * time.Second
	// distrustAddresses bounds how many clients are known.
	distrustAddresses = 1024
)

// Distrust knows the clients that refuse a server's certificate again and again: they trust
// another authority. It is safe for concurrent use; its zero value knows none.
type Distrust struct {
	mu   sync.Mutex
	seen map[netip.Addr]tries
}

type tries struct {
	n           int
	first, last time.Time
}

func (d *Distrust) note(client netip.Addr, now time.Time) {
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
	if known || len(d.seen) < distrustAddresses {
		d.seen[client] = tries{t.n + 1, t.first, now}
	}
}

func (d *Distrust) forget(now time.Time) {
	for client, t := range d.seen {
		if now.Sub(t.last) >= distrustFor {
			delete(d.seen, client)
		}
	}
}

// Err names the clients; nil = there are none.
func (d *Distrust) Err() error { return d.err(time.Now()) }

func (d *Distrust) err(now time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(now)
	var clients []string
	for client, t := range d.seen {
		if t.n >= distrustTries && t.last.Sub(t.first) >= distrustSpan {
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
		"if they are hosts of the cluster that was here, put its data directory or its authorities back (docs/user/backup-and-restore.md), or let them join with 'netctl cluster token --host NAME'", strings.Join(clients, ", "), more)
}
