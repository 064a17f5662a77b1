package archtest

import (
	"crypto/sha256"
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"
)

// Each diagram is what tools/pictures.sh drew of its source, and each colour has a dark one.
func TestDiagramsAreDrawnFromTheirSource(t *testing.T) {
	sum := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:16] }
	style, dark := text(t, "docs/pictures/style.d2"), text(t, "docs/pictures/dark.css")
	color := regexp.MustCompile(`#[0-9a-f]{6}`)
	for _, c := range color.FindAllString(style, -1) {
		if !strings.Contains(dark, `"`+c+`"`) {
			t.Errorf("dark.css replaces no %s of style.d2", c)
		}
	}
	sources, diagrams := map[string]string{}, map[string]string{}
	for _, f := range files(t) {
		dir, base := path.Split(f.name)
		if name, ok := strings.CutSuffix(base, ".d2"); ok && dir == "docs/pictures/" && name != "style" {
			sources[name] = f.text
		} else if name, ok := strings.CutSuffix(base, ".svg"); ok && dir == "docs/pictures/" {
			diagrams[name] = f.text
		}
	}
	for name := range diagrams {
		if sources[name] == "" {
			t.Errorf("docs/pictures/%s.svg has no source", name)
		}
	}
	for name, source := range sources {
		if c := color.FindString(source); c != "" {
			t.Errorf("docs/pictures/%s.d2 has the colour %s: use a class of style.d2", name, c)
		}
		drawn, _, _ := strings.Cut(diagrams[name], "<!-- of ")
		if want := fmt.Sprintf("%s<!-- of %s: %s -->\n", drawn, sum(style+dark+source), sum(drawn)); diagrams[name] != want {
			t.Errorf("docs/pictures/%s.svg is not what tools/pictures.sh draws now: run `make generate`", name)
		}
	}
	if len(sources) < 12 {
		t.Errorf("only %d sources of diagrams found", len(sources))
	}
}
