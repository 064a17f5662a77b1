//go:build integration

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// TestDemoAnswersAsIntended: the demo's answers are what the intent says.
func TestDemoAnswersAsIntended(t *testing.T) {
	if os.Getenv(cluster.Program) == "" {
		t.Skip(cluster.ErrNotBuilt)
	}
	bin := filepath.Join(t.TempDir(), "bin")
	if err := testcluster.Build(t.Context(), ".", bin); err != nil {
		t.Fatal(err)
	}
	if err := (&demo{bin: bin}).run(t.Context()); err != nil {
		t.Fatal(err)
	}
}
