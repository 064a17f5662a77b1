//go:build integration

package upstream

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	"github.com/contiv/netplugin/v2/test/kube/cluster"
)

// A report is older than the code when the sum of the code that it is of is not the
// code's by now: any change of what a node or netmaster runs, but of comments in pages
// and of tests, asks for another run (make test-kube).
func TestReportsAreOfThisCode(t *testing.T) {
	if os.Getenv(cluster.Program) == "" {
		t.Skip(cluster.ErrNotBuilt)
	}
	root, err := testcluster.Root(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	code, err := Sum(root)
	if err != nil {
		t.Fatal(err)
	}
	expected, err := Expected()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(file(root, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		r, err := read(f)
		if err != nil {
			t.Fatal(err)
		}
		if r.Code != code {
			t.Errorf("%s is of commit %s (%s), and what it covers has changed since: make test-kube PART=%s DRIVER=%s", f, r.Commit, r.Date.Format("2006-01-02"), r.Suite, r.Driver)
		}
		if len(r.Results) < r.Specs {
			t.Errorf("%s has %d of %d specs: make test-kube PART=%s DRIVER=%s goes on", f, len(r.Results), r.Specs, r.Suite, r.Driver)
		}
		if err := judge(r, expected); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
}
