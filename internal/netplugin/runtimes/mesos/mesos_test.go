package mesos

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/cni/server"
)

// service keeps what it was asked, and answers res and err.
type service struct {
	attach.Service // nil: what the two calls do not ask for
	asked          any
	res            attach.Result
	err            error
}

func (s *service) Attach(_ context.Context, r attach.Request) (attach.Result, error) {
	s.asked = r
	return s.res, s.err
}

func (s *service) Detach(_ context.Context, r attach.DetachRequest) error {
	s.asked = r
	return s.err
}

func post(t *testing.T, s *service, method, path, body string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(s).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

const named = `{"cni_ifname":"eth1","cni_netns":"/var/run/mesos/isolators/network/cni/c1/ns","cni_containerid":"c1"`

// TestCallsOf1xBecomeCNIRequests: 1.x's two calls become the CNI plugin's requests, and are answered as by 1.x.
func TestCallsOf1xBecomeCNIRequests(t *testing.T) {
	key := attach.Key{Container: "c1", IfName: "eth1"}
	const netns = "/var/run/mesos/isolators/network/cni/c1/ns"
	prefix := netip.MustParsePrefix("10.1.1.1/24")
	done := attach.Result{IfName: "eth1", Netns: netns, Addresses: []attach.Address{{Prefix: prefix, Gateway: netip.MustParseAddr("10.1.1.254")}}}
	plain := attach.Request{Key: key, Netns: netns, Source: attach.SourceCNI, Config: server.TypeMesos}
	placed := plain
	placed.Tenant, placed.Network, placed.Group = "blue", "net1", "web"
	for _, tt := range []struct {
		name, method, path, body string
		err                      error
		status                   int
		asked                    any
		says                     string
	}{
		{"add, defaults", "POST", PathAdd, named + "}", nil, 200, plain, `"ip": "10.1.1.1/24"`},
		{
			"add, placed", "POST", PathAdd, named + `,"labels":{"io.contiv.tenant":"blue","io.contiv.network":"net1","io.contiv.net-group":"web"}}`,
			nil, 200, placed, `"gateway": "10.1.1.254"`,
		},
		{"add, refused", "POST", PathAdd, named + "}", model.Errorf(model.ErrNotFound, "group web does not exist"), 500, plain, "group web does not exist"},
		{"add, a label that nobody knows", "POST", PathAdd, named + `,"labels":{"io.contiv.group":"web"}}`, nil, 500, nil, "io.contiv.group"},
		{"add without a namespace", "POST", PathAdd, `{"cni_ifname":"eth0","cni_containerid":"c1"}`, nil, 500, nil, "cni_netns must not be empty"},
		{"add, nonsense", "POST", PathAdd, `[`, nil, 500, nil, "decode request"},
		{"add, a field that is misspelt", "POST", PathAdd, named + `,"label":{"io.contiv.net-group":"web"}}`, nil, 500, nil, `field \"label\": there is no such field`},
		{"add, twice", "POST", PathAdd, named + `}` + named + `}`, nil, 500, nil, "must end after the JSON object"},
		{"del, a query", "POST", PathDel + "?dryRun=true", named + "}", nil, 500, nil, `query parameter \"dryRun\" is not known`},
		{"add, too long", "POST", PathAdd, named + `,"labels":{"a":"` + strings.Repeat("x", maxRequest) + `"}}`, nil, 500, nil, "must be at most"},
		{"del", "POST", PathDel, named + "}", nil, 200, attach.DetachRequest{Key: key, Netns: netns}, ""},
		{"del of what has no namespace any more", "POST", PathDel, `{"cni_ifname":"eth1","cni_containerid":"c1"}`, nil, 200, attach.DetachRequest{Key: key}, ""},
		{"del, not done", "POST", PathDel, named + "}", model.Errorf(model.ErrUnavailable, "the disk is full"), 500, attach.DetachRequest{Key: key, Netns: netns}, "the disk is full"},
		{"another method", "GET", PathAdd, "", nil, 503, nil, "is not served here"},
		{"another path", "POST", "/", "", nil, 503, nil, "is not served here"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &service{res: done, err: tt.err}
			status, body := post(t, s, tt.method, tt.path, tt.body)
			if status != tt.status || !strings.Contains(body, tt.says) || tt.says == "" && body != "" {
				t.Errorf("%d %s; want %d, %q", status, body, tt.status, tt.says)
			}
			if diff := cmp.Diff(tt.asked, s.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			switch {
			case status == http.StatusOK && body != "":
				if res, err := create.Create(Version, []byte(body)); err != nil || res.Version() != Version {
					t.Errorf("not a result of %s: %v %s", Version, err, body)
				}
			case status != http.StatusOK:
				for _, want := range []string{`"code": 2`, `"cniVersion": "0.2.0"`, `"msg": "`} {
					if !strings.Contains(body, want) {
						t.Errorf("the error object lacks %s: %s", want, body)
					}
				}
			}
		})
	}
}

// FuzzCall: whatever is posted, it is answered.
func FuzzCall(f *testing.F) {
	f.Add(named + `,"labels":{"io.contiv.tenant":"blue"}}`)
	f.Add(`{"labels":{"":""}}`)
	f.Fuzz(func(t *testing.T, body string) {
		if status, answer := post(t, &service{}, "POST", PathAdd, body); status != 200 && status != 500 || answer == "" {
			t.Errorf("%d %q", status, answer)
		}
	})
}
