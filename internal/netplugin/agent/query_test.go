package agent

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// TestUnknownQueryParametersAreRefused: by inspection and by the CNI socket, which do nothing
// of such a request.
func TestUnknownQueryParametersAreRefused(t *testing.T) {
	b := newBed(t)
	b.ready()
	s := newSandbox(t)
	if _, err := b.agent.Runtime().Attach(t.Context(), attach.Request{Key: attach.Key{Container: "c1", IfName: "eth0"}, Netns: s.path, Tenant: "blue", Source: attach.SourceCNI}); err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	socket := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", b.cfg.Socket)
	}}}
	base := "http://" + b.agent.RESTAddr().String()
	const one = `{"container":"c1","ifName":"eth0"}`
	for _, tt := range []struct {
		client       *http.Client
		method, path string
		body         string
		status       int
	}{
		{http.DefaultClient, "POST", base + "/debug/reclaimEndpoint/c1?dryRun=true", "", 400},
		{http.DefaultClient, "GET", base + "/debug/state?pretty=1", "", 400},
		{http.DefaultClient, "GET", base + "/readyz?verbose", "", 400},
		{http.DefaultClient, "GET", base + "/livez?verbose", "", 400},
		{http.DefaultClient, "GET", base + "/metrics?name=x", "", 400},
		{http.DefaultClient, "GET", base + "/inspect/bgp?x", "", 400},
		{http.DefaultClient, "GET", base + "/monitor?host=h", "", 400},
		{http.DefaultClient, "GET", base + "/readyz?format=json", "", 200},
		{http.DefaultClient, "GET", base + "/healthz?format=json", "", 200},
		{socket, "POST", "http://x" + attach.PathDetach + "?dryRun=true", one, 400},
		{socket, "POST", "http://x" + attach.PathReady + "?verbose", "{}", 400},
		{socket, "POST", "http://x/ContivCNI.DelPod?dryRun=true", `{"K8S_POD_INFRA_CONTAINER_ID":"c1"}`, 500},
	} {
		status, body := do(t, tt.client, tt.method, tt.path, tt.body)
		if status != tt.status || status >= 400 && (!strings.Contains(body, "query parameter") || !strings.Contains(body, "is not known")) {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, status, body)
		}
	}
	if n := len(b.agent.Attachments.Entries()); n != 1 {
		t.Errorf("%d attachments are left", n)
	}
	for _, path := range []string{"/readyz", "/healthz"} {
		if status, body := do(t, http.DefaultClient, "GET", base+path+"?format=xml", ""); status != 400 || !strings.Contains(body, `format "xml": must be json`) {
			t.Errorf("%s in an unknown format: %d %s", path, status, body)
		}
	}
	if status, body := do(t, socket, "POST", "http://x"+attach.PathDetach, one); status != 200 {
		t.Errorf("detach: %d %s", status, body)
	}
}
