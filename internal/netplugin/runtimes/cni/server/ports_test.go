package server

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/cni"
)

// TestPortMappingsPublishPorts: the capability portMappings publishes ports; what is wrong with it
// is said before anything is made, and what cannot be published undoes the attachment.
func TestPortMappingsPublishPorts(t *testing.T) {
	port := func(proto model.Protocol, ip string, host, container uint16) attach.PortBinding {
		b := attach.PortBinding{Proto: proto, HostPort: host, HostPortEnd: host, ContainerPort: container}
		if ip != "" {
			b.HostIP = netip.MustParseAddr(ip)
		}
		return b
	}
	for _, tt := range []struct {
		mappings string
		want     []attach.PortBinding
		refused  string
	}{
		{`[{"hostPort":8080,"containerPort":80}]`, []attach.PortBinding{port(model.ProtoTCP, "", 8080, 80)}, ""},
		{
			`[{"hostPort":53,"containerPort":5353,"protocol":"udp","hostIP":"127.0.0.1"},{"hostPort":9,"containerPort":9,"protocol":"SCTP","hostIP":"fd00::1"},` +
				`{"hostPort":9,"containerPort":9,"protocol":"sctp","hostIP":"fd00::1"}]`,
			[]attach.PortBinding{port(model.ProtoUDP, "127.0.0.1", 53, 5353), port(model.ProtoSCTP, "fd00::1", 9, 9)},
			"",
		},
		{`[{"hostPort":0,"containerPort":80}]`, nil, "runtimeConfig.portMappings[0].hostPort 0: must be between 1 and 65535"},
		{`[{"hostPort":80,"containerPort":80,"hostIP":"224.0.0.1"}]`, nil, "must be an address of the host, or empty for all: multicast"},
		{`[{"hostPort":80,"containerPort":80,"hostIP":"255.255.255.255"}]`, nil, "must be an address of the host"},
		{`[{"hostPort":80,"containerPort":80,"hostIP":"ff02::1"}]`, nil, "must be an address of the host"},
		{`[]`, nil, ""},
		{`[{"hostPort":70000,"containerPort":80}]`, nil, "runtimeConfig.portMappings[0].hostPort 70000: must be between 1 and 65535"},
		{`[{"hostPort":80,"containerPort":80},{"hostPort":81}]`, nil, "runtimeConfig.portMappings[1].containerPort 0"},
		{`[{"hostPort":80,"containerPort":80,"protocol":"icmp"}]`, nil, "must be tcp, udp or sctp"},
		{`[{"hostPort":80,"containerPort":80,"hostIP":"fe80::1%eth0"}]`, nil, "must be an address of the host"},
		{`[{"hostPort":80,"containerPort":80,"hostIP":"here"}]`, nil, "must be an address of the host"},
	} {
		s := &service{res: attached}
		status, body := post(t, s, cni.Add, `{"cniVersion":"1.1.0","name":"n","runtimeConfig":{"portMappings":`+tt.mappings+`}}`)
		if tt.refused != "" {
			if status != cni.StatusRefused || !strings.Contains(body, tt.refused) || s.asked != nil {
				t.Errorf("%s: %d %s, after %v", tt.mappings, status, body, s.asked)
			}
			continue
		}
		var got []attach.PortBinding
		if s.published != nil {
			got = s.published.Ports
		}
		if diff := cmp.Diff(tt.want, got, compareAddrs); diff != "" || status != cni.StatusDone || s.detached != 0 {
			t.Errorf("%s: %d %s (-want +got):\n%s", tt.mappings, status, body, diff)
		}
	}
	s := &service{res: attached, publishErr: model.Errorf(model.ErrExists, "host port 80/tcp is published by c2/eth0 already")}
	status, body := post(t, s, cni.Add, `{"cniVersion":"1.1.0","name":"n","runtimeConfig":{"portMappings":[{"hostPort":80,"containerPort":80}]}}`)
	if status != cni.StatusRefused || !strings.Contains(body, `"code": 102`) || !strings.Contains(body, "published by c2/eth0 already") || s.detached != 1 {
		t.Errorf("a port that is taken: %d %s, detached %d times", status, body, s.detached)
	}
}
