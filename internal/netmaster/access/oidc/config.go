package oidc

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/contiv/netplugin/v2/internal/netmaster/access"
)

// Config says whose tokens count, and what their groups may do.
type Config struct {
	Issuer   string // https URL, as in the tokens' iss
	ClientID string // that is in the tokens' aud
	// UserClaim is the name of the claim that names the user; default sub. Of email,
	// email_verified must be true.
	UserClaim string
	// GroupsClaim is the claim with the user's groups, a list or a single text; default
	// groups.
	GroupsClaim string
	// Groups say what members of a group may; a user may what any of them may.
	Groups map[string]access.Grant
	Client *http.Client // to the issuer; nil = one with the machine's authorities
	// Timeout bounds one request to the issuer; default 5 s.
	Timeout time.Duration
}

// check fills in the defaults and finds what is wrong.
func (c *Config) check() error {
	u, err := url.Parse(c.Issuer)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("issuer %q: must be an https URL, as the tokens' iss has it", c.Issuer)
	}
	if c.ClientID == "" {
		return errors.New("client id: must not be empty: tokens for any other program would be accepted")
	}
	if len(c.Groups) == 0 {
		return errors.New("groups: must not be empty: no user would have a role")
	}
	for name, g := range c.Groups {
		if g.Role == access.Host || g.Role == access.Netmaster {
			return fmt.Errorf("group %q: role %s is for certificates", name, g.Role)
		}
		if err := g.Check(); err != nil {
			return fmt.Errorf("group %q: %w", name, err)
		}
	}
	if c.UserClaim == "" {
		c.UserClaim = "sub"
	}
	if c.GroupsClaim == "" {
		c.GroupsClaim = "groups"
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	return nil
}
