package docker

import "testing"

func TestDeadlockedEngineIsNoticed(t *testing.T) {
	const (
		leaving = "goroutine 71 [semacquire]:\nsync.runtime_SemacquireMutex(0x1)\ngithub.com/docker/libnetwork.(*network).getSvcRecords(0x2)\n\tnetwork.go:1488"
		asking  = "goroutine 33 [sync.Mutex.Lock, 2 minutes]:\ngithub.com/docker/libnetwork.(*network).ID(0x2)\ngithub.com/docker/libnetwork.(*controller).processEndpointDelete(0x3)"
		working = "goroutine 71 [runnable]:\ngithub.com/docker/libnetwork.(*network).getSvcRecords(0x2)"
	)
	for _, c := range []struct {
		stacks string
		want   bool
	}{
		{"", false},
		{leaving, false},
		{asking, false},
		{working + "\n\n" + asking, false},
		{asking + "\n\n" + "goroutine 1 [chan receive]:\nmain.main()" + "\n\n" + leaving, true},
	} {
		if got := Deadlocked(c.stacks); got != c.want {
			t.Errorf("Deadlocked(%q) = %v", c.stacks, got)
		}
	}
}
