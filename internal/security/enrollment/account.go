package enrollment

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// Account is how a pod joins: netmasters ask Kubernetes of which node it is.
type Account struct {
	TokenFile string // has the token of its service account, and is read each time
	Authority string // file in PEM: the authority of members' enrolment servers, checked before the token is sent
}

// joinByAccount gets a certificate, unless the directory has a valid one of this host and
// this cluster. While no server answers it tries again, until ctx ends.
func joinByAccount(ctx context.Context, cfg Config) error {
	known, _ := authoritiesOf(cfg.Account.Authority) // requestByAccount returns its error
	if had, _ := read(cfg.Dir); had.Name == cfg.Name && slices.Contains(known, had.Members) {
		if d, err := transport.OpenDirectory(cfg.Dir); err == nil && time.Now().Before(d.Leaf().NotAfter) {
			return nil
		}
	}
	for told := (time.Time{}); ; {
		err := requestByAccount(ctx, cfg)
		if !errors.Is(err, model.ErrUnavailable) {
			return err
		}
		if cfg.Waits != nil && time.Since(told) >= logInterval {
			cfg.Waits(err)
			told = time.Now()
		}
		if waitRetry(ctx) != nil {
			return err
		}
	}
}

// requestByAccount asks once, at all enrollment servers that are known. Both files may have changed since
// they were read last.
func requestByAccount(ctx context.Context, cfg Config) error {
	known, err := authoritiesOf(cfg.Account.Authority)
	if err != nil {
		return err
	}
	token, err := os.ReadFile(cfg.Account.TokenFile)
	if err != nil {
		return fmt.Errorf("read the token of the service account: %w", err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("save the host's certificate: %w", err)
	}
	key, csr, err := nextKey(cfg.Dir, cfg.Name, cfg.Addresses)
	if err != nil {
		return err
	}
	had, _ := read(cfg.Dir) // none, where none joined
	doors := eachOnce(cfg.Servers, had.Servers)
	q := jointoken.HostRequest{Account: strings.TrimSpace(string(token)), Name: cfg.Name, CSR: csr}
	a, err := ask(ctx, jointoken.Pinned(known...), doors, 0, jointoken.HostPath, q)
	if err != nil {
		return err
	}
	return saveAnswer(cfg.Dir, key, state{Name: cfg.Name, Servers: a.Servers, Members: a.Members}, a)
}

// authoritiesOf reads a file of authorities.
func authoritiesOf(file string) (known []jointoken.Fingerprint, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the netmasters' authority: %w", err)
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if _, err := x509.ParseCertificate(block.Bytes); err == nil {
			known = append(known, sha256.Sum256(block.Bytes))
		}
	}
	if len(known) == 0 {
		return nil, model.Errorf(model.ErrInvalid, "%s has no authority: it must be a copy of join/authority/ca.crt below a netmaster's --data-dir", file)
	}
	return known, nil
}
