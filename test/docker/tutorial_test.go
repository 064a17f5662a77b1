//go:build integration

package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/contiv/netplugin/v2/internal/testcluster"
	dockerlab "github.com/contiv/netplugin/v2/internal/testcluster/docker"
	"github.com/contiv/netplugin/v2/internal/testcluster/tutorial"
)

// TestComposeTutorialWorksAsWritten runs the tutorial with each Compose that there is. An image of the
// machine's busybox stands in for Docker Hub's.
func TestComposeTutorialWorksAsWritten(t *testing.T) {
	t.Parallel()
	for i, cli := range composeCLIs() {
		t.Run(filepath.Base(cli), func(t *testing.T) {
			cfg := testcluster.Config{Name: fmt.Sprintf("t%d%d", os.Getpid(), i), BinDir: bin, Hosts: 1, Bare: true, Driver: testcluster.DriverEBPF}
			need(t, cfg)
			l, err := testcluster.Up(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := l.Down(); err != nil {
					t.Error(err)
				}
			})
			e := &engine{t: t, host: l.Hosts()[0]}
			if e.Engine, err = dockerlab.New(e.host); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { e.must(e.Close(t.Context())) })
			e.start()
			e.must(e.Import(t.Context()))
			e.docker("tag " + dockerlab.Image + " busybox")
			s := tutorial.NewShell(t, l, e.host, append(e.Env(), "DOCKER_HOST=unix://"+e.Socket(), "DOCKER_CONFIG="+filepath.Dir(e.Socket()))...)
			s.Run(t, fmt.Sprintf("docker() { %s \"${@:2}\"; }", cli)) // docker compose ...
			tutorial.Follow(t, []*tutorial.Shell{s}, "docs/tutorials/compose.md")
		})
	}
}
