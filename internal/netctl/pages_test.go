package netctl

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/internal/base/pagetest"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// asNetctl has the test's own program be netctl, for the shell that runs pages.
const asNetctl = "CONTIV_TEST_AS_NETCTL"

// TestMain runs the tests, or is netctl.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "netmaster" {
		os.Exit(beNetmaster(os.Args))
	}
	if os.Getenv(asNetctl) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	os.Exit(beNetctl(os.Args[1:]))
}

// beNetctl runs a command line as the program does. Of a command that runs until it is
// interrupted it reads the flags only.
func beNetctl(args []string) int {
	inv, err := testTree().resolve(args)
	if err == nil && inv.path == "netctl monitor" {
		return ExitOK
	}
	return Run(context.Background(), Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Build: testBuild}, args)
}

// beforePage are the commands that make what a page's first block finds.
var beforePage = map[string]string{
	"docs/how-to/can.md": `netctl tenant create blue; netctl network create -t blue -s 10.1.1.0/24 net; netctl group create -t blue net web
for e in web1 db1; do printf "{kind: endpoint, TenantName: blue, NetworkName: net, EndpointID: $e, ServiceName: web, EPCommonName: $e, ConfigEP: {Container: $e, Host: host1}}" | netctl apply -f -; done
netctl network create -s 10.2.0.0/24 shop; netctl service create --network shop --selector app=shop --port 80:8080:TCP shop
printf '{kind: endpoint, TenantName: default, NetworkName: shop, EndpointID: s1, ConfigEP: {Host: host1, Labels: {app: shop}}}' | netctl apply -f -`,
	"docs/how-to/apply.md": `mkdir blue.d; printf 'kind: tenant\ntenantName: blue\n' >blue.d/blue.yaml`,
	"docs/how-to/assertions.md": `netctl tenant create blue; netctl network create -t blue -s 10.1.1.0/24 net; netctl policy create -t blue to-db
netctl policy rule-add -t blue -d in -j deny to-db rest; netctl policy rule-add -t blue -d in -j allow -p 2 -l tcp -P 5432 to-db db
netctl group create -t blue net web; netctl group create -t blue -p to-db net db
for e in web db; do printf "{kind: endpoint, TenantName: blue, NetworkName: net, EndpointID: $e, ServiceName: $e, ConfigEP: {Host: host1}}" | netctl apply -f -; done`,
	"docs/how-to/bandwidth.md": "netctl tenant create blue; netctl network create -t blue -s 10.1.1.0/24 backend; netctl group create -t blue backend web",
	"docs/how-to/confirm.md": `netctl network create -s 10.1.1.0/24 ways; netctl policy create gateway; netctl group create ways routers
printf 'kind: policy\ntenantName: default\npolicyName: more\n' >policies.yaml`,
	"docs/how-to/denied.md": `netctl tenant create blue; netctl network create -t blue -s 10.1.1.0/24 net; netctl policy create -t blue to-db
netctl network-policy create -t blue --default-in deny db
printf '{kind: endpoint, TenantName: blue, NetworkName: net, EndpointID: e1, ConfigEP: {Container: CONTAINER, Host: host1}}' | netctl apply -f -`,
	"docs/how-to/infra.md":          "netctl network create -s 10.1.1.0/24 net; netctl group create net web",
	"docs/how-to/moving-from-1x.md": "netctl tenant create blue",
	"docs/how-to/multicast.md":      "netctl tenant create blue",
	"docs/how-to/netctl.md":         "mkdir -p ~/.zsh/functions ~/.config/fish/completions",
	"docs/how-to/outside.md":        "netctl tenant create blue",
	"docs/how-to/plan.md": `netctl tenant create blue; netctl network create -t blue -s 10.1.1.0/24 net; netctl policy create -t blue to-db
netctl policy rule-add -t blue -d in -j deny to-db rest; netctl group create -t blue net web; netctl group create -t blue -p to-db net db
for e in web db; do for i in 1 2; do printf "{kind: endpoint, TenantName: blue, NetworkName: net, EndpointID: $e$i, ServiceName: $e, ConfigEP: {Host: host1}}" | netctl apply -f -; done; done`,
	"docs/how-to/routing.md": `netctl tenant create infra; netctl network create -t infra -s 10.9.0.0/24 dns; netctl network create -t infra -s 10.9.1.0/24 log
netctl group create -t infra dns servers`,
	"docs/how-to/services.md": `netctl network create --subnet 10.1.1.0/24 --gateway 10.1.1.254 web
printf '{kind: endpoint, TenantName: default, NetworkName: web, EndpointID: e1, EPCommonName: shop2, ConfigEP: {Container: c1, Host: host1}}' | netctl apply -f -`,
}

// TestPagesRun runs the code blocks of each page after <!-- run: netctl -->, one after the
// other in one shell, with a cluster of one netmaster and five hosts of which it knows.
func TestPagesRun(t *testing.T) {
	bin := t.TempDir()
	self, err := os.Executable()
	if err == nil {
		err = errors.Join(os.Symlink(self, filepath.Join(bin, "netctl")), os.Symlink(self, filepath.Join(bin, "netmaster")))
	}
	if err != nil {
		t.Fatal(err)
	}
	scripts := map[string]string{}
	for _, b := range pagetest.Blocks(t) {
		if b.Mark == "run: netctl" {
			scripts[b.Page] += fmt.Sprintf("echo '=== line %d'\n%s", b.Line, b.Text)
		}
	}
	for page := range beforePage {
		if scripts[page] == "" {
			t.Errorf("%s has no block to run", page)
		}
	}
	if len(scripts) < 20 {
		t.Errorf("only %d pages have blocks to run", len(scripts))
	}
	for page, script := range scripts {
		t.Run(page, func(t *testing.T) {
			st := memory.New()
			if _, err := st.Update(t.Context(), func(tx store.Tx) error {
				for i, name := range []model.HostName{"host1", "host2", "host3", "host4", "HOST"} {
					if err := tables.Hosts.Put(tx, model.Host{Name: name, VTEP: netip.AddrFrom4([4]byte{10, 0, 0, byte(11 + i)}), Confirms: true, Store: "held:former/1"}); err != nil {
						return err
					}
				}
				return tables.Incarnations.Put(tx, store.Incarnation{ID: "6c5f0f9e-7d3d-4d55-9c3e-3f5f0c2a7b11", Generation: 1, Since: "2026-11-22T00:00:00Z"})
			}); err != nil {
				t.Fatal(err)
			}
			url, dir := startNetmasterOn(t, st), t.TempDir()
			places := strings.NewReplacer("http://10.0.0.1:9999", url, "http://netmaster:9999", url, "http://old-netmaster:9999", url, "http://new-netmaster:9999", url, "/root/", dir+"/")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", places.Replace(beforePage[page]+"\n"+script))
			cmd.Dir = dir
			cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir, "NETMASTER=" + url, asNetctl + "=1"}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestCommandsOfPagesParse: netctl takes the flags and arguments of each of its command lines on
// a page, also where the block does not run.
func TestCommandsOfPagesParse(t *testing.T) {
	all := pagetest.Commands(t, "netctl")
	for _, c := range all {
		if _, err := testTree().resolve(c.Args); err != nil {
			t.Errorf("%s:%d: netctl %s: %v", c.Page, c.Line, strings.Join(c.Args, " "), err)
		}
	}
	if len(all) < 200 {
		t.Errorf("only %d command lines were found", len(all))
	}
}
