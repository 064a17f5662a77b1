package cluster

import (
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// TestRoleIsOwed: a role that could not be written, since the store was away,
// is in the registry soon after the store is back, not only with the next lease.
func TestRoleIsOwed(t *testing.T) {
	st := memory.New()
	mine := st.Client()
	r, err := Register(t.Context(), mine, Service{ServiceName: "x", Role: "leader", HostAddr: "10.0.0.1", Port: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	mine.Unavailable(true)
	if err := r.SetRole(t.Context(), "follower"); err == nil {
		t.Fatal("the role was written to a store that is away")
	}
	mine.Unavailable(false)
	for range int(ServiceTTL / time.Second) {
		<-time.After(time.Second)
		list, err := Services(t.Context(), st, "x")
		if err != nil || len(list) != 1 {
			t.Fatalf("%v, %v", list, err)
		}
		if list[0].Role == "follower" {
			return
		}
	}
	t.Fatal("the registry still shows the former role")
}

// TestServiceURL: records of 1.x and of versions with http only have no scheme; an unknown
// scheme of a later version is passed on, not guessed.
func TestServiceURL(t *testing.T) {
	for record, want := range map[string]string{
		`{"ServiceName":"netmaster","HostAddr":"10.0.0.1","Port":9999}`:                   "http://10.0.0.1:9999",
		`{"ServiceName":"netmaster","HostAddr":"10.0.0.1","Port":9999,"Scheme":"http"}`:   "http://10.0.0.1:9999",
		`{"ServiceName":"netmaster","HostAddr":"fd00::1","Port":9999,"Scheme":"https"}`:   "https://[fd00::1]:9999",
		`{"ServiceName":"netmaster","HostAddr":"10.0.0.1","Port":9999,"Scheme":"gopher"}`: "",
	} {
		s, ok := decodeService(store.KV{Value: []byte(record), Mod: 1})
		got, err := s.URL()
		if !ok || got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %q, %v", record, got, err)
		}
	}
}
