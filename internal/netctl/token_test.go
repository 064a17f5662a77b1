package netctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// TestTokenFileIsShownToNetmaster: netctl shows the token of --token-file, or of the environment's
// file; without it netmaster's sentence says what to do.
func TestTokenFileIsShownToNetmaster(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	right, wrong, empty := file("right", "0123456789abcdef\n"), file("wrong", "0123456789abcdeX\n"), file("empty", "")
	tokens, err := transport.OpenTokens(right)
	if err != nil {
		t.Fatal(err)
	}
	url := startNetmasterWith(t, memory.New(), tokens.Accepts)
	for _, tc := range []struct {
		env  string
		args string
		code int
		has  string
	}{
		{"", "tenant ls", ExitFailure, "who asks is not known"},
		{wrong, "tenant ls", ExitFailure, "is not accepted"},
		{right, "tenant ls", ExitOK, "default"},
		{wrong, "--token-file " + right + " tenant ls", ExitOK, "default"},
		{"", "--token-file " + right + " backup " + filepath.Join(dir, "b"), ExitFailure, "external store"}, // a stream of its own, of a store in memory
		{right, "--token-file= tenant ls", ExitUsage, "flag --token-file needs a value: FILE, and not an empty one"},
		{empty, "tenant ls", ExitUsage, "--token-file: tokens of " + empty},
		{filepath.Join(dir, "none"), "tenant ls", ExitUsage, "no such file"},
	} {
		got := netctlEnv(t, map[string]string{"NETMASTER": url, "NETMASTER_TOKEN_FILE": tc.env}, strings.Fields(tc.args)...)
		if got.code != tc.code || !strings.Contains(got.out+got.errOut, tc.has) || strings.Contains(got.out+got.errOut, "0123456789") {
			t.Errorf("%q %s: %+v, want code %d and %q", tc.env, tc.args, got, tc.code, tc.has)
		}
	}
}
