package server

import (
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/cni"
)

// TestBandwidthCapabilityLimitsBothWays: the capability limits what the container receives (ingress) and sends;
// what limits nothing is refused before anything is made.
func TestBandwidthCapabilityLimitsBothWays(t *testing.T) {
	for _, tt := range []struct {
		asked   string
		want    model.Rates
		refused string
	}{
		{`{"ingressRate":1000000,"egressRate":2000000}`, model.Rates{Receive: model.Rate{Bits: 1_000_000}, Send: model.Rate{Bits: 2_000_000}}, ""},
		{`{"ingressRate":1000000,"ingressBurst":16000}`, model.Rates{Receive: model.Rate{Bits: 1_000_000, Burst: 2000}}, ""},
		// As containerd and CRI-O ask for a pod.
		{`{"ingressRate":1000,"ingressBurst":4294967295,"egressRate":0,"egressBurst":0}`, model.Rates{Receive: model.Rate{Bits: 1000}}, ""},
		{`{"egressRate":10000000000000,"egressBurst":34359738359}`, model.Rates{Send: model.Rate{Bits: 10_000_000_000_000}}, ""},
		{`{"egressRate":1000,"egressBurst":2147483647}`, model.Rates{Send: model.Rate{Bits: 1000, Burst: 268_435_455}}, ""},
		{`{}`, model.Rates{}, ""},
		{`{"ingressRate":999}`, model.Rates{}, "runtimeConfig.bandwidth.ingressRate 999: must be between 1000 and 10000000000000 bits a second"},
		{`{"egressRate":-1}`, model.Rates{}, "runtimeConfig.bandwidth.egressRate -1"},
		{`{"egressRate":10000000000001}`, model.Rates{}, "runtimeConfig.bandwidth.egressRate"},
		{`{"egressBurst":100000}`, model.Rates{}, "runtimeConfig.bandwidth.egressBurst 100000: must be left out without egressRate"},
		{`{"ingressRate":1000,"ingressBurst":15999}`, model.Rates{}, "runtimeConfig.bandwidth.ingressBurst 15999: must be at least 16000 bits, a packet"},
		{`{"ingressRate":1000,"ingressBurst":-8}`, model.Rates{}, "runtimeConfig.bandwidth.ingressBurst -8"},
		{`{"ingressRate":"fast"}`, model.Rates{}, "ingressRate"},
	} {
		s := &service{res: attached}
		status, body := post(t, s, cni.Add, `{"cniVersion":"1.1.0","name":"n","runtimeConfig":{"bandwidth":`+tt.asked+`}}`)
		asked, _ := s.asked.(attach.Request)
		switch {
		case tt.refused != "":
			if status != cni.StatusRefused || !strings.Contains(body, tt.refused) || s.asked != nil {
				t.Errorf("%s: %d %s, after %v", tt.asked, status, body, s.asked)
			}
		case status != cni.StatusDone || s.asked == nil || asked.Rates != tt.want:
			t.Errorf("%s: %d %s, asked %+v", tt.asked, status, body, s.asked)
		}
	}
}
