package ovs

import (
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/client"
	dbmodel "github.com/ovn-kubernetes/libovsdb/model"
)

// TestCloseAfterALostDisconnect: a connection can be closed, twice too, though the library's
// notice of its end has got lost.
func TestCloseAfterALostDisconnect(t *testing.T) {
	m, err := dbmodel.NewClientDBModel("Open_vSwitch", map[string]dbmodel.Model{"Open_vSwitch": &rootRow{}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewOVSDBClient(m)
	if err != nil {
		t.Fatal(err)
	}
	d := &database{c: c, lost: make(chan struct{}), closed: make(chan struct{})}
	d.listen(make(chan struct{}))
	done := make(chan struct{})
	go func() {
		d.close()
		d.close()
		close(done)
	}()
	for _, ch := range []chan struct{}{done, d.lost} {
		select {
		case <-ch:
		case <-time.After(10 * time.Second):
			t.Fatal("the connection does not end")
		}
	}
}
