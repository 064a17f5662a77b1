package enrollment

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// RefreshServers asks the enrollment servers that a directory knows which ones there are now, and keeps them:
// a host that joined by the first netmaster has to find the others when that one is
// lost. If none of them answers it asks those of more, and then the machines of netmasters,
// given by their URLs: all that the directory knows may have been replaced. It returns the
// servers, and whether they are others than before. The error says of
// each enrollment server why it told nothing.
func RefreshServers(ctx context.Context, dir string, more, netmasters []string) (doors []string, moved bool, err error) {
	had, err := read(dir)
	if err != nil {
		return nil, false, err
	}
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, pki.CertFile), filepath.Join(dir, pki.KeyFile))
	if err != nil {
		return nil, false, fmt.Errorf("read the host's certificate: %w", err)
	}
	pinned := jointoken.Pinned(had.Members)
	pinned.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
	pool := transport.Pool(pinned, 1, dialTime)
	defer pool.CloseIdleConnections()
	c := &http.Client{Transport: pool, Timeout: askTime}
	var why []error
	for _, door := range eachOnce(had.Servers, more, besideURLs(netmasters, eachOnce(had.Servers, more))) {
		var a jointoken.HostAnswer
		err := jointoken.Call(ctx, c, http.MethodGet, transport.HTTPS+"://"+door+jointoken.ServersPath, nil, &a)
		switch {
		case err != nil:
			why = append(why, fmt.Errorf("%s: %w", door, err))
			continue
		case len(a.Servers) == 0:
			why = append(why, fmt.Errorf("%s knows no netmaster", door))
			continue
		case sameServers(a.Servers, had.Servers): // who answers puts itself first
			return had.Servers, false, nil
		}
		had.Servers = a.Servers
		if err := durable.WriteJSON(filepath.Join(dir, stateFile), had); err != nil {
			return a.Servers, true, fmt.Errorf("save the addresses of netmasters: %w", err)
		}
		return a.Servers, true, nil
	}
	return nil, false, errors.Join(why...)
}

// eachOnce joins lists of servers, each named once.
func eachOnce(lists ...[]string) (all []string) {
	for _, d := range slices.Concat(lists...) {
		if !slices.Contains(all, d) {
			all = append(all, d)
		}
	}
	return all
}

// besideURLs returns the machines of URLs, at each port of the known servers.
func besideURLs(urls, known []string) (servers []string) {
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			continue
		}
		for _, k := range known {
			if _, port, err := net.SplitHostPort(k); err == nil {
				servers = append(servers, net.JoinHostPort(u.Hostname(), port))
			}
		}
	}
	return servers
}

func sameServers(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
