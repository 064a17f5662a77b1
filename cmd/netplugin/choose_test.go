package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAutoChoosesTheDriverThatTheHostCanRun: auto takes ebpf where the kernel can, else ovs and says what is
// missing; it stays with what the host has, whatever the kernel has become; a
// flag changes it.
func TestAutoChoosesTheDriverThatTheHostCanRun(t *testing.T) {
	const lacks = "ebpf driver: this kernel lacks loops (bpf_loop), which Linux 5.17 and later have"
	ebpfBefore, ovsBefore := &driverChoice{Driver: driverEBPF, Why: "w", Since: "s"}, &driverChoice{Driver: driverOVS, Why: "w", Since: "s"}
	tests := []struct {
		name       string
		asked      string
		remembered *driverChoice
		inUse      string
		lacks      string
		want, why  string
		fails      string
	}{
		{name: "fresh", asked: driverAuto, want: driverEBPF, why: "this kernel has all"},
		{name: "fresh, old kernel", asked: driverAuto, lacks: lacks, want: driverOVS, why: "bpf_loop"},
		{name: "earlier version on ovs", asked: driverAuto, inUse: driverOVS, want: driverOVS, why: "earlier version"},
		{name: "earlier version on ebpf", asked: driverAuto, inUse: driverEBPF, want: driverEBPF, why: "earlier version"},
		{name: "remembered ovs on a kernel that can ebpf", asked: driverAuto, remembered: ovsBefore, want: driverOVS, why: "w"},
		{name: "remembered ebpf while ovs is there", asked: driverAuto, remembered: ebpfBefore, inUse: driverOVS, want: driverEBPF, why: "w"},
		{name: "remembered ebpf on a kernel that cannot", asked: driverAuto, remembered: ebpfBefore, lacks: lacks, fails: "bpf_loop"},
		{name: "flag on a fresh host", asked: driverOVS, want: driverOVS, why: "--driver"},
		{name: "flag against what is remembered", asked: driverOVS, remembered: ebpfBefore, want: driverOVS, why: "--driver"},
		{name: "flag against what is in use", asked: driverEBPF, inUse: driverOVS, want: driverEBPF, why: "--driver"},
		{name: "flag that changes nothing", asked: driverEBPF, remembered: ebpfBefore, want: driverEBPF, why: "w"},
		{name: "fake", asked: driverFake, remembered: ebpfBefore, want: driverFake, why: "--driver"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := choose(t.Context(), tt.asked, driverEvidence{
				remembered: tt.remembered,
				lacks: func(p dataPlane) string {
					if p.name == driverEBPF {
						return tt.lacks
					}
					return ""
				},
				inUse: func(context.Context) (string, string) { return tt.inUse, "auto: an earlier version uses it" },
			})
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) || !strings.Contains(err.Error(), "--driver ovs") {
					t.Errorf("error %v, want one that names %s and --driver ovs", err, tt.fails)
				}
				return
			}
			if err != nil || c.Driver != tt.want || !strings.Contains(c.Why, tt.why) {
				t.Errorf("%+v, %v, want %s because of %q", c, err, tt.want, tt.why)
			}
			if got := c.fellBack(); got != (tt.name == "fresh, old kernel") {
				t.Errorf("fell back: %v", got)
			}
		})
	}
}

// TestChosenDriverIsReadAgain: what is written is read again, and nothing else is taken for it.
func TestChosenDriverIsReadAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if c, err := readChoice(dir); c != nil || err != nil {
		t.Fatalf("a host without memory: %v, %v", c, err)
	}
	want := driverChoice{Version: 1, Driver: driverOVS, Why: "because", Since: "2026-11-21T00:00:00Z"}
	if err := want.save(dir); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(filepath.Join(dir, choiceFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := want.save(dir); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(filepath.Join(dir, choiceFile)); err != nil || !os.SameFile(before, after) {
		t.Errorf("what is remembered was written once more, for which a full disk has no room: %v", err)
	}
	got, err := readChoice(dir)
	if diff := cmp.Diff(&want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"", "{", `{"version":2,"driver":"ovs"}`, `{"version":1,"driver":"other"}`} {
		if err := os.WriteFile(filepath.Join(dir, choiceFile), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := readChoice(dir); err == nil || !strings.Contains(err.Error(), choiceFile) || !strings.Contains(err.Error(), "--driver") {
			t.Errorf("%q: %v, %v, want an error that names the file and --driver", bad, c, err)
		}
		o := options{stateDir: dir, driver: driverAuto}
		if _, err := chooseDriver(t.Context(), o); err == nil {
			t.Errorf("%q: auto chose all the same", bad)
		}
		o.driver = driverEBPF
		if c, err := chooseDriver(t.Context(), o); err != nil || c.Driver != driverEBPF {
			t.Errorf("%q: with --driver: %v, %v", bad, c, err)
		}
	}
}

// TestOlderJournalMeansOpenVSwitch: a journal of an earlier version means Open vSwitch.
func TestOlderJournalMeansOpenVSwitch(t *testing.T) {
	dir := t.TempDir()
	o := options{stateDir: dir, ovsDB: "unix:" + filepath.Join(dir, "none.sock"), ebpfPinDir: filepath.Join(dir, "pins")}
	if d, why := inUse(t.Context(), o); d != "" {
		t.Errorf("an empty host uses %s: %s", d, why)
	}
	if err := os.MkdirAll(filepath.Join(dir, "attach"), 0o700); err != nil {
		t.Fatal(err)
	}
	if d, why := inUse(t.Context(), o); d != "" {
		t.Errorf("an empty journal means %s: %s", d, why)
	}
	if err := os.WriteFile(filepath.Join(dir, "attach", "a.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if d, _ := inUse(t.Context(), o); d != driverOVS {
		t.Errorf("a host with attachments and no choice uses %q, want ovs", d)
	}
	if err := os.MkdirAll(filepath.Join(dir, "pins", "maps", "ports"), 0o700); err != nil {
		t.Fatal(err)
	}
	if d, _ := inUse(t.Context(), o); d != driverEBPF {
		t.Errorf("a host with pinned maps and no choice uses %q, want ebpf", d)
	}
}
