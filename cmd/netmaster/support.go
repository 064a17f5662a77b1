package main

import (
	"context"
	"net/http"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/bundle"
	"github.com/contiv/netplugin/v2/internal/daemon"
)

// support is what people who search for a fault get of this netmaster.
func (o *options) support(log *bundle.Ring, embedded bool) *bundle.Support {
	s := &bundle.Support{
		Version: daemon.Build().Version, Log: log, SecretFiles: []string{o.tokenFile, o.consulToken},
		Certificates: bundle.Certificates(o.certs.Certificates()), Dirs: map[string]string{},
	}
	if embedded {
		s.Dirs["store"] = o.dataDir
	}
	return s
}

// askPeer asks another netmaster what it tells of itself.
func (m *member) askPeer(ctx context.Context, address string) (out api.Machine, err error) {
	client, err := api.NewClient(m.urlOf(ctx, address), api.WithTimeout(readyTimeout), api.WithTLS(m.client), api.WithToken(m.token))
	if err != nil {
		return out, err
	}
	defer client.Close()
	return out, client.Do(ctx, http.MethodGet, "/api/v1/doctor/netmaster", nil, &out)
}
