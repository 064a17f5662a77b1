package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Addresses are where etcd answers, as host:port, sorted: the endpoints that the
// client was given, and what the members say of themselves, both for clients
// and for each other. When the members cannot be asked, the endpoints come with
// the error.
func (c *Client) Addresses(ctx context.Context) ([]string, error) {
	urls := strings.Split(c.endpoints, ", ")
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	members, err := c.etcd.MemberList(ctx)
	if err != nil {
		err = fmt.Errorf("list the members of etcd: %w", c.failed(ctx, err))
	} else {
		for _, m := range members.Members {
			urls = append(append(urls, m.ClientURLs...), m.PeerURLs...)
		}
	}
	var all []string
	for _, text := range urls {
		u, bad := url.Parse(text)
		if bad != nil || u.Hostname() == "" || u.Port() == "" {
			err = errors.Join(err, fmt.Errorf("a member of etcd has the address %q", text))
			continue
		}
		all = append(all, u.Host)
	}
	slices.Sort(all)
	return slices.Compact(all), err
}
