package archtest

import (
	"regexp"
	"strings"
	"testing"
)

// Each cell of the table of trust boundaries that says "no" names tests, and all tests
// that the table names exist.
func TestTrustBoundariesNameTheirTests(t *testing.T) {
	tests := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, f := range files(t) {
		if strings.HasSuffix(f.name, "_test.go") || strings.Contains(f.name, "datapath/conformance/") {
			for _, m := range declared.FindAllStringSubmatch(f.text, -1) {
				tests[m[1]] = true
			}
		}
	}
	_, page, found := strings.Cut(text(t, "docs/design/security.md"), "## Who may influence what")
	page, _, _ = strings.Cut(page, "\n## ")
	named, denies := regexp.MustCompile("`(Test\\w+)`"), regexp.MustCompile(`\bno\b`)
	cells := 0
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| who ") {
			continue
		}
		for _, cell := range strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")[1:] {
			cells++
			all := named.FindAllStringSubmatch(cell, -1)
			if denies.MatchString(cell) && len(all) == 0 {
				t.Errorf("no test shows what the cell %q says", strings.TrimSpace(cell))
			}
			for _, m := range all {
				if !tests[m[1]] {
					t.Errorf("there is no test %s", m[1])
				}
			}
		}
	}
	if !found || cells != 8*6 {
		t.Errorf("the table has %d cells", cells)
	}
}
