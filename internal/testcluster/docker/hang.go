package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// Stacks returns what each of dockerd's goroutines does, for failure reports: where
// an engine hangs, its log says nothing.
func (e *Engine) Stacks(ctx context.Context) (string, error) {
	pid, err := os.ReadFile(filepath.Join(e.dir, "pid"))
	if err != nil {
		return "", err
	}
	const files = "/run/docker/goroutine-stacks-*"
	if _, err := e.Inside(ctx, "sh", "-c", "rm -f "+files+" && kill -USR1 "+strings.TrimSpace(string(pid))); err != nil {
		return "", err
	}
	var out string
	err = testcluster.Until(ctx, "dockerd's stacks", func(ctx context.Context) (err error) {
		if out, err = e.Inside(ctx, "sh", "-c", "cat "+files); err == nil && out == "" {
			err = errors.New("nothing is written yet")
		}
		return err
	})
	return out, err
}

// Deadlocked tells by its stacks whether dockerd hangs by a fault of its own that
// engines before 20.10.27 and 22.06 have (moby/moby#46661): who leaves a network
// holds that network's lock and waits for the controller's, while somebody else
// holds the controller's and asks for the network's number. It comes where many
// containers go at once, and nothing but a new start of dockerd ends it.
func Deadlocked(stacks string) bool {
	leaving, asking := false, false
	for g := range strings.SplitSeq(stacks, "\n\n") {
		head, _, _ := strings.Cut(g, "\n")
		if !strings.Contains(head, "semacquire") && !strings.Contains(head, "sync.Mutex.Lock") {
			continue
		}
		leaving = leaving || strings.Contains(g, "libnetwork.(*network).getSvcRecords(")
		asking = asking || strings.Contains(g, "libnetwork.(*network).ID(")
	}
	return leaving && asking
}
