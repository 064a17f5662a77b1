package controller

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/mirror"
)

// TestContestedAddressStaysWithTheFirstService: at each port an external address belongs to the service that had
// it first, whatever the names, until that service gives it up. An address of the pool
// belongs to one service, and the pool assigns no address that a service has.
func TestContestedAddressStaysWithTheFirstService(t *testing.T) {
	pool, err := model.ParseAddressPool("pool", []string{"203.0.113.1-203.0.113.2"})
	if err != nil {
		t.Fatal(err)
	}
	l := newServicesLab(t, func(c *ServicesConfig) {
		c.Pool, c.External = pool, []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	})
	l.start(l.ctrl.Run)
	l.start(l.services.Run)
	l.lead(l.leader())
	at := func(addrs ...string) func(*corev1.ServiceSpec) {
		return func(s *corev1.ServiceSpec) { s.ExternalIPs = addrs }
	}
	l.sources[mirror.Services].Add(service("m", "10.96.0.1", at("203.0.113.9", "203.0.113.1")))
	const m = "service ns/m [10.96.0.1] [] [203.0.113.1 203.0.113.9] 1"
	l.want(m)
	l.sources[mirror.Services].Add(service("a", "10.96.0.2", at("203.0.113.9")))
	l.tells(`"203.0.113.9" leads to service ns/m at port 80 of tcp: it is not served`)
	l.want("service ns/a [10.96.0.2] [] [] 1", m)
	l.sources[mirror.Services].Add(service("b", "10.96.0.3", at("203.0.113.9"), func(s *corev1.ServiceSpec) { s.Ports[0].Port = 81 }))
	const b = "service ns/b [10.96.0.3] [] [203.0.113.9] 1"
	l.want("service ns/a [10.96.0.2] [] [] 1", b, m)
	l.sources[mirror.Services].Add(service("c", "10.96.0.4", balancer)) // the pool's first is m's
	const c = "service ns/c [10.96.0.4] [203.0.113.2] [] 1"
	l.want("service ns/a [10.96.0.2] [] [] 1", b, c, m, "pool ns/c [203.0.113.2]")
	l.sources[mirror.Services].Add(service("d", "10.96.0.5", at("203.0.113.2"), func(s *corev1.ServiceSpec) { s.Ports[0].Port = 82 }))
	l.tells(`"203.0.113.2" is the load balancer's address of service ns/c: it is not served`)
	l.sources[mirror.Services].Delete(service("m", ""))
	l.want("service ns/a [10.96.0.2] [] [203.0.113.9] 1", b, c, "service ns/d [10.96.0.5] [] [] 1", "pool ns/c [203.0.113.2]")
	l.sources[mirror.Services].Modify(service("a", "10.96.0.2", at("203.0.113.9"), func(s *corev1.ServiceSpec) { s.Ports[0].Port = 8080 })) // it stays its own
	l.want("service ns/a [10.96.0.2] [] [203.0.113.9] 1", b, c, "service ns/d [10.96.0.5] [] [] 1", "pool ns/c [203.0.113.2]")
}

// TestServicesContestedAtOnce: of two services that are met in one look one has an
// address outside the cluster at a port, and both at different ports.
func TestServicesContestedAtOnce(t *testing.T) {
	l := newServicesLab(t, func(c *ServicesConfig) { c.External = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")} })
	at := func(port int32) func(*corev1.ServiceSpec) {
		return func(s *corev1.ServiceSpec) { s.ExternalIPs, s.Ports[0].Port = []string{"203.0.113.7"}, port }
	}
	l.sources[mirror.Services].Add(service("e", "10.96.0.1", at(80)))
	l.sources[mirror.Services].Add(service("f", "10.96.0.2", at(80)))
	l.sources[mirror.Services].Add(service("g", "10.96.0.3", at(81)))
	l.start(l.ctrl.Run)
	l.start(l.services.Run)
	l.lead(l.leader())
	l.tells(`"203.0.113.7" leads to service ns/`)
	held := func() (n int) {
		for _, r := range l.rows() {
			if strings.Contains(r, "[203.0.113.7]") {
				n++
			}
		}
		return n
	}
	l.until(func() bool { return len(l.rows()) == 3 && held() == 2 }, func() string { return strings.Join(l.rows(), "\n") })
}
