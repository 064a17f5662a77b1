package membership

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestNoMemberRecoversBesideAMajority: no cluster of one is made of a member while the others
// write, since these would end; once they do not, it is.
func TestNoMemberRecoversBesideAMajority(t *testing.T) {
	a := start(t, config(t, 134, "a"))
	bCfg := config(t, 135, "b")
	bCfg.Token, _ = tokenOf(t, a)
	b := start(t, bCfg)
	cfg := config(t, 136, "c")
	cfg.Token, _ = tokenOf(t, a)
	c := start(t, cfg)
	closed(t, c)
	cfg.Token, cfg.Addresses = "", nil

	_, err := Recover(t.Context(), cfg)
	is(t, "a recovery while two of three write", err, model.ErrConflict, "a ("+a.cfg.EnrollmentAddress+")", "b ("+bCfg.EnrollmentAddress+")", "has its majority", "start netmaster here as before")
	if all, err := a.Roster.List(t.Context()); err != nil || len(all) != 3 {
		t.Errorf("members afterwards: %+v, %v", all, err)
	}
	closed(t, a)
	until(t, "b alone has a leader still", func() bool { return b.Health.Status().Leader == 0 })
	r, err := Recover(t.Context(), cfg)
	if err != nil || len(r.Lost) != 2 {
		t.Errorf("a recovery of one of three: %+v, %v", r, err)
	}
}
