package ovs

import (
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
)

// env is what all parts share: configuration, repairs and events.
type env struct {
	cfg      Config
	drift    driver.Drift
	events   chan driver.Event
	fault    func() error  // tests only: asked before every write
	patience time.Duration // switchPatience, but in tests
}

// notify tells the owner; when it does not listen, the events that wait are enough.
func (e *env) notify(reason string) {
	select {
	case e.events <- driver.Event{Reason: reason}:
	default:
	}
}
