package apiserver

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// bench is the API over an in-memory store, without a network between.
type bench struct {
	b testing.TB
	h http.Handler
}

func newBench(b testing.TB) *bench {
	b.Helper()
	ctrl := control.New(memory.New(), control.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ctrl.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Errorf("control: %v", err)
		}
	})
	h, err := New(Config{Control: ctrl, Cluster: testCluster{ctrl}, Mode: "test", Log: slog.New(slog.DiscardHandler), Timeout: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	return &bench{b, h}
}

// sink counts an answer and when its first byte came.
type sink struct {
	header http.Header
	status int
	bytes  int
	writes int
	first  time.Time
}

func (s *sink) Header() http.Header { return s.header }

func (s *sink) WriteHeader(status int) { s.status = status }

func (s *sink) Write(p []byte) (int, error) {
	if s.first.IsZero() {
		s.first = time.Now()
	}
	s.bytes += len(p)
	s.writes++
	return len(p), nil
}

func (b *bench) do(method, path, body string) *sink {
	b.b.Helper()
	req := httptest.NewRequestWithContext(b.b.Context(), method, path, io.NopCloser(strings.NewReader(body)))
	req.Host = "127.0.0.1" // other names are refused unless they are configured
	s := &sink{header: http.Header{}, status: 200}
	b.h.ServeHTTP(s, req)
	if s.status != 200 {
		b.b.Fatalf("%s %s %s: %d", method, path, body, s.status)
	}
	return s
}

func (b *bench) rule(i int) {
	b.b.Helper()
	b.do("POST", fmt.Sprintf("/api/v1/rules/default:p:%d/", i),
		fmt.Sprintf(`{"tenantName":"default","policyName":"p","ruleId":"%d","direction":"in","action":"allow","protocol":"tcp","port":%d,"fromEndpointGroup":"g"}`, i, 1+i%65535))
}

// BenchmarkAddRule adds rules to a policy, attached to a group and naming one,
// that has some already: 1.x took 9 ms for the first and 42 ms for the 1,000th.
func BenchmarkAddRule(b *testing.B) {
	for _, present := range []int{0, 1000, 5000, 10000} {
		b.Run(fmt.Sprintf("present=%d", present), func(b *testing.B) {
			s := newBench(b)
			s.do("POST", "/api/v1/networks/default:n/", `{"tenantName":"default","networkName":"n","encap":"vxlan","subnet":"10.0.0.0/16"}`)
			s.do("POST", "/api/v1/policys/default:p/", `{"tenantName":"default","policyName":"p"}`)
			s.do("POST", "/api/v1/endpointGroups/default:g/", `{"tenantName":"default","groupName":"g","networkName":"n","policies":["p"]}`)
			for i := range present {
				s.rule(i)
			}
			b.ResetTimer()
			for i := range b.N {
				s.rule(present + i)
			}
		})
	}
}

// BenchmarkList answers lists of 10,000 objects.
func BenchmarkList(b *testing.B) {
	const many = 10000
	s := newBench(b)
	s.do("POST", "/api/v1/globals/global/", `{"name":"global","vxlans":"1-100000"}`)
	s.do("POST", "/api/v1/policys/default:p/", `{"tenantName":"default","policyName":"p"}`)
	for i := range many {
		s.do("POST", fmt.Sprintf("/api/v1/networks/default:n%d/", i),
			fmt.Sprintf(`{"tenantName":"default","networkName":"n%d","encap":"vxlan","subnet":"10.%d.%d.0/24"}`, i, i/256, i%256))
		s.do("POST", fmt.Sprintf("/api/v1/endpointGroups/default:g%d/", i), fmt.Sprintf(`{"tenantName":"default","groupName":"g%d","networkName":"n%d","policies":["p"]}`, i, i))
		s.do("POST", fmt.Sprintf("/api/v1/netprofiles/default:np%d/", i), fmt.Sprintf(`{"tenantName":"default","profileName":"np%d","bandwidth":"10mbps"}`, i))
		s.do("POST", fmt.Sprintf("/api/v1/rules/default:p:%d/", i), fmt.Sprintf(`{"tenantName":"default","policyName":"p","ruleId":"%d","direction":"in","action":"allow"}`, i))
	}
	for _, name := range []string{"networks", "endpointGroups", "rules", "netprofiles"} {
		b.Run(name, func(b *testing.B) {
			var first time.Duration
			size := 0
			for b.Loop() {
				begin := time.Now()
				got := s.do("GET", "/api/v1/"+name+"/", "")
				first += got.first.Sub(begin)
				size = got.bytes
				if got.writes < 2 {
					b.Fatal("the list was sent in one piece")
				}
			}
			b.ReportMetric(float64(first.Microseconds())/float64(b.N)/1000, "ms-to-first-byte")
			b.ReportMetric(float64(size)/1e6, "MB")
		})
	}
}

// BenchmarkListChanged answers the list of 10,000 tenants, each of which has
// got a net profile since the last one: no list that was kept helps.
func BenchmarkListChanged(b *testing.B) {
	const many = 10000
	s := newBench(b)
	for i := range many {
		s.do("POST", fmt.Sprintf("/api/v1/tenants/t%d/", i), fmt.Sprintf(`{"tenantName":"t%d"}`, i))
	}
	for round := 1; b.Loop(); round++ {
		b.StopTimer()
		for i := range many {
			s.do("POST", fmt.Sprintf("/api/v1/netprofiles/t%d:np/", i), fmt.Sprintf(`{"tenantName":"t%d","profileName":"np","bandwidth":"%d mbps"}`, i, round))
		}
		b.StartTimer()
		s.do("GET", "/api/v1/tenants/", "")
	}
}

// BenchmarkDryRun tries a list of n objects of the common kinds: on a store that
// has none of them, and on one that has them all.
func BenchmarkDryRun(b *testing.B) {
	for _, n := range []int{2_000, 20_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s := newBench(b)
			s.do("POST", "/api/v1/globals/global/", `{"name":"global","vxlans":"1-100000"}`)
			list := manyObjects(n)
			try := func(b *testing.B, body string) {
				b.Helper()
				runtime.GC() // the waste of the preparation is not the subject
				b.ReportAllocs()
				begin := stats.ProcessorTime(syscall.RUSAGE_SELF)
				for b.Loop() {
					s.do("POST", "/api/v1/apply", body)
				}
				b.ReportMetric(float64((stats.ProcessorTime(syscall.RUSAGE_SELF)-begin).Milliseconds())/float64(b.N), "cpu-ms/op")
			}
			dry := `{"dryRun":true,"objects":[` + list + `]}`
			b.Run("new", func(b *testing.B) { try(b, dry) })
			s.do("POST", "/api/v1/apply", `{"objects":[`+list+`]}`)
			b.Run("present", func(b *testing.B) { try(b, dry) })
		})
	}
}

// manyObjects is a list of n objects, equally of policies, rules, networks, groups and endpoints.
func manyObjects(n int) string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	for i := range n / 5 {
		add(`{"kind":"policy","tenantName":"default","policyName":"p%d"}`, i)
		add(`{"kind":"rule","tenantName":"default","policyName":"p%d","ruleId":"1","direction":"in","action":"allow","protocol":"tcp","port":80,"fromEndpointGroup":"g%d"}`, i, i)
		add(`{"kind":"network","tenantName":"default","networkName":"n%d","encap":"vxlan","subnet":"10.%d.%d.0/24"}`, i, i/256, i%256)
		add(`{"kind":"endpointGroup","tenantName":"default","groupName":"g%d","networkName":"n%d","policies":["p%d"]}`, i, i, i)
		add(`{"kind":"endpoint","TenantName":"default","NetworkName":"n%d","ServiceName":"g%d","EndpointID":"e%d","ConfigEP":{"Container":"c%d","Host":"h1"}}`, i, i, i, i)
	}
	return strings.Join(list, ",")
}

// policyOf is the body of a network policy with n rules of one port each.
func policyOf(n int, action string) string {
	rules := make([]string, n)
	for i := range rules {
		rules[i] = fmt.Sprintf(`{"ruleId":"r%d","direction":"in","priority":%d,"action":%q,"peers":[{"cidr":"10.%d.%d.%d"}],"ports":[{"protocol":"tcp","ports":"%d"}]}`,
			i, 1+i%100, action, i>>16, i>>8&255, i&255, 1+i)
	}
	return `{"tenantName":"default","networkPolicyName":"big","rules":[` + strings.Join(rules, ",") + `]}`
}

// BenchmarkPutPolicy replaces all rules of a network policy.
func BenchmarkPutPolicy(b *testing.B) {
	for _, n := range []int{1000, 5000, 20000} {
		b.Run(fmt.Sprint("rules=", n), func(b *testing.B) {
			x := newBench(b)
			bodies := []string{policyOf(n, "allow"), policyOf(n, "deny")}
			for i := 0; b.Loop(); i++ {
				x.do(http.MethodPut, "/api/v1/networkPolicys/default:big/", bodies[i%2])
			}
		})
	}
}
