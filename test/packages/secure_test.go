//go:build integration

package packages

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestSecureGuideMakesThreeMachinesACluster follows docs/how-to/secure.md with services: three machines with a netmaster
// each, of which the last one is a host too.
func TestSecureGuideMakesThreeMachinesACluster(t *testing.T) {
	text, err := os.ReadFile("../../docs/how-to/secure.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]string{}
	for _, b := range blockRE.FindAllStringSubmatch(string(text), -1) {
		blocks[b[1]] = b[2]
	}
	_, login, _ := strings.Cut(string(text), "## 2. Log in\n\n<!-- run: machine1 -->\n```sh\n")
	login, _, _ = strings.Cut(login, "```")
	packages, machines := build(t, "2.0.0"), onLAN(t, "m", 3)
	const addresses = "M1=10.0.0.1\nM2=10.0.0.2\nM3=10.0.0.3\n"
	for _, m := range machines {
		m.give(packages, "/root/packages", "*.deb")
		m.run("apt-get install -y /root/packages/contiv-*.deb")
	}
	one, three := machines[0], machines[2]
	follow := func(m *machine, block string) {
		t.Helper()
		if block == "" {
			t.Fatal("secure.md lacks a block")
		}
		t.Log(m.name, "\n", block, m.run(addresses+block))
	}
	token := func(flags string) string { return "TOKEN=" + one.run("netctl cluster token -q "+flags) }
	follow(one, blocks["first service"])
	follow(one, login)
	for i, m := range machines[1:] {
		own := strings.ReplaceAll(blocks["joining service"], "$M2", fmt.Sprintf("$M%d", i+2))
		follow(m, token("")+own)
	}
	follow(three, token("--host m3")+blocks["host service"])
	one.until("is well", func() error {
		out, err := one.try("netctl cluster members && netctl host ls && netctl status")
		if err == nil && (strings.Count(out, "answers") < 3 || !strings.Contains(out, "alive")) {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
}
