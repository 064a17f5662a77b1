package api

import (
	"context"
	"net/http"
	"net/url"
)

const (
	pathMembers          = "/api/v1/cluster/members"
	pathJoinToken        = "/api/v1/cluster/tokens"
	pathDefragment       = "/api/v1/cluster/relieve"
	pathRenewAuthorities = "/api/v1/cluster/authorities/renew"
)

// Member is a netmaster as a member of the embedded store's cluster.
type Member struct {
	Name        string `json:"name"`
	ID          string `json:"id,omitempty"`          // etcd's, hexadecimal
	Role        string `json:"role"`                  // voter, learner (it catches up), waiting (for its turn), removed (a removal to be repeated)
	Address     string `json:"address"`               // host:port by which other members reach it
	JoinAddress string `json:"joinAddress,omitempty"` // host:port by which new members do
	Since       string `json:"since,omitempty"`       // RFC 3339: it was let in, or founded the cluster
	Leads       bool   `json:"leads,omitempty"`
	Version     string `json:"version,omitempty"` // etcd's
	Size        int64  `json:"size,omitempty"`    // bytes of its database
	InUse       int64  `json:"inUse,omitempty"`   // bytes of it that hold something
	Quota       int64  `json:"quota,omitempty"`   // bytes that it may have
	Free        int64  `json:"free,omitempty"`    // bytes that its disk has left
	Full        bool   `json:"full,omitempty"`    // the store takes no writes because of it
	Error       string `json:"error,omitempty"`   // why it does not answer
}

// Members are those of the embedded store's cluster.
type Members struct {
	Members  []Member `json:"members"`
	Warnings []string `json:"warnings"` // what endangers the cluster, and what to do
}

// JoinTokenRequest asks for a token.
type JoinTokenRequest struct {
	ExpiresInSeconds int64  `json:"expiresInSeconds,omitempty"` // 0 = an hour; at most seven days
	Host             string `json:"host,omitempty"`             // the name of the host whose netplugin is to join; "" = a netmaster is
}

// JoinToken lets one netmaster, or one host, join, once.
type JoinToken struct {
	Token     string   `json:"token"`            // a secret, which is returned only here
	ID        string   `json:"id"`               // no secret
	Addresses []string `json:"addresses"`        // host:port, for --join
	Expires   string   `json:"expires"`          // RFC 3339
	Host      string   `json:"host,omitempty"`   // the host that it is for; "" = a netmaster's
	Secure    bool     `json:"secure,omitempty"` // the cluster was begun with --secure, and takes such netmasters only
}

// Members returns the members of the embedded store's cluster, as the netmaster that
// answers sees them.
func (c *Client) Members(ctx context.Context) (Members, error) {
	var out Members
	err := c.Do(ctx, http.MethodGet, pathMembers, nil, &out)
	return out, err
}

// NewJoinToken makes a token by which one netmaster, or one host, may join.
func (c *Client) NewJoinToken(ctx context.Context, q JoinTokenRequest) (JoinToken, error) {
	var out JoinToken
	err := c.Do(ctx, http.MethodPost, pathJoinToken, q, &out)
	return out, err
}

// RemoveMember takes a member out of the cluster, by its name, id or address, and
// returns who is left. Where too few of the others answer it is refused unless force.
func (c *Client) RemoveMember(ctx context.Context, member string, force bool) (Members, error) {
	path := pathMembers + "/" + url.PathEscape(member)
	if force {
		path += "?force=true"
	}
	var out Members
	err := c.Do(ctx, http.MethodDelete, path, nil, &out)
	return out, err
}

// RenewAuthorities makes the next authorities of members, and of hosts and people, beside
// the former ones, which are trusted until their own end.
func (c *Client) RenewAuthorities(ctx context.Context) (Members, error) {
	var out Members
	err := c.Do(ctx, http.MethodPost, pathRenewAuthorities, struct{}{}, &out)
	return out, err
}

// DefragmentMembers has each member give unused space of its database back, and ends the
// alarm of a full store where there is room.
func (c *Client) DefragmentMembers(ctx context.Context) (Members, error) {
	var out Members
	err := c.Do(ctx, http.MethodPost, pathDefragment, struct{}{}, &out)
	return out, err
}
