package join

import "github.com/contiv/netplugin/v2/internal/join/ticket"

// What hosts use too is in a package that has no etcd.
type (
	// Token is what a new member, or a host, shows.
	Token = ticket.Token
	// Fingerprint is the SHA-256 of an authority's certificate.
	Fingerprint = ticket.Fingerprint
)

// TokenLife is that of a token when nothing else is asked for.
const TokenLife = ticket.TokenLife

// ParseToken reads a token.
func ParseToken(s string) (Token, error) { return ticket.Parse(s) }
