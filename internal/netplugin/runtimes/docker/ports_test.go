package docker

import (
	"fmt"
	"testing"
)

// TestPublishedPortsFollowTheLeadingEndpoint: what docker run -p asks for is published by the endpoint that leads
// out, until that is taken back.
func TestPublishedPortsFollowTheLeadingEndpoint(t *testing.T) {
	b := newBed(t)
	b.is("NetworkDriver.CreateNetwork", netOne, `{}`)
	b.is("NetworkDriver.CreateEndpoint", `{"NetworkID":"n1","EndpointID":"e1","Interface":{"Address":"10.1.1.1/24"}}`, `{"Interface":{"MacAddress":"02:02:0a:01:01:01"}}`)
	b.is("NetworkDriver.ProgramExternalConnectivity", `{"NetworkID":"n1","EndpointID":"e1","Options":{"com.docker.network.portmap":[
		{"Proto":6,"IP":"","Port":80,"HostIP":"","HostPort":8080,"HostPortEnd":8080},{"Proto":17,"Port":53,"HostIP":"10.0.0.1","HostPort":0,"HostPortEnd":0},
		{"Proto":6,"Port":80,"HostIP":"::","HostPort":8080,"HostPortEnd":8080},
		{"Proto":6,"Port":81,"HostIP":"0.0.0.0","HostPort":0},{"Proto":6,"Port":81,"HostIP":"::","HostPort":0},
		{"Proto":6,"Port":82,"HostIP":"0.0.0.0","HostPort":82},{"Proto":6,"Port":83,"HostIP":"::","HostPort":83},
		{"Proto":6,"Port":84,"HostIP":"2001:db8::1","HostPort":84}]}}`, `{}`)
	if got, want := fmt.Sprint(b.c.Published(endpointAttachment("e1"))),
		"[*:8080->80/tcp 10.0.0.1:0->53/udp *:0->81/tcp 0.0.0.0:82->82/tcp [::]:83->83/tcp [2001:db8::1]:84->84/tcp]"; got != want {
		t.Errorf("published %s, want %s", got, want)
	}
	b.fails("NetworkDriver.ProgramExternalConnectivity", `{"EndpointID":"e1","Options":{"com.docker.network.portmap":[{"Proto":6,"Port":80,"HostIP":"x"}]}}`, 200, "HostIP")
	b.fails("NetworkDriver.ProgramExternalConnectivity", `{"EndpointID":"e9","Options":{"com.docker.network.portmap":[{"Proto":6,"Port":80}]}}`, 200, "no such attachment")
	b.is("NetworkDriver.RevokeExternalConnectivity", `{"NetworkID":"n1","EndpointID":"e1"}`, `{}`)
	if got := b.c.Published(endpointAttachment("e1")); len(got) > 0 {
		t.Errorf("still published: %v", got)
	}
}
