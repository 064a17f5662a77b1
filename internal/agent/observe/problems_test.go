package observe

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/agent/picture"
	"github.com/contiv/netplugin/v2/internal/compile"
)

// TestProblemsGrouped: a problem that a thousand endpoints have is one line,
// problems that few have are a line each; nothing is logged twice.
func TestProblemsGrouped(t *testing.T) {
	var out bytes.Buffer
	a := &Observer{cfg: Config{Log: slog.New(slog.NewTextHandler(&out, nil))}}
	var o picture.Outcome
	for i := range 1000 {
		o.Problems = append(o.Problems, compile.Problem{Object: fmt.Sprintf("remote 1/%03d", i), Text: "network 1 does not exist"})
	}
	o.Problems = append(o.Problems, compile.Problem{Object: "way out", Text: "collides"}, compile.Problem{Object: "port a", Text: "x"})
	lines := func() []string {
		defer out.Reset()
		return strings.Split(strings.TrimSpace(out.String()), "\n")
	}
	a.logProblems(o)
	if got := lines(); len(got) != 3 || !strings.Contains(strings.Join(got, "\n"), "kind=remote count=1000 first=\"remote 1/000\" problem=\"network 1 does not exist\"") {
		t.Errorf("log of problems that come:\n%s", strings.Join(got, "\n"))
	}
	a.logProblems(o)
	if got := lines(); got[0] != "" {
		t.Errorf("log of problems that stay:\n%s", strings.Join(got, "\n"))
	}
	a.logProblems(picture.Outcome{})
	if got := lines(); len(got) != 3 || !strings.Contains(strings.Join(got, "\n"), "count=1000") {
		t.Errorf("log of problems that have gone:\n%s", strings.Join(got, "\n"))
	}
}
