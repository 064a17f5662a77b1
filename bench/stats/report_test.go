package stats

import (
	"runtime"
	"testing"
)

// A load is too high from the limit on, and if it is unknown.
func TestBusyMachineIsNoticed(t *testing.T) {
	for load, want := range map[string]bool{"3.99 9 9": false, "4.00 1 1": true, "unknown": true} {
		if Busy(load, 4) != want {
			t.Errorf("load %s is busy: %v, want %v", load, !want, want)
		}
	}
}

// A report begins with what ran where and when, and its tables are Markdown.
func TestReportIsMarkdown(t *testing.T) {
	r := Run{Name: "n", Date: "d", Commit: "c", Machine: "m", Kernel: "k", Command: "go run ./x", Load: "1 2 3"}
	text := r.Text("etcd 3") + Header("a", "b") + Row(1, "x")
	want := "# n\n\n- date: d, commit c\n- machine: m, kernel k, " + runtime.Version() + "\n- with: etcd 3\n- command: `go run ./x`\n- load of the machine before (1, 5, 15 min): 1 2 3\n" +
		"| a | b |\n|---|---|\n| 1 | x |\n"
	if text != want {
		t.Errorf("%s, want %s", text, want)
	}
}

// Of sections those run that are named, in their own order.
func TestNamedSectionsRunInTheirOrder(t *testing.T) {
	all := []Section[int]{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	if got := Named(all, "c,a,x"); len(got) != 2 || got[0].Name != "a" || got[1].Name != "c" || all[1].Name != "b" {
		t.Errorf("%v of %v", got, all)
	}
}
