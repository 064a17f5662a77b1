package netctl

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// savedToken is what 'login --token' keeps of a cluster.
type savedToken struct {
	// Netmasters are the cluster's URLs by which the user logged in, the last ones first.
	Netmasters []string `json:"netmasters"`
	Token      string   `json:"token"`
	CA         string   `json:"ca,omitempty"` // PEM of the authorities to trust; empty = the machine's
}

// savedTokens are by cluster: the id of its store.
type savedTokens struct {
	Current  string                `json:"current,omitempty"` // asked without --netmaster
	Clusters map[string]savedToken `json:"clusters"`
}

// byNetmasters finds the cluster that has all these netmasters.
func (all savedTokens) byNetmasters(netmasters []string) (id string, there bool) {
	for id, s := range all.Clusters {
		if !slices.ContainsFunc(netmasters, func(n string) bool { return !slices.Contains(s.Netmasters, n) }) {
			return id, true
		}
	}
	return "", false
}

// add keeps a token instead of the cluster's former one. Netmasters of a former login
// stay only if that trusted the same authority: others may lie about their cluster.
func (all *savedTokens) add(id string, s savedToken) {
	if former, there := all.Clusters[id]; there && former.CA == s.CA && s.CA != "" {
		for _, n := range former.Netmasters {
			if !slices.Contains(s.Netmasters, n) {
				s.Netmasters = append(s.Netmasters, n)
			}
		}
	}
	if all.Clusters == nil {
		all.Clusters = map[string]savedToken{}
	}
	all.Clusters[id], all.Current = s, id
}

// normalized are the URLs in a text of --netmaster as the client asks them, whatever
// their spelling.
func normalized(netmaster string) ([]string, error) {
	c, err := api.NewClient(netmaster)
	if err != nil {
		return nil, fmt.Errorf("--netmaster: %w", err)
	}
	return c.URLs(), nil
}

func tokensPath(loginPath string) string {
	return filepath.Join(filepath.Dir(loginPath), "tokens.json")
}

// readTokens returns the saved tokens, and with errExposed too what is in the file.
func readTokens(loginPath string) (all savedTokens, err error) {
	if loginPath == "" {
		return all, nil
	}
	data, err := readPrivate(tokensPath(loginPath))
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	exposed := err
	if err == nil || errors.Is(err, errExposed) {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		return all, fmt.Errorf("read the saved tokens: %w; delete %s and log in again", err, tokensPath(loginPath))
	}
	return all, exposed
}

// errExposed: others than its user can read, or write, a file with tokens.
var errExposed = errors.New("other users can read or change it")

// readPrivate reads a file that is for its user alone, as ssh reads keys; with errExposed
// too it returns what is in the file.
func readPrivate(path string) (data []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		exposed := fmt.Errorf("the saved tokens in %s are not used: %w (mode %04o); run 'chmod 600 %[1]s', and revoke tokens that others may have read ('netctl token rm')", path, errExposed, mode)
		data, err = io.ReadAll(f)
		return data, cmp.Or(err, exposed)
	}
	return io.ReadAll(f)
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
		return fmt.Errorf("save the token: %w", err)
	}
	return nil
}

// useLogin makes the current login's netmasters the default.
func (g *globals) useLogin(loginPath string) error {
	if g.netmaster != DefaultNetmaster || g.tlsDir != "" {
		return nil
	}
	all, err := readTokens(loginPath)
	if err != nil {
		return err
	}
	if s, there := all.Clusters[all.Current]; there {
		g.netmaster = strings.Join(s.Netmasters, ",")
		return nil
	}
	proxy, err := readLogin(loginPath)
	if err == nil && proxy.Netmaster != "" {
		g.netmaster = proxy.Netmaster
	}
	return err
}

// savedLogin is what login keeps for the netmaster that is asked; own = what other flags
// say, which count before it.
func (g *globals) savedLogin(ctx context.Context, loginPath string, own *tls.Config) (show func() string, client *tls.Config, err error) {
	s := g.login
	if s == nil {
		if g.tlsDir != "" {
			return nil, own, nil
		}
		all, err := readTokens(loginPath)
		if err != nil {
			return nil, nil, err
		}
		netmasters, err := normalized(g.netmaster)
		if err != nil {
			return nil, nil, err
		}
		id, there := all.byNetmasters(netmasters)
		if !there && !g.insecure {
			id, there = all.byAuthority(ctx, netmasters)
		}
		if !there {
			return nil, own, nil
		}
		kept := all.Clusters[id]
		s = &kept
	}
	if s.CA != "" {
		if own, err = transport.Authorities([]byte(s.CA)); err != nil {
			return nil, nil, fmt.Errorf("the saved login: %w", err)
		}
	}
	return func() string { return s.Token }, own, nil
}

// authorityTimeout bounds the search for the cluster of netmasters at URLs without a saved
// login.
const authorityTimeout = 5 * time.Second

// byAuthority finds the cluster whose authority the netmasters' certificates are of. It
// shows no token.
func (all savedTokens) byAuthority(ctx context.Context, netmasters []string) (id string, there bool) {
	if slices.ContainsFunc(netmasters, func(n string) bool { return !strings.HasPrefix(n, transport.HTTPS+"://") }) {
		return "", false
	}
	for id, s := range all.Clusters {
		trusted, err := transport.Authorities([]byte(s.CA))
		if err != nil {
			continue
		}
		c, err := api.NewClient(strings.Join(netmasters, ","), api.WithTLS(trusted), api.WithTimeout(authorityTimeout))
		if err != nil {
			return "", false
		}
		err = c.Do(ctx, http.MethodGet, "/healthz", nil, nil)
		c.Close()
		if _, refused := errors.AsType[*api.Error](err); err == nil || refused {
			return id, true
		}
	}
	return "", false
}

// runLoginToken keeps a token that netmaster takes.
func runLoginToken(ctx context.Context, o *loginOptions) error {
	if o.loginPath == "" {
		return errors.New("the token cannot be saved: the environment variable HOME is not set")
	}
	text, err := o.prompt(bufio.NewReader(o.stdin), "Token: ", true)
	if err != nil {
		return err
	}
	all, err := readTokens(o.loginPath)
	if err != nil {
		return err
	}
	s := savedToken{Token: text}
	if last, there := all.Clusters[all.Current]; there && o.globals.netmaster == DefaultNetmaster {
		o.globals.netmaster, s.CA = strings.Join(last.Netmasters, ","), last.CA
	}
	if o.caFile != "" {
		pem, err := os.ReadFile(o.caFile)
		if err != nil {
			return flags.Usagef("--ca-file: %v", err)
		}
		if _, err := transport.Authorities(pem); err != nil {
			return flags.Usagef("--ca-file %s: %v", o.caFile, err)
		}
		s.CA = string(pem)
	}
	o.globals.login = &s
	client, err := o.client()
	if err != nil {
		return err
	}
	s.Netmasters = client.URLs()
	cluster, err := client.Store(ctx)
	if err != nil {
		return fmt.Errorf("nothing is stored: %w", err)
	}
	all.add(cluster.ID, s)
	if err := all.write(o.loginPath); err != nil {
		return err
	}
	return o.result(map[string]string{"netmaster": o.globals.netmaster, "config": tokensPath(o.loginPath)}, "", "Logged in at %s; the token is in %s", o.globals.netmaster, tokensPath(o.loginPath))
}

func newLogout(base common) *command {
	o := &loginOptions{common: base}
	c := &command{
		name: "logout", short: "Delete the token that 'login --token' saved for the cluster of --netmaster (default: the last one); it stays valid until it expires or is revoked",
		examples: []string{"netctl --netmaster https://10.0.0.1:9999 logout"},
	}
	c.flags.Bool(&o.json, "json, j", "print of which netmaster, as JSON")
	c.flags.Bool(&o.quiet, "quiet, q", "print nothing")
	c.run = bindRun(o, runLogout, nil)
	return c
}

func runLogout(_ context.Context, o *loginOptions) error {
	all, err := readTokens(o.loginPath)
	exposed := errors.Is(err, errExposed) // a token that others can read is to go all the more
	if err != nil && !exposed {
		return err
	}
	id := all.Current
	if o.globals.netmaster != DefaultNetmaster || id == "" {
		netmasters, err := normalized(o.globals.netmaster)
		if err != nil {
			return flags.Usagef("%v", err)
		}
		var there bool
		if id, there = all.byNetmasters(netmasters); !there {
			return all.unknown(o.globals.netmaster)
		}
	}
	netmaster := strings.Join(all.Clusters[id].Netmasters, ",")
	delete(all.Clusters, id)
	if all.Current == id {
		all.Current = ""
	}
	if err := all.write(o.loginPath); err != nil {
		return err
	}
	if exposed {
		if err := o.warnExposed(all); err != nil {
			return err
		}
	}
	return o.result(map[string]string{"netmaster": netmaster}, "", "Logged out of %s", netmaster)
}

// warnExposed says that others may have read the token that is forgotten. Other clusters'
// tokens stay refused: write has made their file private, and they may be known too.
func (o *loginOptions) warnExposed(left savedTokens) error {
	path := tokensPath(o.loginPath)
	if len(left.Clusters) > 0 {
		if err := os.Chmod(path, 0o644); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(o.stderr, "warning: others could read or change %s: have the token revoked ('netctl token rm')\n", path)
	return err
}

// unknown says that no login is kept for a netmaster, and which are.
func (all savedTokens) unknown(netmaster string) error {
	if len(all.Clusters) == 0 {
		return fmt.Errorf("no token is saved for %s", netmaster)
	}
	var kept []string
	for _, s := range all.Clusters {
		kept = append(kept, strings.Join(s.Netmasters, ","))
	}
	slices.Sort(kept)
	return fmt.Errorf("no token is saved for %s; tokens are saved for: %s", netmaster, strings.Join(kept, "; "))
}
