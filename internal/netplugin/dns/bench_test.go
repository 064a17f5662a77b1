package dns

import (
	"net/netip"
	"strconv"
	"testing"

	"github.com/miekg/dns"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// many is a desired state with n containers in ten groups.
func many(n int) desired.Host {
	h := twoTenants()
	net := askedBy[blue1]
	for i := range n {
		k := desired.DNSKey{Endpoint: model.EndpointKey{Network: net, ID: model.EndpointID(strconv.Itoa(i))}}
		h.DNS.Records = h.DNS.Records.Set(k, &desired.DNSRecord{
			Network: net, Name: "c" + strconv.Itoa(i), Group: "g" + strconv.Itoa(i%10), IPv4: netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}),
		})
	}
	return h
}

// BenchmarkRename: one container's change beside many others.
func BenchmarkRename(b *testing.B) {
	for _, n := range []int{10, 10000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s, h := New(Config{Log: discard}), many(n)
			s.Update(h)
			k := desired.DNSKey{Endpoint: model.EndpointKey{Network: askedBy[blue1], ID: "1"}}
			old, _ := h.DNS.Records.Get(k)
			for i := range b.N {
				r := *old
				r.Name = "r" + strconv.Itoa(i&1)
				h.DNS.Records = h.DNS.Records.Set(k, &r)
				s.Update(h)
			}
		})
	}
}

// BenchmarkAnswer: a container's name, and a group's of a thousand members.
func BenchmarkAnswer(b *testing.B) {
	s := New(Config{Log: discard, Upstreams: []netip.AddrPort{}})
	s.Update(many(10000))
	for _, name := range []string{"c77.", "g7."} {
		b.Run(name, func(b *testing.B) {
			w := &writer{from: udpFrom(blue1)}
			q := new(dns.Msg).SetQuestion(name, dns.TypeA)
			for range b.N {
				handler{s, b.Context()}.ServeDNS(w, q)
			}
		})
	}
}
