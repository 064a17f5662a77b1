package testcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// clockFile has by how many seconds the clock of a program from BuildWithClocks is ahead:
// below the directory that it runs in, unless clockEnv names another.
const (
	clockFile = "clock"
	clockEnv  = "CONTIV_LAB_CLOCK"
)

// Where package time takes the wall clock, and what comes before and in its place.
const (
	nowLine   = "func Now() Time {\n	sec, nsec, mono := runtimeNow()\n"
	offSource = `var ahead atomic.Int64

// SetAhead has Now be so many seconds ahead.
func SetAhead(seconds int64) { ahead.Store(seconds) }

`
	clockSource = `package main

import (
	"cmp"
	"os"
	"strconv"
	"time"
)

func init() {
	set := func() {
		text, _ := os.ReadFile(cmp.Or(os.Getenv("` + clockEnv + `"), "` + clockFile + `"))
		if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
			time.SetAhead(n)
		}
	}
	set()
	go func() {
		for range time.Tick(20 * time.Millisecond) {
			set()
		}
	}()
}
`
)

// BuildWithClocks is Build with a package time whose Now can be set while netmaster and
// netplugin run. The library is compiled for it, which takes minutes the first time.
func BuildWithClocks(ctx context.Context, dir, bin string, programs ...string) error {
	root, err := Root(ctx, dir)
	if err != nil {
		return err
	}
	goroot, err := output(ctx, root, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	at := filepath.Join(goroot, "src", "time", "time.go")
	text, err := os.ReadFile(at)
	if err != nil {
		return err
	}
	now := strings.Replace(string(text), nowLine, offSource+nowLine+"	sec += ahead.Load()\n", 1)
	now = strings.Replace(now, "import (\n", "import (\n\t\"sync/atomic\"\n", 1)
	if strings.Count(string(text), nowLine) != 1 || !strings.Contains(now, `"sync/atomic"`) {
		return fmt.Errorf("package time of this Go takes the wall clock elsewhere than by\n%s", nowLine)
	}
	made, err := os.MkdirTemp("", "contiv-clocks-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(made) }() // in the temporary directory
	replaced, err := writeOverlay(made, map[string]string{
		at: now, filepath.Join(root, "cmd", "netmaster", "clock.go"): clockSource, filepath.Join(root, "cmd", "netplugin", "clock.go"): clockSource,
	})
	if err != nil {
		return err
	}
	return build(ctx, root, bin, []string{"-overlay", replaced}, programs)
}

// writeOverlay writes what 'go build -overlay' reads below a directory.
func writeOverlay(dir string, contents map[string]string) (string, error) {
	replaced := map[string]string{}
	for at, content := range contents {
		replaced[at] = filepath.Join(dir, fmt.Sprint(len(replaced), ".go"))
		if err := os.WriteFile(replaced[at], []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, text, 0o600)
}

// SetClock sets how far the clock of the host's netplugin, of BuildWithClocks, is ahead, or
// behind, within some 20 ms; a restart does not change it.
func (h *Host) SetClock(ahead time.Duration) error {
	return SetClock(filepath.Join(h.Dir, clockFile), ahead)
}

// SetMasterClock is that for the netmasters.
func (l *Lab) SetMasterClock(ahead time.Duration) error {
	return SetClock(filepath.Join(l.st.Config.Dir, "master", clockFile), ahead)
}

// ClockAt is the environment of a program whose clock another file sets.
func ClockAt(file string) string { return clockEnv + "=" + file }

// SetClock writes a clock's file.
func SetClock(file string, ahead time.Duration) error {
	if err := os.WriteFile(file+".new", fmt.Append(nil, int64(ahead/time.Second)), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
