package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/security/httpguard"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// While a cluster is turned secure (--accept-plain), netmasters take TLS and plain
// connections at the same addresses: who has a certificate is judged by it, who comes
// plainly may what everybody might before.

// listenAt opens one address that the API is served on.
func (o *options) listenAt(ctx context.Context, addr string, log *slog.Logger) ([]net.Listener, error) {
	if !o.acceptPlain {
		ln, err := transport.Listen(ctx, addr, o.tls.APIServer, log)
		return []net.Listener{ln}, err
	}
	secure, plain, err := transport.ListenBoth(ctx, addr, o.tls.APIServer, log)
	return []net.Listener{secure, plain}, err
}

// scheme is how those ask who have no certificate.
func (o *options) scheme() string {
	if o.acceptPlain {
		return transport.HTTP
	}
	return transport.Scheme(o.tls.APIServer)
}

// alsoWithoutTLS also accepts requests without TLS, except requests for tokens: they would cross
// the network in clear text, and outlive the time in which both are accepted. asked:
// clients without TLS need credentials, too.
func alsoWithoutTLS(identify func(*http.Request) (access.Identity, error), asked bool) func(*http.Request) (access.Identity, error) {
	return func(r *http.Request) (access.Identity, error) {
		switch {
		case r.TLS != nil:
			return identify(r)
		case r.Method == http.MethodPost && strings.HasSuffix(strings.TrimSuffix(r.URL.Path, "/"), "/tokens"):
			return access.Identity{}, httpguard.Forbidden("tokens are made by TLS only: 'netctl --netmaster https://ADDRESS login --token' with an administrator's token, and then again")
		case asked:
			return identify(r)
		}
		return access.AuthenticationOff(), nil
	}
}

// urlOf is where another netmaster is asked: as the registry says, since one may be
// plain yet, or secure already, while a cluster is turned secure; by TLS if anything there
// says so, since anybody may have written there while it was plain.
func (m *member) urlOf(ctx context.Context, address string) string {
	url := m.scheme + "://" + address
	if m.client == nil {
		return url
	}
	all, err := cluster.Services(ctx, m.store, cluster.ServiceMaster)
	if err != nil {
		return url
	}
	for _, s := range all {
		if u, err := s.URLFor(true); err == nil && strings.HasSuffix(u, "://"+address) {
			if url = u; strings.HasPrefix(u, transport.HTTPS+"://") {
				return u
			}
		}
	}
	return url
}

// hostCertificateProblems are sentences about hosts' certificates, and what to do.
func (m members) hostCertificateProblems(ctx context.Context) []string {
	if !m.secure {
		return nil
	}
	certs, err := m.self.Enrolment.HostCertificates(ctx)
	if err != nil {
		return []string{"which hosts have certificates is not known: " + err.Error()}
	}
	hosts, err := m.ctrl.Hosts.List(ctx, control.Admin())
	if err != nil {
		return []string{"which hosts have certificates is not known: " + err.Error()}
	}
	var out, without []string
	known := map[string]time.Time{}
	for _, c := range certs {
		known[c.Name] = c.End
	}
	for _, h := range hosts {
		name := string(h.Name)
		end, ok := known[name]
		left := time.Until(end)
		date := end.UTC().Format(time.DateOnly)
		switch {
		case !ok:
			without = append(without, name)
		case left <= 0:
			out = append(out, fmt.Sprintf("the certificate of host %s expired on %s, so it has no access: 'netctl cluster token --host %s', and start its netplugin with --join and --token", name, date, name))
		case left < pki.Soon-week: // it tries from pki.Soon on, each ten minutes; status leaves this out where the host says it (apiserver's isReported)
			out = append(out, fmt.Sprintf("the certificate of host %s ends on %s and was not renewed: its netplugin's log says why", name, date))
		}
	}
	switch list := strings.Join(without, ", "); {
	case list != "" && m.plain:
		out = append(out, "connections without TLS are accepted (--accept-plain), as these hosts have no certificate: "+list+"; for each 'netctl cluster token --host NAME', and start its netplugin with --join and --token")
	case list != "":
		out = append(out, "these hosts have no certificate and no access; their containers go on as they are: "+list+"; for each run 'netctl cluster token --host NAME', and start its netplugin with --join and --token; if there are many, start netmasters with --accept-plain meanwhile; 'netctl host rm' removes hosts that are gone")
	case m.plain:
		out = append(out, "connections without TLS are accepted (--accept-plain), and all hosts have certificates: start all netmasters without it")
	}
	return out
}

const week = 7 * 24 * time.Hour

// logCertificateProblems logs what hostCertificateProblems says, when it begins and twice a day while it lasts.
func (m members) logCertificateProblems(ctx context.Context, log *slog.Logger) error {
	told := map[string]time.Time{}
	for waiting.Pause(ctx, certificateCheckInterval) == nil {
		now := map[string]time.Time{}
		for _, text := range m.hostCertificateProblems(ctx) {
			at, ok := told[text]
			if !ok || time.Since(at) > 12*time.Hour {
				at = time.Now()
				log.Warn("hosts' certificates need attention", "what", text)
			}
			now[text] = at
		}
		told = now
	}
	return nil
}

// certificateCheckInterval is between two looks at hosts' certificates.
const certificateCheckInterval = 15 * time.Second
