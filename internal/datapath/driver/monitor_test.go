package driver

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestFlowQueueTellsWhatIsLost: of events that a slow reader had no room for, it
// hears within a second of having read, also when none comes after them.
func TestFlowQueueTellsWhatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewFlowQueue()
		const sent = 3000
		for range sent {
			q.Send(FlowEvent{Kind: FlowDrop, Count: 1})
		}
		<-time.After(9500 * time.Millisecond) // by the bubble's clock: there is no reader, and the queue's own clock does not strike meanwhile
		told := 0
		for len(q.Events()) > 0 {
			<-q.Events()
			told++
		}
		select {
		case e := <-q.Events():
			if e.Kind != FlowLost || int(e.Count)+told != sent {
				t.Errorf("%d told of %d, then %+v", told, sent, e)
			}
		case <-time.After(2 * time.Second):
			t.Errorf("%d told of %d, nothing of the rest", told, sent)
		}
		for range flowQueue + 1 { // lost again, without a reader
			q.Send(FlowEvent{})
		}
		q.Close()
		<-time.After(10 * time.Second) // a clock that still ran would keep the bubble from ending
	})
}
