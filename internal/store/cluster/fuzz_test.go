package cluster

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// FuzzServices: whatever stands in the registry, it is passed over or an instance that
// says the same when it is written again, whose key is one word below its service's,
// and whose URL can be asked or is refused.
func FuzzServices(f *testing.F) {
	for _, s := range []string{
		`{"ServiceName":"netplugin","Hostname":"h1","HostAddr":"10.0.0.1","Port":9002}`,
		`{"ServiceName":"netmaster","Role":"leader","HostAddr":"fd00::1","Port":9999,"Scheme":"https","TTL":10}`,
		`{"ServiceName":"a/b","HostAddr":"x/../y","Port":-1,"Scheme":"ftp"}`, `{"servicename":7}`, `{}`, `null`, `[`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		s, ok := decodeService(store.KV{Value: value, Create: 1})
		agent, isAgent := DecodeAgent(store.KV{Value: value, Create: 1})
		if isAgent != (ok && s.ServiceName == ServiceAgent) || agent != s {
			t.Errorf("%q is the agent %+v, %v, and the service %+v, %v", value, agent, isAgent, s, ok)
		}
		if !ok {
			return
		}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if again, ok := decodeService(store.KV{Value: b, Create: 1}); !ok || again != s {
			t.Errorf("%q is %+v, again %+v", value, s, again)
		}
		below, ok := strings.CutPrefix(servicesOf(s.ServiceName), servicesPrefix)
		if name, known := store.ParseSegment(strings.TrimSuffix(below, "/")); !ok || !known || name != s.ServiceName || !strings.HasPrefix(s.key(), servicesOf(s.ServiceName)) {
			t.Errorf("%q: service %q is kept at %q", value, s.ServiceName, s.key())
		}
		text, err := s.URL()
		if err != nil {
			if !errors.Is(err, model.ErrInvalid) {
				t.Errorf("%q: %v is not a refusal", value, err)
			}
			return
		}
		if u, err := url.Parse(text); err == nil && u.Scheme != "http" && u.Scheme != "https" {
			t.Errorf("%q is asked at %q", value, text)
		}
	})
}
