//go:build integration

package slice

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// packs has netctl bugtool pack a secure cluster: all that is promised is there of netmaster
// and of the hosts that are asked for, and no secret.
func (s *securing) packs(ctx context.Context, tokens []string) error {
	file := filepath.Join(s.t.TempDir(), "fault.tar.gz")
	if out, err := s.anna(ctx, "bugtool", "--host", "h1", file); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	parts, err := unpack(file)
	if err != nil {
		return err
	}
	for _, name := range []string{
		"netmaster/log.txt", "netmaster/metrics.txt", "netmaster/status.json", "netmaster/doctor.json",
		"hosts/h1/log.txt", "hosts/h1/state.json", "hosts/h1/driver.json", "hosts/h1/metrics.txt", "hosts/h1/attachments.json", "hosts/h1/inspection.json",
	} {
		if len(parts[name]) == 0 {
			err = errors.Join(err, fmt.Errorf("the archive has no %s", name))
		}
	}
	for name := range parts {
		if strings.HasPrefix(name, "hosts/") && !strings.HasPrefix(name, "hosts/h1/") {
			err = errors.Join(err, fmt.Errorf("the archive has %s of a host that was not asked for", name))
		}
	}
	if text := string(parts["manifest.json"]); strings.Contains(text, `"error"`) {
		err = errors.Join(err, fmt.Errorf("something could not be had: %s", text))
	}
	secrets, failed := s.secrets(tokens)
	if err = errors.Join(err, failed); len(secrets) < 8 {
		err = errors.Join(err, fmt.Errorf("only %d secrets are known", len(secrets)))
	}
	for name, text := range parts {
		for what, secret := range secrets {
			if bytes.Contains(text, []byte(secret)) {
				err = errors.Join(err, fmt.Errorf("%s has a part of %s", name, what))
			}
		}
	}
	return err
}

// unpack reads an archive.
func unpack(file string) (map[string][]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was read
	zr, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	parts := map[string][]byte{}
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return parts, nil
		}
		if err != nil {
			return nil, err
		}
		if parts[h.Name], err = io.ReadAll(tr); err != nil {
			return nil, err
		}
	}
}

// adminToken is the file with the first administrator's token.
const adminToken = "admin-token"

// secrets are the parts by which one would know the keys and tokens in play, by where they
// are.
func (s *securing) secrets(tokens []string) (map[string]string, error) {
	out := map[string]string{}
	for i, token := range tokens {
		out[fmt.Sprint("token ", i)] = token[len(token)-20:]
	}
	dirs := []string{s.data}
	for _, h := range s.Hosts() {
		dirs = append(dirs, h.StateDir())
	}
	for _, dir := range dirs {
		if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() || e.Name() != adminToken && !slices.Contains([]string{".key", ".pem"}, filepath.Ext(path)) {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if e.Name() == adminToken {
				out[path] = strings.TrimSpace(string(text))
			}
			for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
				if strings.Contains(block.Type, "PRIVATE KEY") {
					lines := strings.Split(string(pem.EncodeToMemory(block)), "\n")
					out[path] = lines[len(lines)/2]
				}
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}
