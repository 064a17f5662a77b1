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

// TestLabelFilterEntriesAreReadAsWritten: what is read is written the same way, and nonsense is refused.
func TestLabelFilterEntriesAreReadAsWritten(t *testing.T) {
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

// TestDefaultLabelFilterIsDocumented: the user guide names the whole list.
func TestDefaultLabelFilterIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/how-to/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range defaultLabelFilter {
		names = append(names, "`"+e+"`")
	}
	if want := strings.Join(names, ", ") + "."; !strings.Contains(string(page), want) {
		t.Errorf("docs/how-to/policy.md lacks: %s", want)
	}
	if err := DefaultGlobal().Validate(); err != nil {
		t.Error(err)
	}
}

// TestNamedDefaultLabelsCount: a label of the default list counts once it is named, nothing beside it
// does, and what two filters cover together has only the exceptions of both.
func TestNamedDefaultLabelsCount(t *testing.T) {
	const index, beside = "apps.kubernetes.io/pod-index", "apps.kubernetes.io/pod-index2"
	before := DefaultGlobal()
	after := before
	after.CountedLabels = []string{index}
	if f := after.Filter(); f.Covers(index) || !f.Covers(beside) || !before.Filter().Covers(index) {
		t.Errorf("with an exception %v", f)
	}
	if got := after.Filter().Identifying(map[string]string{index: "0", beside: "1", "app": "a"}); len(got) != 2 || got[index] != "0" {
		t.Errorf("identifying labels: %v", got)
	}
	both := before.Filter().And(after.Filter())
	if !both.Covers(index) || !both.Equal(before.Filter()) {
		t.Errorf("what either covers: %v", both)
	}
	if same := after.Filter().And(after.Filter()); same.Covers(index) {
		t.Errorf("what either of two alike covers: %v", same)
	}
	after.GeneratedLabels = LabelFilter{"apps.", "job-name"}
	if !before.CanIdentify(index) || after.CanIdentify(index) || !after.CanIdentify("job-name") || before.CanIdentify("app") {
		t.Error("what may count")
	}
	if _, err := ParseLabelFilter("generatedLabels", []string{"!" + index}); err == nil {
		t.Error("a request may make an exception")
	}
}
