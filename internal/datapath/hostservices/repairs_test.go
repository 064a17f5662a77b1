package hostservices

import (
	"errors"
	"maps"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/contiv/netplugin/v2/internal/model"
)

// repaired counts repairs by what was repaired.
type repaired map[string]int

func (r repaired) Entries(table string, n int) {
	if n > 0 {
		r[table] += n
	}
}
func (r repaired) Program(name string) { r[name]++ }

func TestDamageIsMendedByALook(t *testing.T) {
	r := newRig(t)
	r.serve("tcp", "10.1.1.1:8080", "10.1.1.2:8080")
	at := place(model.ProtoTCP, "10.96.0.10:80")
	r.s.Set(at, frontend("10.1.1.1:8080"))
	r.apply(false)
	f := r.s.frontends.have[toPlaceKey(at)]
	added := frontendEntry{Number: f.Number + 1}
	wrong := target{IP: toAddr(netip.MustParseAddr("10.1.1.2")), Port: 8080}
	if err := errors.Join(r.s.of.Maps["targets"].Put(targetKey{f.Number, f.Version, 0}, wrong), r.s.of.Maps["frontends"].Put(toPlaceKey(place(model.ProtoTCP, "10.96.0.11:80")), added)); err != nil {
		t.Fatal(err)
	}
	r.wantAnswers("tcp", "10.96.0.10:80", "10.1.1.2:8080")
	r.apply(true)
	r.wantAnswers("tcp", "10.96.0.10:80", "10.1.1.1:8080")
	if len(r.s.frontends.have) != 1 || len(r.s.targets.have) != 1 {
		t.Errorf("the maps have %v, %v", r.s.frontends.have, r.s.targets.have)
	}
	if want := (repaired{"targets": 1, "frontends": 1}); !maps.Equal(r.repaired, want) {
		t.Errorf("counted are %v, want %v", r.repaired, want)
	}
	clear(r.repaired)
	pinned := func(name string) link.Link {
		t.Helper()
		l, err := link.LoadPinnedLink(filepath.Join(r.cfg.Pins, "link-"+name), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	foreign := r.cfg
	foreign.Pins += "-foreign"
	other, err := Open(foreign)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(other.Close(), Remove(foreign.Pins)); err != nil {
			t.Error(err)
		}
	}()
	if err := errors.Join(
		r.s.of.Maps["members"].Delete(toMember(f.Number, netip.MustParseAddrPort("10.1.1.1:8080"))),
		pinned("connect4").Detach(), pinned("bind6").Unpin(), pinned("sendmsg4").Update(other.of.Programs["sendmsg4"]),
	); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second look finds nothing
		r.apply(true)
		if want := (repaired{"members": 1, "connect4": 1, "bind6": 1, "sendmsg4": 1}); !maps.Equal(r.repaired, want) {
			t.Errorf("counted are %v, want %v", r.repaired, want)
		}
	}
	r.wantAnswers("tcp", "10.96.0.10:80", "10.1.1.1:8080")
}
