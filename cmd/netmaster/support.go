package main

import (
	"context"
	"net/http"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/daemon/supportbundle"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiserver"
	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
)

// support is what people who search for a fault get of this netmaster.
func (o *options) support(log *supportbundle.Ring, server *membership.Member) *supportbundle.Support {
	s := &supportbundle.Support{
		Version: daemon.Build().Version, Log: log, SecretFiles: []string{o.tokenFile, o.store.TokenFile, o.aci.password},
		Certificates: supportbundle.Certificates(o.certs.Certificates(), o.certs.Unusable, supportbundle.Manual), Dirs: map[string]string{},
	}
	if server != nil {
		s.Dirs["store"] = o.dataDir
		s.Certificates = o.ownAndMade(s.Certificates, server)
	}
	return s
}

// ownAndMade are the certificates given to this netmaster, and the ones it made for itself,
// which it has with a store of its own.
func (o *options) ownAndMade(given func() []api.Certificate, server *membership.Member) func() []api.Certificate {
	made := supportbundle.Renewal{Certificate: membership.RenewOwn, Authority: membership.RenewAuthority, Previous: membership.RetirePrevious, Itself: true}
	return func() (out []api.Certificate) {
		if !o.secure { // else the given ones are among the ones it made
			out = given()
		}
		for _, e := range server.Health.CertificateExpiries() {
			c := made.CertificateOf(e.What, e.Subject, e.Ends, e.Authority, e.Former)
			c.Error = e.Error
			out = append(out, c)
		}
		return out
	}
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

// hostKeys tells of the certificates that a member has given hosts; nil = none does.
func hostKeys(server *membership.Member) apiserver.HostKeys {
	if server == nil {
		return nil
	}
	return func(ctx context.Context) (map[string]apiserver.HostKey, error) {
		all, err := server.Enrolment.HostCertificates(ctx)
		out := map[string]apiserver.HostKey{}
		for _, c := range all {
			out[c.Name] = apiserver.HostKey{Key: c.Key, Was: c.Was, By: c.By, At: c.At}
		}
		return out, err
	}
}
