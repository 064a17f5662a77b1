package main

import (
	"net/http"
	"testing"

	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

// With --legacy-errors clients that name no media type, as 1.x's did, get 500 with the
// sentence; others, and all clients without the flag, get the status that fits.
func TestLegacyErrorsAreForClientsOf1x(t *testing.T) {
	for _, tc := range []struct {
		flags  []string
		accept string
		want   int
	}{
		{nil, "", http.StatusNotFound},
		{[]string{"--legacy-errors"}, "", http.StatusInternalServerError},
		{[]string{"--legacy-errors"}, "application/json", http.StatusNotFound},
	} {
		p := start(t, nil, append(tc.flags, "--data-dir", t.TempDir(), "--etcd-listen", storetest.FreePort(t), "--internal-address", "127.0.0.1:"+port(storetest.FreePort(t)))...)
		p.ready()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.api+"/api/v1/networks/default:none/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if tc.accept != "" {
			req.Header.Set("Accept", tc.accept)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != tc.want {
			t.Errorf("%v, Accept %q: status %d, want %d (%v)", tc.flags, tc.accept, resp.StatusCode, tc.want, err)
		}
		http.DefaultClient.CloseIdleConnections()
		p.stop()
	}
}
