//go:build integration

package slice

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPrometheusTakesThePagesConfigurations: Prometheus takes the configurations that the page has.
func TestPrometheusTakesThePagesConfigurations(t *testing.T) {
	shared(t)
	need(t, "/usr/bin/promtool")
	page, err := os.ReadFile("../../docs/how-to/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```yaml\n")[1:]
	if len(blocks) != 2 {
		t.Errorf("the page has %d configurations", len(blocks))
	}
	for _, b := range blocks {
		text, _, _ := strings.Cut(b, "```")
		// Distributions build it without Kubernetes.
		text = strings.Replace(text, "kubernetes_sd_configs: [{role: node}]", "static_configs: [{targets: [x]}]", 1)
		file := filepath.Join(t.TempDir(), "prometheus.yml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "promtool", "check", "config", "--syntax-only", file).CombinedOutput(); err != nil {
			t.Errorf("%v: %s\n%s", err, out, text)
		}
	}
}
