package membership

import "github.com/contiv/netplugin/v2/internal/security/jointoken"

// What hosts use too is in a package that has no etcd.
type (
	// Token is what a new member, or a host, shows.
	Token = jointoken.Token
	// Fingerprint is the SHA-256 of an authority's certificate.
	Fingerprint = jointoken.Fingerprint
)

// TokenLife is the default lifetime of a token.
const TokenLife = jointoken.TokenLife

// ParseToken reads a token.
func ParseToken(s string) (Token, error) { return jointoken.Parse(s) }
