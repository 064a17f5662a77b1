//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// certified is a cluster with certificates of 'netctl pki'.
type certified struct {
	*securing
	dir    string // of the authority
	places string // has a directory for each machine, to which its certificate is copied
}

// TestPKI: a cluster gets its certificates by the page of 'netctl pki', then others, then
// another authority, while containers talk: no packet is lost, hosts attach containers
// after each step, and who has a certificate of the former authority is let in no more.
func TestPKI(t *testing.T) {
	if !conformance.Full() {
		t.Skip("some minutes: -full")
	}
	shared(t)
	on(t, 1, []string{testcluster.DriverEBPF}, func(t *testing.T, driver string) {
		c := pairUp(t, driver, "pki", func(cfg *testcluster.Config) { cfg.Embedded, cfg.Consul = true, "" })
		p := &certified{secured(c), filepath.Join(t.TempDir(), "pki"), t.TempDir()}
		ctx := t.Context()
		for _, line := range []string{
			"init DIR", "issue DIR master1 --role netmaster --addresses " + p.addr, "issue DIR anna --role cluster-admin",
			"issue DIR h1 --role host --addresses " + p.Hosts()[0].Control.String(), "issue DIR h2 --role host --addresses " + p.Hosts()[1].Control.String(),
		} {
			if err := p.pki(ctx, line); err != nil {
				t.Fatal(err)
			}
		}
		steps := 0
		for _, step := range []struct {
			name string
			do   func(context.Context) error
		}{{"turning TLS on", p.turnOn}, {"renewing certificates", p.renewAll}, {"renewing the authority", p.another}} {
			c.losesNothing(step.name, func(ctx context.Context) error {
				if err := step.do(ctx); err != nil {
					return err
				}
				for _, h := range c.Hosts() {
					steps++
					if err := p.works(ctx, fmt.Sprint("step", steps), h); err != nil {
						return fmt.Errorf("after %s: %w", step.name, err)
					}
				}
				return nil
			})
		}
	})
}

// pki runs a command of netctl's; DIR is the authority's directory.
func (p *certified) pki(ctx context.Context, line string) error {
	out, err := p.run(ctx, append([]string{"pki"}, strings.Fields(strings.ReplaceAll(line, "DIR", p.dir))...)...)
	if err != nil {
		return fmt.Errorf("netctl pki %s: %w: %s", line, err, out)
	}
	return nil
}

func (p *certified) place(name string) string { return filepath.Join(p.places, name) }

// copies has each machine have its certificate.
func (p *certified) copies() error {
	for _, name := range []string{"master1", "h1", "h2", "anna"} {
		if err := os.MkdirAll(p.place(name), 0o700); err != nil {
			return err
		}
		if err := copyFiles(filepath.Join(p.dir, "issued", name), p.place(name), []string{pki.BundleFile, "tls.key", "tls.crt"}); err != nil {
			return err
		}
	}
	return nil
}

// asks asks as anna.
func (p *certified) asks(ctx context.Context, args ...string) (string, error) {
	return p.run(ctx, append([]string{"--netmaster", "https://" + net.JoinHostPort(p.addr, "9999"), "--tls-dir", p.place("anna")}, args...)...)
}

// turnOn restarts netmaster and the hosts with their certificates.
func (p *certified) turnOn(ctx context.Context) error {
	if err := p.copies(); err != nil {
		return err
	}
	if err := p.netmaster(ctx, p.asks, "--tls-dir", p.place("master1"), "--store-tls-dir", p.place("master1")); err != nil {
		return err
	}
	return p.restartHosts(ctx)
}

func (p *certified) restartHosts(ctx context.Context) error {
	for _, h := range p.Hosts() {
		if err := h.KillAgent(); err != nil {
			return err
		}
		if err := p.joins(ctx, h, "--tls-dir", p.place(h.Name), "--store-tls-dir", p.place(h.Name)); err != nil {
			return err
		}
	}
	return nil
}

func (p *certified) renewAll(ctx context.Context) error {
	return errors.Join(p.pki(ctx, "renew --all DIR"), p.copies())
}

// another makes another authority, the one that is trusted, and restarts what reads it once.
func (p *certified) another(ctx context.Context) error {
	former := p.t.TempDir()
	if err := copyFiles(p.place("anna"), former, []string{pki.BundleFile, "tls.key", "tls.crt"}); err != nil {
		return err
	}
	for _, line := range []string{"authority DIR", "renew --all DIR"} {
		if err := p.pki(ctx, line); err != nil {
			return err
		}
	}
	if err := p.copies(); err != nil {
		return err
	}
	for i, h := range p.Hosts() {
		if err := p.works(ctx, fmt.Sprint("between", i, filepath.Base(former)), h); err != nil {
			return err
		}
	}
	if err := errors.Join(p.pki(ctx, "authority --retire DIR"), p.copies()); err != nil {
		return err
	}
	if err := p.netmaster(ctx, p.asks, "--tls-dir", p.place("master1"), "--store-tls-dir", p.place("master1")); err != nil {
		return err
	}
	if err := p.restartHosts(ctx); err != nil {
		return err
	}
	if out, err := p.run(ctx, "--netmaster", "https://"+net.JoinHostPort(p.addr, "9999"), "--tls-dir", former, "tenant", "ls"); err == nil {
		return fmt.Errorf("who has a certificate of the former authority is let in: %s", out)
	}
	return nil
}
