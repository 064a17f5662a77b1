package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/audit"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/oidc"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/token"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiserver"
	"github.com/contiv/netplugin/v2/internal/security/httpguard"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store"
)

// accessOptions say who is let in to the REST interface, and what is kept of it.
type accessOptions struct {
	tokens   bool   // those of the store let in
	oidcFile string // issuer of accepted ID tokens; empty = none are accepted
	auditDir string // empty = no record
	rate     int    // requests a second of one address

	issuer *oidc.Verifier // of oidcFile
}

// noAudit is an --audit-dir that switches the record off.
const noAudit = "none"

// defaultRate is far above what an agent or a person asks, and what a thousand
// simulated agents at one address do.
const defaultRate = 5000

func (a *accessOptions) register(fs *flags.Set) {
	a.rate = defaultRate
	fs.Bool(&a.tokens, "tokens", "accept tokens of 'netctl token create', with the rights of their roles; with --tls-dir or --token-file, for hosts and for the first token")
	fs.String(&a.oidcFile, "oidc-file", "file", "accept ID tokens of the OpenID Connect issuer that this JSON file describes (issuer, clientId, groups), with the rights of their groups; with --tls-dir or --token-file, for hosts").Must(notEmpty)
	fs.String(&a.auditDir, "audit-dir", "directory", "where to write audit.log: a line of JSON for each change and each refusal, nine files of 16 MiB; none = nowhere").Must(func(v string) error {
		if v != noAudit && !filepath.IsAbs(v) {
			return errors.New("must be an absolute path, or " + noAudit)
		}
		return nil
	}).Else("with --secure, audit in --data-dir, otherwise nowhere")
	fs.IntWithin(&a.rate, "client-rate", "requests", "sustained requests per second that one address may send; bursts of four times as many; more are refused (429)", 1, 1_000_000)
}

// finish reads what the flags name, and finds what contradicts them.
func (a *accessOptions) finish(fs *flags.Set, secure bool) error {
	for _, flag := range []string{"tokens", "oidc-file"} {
		if how := fs.Given(flag); how != "" && !secure && fs.Given("tls-dir") == "" && fs.Given("token-file") == "" {
			return flags.Usagef("%s is for a netmaster that asks who its clients are: give it --secure or --tls-dir (better), or --token-file, and the same to hosts", how)
		}
	}
	if a.auditDir == noAudit {
		a.auditDir = ""
	}
	if a.oidcFile == "" {
		return nil
	}
	cfg, err := readOIDC(a.oidcFile)
	if err == nil {
		a.issuer, err = oidc.New(cfg)
	}
	if err != nil {
		return flags.Usagef("%s: %w", fs.Given("oidc-file"), err)
	}
	return nil
}

// oidcFile is the file of --oidc-file.
type oidcFile struct {
	Issuer      string                  `json:"issuer"`
	ClientID    string                  `json:"clientId"`
	UserClaim   string                  `json:"userClaim"`
	GroupsClaim string                  `json:"groupsClaim"`
	CAFile      string                  `json:"caFile"` // of the issuer; empty = the machine's authorities
	Groups      map[string]access.Grant `json:"groups"`
}

func readOIDC(path string) (cfg oidc.Config, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return cfg, err
	}
	var f oidcFile
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields() // a claim that is misspelt would be another one
	if err := d.Decode(&f); err != nil {
		return cfg, fmt.Errorf("%s: %w", path, err)
	}
	cfg = oidc.Config{Issuer: f.Issuer, ClientID: f.ClientID, UserClaim: f.UserClaim, GroupsClaim: f.GroupsClaim, Groups: f.Groups}
	if f.CAFile != "" {
		if cfg.Client, err = transport.UnmanagedClient(f.CAFile); err != nil {
			return cfg, err
		}
	}
	return cfg, nil
}

// authenticates reports whether clients have to show who they are.
func (o *options) authenticates() bool { return o.token != nil || o.certs.Own != nil }

// secureListeners has the API's listeners take also who shows no certificate, where
// there are other ways to show who one is.
func (o *options) secureListeners() {
	if o.certs.Own != nil && (o.access.tokens || o.access.issuer != nil || o.token != nil) {
		o.tls.APIServer = o.certs.Own.ServerOptionalCert(pki.Roles...)
	}
}

// apiAccess is who is let in to the REST interface, and the record of what was done.
type apiAccess struct {
	authenticate func(*http.Request) (access.Identity, error) // nil = everybody is let in
	tokens       *token.Store                                 // nil = there are none
	audit        *audit.Log                                   // nil = nothing is recorded
	limit        *httpguard.Limiter
	// distrust knows the clients that do not trust this netmaster.
	distrust *daemon.UntrustedClients
	close    func() error
}

func (o *options) newAPIAccess(st store.Store, log *slog.Logger) (g apiAccess, err error) {
	rate := float64(o.access.rate)
	g.close, g.distrust = func() error { return nil }, new(daemon.UntrustedClients)
	g.limit = httpguard.NewLimiter(httpguard.Limits{
		Rate: rate, Burst: 4 * o.access.rate, Running: 2048, RunningAll: 8192,
		Streams: func(r *http.Request) bool {
			return strings.HasPrefix(r.URL.Path, "/plugin/monitor/") || r.URL.Path == "/plugin/mirror"
		},
	})
	var bearers []access.Bearer
	if o.token != nil {
		bearers = append(bearers, access.SharedTokens(o.token.Accepts))
	}
	if o.access.tokens {
		g.tokens = token.NewStore(st)
		bearers = append(bearers, g.tokens)
	}
	if o.access.issuer != nil {
		bearers = append(bearers, o.access.issuer)
	}
	if dir := o.access.auditDir; dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return g, fmt.Errorf("make the directory of the audit log: %w", err)
		}
		file, err := audit.OpenFile(filepath.Join(dir, "audit.log"), 0, 0)
		if err != nil {
			return g, err
		}
		g.audit, g.close = audit.New(file, log), file.Close
	}
	if !o.authenticates() {
		return g, nil
	}
	g.authenticate = func(r *http.Request) (access.Identity, error) { return access.Identify(r, bearers) }
	if o.acceptPlain {
		g.authenticate = alsoWithoutTLS(g.authenticate, o.token != nil) // a token had to be shown before, too
	}
	return g, nil
}

// recorder returns nil where nothing is recorded.
func (g apiAccess) recorder() apiserver.Recorder {
	if g.audit == nil {
		return nil
	}
	return g.audit
}

// explainAccess tells at start what an operator should know of who is let in.
func (o *options) explainAccess(log *slog.Logger) {
	if (o.access.tokens || o.access.issuer != nil) && o.certs.Own == nil && !o.secure {
		log.Warn("tokens cross the network unencrypted, and anyone who reads one can use it", "remedy", "give --tls-dir")
	}
}
