package model

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLabelFilterCovers: names cover themselves, prefixes what begins so.
func TestLabelFilterCovers(t *testing.T) {
	f, err := ParseLabelFilter("x", []string{"job-name", "com.acme.", "example.com/", "example.org/app.", strings.Repeat("long.", 30)})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{
		"job-name": true, "job-name.x": false, "job": false, "com.acme.build": true, "com.acme.a/b": true, "com.acme": false, "com.acmebuild": false,
		"example.com/x": true, "example.com": false, "sub.example.com/x": false, "example.org/app.x": true, "example.org/x": false, "": false,
		strings.Repeat("long.", 31) + "x/y": true,
	} {
		if got := f.Covers(key); got != want {
			t.Errorf("%q: %v", key, got)
		}
	}
	labels := map[string]string{"app": "web", "com.acme.build": "7", "note": "not selectable"}
	if d := cmp.Diff(map[string]string{"app": "web"}, f.Identifying(labels)); d != "" {
		t.Error(d)
	}
}

// TestLabelFilterEntries: what is read is written the same way, and nonsense is refused.
func TestLabelFilterEntries(t *testing.T) {
	for _, list := range [][]string{{"default"}, {"default", "a", "b."}, {"b."}, {"com.docker."}} {
		f, err := ParseLabelFilter("x", list)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(list, f.Entries()); d != "" {
			t.Error(d)
		}
		if again, err := ParseLabelFilter("x", f.Entries()); err != nil || !again.Equal(f) {
			t.Errorf("%q: %v, %q", list, err, again)
		}
	}
	if f, err := ParseLabelFilter("x", nil); f != nil || err != nil {
		t.Errorf("nothing: %q, %v", f, err)
	}
	var many []string
	for i := range MaxLabelFilter {
		many = append(many, fmt.Sprint("l", i))
	}
	if _, err := ParseLabelFilter("x", many); err != nil {
		t.Error(err)
	}
	for _, list := range [][]string{{""}, {"."}, {"/"}, {"*"}, {"a b"}, {"a=b"}, {"-a"}, {"a/b/c"}, {"a/b/"}, {"a", "a"}, {"default", "default"}, {"default", "job-name"}, append(many, "x"), append(slices.Clone(many[1:]), "default")} {
		if f, err := ParseLabelFilter("x", list); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.40q: %.40q, %v", list, f, err)
		}
	}
	for _, g := range []Global{{GeneratedLabels: LabelFilter{"b", "a"}}, {GeneratedLabels: LabelFilter{"default"}}} {
		if err := g.Validate(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", g.GeneratedLabels, err)
		}
	}
}

// TestDefaultLabelFilter: the user guide names the whole list.
func TestDefaultLabelFilter(t *testing.T) {
	page, err := os.ReadFile("../../docs/user/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range defaultLabelFilter {
		names = append(names, "`"+e+"`")
	}
	if want := strings.Join(names, ", ") + "."; !strings.Contains(string(page), want) {
		t.Errorf("docs/user/policy.md lacks: %s", want)
	}
	if err := DefaultGlobal().Validate(); err != nil {
		t.Error(err)
	}
}
