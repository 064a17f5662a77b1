package dns

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// FuzzResolvers: of a resolv.conf at most the first resolvers are taken, in their order,
// as plain reading finds them too; and a list that is accepted is the same when it is
// written down and read again.
func FuzzResolvers(f *testing.F) {
	f.Add("nameserver 10.0.0.1\nnameserver fd00::1\nsearch a b\noptions ndots:5\n", "10.0.0.1,[fd00::1]:5353")
	f.Add("nameserver\nnameserver x\n# nameserver 10.0.0.2\nnameserver 10.0.0.3 10.0.0.4", "fd00::1, 10.0.0.1:53")
	f.Add("nameserver fe80::1%eth0\nnameserver 1.1.1.1\nnameserver 1.1.1.2\nnameserver 1.1.1.3\nnameserver 1.1.1.4", "10.0.0.1:0")
	f.Add("options ndots:\noptions timeout:x attempts:-1\n", "10.0.0.1,,")
	f.Fuzz(func(t *testing.T, conf, list string) {
		if got, err := parseResolvConf([]byte(conf)); err == nil {
			var want []netip.AddrPort
			for line := range strings.SplitSeq(conf, "\n") {
				words := strings.Fields(line)
				if len(words) < 2 || words[0] != "nameserver" {
					continue
				}
				if a, err := netip.ParseAddr(words[1]); err == nil && len(want) < maxUpstreams {
					want = append(want, netip.AddrPortFrom(a, Port))
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q is read as %v, not %v", conf, got, want)
			}
		}
		all, err := ParseUpstreams(list)
		if err != nil {
			return
		}
		var texts []string
		for _, a := range all {
			if !a.IsValid() || a.Port() == 0 {
				t.Errorf("%q has %v", list, a)
			}
			texts = append(texts, a.String())
		}
		if again, err := ParseUpstreams(strings.Join(texts, ",")); err != nil || !slices.Equal(again, all) {
			t.Errorf("%q is %v, again %v, %v", list, all, again, err)
		}
	})
}
