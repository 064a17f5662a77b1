package access

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/httpguard"
	"github.com/contiv/netplugin/v2/internal/security/pki"
)

// Role is what somebody may do, as the table of routes has it.
type Role string

// The roles that there are.
const (
	ClusterAdmin Role = "cluster-admin" // everything
	TenantAdmin  Role = "tenant-admin"  // the objects of its tenants
	Viewer       Role = "viewer"        // reads everything but secrets
	Host         Role = "host"          // a netplugin: what its host has
	Netmaster    Role = "netmaster"     // what netmasters tell one another
)

// Roles are all roles, the mightiest first.
var Roles = []Role{ClusterAdmin, Viewer, TenantAdmin, Netmaster, Host}

// MaxTenants is how many tenants one grant names at most.
const MaxTenants = 64

// Grant is a role, and where it holds.
type Grant struct {
	Role    Role     `json:"role"`
	Tenants []string `json:"tenants,omitempty"` // of a tenant admin
}

// Check reports whether the grant is one.
func (g Grant) Check() error {
	if !slices.Contains(Roles, g.Role) {
		return fmt.Errorf("role %q: must be one of %s", httpguard.Clip(string(g.Role)), join(Roles))
	}
	if g.Role != TenantAdmin && len(g.Tenants) > 0 {
		return fmt.Errorf("tenants: must be omitted, as role %s is not a tenant role", g.Role)
	}
	if g.Role == TenantAdmin && (len(g.Tenants) == 0 || len(g.Tenants) > MaxTenants) {
		return fmt.Errorf("tenants: must be 1 to %d names for role %s", MaxTenants, g.Role)
	}
	for _, t := range g.Tenants {
		if _, err := model.ParseTenantName(t); err != nil {
			return fmt.Errorf("tenants: %w", err)
		}
	}
	return nil
}

// String says the grant to people: "tenant-admin of blue, red".
func (g Grant) String() string {
	if g.Role == TenantAdmin {
		return string(g.Role) + " of " + strings.Join(g.Tenants, ", ")
	}
	return string(g.Role)
}

// By what an Identity is known.
const (
	ByCertificate = "certificate"
	ByToken       = "token"
	ByOIDC        = "oidc"
	ByShared      = "shared" // a token of netmaster's --token-file, which all have
	ByNothing     = "plain"  // a connection without TLS, where everybody is let in
)

// Identity is the client. The zero Identity is anonymous.
type Identity struct {
	Name   string // of the user, program or token; of a host's agent, the host
	How    string // ByCertificate, ...; empty = anonymous
	ID     string // of the token or the certificate, for who wants to end it
	Grants []Grant
	Note   string // why there is no grant, if so: a sentence's end
}

// String names who asks, to people.
func (i Identity) String() string {
	if i.How == "" {
		return "nobody"
	}
	var grants []string
	for _, g := range i.Grants {
		grants = append(grants, g.String())
	}
	if len(grants) == 0 {
		grants = []string{"without a role"}
	}
	return httpguard.Clip(i.Name) + " (" + i.How + ", " + strings.Join(grants, "; ") + ")"
}

// AuthenticationOff is the identity of clients where authentication is off: they may do all.
func AuthenticationOff() Identity {
	return Identity{How: ByNothing, Grants: []Grant{{Role: ClusterAdmin}}}
}

// Bearer knows a kind of token.
type Bearer interface {
	// Takes tells by its form whether a token is of the kind.
	Takes(token string) bool
	// Identify finds the client's identity; the client sees the text of a Refusal. With an
	// error the identity is for the record only: it is not proven.
	Identify(ctx context.Context, token string) (Identity, error)
}

// SharedTokens is the Bearer for the tokens of a file that all have, who may do all: as
// netmaster's --token-file means it.
type SharedTokens func(token string) bool

// Takes implements Bearer.
func (s SharedTokens) Takes(token string) bool { return s(token) }

// Identify implements Bearer.
func (s SharedTokens) Identify(_ context.Context, token string) (Identity, error) {
	if !s(token) {
		return Identity{}, httpguard.Unauthorized("the token is not accepted")
	}
	return Identity{Name: "token-file", How: ByShared, Grants: []Grant{{Role: ClusterAdmin}}}, nil
}

// ofCertificate makes an identity of a certificate whose chain was verified.
func ofCertificate(cert *x509.Certificate) (Identity, error) {
	if now := time.Now(); now.After(cert.NotAfter) { // the connection is older
		return Identity{}, httpguard.Unauthorized("the certificate of the connection expired at %s: connect again with a renewed one", cert.NotAfter.UTC().Format(time.RFC3339))
	}
	role, err := pki.RoleOf(cert)
	if err != nil {
		return Identity{}, httpguard.Unauthorized("%v", err)
	}
	grants := map[pki.Role]Role{pki.ClusterAdmin: ClusterAdmin, pki.Netmaster: Netmaster, pki.Host: Host, pki.Client: Viewer}
	id := Identity{Name: cert.Subject.CommonName, How: ByCertificate, ID: cert.SerialNumber.Text(16), Grants: []Grant{{Role: grants[role]}}}
	if id.Name == "" || id.Grants[0].Check() != nil {
		return Identity{}, httpguard.Unauthorized("the certificate %s has no name, or the role %q of which nothing is known here", id.ID, role)
	}
	return id, nil
}

// Identify finds out who sends a request. A token counts before the certificate of
// the connection, and one that is wrong is not made good by that.
func Identify(r *http.Request, bearers []Bearer) (Identity, error) {
	headers := r.Header.Values("Authorization")
	if len(headers) > 1 {
		return Identity{}, httpguard.Unauthorized("there must be one header Authorization, not %d", len(headers))
	}
	if len(headers) == 1 {
		scheme, shown, _ := strings.Cut(headers[0], " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return Identity{}, httpguard.Unauthorized("the header Authorization must be: Bearer TOKEN")
		}
		for _, b := range bearers {
			if b.Takes(shown) {
				return b.Identify(r.Context(), shown)
			}
		}
		return Identity{}, httpguard.Unauthorized("the token is not accepted: it is of no kind that this netmaster knows, nor in its --token-file")
	}
	// A certificate that was not verified says nothing.
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 && len(r.TLS.VerifiedChains[0]) > 0 {
		return ofCertificate(r.TLS.VerifiedChains[0][0])
	}
	return Identity{}, httpguard.Unauthorized("who asks is not known: show a certificate (netctl and netplugin have --tls-dir), or a token (netctl has login and --token-file), in a header: Authorization: Bearer TOKEN")
}

func join(roles []Role) string {
	var s []string
	for _, r := range roles {
		s = append(s, string(r))
	}
	return strings.Join(s, ", ")
}
