//go:build integration

package slice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// tells waits until the doctor tells of a host's certificate by some words, or does not.
func (s *securing) tells(ctx context.Context, host, words string, want bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return testcluster.Until(ctx, fmt.Sprintf("the doctor to tell that of %s %s: %v", host, words, want), func(ctx context.Context) error {
		out, failed := s.anna(ctx, "doctor", "--json") // its code says that there are findings
		var d api.Diagnosis
		if err := json.NewDecoder(strings.NewReader(out[max(0, strings.IndexByte(out, '{')):])).Decode(&d); err != nil {
			return fmt.Errorf("%w: %w: %s", err, failed, out)
		}
		told := false
		for _, f := range d.Findings {
			told = told || f.Check == api.CheckCertificates && f.Where == "host "+host && strings.Contains(f.Text, words)
		}
		if told != want || d.Answered != d.Hosts {
			return errors.New(out)
		}
		return nil
	})
}

// takenOver has the doctor tell of hosts' certificates: of h2's after another machine has
// got one for its name by a token, until h2 has got another one itself; and of one of h1's
// that ends soon.
func (s *securing) takenOver(ctx context.Context) error {
	token := func() string {
		text, err := s.anna(ctx, "cluster", "token", "-q", "--host", "h2")
		if err != nil {
			s.t.Error(err, text)
		}
		return strings.TrimSpace(text)
	}
	const taken = "another machine has got a certificate for its name"
	door := net.JoinHostPort(s.addr, "9005")
	if err := s.tells(ctx, "h2", taken, false); err != nil {
		return err
	}
	// Another machine, which joins and then ends, since its socket cannot be.
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	other := s.t.TempDir()
	out, _ := s.Master.Command(limited, filepath.Join(s.Config().BinDir, "netplugin"), "--host", "h2", "--driver", "fake", "--ctrl-ip", s.addr,
		"--join", door, "--token", token(), "--state-dir", other, "--cni-socket", filepath.Join(s.Config().BinDir, "netctl", "s"), "--rest-address", "none").CombinedOutput()
	if _, err := os.Stat(filepath.Join(other, "tls", "tls.crt")); err != nil {
		return fmt.Errorf("another machine gets no certificate by a token: %w: %s", err, out)
	}
	if err := s.tells(ctx, "h2", taken, true); err != nil {
		return err
	}
	h1, h2 := s.Hosts()[0], s.Hosts()[1]
	if err := h2.Agent().Stop(20 * time.Second); err != nil {
		return err
	}
	if err := s.joins(ctx, h2, "--join", door, "--token", token()); err != nil {
		return err
	}
	if err := s.tells(ctx, "h2", taken, false); err != nil {
		return err
	}
	// h1 gets a certificate that ends in five days, by hand, and then its own again.
	if out, err := s.run(ctx, "pki", "issue", filepath.Join(s.data, "join", "clients"), "h1", "--role", "host", "--addresses", h1.Control.String(), "--days", "5"); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	own, issued, before := filepath.Join(h1.StateDir(), "tls"), filepath.Join(s.data, "join", "clients", "issued", "h1"), s.t.TempDir()
	files := []string{"tls.key", "tls.crt"}
	if err := copyFiles(own, before, files); err != nil {
		return err
	}
	if err := copyFiles(issued, own, files); err != nil {
		return err
	}
	if err := s.tells(ctx, "h1", "ends on", true); err != nil {
		return err
	}
	if err := copyFiles(before, own, files); err != nil {
		return err
	}
	return errors.Join(s.tells(ctx, "h1", "ends on", false), s.works(ctx, "own", h1), s.works(ctx, "anew", h2))
}

func copyFiles(from, to string, names []string) error {
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
