package archtest

import (
	"regexp"
	"strings"
	"testing"
)

// writers are the store's names that write.
var writers = regexp.MustCompile(`\bstore\.(Store|Tx|Session)\b|\bcluster\.(Register|KeepListening|OpenMonitor|Candidate)\b|\.NewSession\(`)

// An agent only reads the store: it holds a store.Reader, and tells netmasters
// what they are to write.
func TestAgentOnlyReads(t *testing.T) {
	seen := false
	for _, f := range files(t) {
		if !f.isGo() || f.isTest() || !strings.HasPrefix(f.name, "internal/netplugin/") {
			continue
		}
		seen = seen || strings.Contains(f.text, "store.Mirrorer")
		if w := writers.FindString(f.text); w != "" {
			t.Errorf("%s uses %s: an agent only reads the store; what it has to say it tells a netmaster", f.name, w)
		}
	}
	if !seen {
		t.Error("no agent holds a store.Reader: this test looks at the wrong place")
	}
	for text, bad := range map[string]bool{"st store.Store": true, "func(tx store.Tx)": true, "store.Reader": false, "st.NewSession(ctx": true, "store.Revision": false} {
		if writers.MatchString(text) != bad {
			t.Errorf("%q: found %t, want %t", text, !bad, bad)
		}
	}
}
