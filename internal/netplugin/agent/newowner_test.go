package agent

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestHostLearnsThatAnAddressMoved: a host without netmaster keeps its containers as they are. When it learns
// that one of their addresses has got another owner meanwhile, elsewhere, its other
// containers reach that one. The former owner is cut off and reported, and its end takes
// nothing from the newer one.
func TestHostLearnsThatAnAddressMoved(t *testing.T) {
	b := newBed(t)
	defer http.DefaultClient.CloseIdleConnections()
	b.ready()
	host, far := b.far("")
	r, s := request("c1", newSandbox(t)), request("c2", newSandbox(t))
	former, err := b.client().Attach(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	beside, err := b.client().Attach(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	newer := b.endpoints()[slices.IndexFunc(b.endpoints(), func(e model.Endpoint) bool { return e.MAC == former.MAC })]
	was := newer.Key
	newer.Key.ID, newer.Host, newer.Container = "newer", far.Host, "elsewhere"
	send := func(from, to attach.Result) reference.Verdict {
		return b.fake.Send(reference.Packet{
			Port: from.HostIf, SrcMAC: from.MAC, DstMAC: to.MAC, Src: from.Addresses[0].Prefix.Addr(), Dst: to.Addresses[0].Prefix.Addr(),
			Proto: model.ProtoTCP, SrcPort: 40000, DstPort: 80, TCPFlags: reference.FlagSYN,
		})
	}
	b.agentS.Unavailable(true)
	b.agentS.DropWatches()
	b.put(func(tx store.Tx) error { // as netmaster gives a pod's address to the next one of its name
		tables.Endpoints.Delete(tx, was)
		return tables.Endpoints.Put(tx, newer)
	})
	b.eventually("the host is silent", func() error {
		if b.client().Ready(t.Context()) == nil {
			return errors.New("it says that it is ready")
		}
		return nil
	})
	if v := send(beside, former); !slices.Equal(v.Ports, []string{former.HostIf}) {
		t.Errorf("while the host is silent: %s", v)
	}
	b.agentS.Unavailable(false)
	b.eventually("the newer has the address", func() error {
		if v := send(beside, former); len(v.Ports) > 0 || len(v.VTEPs) != 1 || v.VTEPs[0] != host.VTEP {
			return fmt.Errorf("%s", v)
		}
		return nil
	})
	if v := send(former, beside); v.Passed() {
		t.Errorf("the former owner sends on: %s", v)
	}
	b.says(http.StatusServiceUnavailable, "attachments")
	for _, k := range []attach.Key{r.Key, s.Key} {
		if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: k}); err != nil {
			t.Error(err)
		}
	}
	b.says(http.StatusOK)
	if _, err := b.st.Update(t.Context(), func(tx store.Tx) error {
		_, err := tables.Endpoints.Get(tx, newer.Key)
		return err
	}); err != nil {
		t.Errorf("the newer's endpoint: %v", err)
	}
}
