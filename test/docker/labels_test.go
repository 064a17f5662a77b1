//go:build integration

package docker

import (
	"strings"
	"time"
)

// labelsFirst: a container's first packet is judged by its labels.
func labelsFirst(b *bed) {
	one, two := b.e[0], b.e[1]
	two.run("peer", "--net net1")
	peer := two.addr("peer", "net1")
	b.netctl("network-policy create --label quarantine=yes --default-out deny first")
	start := func(label string) (sent bool) {
		b.t.Helper()
		out, err := one.try(strings.Fields("run --rm --net net1 --label quarantine=" + label + " bb ping -c1 -W1 " + peer)...)
		if !strings.Contains(out, "1 packets transmitted") {
			b.t.Fatal(out, err)
		}
		return err == nil
	}
	var open, shut time.Duration
	for range 5 {
		begin := time.Now()
		if !start("no") {
			b.t.Error("the first packet of a container that nothing denies was lost")
		}
		open += time.Since(begin)
		begin = time.Now()
		if start("yes") {
			b.t.Error("the first packet of a container that its label denies went past the policy")
		}
		shut += time.Since(begin)
	}
	b.t.Logf("docker run with one ping takes %v; where its label denies that, %v", open/5, shut/5)
	b.netctl("network-policy rm first")
	two.docker("rm -f peer")
	b.nothingLeft()
}
