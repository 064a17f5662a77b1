package attachment

import (
	"errors"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
)

// containerCheckTimeout bounds how long one look into containers takes; the next look goes on where
// it has ended.
const containerCheckTimeout = 50 * time.Millisecond

// containerChanges is what containers have changed of their interfaces, of which the host's side
// shows nothing.
type containerChanges struct {
	mu      sync.Mutex
	changed map[attach.Key]string
	next    int // where in the journal the next look begins
}

// compare compares the interfaces of finished attachments with what they were given.
func (i *containerChanges) compare(j *journal) {
	all, begun := j.all(), time.Now()
	found := map[attach.Key]string{}
	i.mu.Lock()
	for _, e := range all {
		if text := i.changed[e.Key()]; text != "" {
			found[e.Key()] = text
		}
	}
	next := i.next
	i.mu.Unlock()
	for range all {
		if time.Since(begun) > containerCheckTimeout {
			break
		}
		e := all[next%len(all)]
		next = next%len(all) + 1
		delete(found, e.Key())
		if e.State != StateDone || e.Request.Netns == "" || e.Request.Parked { // what the runtime has made of it is its own affair
			continue
		}
		err := vethpair.Verify(expectation(e, e.Request.Netns))
		if now, ok := j.get(e.Key()); !ok || now.State != StateDone {
			continue // it is being detached
		}
		if errors.Is(err, model.ErrNotFound) || errors.Is(err, model.ErrConflict) {
			found[e.Key()] = err.Error()
		}
	}
	i.mu.Lock()
	i.changed, i.next = found, next
	i.mu.Unlock()
}

// difference says how the container's interface differs from what it was given; "" = it does not, or
// nothing has been compared yet.
func (i *containerChanges) difference(k attach.Key) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.changed[k]
}
