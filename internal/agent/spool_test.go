package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/attach"
)

// TestSpool: a deletion that was spooled while netplugin was down is done at
// its start, and one spooled later is settled by the next Attach.
func TestSpool(t *testing.T) {
	b := newBed(t)
	b.ready()
	s := newSandbox(t)
	r := request("c1", s)
	if _, err := b.client().Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	b.stop()
	if err := b.cfg.spool().Put(attach.DetachRequest{Key: r.Key}); err != nil {
		t.Fatal(err)
	}
	b.fake = b.fake.Restart()
	b.start()
	b.nothingLeft()
	b.ready()
	if _, err := b.client().Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := b.cfg.spool().Put(attach.DetachRequest{Key: r.Key}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client().Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if b.cfg.spool().Has(r.Key) {
		t.Error("the spooled deletion is still there and would end the new attachment")
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft()
}

// TestSpoolDoesNotHoldUp: with many spooled deletions and a netmaster that does
// not answer, containers' runtimes are answered at once after a start, and what
// is owed is paid when netmaster is back.
func TestSpoolDoesNotHoldUp(t *testing.T) {
	b := newBed(t)
	b.ready()
	var keys []attach.Key
	for i := range 30 {
		r := request(fmt.Sprintf("c%d", i), newSandbox(t))
		if _, err := b.client().Attach(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, r.Key)
	}
	b.stop()
	for _, k := range keys {
		if err := b.cfg.spool().Put(attach.DetachRequest{Key: k}); err != nil {
			t.Fatal(err)
		}
	}
	silent := make(chan struct{})
	b.master.silent.Store(&silent)
	b.fake = b.fake.Restart()
	start := time.Now()
	b.start()
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: attach.Key{Container: "other", IfName: "eth0"}}); err != nil {
		t.Errorf("Detach: %v", err)
	}
	// One by one they would take 3 s each.
	if took := time.Since(start); took > 10*detachMaster {
		t.Errorf("the socket has answered after %s", took)
	}
	b.master.silent.Store(nil)
	close(silent)
	b.nothingLeft()
	if list, err := b.cfg.spool().List(); err != nil || len(list) > 0 {
		t.Errorf("spool: %v, %v", list, err)
	}
}
