package cli

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"github.com/contiv/netplugin/v2/internal/durable"
	"github.com/contiv/netplugin/v2/internal/transport"
)

// savedToken is what 'login --token' keeps of a netmaster.
type savedToken struct {
	Token string `json:"token"`
	CA    string `json:"ca,omitempty"` // PEM of the authorities to trust; empty = the machine's
}

// savedTokens are by the text of --netmaster.
type savedTokens map[string]savedToken

func tokensPath(loginPath string) string {
	return filepath.Join(filepath.Dir(loginPath), "tokens.json")
}

func readTokens(loginPath string) (all savedTokens, err error) {
	if loginPath == "" {
		return nil, nil
	}
	data, err := os.ReadFile(tokensPath(loginPath))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("read the saved tokens: %w; delete %s and log in again", err, tokensPath(loginPath))
	}
	return all, nil
}

// write keeps the tokens where only their user can read them, all or none.
func (all savedTokens) write(loginPath string) error {
	data, err := json.MarshalIndent(all, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(loginPath), 0o700)
	}
	if err == nil {
		err = durable.WriteFile(tokensPath(loginPath), append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("keep the token: %w", err)
	}
	return nil
}

// saved is what login keeps for the netmaster that is asked; own = what other flags
// say, which count before it.
func (g *globals) saved(loginPath string, own *tls.Config) (show func() string, client *tls.Config, err error) {
	s := g.login
	if s == nil {
		if g.tokenFile != "" || g.tlsDir != "" {
			return nil, own, nil
		}
		all, err := readTokens(loginPath)
		kept, there := all[g.netmaster]
		if err != nil || !there {
			return nil, own, err
		}
		s = &kept
	}
	if s.CA != "" {
		if own, err = transport.Authorities([]byte(s.CA)); err != nil {
			return nil, nil, fmt.Errorf("the saved login: %w", err)
		}
	}
	return func() string { return s.Token }, own, nil
}

// runLoginToken keeps a token that netmaster takes.
func runLoginToken(ctx context.Context, o *loginOptions) error {
	if o.path == "" {
		return errors.New("there is no place for the token: the environment variable HOME is not set")
	}
	text, err := o.ask(bufio.NewReader(o.stdin), "Token: ", true)
	if err != nil {
		return err
	}
	all, err := readTokens(o.path)
	if err != nil {
		return err
	}
	if all == nil {
		all = savedTokens{}
	}
	s := savedToken{Token: text}
	if o.caFile != "" {
		pem, err := os.ReadFile(o.caFile)
		if err != nil {
			return usageErrorf("--ca-file: %v", err)
		}
		if _, err := transport.Authorities(pem); err != nil {
			return usageErrorf("--ca-file %s: %v", o.caFile, err)
		}
		s.CA = string(pem)
	}
	o.try(&s)
	client, err := o.client()
	if err != nil {
		return err
	}
	if err := client.Do(ctx, http.MethodGet, "/version", nil, nil); err != nil {
		return fmt.Errorf("nothing is kept: %w", err)
	}
	all[o.netmaster()] = s
	if err := all.write(o.path); err != nil {
		return err
	}
	switch {
	case o.json:
		return printJSON(o.out, map[string]string{"netmaster": o.netmaster(), "config": tokensPath(o.path)})
	case o.quiet:
		return nil
	}
	_, err = fmt.Fprintf(o.out, "Logged in at %s; the token is in %s\n", o.netmaster(), tokensPath(o.path))
	return err
}

func newLogout(f *factory, run func(context.Context, *loginOptions) error) *command {
	o := &loginOptions{common: newCommon(f), path: f.loginPath, netmaster: func() string { return f.globals.netmaster }}
	c := &command{
		name: "logout", short: "Forget the token that 'login --token' keeps for --netmaster; it stays good until its end, or until it is revoked",
		examples: []string{"netctl --netmaster https://10.0.0.1:9999 logout"},
	}
	c.flags.boolVar(&o.json, "json, j", "print of which netmaster, as JSON")
	c.flags.boolVar(&o.quiet, "quiet, q", "print nothing")
	c.run = bindRun(o, orDefault(run, runLogout), nil)
	return c
}

func runLogout(_ context.Context, o *loginOptions) error {
	all, err := readTokens(o.path)
	if err != nil {
		return err
	}
	if _, there := all[o.netmaster()]; !there {
		return fmt.Errorf("no token is kept for %s", o.netmaster())
	}
	delete(all, o.netmaster())
	if err := all.write(o.path); err != nil {
		return err
	}
	switch {
	case o.json:
		return printJSON(o.out, map[string]string{"netmaster": o.netmaster()})
	case o.quiet:
		return nil
	}
	_, err = fmt.Fprintf(o.out, "Logged out of %s\n", o.netmaster())
	return err
}
