//go:build integration

package docker

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// image: an engine takes the images of a release, their programs run with nothing beside
// them, and netplugin installs the plugin from one onto the machine.
func image(b *bed) {
	e, dir := b.e[0], b.t.TempDir()
	load := func(name string, flags ...string) string {
		archive := filepath.Join(dir, "image.tar")
		e.must(testcluster.BuildImage(b.t.Context(), bin, archive, name, flags...))
		loaded := name + "-" + runtime.GOARCH
		if out := e.docker("load -i " + archive); !strings.Contains(out, strings.TrimPrefix(loaded, "docker.io/")) {
			b.t.Errorf("docker load says %s", out)
		}
		return loaded
	}
	name := load("docker.io/contiv/contiv:test")
	const run = "run --rm --network none --read-only "
	for _, program := range []string{"netmaster", "netplugin", "netctl", "contivk8s"} {
		if out := e.docker(run + name + " " + program + " --version"); !strings.Contains(strings.ToLower(out), "version") && !strings.Contains(out, program) {
			b.t.Errorf("%s --version: %s", program, out)
		}
	}
	e.docker(run + "-v " + dir + ":/host " + name + " netplugin --install-cni --cni-bin-dir /host/bin --cni-conf-dir /host/net.d")
	want, err := os.ReadFile(filepath.Join(bin, "contivk8s"))
	e.must(err)
	got, err := os.ReadFile(filepath.Join(dir, "bin", "contivk8s"))
	e.must(err)
	if string(got) != string(want) {
		b.t.Error("the plugin that was installed is not the built one")
	}
	if _, err := os.Stat(filepath.Join(dir, "net.d", "10-contiv.conflist")); err != nil {
		b.t.Error(err)
	}
	// netmaster with files that cannot change but for its data, as the chart has it, and as
	// another user than root in the image for that.
	own := load("docker.io/contiv/netmaster:test", "-programs", "netctl,netmaster", "-user", "65532")
	for image, volume := range map[string]string{name: filepath.Join(dir, "etcd") + ":/var/lib/contiv/etcd", own: "state:/var/lib/contiv"} {
		e.docker("run -d --name master --network none --read-only --cap-drop ALL --tmpfs /tmp -v " + volume + " " + image + " netmaster --external-address 127.0.0.1:9999")
		e.until("netmaster in a container of "+image+" is ready", time.Minute, func() error {
			_, err := e.try("exec", "master", "netctl", "tenant", "ls")
			return err
		})
		e.docker("rm -f master")
	}
	if out := e.docker("image inspect --format {{.Config.User}} " + own); strings.TrimSpace(out) != "65532:65532" {
		b.t.Errorf("the image's user is %q", out)
	}
	e.docker("rmi " + name + " " + own)
	e.docker("volume rm state")
}
