package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// A second interface of a container is refused where its network's subnet is one that the
// container has by the first, in whatever tenant; nothing is left of it.
func TestSecondInterfaceNeedsAnotherSubnet(t *testing.T) {
	b := newBed(t)
	b.ready()
	s := newSandbox(t)
	if _, err := b.client().Attach(t.Context(), request("c1", s)); err != nil {
		t.Fatal(err)
	}
	second := request("c1", s)
	second.IfName = "eth1"
	_, err := b.client().Attach(t.Context(), second)
	if !errors.Is(err, model.ErrConflict) || !strings.Contains(err.Error(), `network "blue:net1" has the subnet 10.1.1.0/24, and interface "eth0" of this container is in 10.1.1.0/24 already`) {
		t.Errorf("error %v", err)
	}
	if eps := b.endpoints(); len(eps) != 1 {
		t.Errorf("endpoints %+v", eps)
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: attach.Key{Container: "c1", IfName: "eth0"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client().Attach(t.Context(), second); err != nil {
		t.Errorf("once the first is gone: %v", err)
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: second.Key}); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft()
}
