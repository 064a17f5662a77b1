package observe

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
)

// TestCommonProblemsAreOneLine: a problem that a thousand endpoints have is one line,
// problems that few have are a line each; nothing is logged twice.
func TestCommonProblemsAreOneLine(t *testing.T) {
	var out bytes.Buffer
	l := problemLog{log: slog.New(slog.NewTextHandler(&out, nil))}
	var o statemirror.SyncStatus
	for i := range 1000 {
		o.Problems = append(o.Problems, compile.Problem{Object: fmt.Sprintf("remote 1/%03d", i), Text: "network 1 does not exist"})
	}
	o.Problems = append(o.Problems, compile.Problem{Object: "egress", Text: "collides"}, compile.Problem{Object: "port a", Text: "x"})
	lines := func() []string {
		defer out.Reset()
		return strings.Split(strings.TrimSpace(out.String()), "\n")
	}
	l.update(o.ProblemTexts())
	if got := lines(); len(got) != 3 || !strings.Contains(strings.Join(got, "\n"), "kind=remote count=1000 first=\"remote 1/000\" problem=\"network 1 does not exist\"") {
		t.Errorf("log of problems that come:\n%s", strings.Join(got, "\n"))
	}
	l.update(o.ProblemTexts())
	if got := lines(); got[0] != "" {
		t.Errorf("log of problems that stay:\n%s", strings.Join(got, "\n"))
	}
	l.update(nil)
	if got := lines(); len(got) != 3 || !strings.Contains(strings.Join(got, "\n"), "count=1000") {
		t.Errorf("log of problems that have gone:\n%s", strings.Join(got, "\n"))
	}
}

// TestProblemsThatPassAreNotLogged: what is right again within two seconds is not logged,
// and what lasts is, once, although nothing happens meanwhile.
func TestProblemsThatPassAreNotLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := problemLog{log: slog.New(slog.NewTextHandler(&out, nil)), delay: logDelay}
		l.update(map[string]string{"tenant a": "x", "port b": "y"})
		time.Sleep(logDelay / 2)
		l.update(map[string]string{"port b": "y"})
		if out.Len() > 0 {
			t.Errorf("logged at once: %s", out.String())
		}
		time.Sleep(logDelay)
		synctest.Wait()
		if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "port b") {
			t.Errorf("after %v: %s", logDelay, got)
		}
		l.update(nil)
		if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "a problem is solved") {
			t.Errorf("in the end: %s", got)
		}
	})
}
