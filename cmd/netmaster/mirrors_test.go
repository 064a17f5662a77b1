package main

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/security/pki"
)

// TestMirrorsOfOneHost: streams by which a host is mirrored are counted by the name in its
// certificate: the oldest of too many ends and says why, and another host's stays.
func TestMirrorsOfOneHost(t *testing.T) {
	s := startSecured(t)
	s.things(s.as("root", pki.ClusterAdmin))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	as := func(host string) *api.Client {
		t.Helper()
		c, err := api.NewClient(s.url, api.WithHTTPClient(s.as(host, pki.Host)))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	begin := func(c *api.Client) *bufio.Scanner {
		t.Helper()
		asks, ask := io.Pipe()
		body, err := c.Mirror(ctx, asks)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cancel()
			_, _ = ask.Close(), body.Close() // it was read
		})
		lines := bufio.NewScanner(body)
		if !lines.Scan() || !strings.Contains(lines.Text(), "fresh") {
			t.Fatalf("it begins with %q: %v", lines.Text(), lines.Err())
		}
		return lines
	}
	h1 := as("h1")
	first := begin(h1)
	for range 3 {
		begin(h1)
	}
	other := begin(as("h2"))
	begin(h1)
	for first.Scan() {
		if text := first.Text(); strings.Contains(text, `"end"`) {
			if !strings.Contains(text, "newer streams") {
				t.Errorf("it is told %s", text)
			}
			if !other.Scan() || strings.Contains(other.Text(), `"end"`) { // that it is fresh
				t.Errorf("another host is told %s", other.Text())
			}
			return
		}
	}
	t.Errorf("the oldest stream breaks: %v", first.Err())
}
