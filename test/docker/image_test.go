//go:build integration

package docker

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// image: what `make image` makes is taken by an engine, its programs run with nothing
// beside them, and netplugin installs the plugin from it onto the machine.
func image(b *bed) {
	e, dir := b.e[0], b.t.TempDir()
	const name = "docker.io/contiv/contiv:test"
	archive := filepath.Join(dir, "contiv.tar")
	make := exec.CommandContext(b.t.Context(), "go", "run", "../../packaging/image", "-bin", bin, "-o", archive, "-name", name)
	if out, err := make.CombinedOutput(); err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
	if out := e.docker("load -i " + archive); !strings.Contains(out, "contiv/contiv:test") {
		b.t.Errorf("docker load says %s", out)
	}
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
	// netmaster with files that cannot change but for its data, as the chart has it.
	e.docker("run -d --name master --network none --read-only --cap-drop ALL --tmpfs /tmp -v " + filepath.Join(dir, "etcd") + ":/var/lib/contiv/etcd " + name + " netmaster --external-address 127.0.0.1:9999")
	e.until("netmaster in a container is ready", time.Minute, func() error {
		_, err := e.try("exec", "master", "netctl", "tenant", "ls")
		return err
	})
	e.docker("rm -f master")
	e.docker("rmi " + name)
}
