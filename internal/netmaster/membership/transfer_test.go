package membership

import "testing"

// TestLeadershipIsTransferred: who leads the store has another member lead it before it ends; one that
// does not lead, or is alone, changes nothing.
func TestLeadershipIsTransferred(t *testing.T) {
	t.Parallel()
	a := start(t, config(t, 132, "a"))
	a.TransferLeadership(t.Context())
	if e := a.Etcd(); e.Leader() != e.MemberID() {
		t.Fatal("a member that is alone does not lead")
	}
	cfg := config(t, 133, "b")
	cfg.Token, _ = tokenOf(t, a)
	b := start(t, cfg)
	want := b.Etcd().MemberID()
	b.TransferLeadership(t.Context())
	if a.Etcd().Leader() == want {
		t.Fatal("who leads has handed it over by itself")
	}
	a.TransferLeadership(t.Context())
	if is := a.Etcd().Leader(); is != want {
		t.Errorf("%s leads, want %s", is, want)
	}
}
